"""The ends of an attempt that no handler brings about: redrive.worker.run.attempt."""

import asyncio
import base64
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from redrive import Handlers, Policy
from redrive.encryption import Keyring, read_keys
from redrive.extras.targets.caller import register
from redrive.extras.targets.file import Target, Targets
from redrive.rules.attempts.settlement import DeadLetter, NotComplete, Release
from redrive.rules.model import Reason
from redrive.worker.protocol import Jobs, OpenBreakers, Work
from redrive.worker.run.attempt import Attempt
from redrive.worker.run.services import Services

EXPIRED = '{"expires_in": -1}'
NEWER = '{"headers": {"version": 2}}'


def walk(
    handlers: Handlers,
    kind: str,
    *,
    payload: str = "{}",
    extras: str | None = None,
    attempt: int = 1,
    deliveries: int | None = None,
    breakers: OpenBreakers | None = None,
    keyring: Keyring | None = None,
) -> NotComplete | None:
    """Take one job through an attempt, as a slot would."""

    async def run() -> NotComplete | None:
        services = Services(handlers, sent.append, {"pod": "p1"}, keyring)
        if breakers is not None:
            services.dependencies.learn(breakers)
        work = Work(17, deliveries or attempt, attempt, kind, payload, extras, 1)
        task = asyncio.current_task()
        assert task is not None
        batch = Jobs(7, ["default"], [work])
        one = Attempt(services, batch, work, time.monotonic_ns())
        one.task = task
        settlement = await one.run()
        services.close()
        return settlement

    sent: list[Any] = []
    return asyncio.run(run())


@pytest.fixture
def started() -> list[str]:
    return []


@pytest.fixture
def handlers(started: list[str]) -> Handlers:
    jobs = Handlers()

    async def told(payload: dict[str, Any]) -> None:
        started.append("on_expired")

    @jobs.handle(
        "mail", policy=Policy(max_attempts=2), depends_on=["smtp"], on_expired=told
    )
    async def mail(payload: dict[str, Any]) -> None:
        started.append("mail")

    @jobs.handle("plain")
    async def plain(payload: dict[str, Any]) -> None:
        started.append("plain")

    return jobs


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        ({"kind": "mail", "extras": EXPIRED}, Reason.EXPIRED),
        ({"kind": "nobody.knows.it", "extras": EXPIRED}, Reason.EXPIRED),
        ({"kind": "mail", "attempt": 3}, Reason.ATTEMPTS_EXHAUSTED),
        (
            {"kind": "mail", "payload": '{"$redrive": {"k": "k1"}}'},
            Reason.UNDECRYPTABLE,
        ),
        ({"kind": "mail", "payload": "["}, Reason.INVALID_PAYLOAD),
        (
            {"kind": "mail", "extras": '{"headers": {"a": 1e999}}'},
            Reason.INVALID_PAYLOAD,
        ),
    ],
)
def test_a_job_that_must_not_start_dies_before_its_handler_runs(
    handlers: Handlers, started: list[str], job: dict[str, Any], reason: Reason
):
    settlement = walk(handlers, **job)

    assert isinstance(settlement, DeadLetter)
    assert settlement.reason is reason
    assert "mail" not in started


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ({"kind": "nobody.knows.it"}, "unknown_kind"),
        ({"kind": "mail", "extras": NEWER}, "newer_payload"),
    ],
)
def test_a_job_for_a_newer_runner_is_given_back(
    handlers: Handlers, started: list[str], job: dict[str, Any], why: str
):
    settlement = walk(handlers, **job)

    assert isinstance(settlement, Release)
    assert settlement.why == why
    assert 7 < settlement.delay < 23
    assert started == []


@pytest.mark.parametrize(
    "job", [{"kind": "nobody.knows.it"}, {"kind": "mail", "extras": NEWER}]
)
def test_it_is_offered_ever_more_rarely(handlers: Handlers, job: dict[str, Any]):
    """About as long as it has waited, and never much more than an hour."""
    delays = []
    for deliveries in (1, 2, 4, 9, 32):
        settlement = walk(handlers, **job, deliveries=deliveries)
        assert isinstance(settlement, Release)
        delays.append(settlement.delay)

    for delay, about in zip(delays, (15, 30, 120, 3600, 3600), strict=True):
        assert about / 2 <= delay <= about * 1.5


