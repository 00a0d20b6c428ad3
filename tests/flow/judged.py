"""Handlers of the tests about failures: they lean on a dependency, leak secrets, and report what
they did.
"""

import os
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr

from redrive import Cancel, GiveUp, Handlers, Job, Policy, Retry
from redrive.idempotency import idempotent
from tests.flow.handlers import AT_ONCE, note

HOME = Path(os.environ.get("REDRIVE_TEST_HOME", "/nonexistent"))


def escalate(death: Any) -> None:
    with (HOME / "deaths").open("a") as file:
        file.write(f"{death.id} {death.reason} {death.message}\n")
    if death.kind == "die.hang":
        time.sleep(600)
    raise SystemExit("the pager is down too")


jobs = Handlers(on_dead=escalate)
jobs.breaker("mail", threshold=5, window=10, cooldown=0.4)
jobs.breaker("sms", threshold=2, window=10, cooldown=0.5)
OUTAGE = Policy(max_attempts=3, backoff=0.2, backoff_cap=0.5)


def call(name: str, job: Job) -> None:
    """Call a dependency; it is down, or does not answer, while a file says so."""
    down = (HOME / f"{name}-is-down").exists()
    note("down" if down else "up", job)
    while (HOME / f"{name}-hangs").exists():
        time.sleep(0.01)
    if down:
        time.sleep(0.005)
        raise ConnectionError(f"{name} is down")


@jobs.handle("mail.send", depends_on=["mail"], policy=OUTAGE)
def send(payload: dict[str, Any], job: Job) -> None:
    call("mail", job)


@jobs.handle("mail.kill", depends_on=["mail"], policy=OUTAGE)
def kill(payload: dict[str, Any], job: Job) -> None:
    call("mail", job)
    if not (HOME / "killed").exists():
        (HOME / "killed").touch()
        os.kill(os.getpid(), 9)


@jobs.handle("sms.send", policy=OUTAGE)
def text(payload: dict[str, Any], job: Job) -> None:
    with job.dependency("sms"):
        call("sms", job)


@jobs.handle("other.work")
def other(payload: dict[str, Any], job: Job) -> None:
    note("start", job)


# ---------------------------------------------------------------------- secrets


class Card(BaseModel):
    holder: str
    code: SecretStr
    nickname: str = ""


class Answer:
    status_code = 503
    headers = None


class Refused(Exception):
    response = Answer()


@jobs.handle("leak.typed", policy=Policy(max_attempts=2, **AT_ONCE))
def leak(payload: Card) -> None:
    shadow = payload.code.get_secret_value()
    try:
        raise KeyError(f"inner {shadow}")
    except KeyError as error:
        raise Refused(
            f"the provider said: card {shadow!r} is unknown;"
            f" Authorization: Bearer {payload.nickname}"
        ) from error


@jobs.handle("leak.declared", secret=["patient"], policy=Policy(max_attempts=1))
def leak_declared(payload: dict[str, Any], job: Job) -> None:
    job.side_effect(
        "told the provider", patient=payload["patient"], password=payload["password"]
    )
    raise ExceptionGroup(
        "two",
        [
            ValueError(payload["patient"]),
            OSError(f"login with {payload['password']} failed"),
        ],
    )


@jobs.handle("leak.signal", policy=Policy(max_attempts=1))
def leak_signal(payload: dict[str, Any]) -> None:
    said = f"the provider said {payload['note']}: pwd={os.environ['LEAK_TOKEN']}-x"
    raise {"give up": GiveUp, "retry": Retry, "cancel": Cancel}[payload["how"]](said)


@jobs.handle("leak.environment", policy=Policy(max_attempts=1))
def leak_environment(payload: dict[str, Any], job: Job) -> None:
    raise RuntimeError(
        f"{os.environ['LEAK_TOKEN']} and {job.headers['x-api-key']} are refused"
    )


# ---------------------------------------------------------------------- evidence


@jobs.handle("charge", policy=Policy(max_attempts=1))
def charge(payload: dict[str, Any], job: Job) -> None:
    job.side_effect("charge created", id=f"ch_{job.id}")
    raise RuntimeError("and then the power went")


def _upgrade_1(old: dict[str, Any]) -> dict[str, Any]:
    return {"amount": old["price"]}


def _upgrade_2(old: dict[str, Any]) -> dict[str, Any]:
    return {"cents": old["amount"] * 100}


@jobs.handle(
    "versioned",
    version=3,
    upgrade={1: _upgrade_1, 2: _upgrade_2},
    policy=Policy(max_attempts=1),
)
def versioned(payload: dict[str, Any], job: Job) -> None:
    (HOME / f"cents-{job.id}").write_text(str(payload["cents"]))


def expired(payload: dict[str, Any], job: Job) -> None:
    (HOME / f"expired-{job.id}").touch()
    raise KeyboardInterrupt


@jobs.handle(
    "die.late",
    on_expired=expired,
    policy=Policy(max_attempts=9, backoff=60, backoff_cap=60),
)
def late(payload: dict[str, Any], job: Job) -> None:
    note("start", job)


@jobs.handle("die.bug")
@jobs.handle("die.hang")
def bug(payload: dict[str, Any]) -> None:
    raise TypeError("a bug")


@jobs.handle("once", policy=Policy(max_attempts=3, **AT_ONCE))
def once(payload: dict[str, Any], job: Job) -> None:
    import psycopg

    note("start", job)
    with psycopg.connect(os.environ["REDRIVE_TEST_URL"]) as conn:
        if idempotent(conn, f"effect-{payload['n']}"):
            conn.execute(
                "insert into effects (job, delivery) values (%s, %s)",
                (job.id, job.deliveries),
            )
            if job.attempt == 1 and payload["n"] % 2:
                raise ConnectionError("before the commit")
    if job.attempt == 1:
        raise ConnectionError("after the commit")
