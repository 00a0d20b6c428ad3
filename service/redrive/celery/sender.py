"""Handlers that send dead letters back to Celery, and wait for the outcome there."""

import time
from collections.abc import Mapping
from typing import Any, cast

from msgspec.structs import asdict

from redrive.celery.arguments import Arguments, restored
from redrive.celery.database import Connect, connects_to
from redrive.celery.records import (
    CONTINUED,
    HEADER,
    KEPT,
    MARK,
    OUTCOME,
    PREFIX,
    SOURCE,
    Sent,
    kind_of,
    outcome_job,
    read_failure,
)
from redrive.database.connections.connect import OwnConnection
from redrive.enqueue import enqueue
from redrive.errors import InvalidJob
from redrive.handlers import Handler, Handlers, decode_object
from redrive.handlers.hand_over import SENDING, HandOver, Sending
from redrive.handlers.job import Job
from redrive.results import LIVE, Ended, wait
from redrive.rules.attempts.failure import Reported
from redrive.rules.attempts.policy import Policy
from redrive.signals import GiveUp, Seconds, Snooze, seconds

HOUR = 3_600.0
KEPT_SECONDS = 7 * 86_400.0
FIRST_LOOK, LAST_LOOK = 1.0, 60.0
"""Seconds until the next look for the outcome: half of the time since the send."""


def sender(app: Any, *, database_url: str, verdict_after: Seconds = HOUR) -> Handlers:
    """Return the registry that sends dead letters of `install` back to Celery.

    A job ends as its task ends. If the task fails for good again, the job is dead
    again. Include the registry in yours, or name it in REDRIVE_HANDLERS.

    Args:
        app: the Celery app. `install(app)` must run in its workers.
        database_url: a login that is a member of redrive_producer. Handlers do not see
            REDRIVE_DATABASE_URL, so give this the URL of another variable.
        verdict_after: how long to wait for the end of a task. After that, the job is
            dead again, because nobody knows.
    """
    jobs = Handlers()
    sends = _Send(app, connects_to(database_url), seconds(verdict_after))

    # The kind is a prefix, which `handle` does not take.
    jobs.add(
        Handler(
            kind=f"{PREFIX}*",
            function=sends,
            policy=Policy(timeout=120),
            queue="celery",
            depends_on=(),
            is_async=False,
            takes_job=True,
            read=decode_object,
        )
    )

    jobs.handle(OUTCOME, queue="celery", keep_result=KEPT_SECONDS, sample=False)(_keep)

    return jobs


def _keep(payload: dict[str, Any]) -> dict[str, Any]:
    """Keep an outcome as the result of its job, without the token of the send.

    Each login that may enqueue may read results.
    """
    return {name: value for name, value in payload.items() if name != "token"}


class _Send(HandOver):
    """Function of the handlers."""

    def __init__(self, app: Any, connect: Connect, verdict_after: float) -> None:
        self._app = app
        self._connect = connect
        self._verdict_after = verdict_after

    def source_of(self, job: Job) -> str:  # noqa: ARG002 # of the base
        """Return the source of all dead letters of Celery."""
        return SOURCE

    def send(
        self, payload: dict[str, Any], job: Job, sending: Sending
    ) -> dict[str, Any]:
        """Send the task; return the job that gets its outcome."""
        task = _stored(job)
        given = _arguments_of(payload)
        mark = Sent(job=job.id, send=job.redrives, queue=job.queue, token=sending.token)

        with self._connect() as conn:
            outcome = self._expect(conn, mark)

        stored = task.get("options", {})
        options = {name: stored[name] for name in KEPT if name in stored}
        # Before the send: the next attempt must know that the task may be out.
        sending.keep(SENDING)
        self._app.send_task(
            task["task"],
            *given,
            task_id=task["id"],
            headers={MARK: asdict(mark)},
            **_routing(task) | options,
        )

        return {"outcome": outcome, "at": time.time()}

    def _expect(self, conn: OwnConnection, mark: Sent) -> int:
        """Add the job that gets the outcome. It runs when it has one, or in the end.

        A report finds it by its whole mark, so a forged one does not.
        """
        payload = {"job": mark.job, "send": mark.send, "token": mark.token}
        fields = outcome_job(mark.queue, payload | {"outcome": None})
        return enqueue(conn, **fields, delay=self._verdict_after)

    def judge(self, job: Job, sent: dict[str, Any]) -> None:  # noqa: ARG002 # of the base
        """End the job as its task has ended, or put it off."""
        with self._connect() as conn:
            ended: Ended = wait(conn, sent["outcome"], timeout=0)

        if ended.outcome == LIVE:
            waited = time.time() - sent["at"]
            raise Snooze(min(LAST_LOOK, max(FIRST_LOOK, waited / 2)))

        match ended.result:
            case {"outcome": "succeeded"}:
                return
            case {"outcome": "failed", "failure": failure}:
                raise Reported(read_failure(failure, verdict="give_up"))

            case _:
                limit = f"{self._verdict_after:g} s"
                msg = f"the task was sent, and no end was reported in {limit}; it may still run"
                raise GiveUp(msg)


def _stored(job: Job) -> Mapping[str, Any]:
    """Return what the dead letter says of its task."""
    found = job.headers.get(HEADER)
    if not isinstance(found, dict):
        msg = f"headers.{HEADER} is missing, which says which task to send"
        raise GiveUp(msg)

    task = cast("dict[str, Any]", found)
    if kind_of(str(task.get("task"))) != job.kind:
        msg = f"headers.{HEADER} names a task of another kind than {job.kind}"
        raise GiveUp(msg)

    if "missing" in task:
        names = ", ".join(task["missing"] or CONTINUED)
        msg = (
            f"the task cannot be sent without its {names}, which were too large to keep"
        )
        raise GiveUp(msg)

    return task


def _arguments_of(payload: dict[str, Any]) -> Arguments:
    try:
        return restored(payload)
    except InvalidJob as error:
        raise GiveUp(str(error)) from None


def _routing(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return where the task came from, as Celery's own retry reads it."""
    found = {}
    if "priority" in task:
        found = {"priority": task["priority"]}

    exchange = task.get("exchange")
    key = task.get("routing_key")
    if exchange:
        return found | {"exchange": exchange, "routing_key": key}

    return found | ({"queue": key} if key else {})