@pytest.mark.parametrize("version", [2, 999])
def test_a_version_that_never_comes_is_not_waited_for_for_ever(
    handlers: Handlers, started: list[str], version: int
):
    """Any producer could make a job that was given back without end."""
    extras = f'{{"headers": {{"version": {version}}}}}'
    last, end = (walk(handlers, "mail", extras=extras, deliveries=n) for n in (32, 33))

    assert isinstance(last, Release)
    assert isinstance(end, DeadLetter)
    assert (end.reason, end.refund) == (Reason.INVALID_PAYLOAD, True)
    assert f"has version {version}, the handler takes 1" in end.failure.message
    assert started == []


def test_the_hook_hears_of_an_expired_job_but_not_of_one_that_nobody_can_read(
    handlers: Handlers, started: list[str]
):
    walk(handlers, "mail", extras=EXPIRED)
    unread = walk(handlers, "mail", extras=EXPIRED, payload="[")

    assert started == ["on_expired"]
    assert isinstance(unread, DeadLetter)
    assert unread.reason is Reason.EXPIRED


def test_an_open_breaker_holds_up_its_own_jobs_alone_and_lets_one_probe_through(
    handlers: Handlers, started: list[str]
):
    smtp_is_open = OpenBreakers({"smtp": (time.monotonic() + 60, 5.0)}, {})
    probe = OpenBreakers(smtp_is_open.names, {"smtp": time.monotonic() + 30})

    put_off = walk(handlers, "mail", breakers=smtp_is_open)

    assert isinstance(put_off, Release)
    assert put_off.why == "breaker smtp"
    assert walk(handlers, "plain", breakers=smtp_is_open) is None
    assert walk(handlers, "mail", breakers=probe) is None
    assert started == ["plain", "mail"]


def _key(n: int) -> str:
    return base64.b64encode(bytes([n]) * 32).decode()


def _targets(home: Path, count: int) -> Targets:
    """Each with a signing key and a token of its own."""
    found: dict[str, Target] = {}
    for n in range(count):
        file = home / f"key-{n}"
        file.write_text(f"# ours\nwhsec_{_key(n)}\n")
        headers = {"Authorization": f"Bearer token-of-{n}", "X-Shop": "the-best-shop"}
        found[f"to.{n}"] = Target(
            url="http://shop.example",
            headers=headers,
            signing_key_file=file,
            max_attempts=1,
        )
    return Targets(allowed_hosts=["shop.example"], targets=found)


@pytest.mark.parametrize("count", [2, 33])
def test_what_a_runner_was_given_is_in_no_failure(tmp_path: Path, count: int):
    """Keys of payloads, signing keys and tokens of targets were quoted."""
    jobs = Handlers()
    keyring = Keyring(read_keys(f"new {_key(201)}\nold {_key(202)}", "X"))
    register(jobs, _targets(tmp_path, count), slots=1)
    said = [_key(201), _key(202).rstrip("="), _key(1), "token-of-1", "the-best-shop"]

    @jobs.handle("tell", policy=Policy(max_attempts=1))
    async def tell(payload: dict[str, Any]) -> None:
        raise RuntimeError(" / ".join(said))

    told, target = jobs.get("tell"), jobs.get("to.1")
    assert told is not None
    assert target is not None
    jobs.add(replace(told, kind="to.one", known=target.known))

    def hidden(kind: str) -> list[str]:
        settlement = walk(jobs, kind, keyring=keyring)
        assert isinstance(settlement, DeadLetter)
        return [text for text in said if text not in settlement.failure.message]

    assert hidden("to.one") == said[:4]
    assert hidden("tell") == said[: 4 if count == 2 else 2], (
        "66 are too many to seek in each"
    )
    assert _key(1) not in repr(target)
