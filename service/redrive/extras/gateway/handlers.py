"""Handlers of a gateway: they send redriven messages back, and judge them.

If a message has not come back dead by the time of its verdict, its job succeeds.
"""

import logging
import os
import threading
import time
from pathlib import Path
from typing import Any, cast

from redrive.database.connections.address import Address
from redrive.errors import SettingsError
from redrive.extras.gateway import tally
from redrive.extras.gateway.connect import connect
from redrive.extras.gateway.file import VARIABLE, AnySource, load
from redrive.extras.gateway.letters import QUEUE, outgoing
from redrive.extras.gateway.marks import Mark
from redrive.extras.gateway.message import NotSent, Outgoing, Source
from redrive.extras.gateway.returns import repeated_failure
from redrive.handlers import Handlers
from redrive.handlers.hand_over import REFUSED, SENDING, HandOver, Sending
from redrive.handlers.job import Job
from redrive.idempotency import idempotent
from redrive.rules.attempts.failure import Reported
from redrive.rules.attempts.policy import Policy
from redrive.signals import GiveUp, Snooze

logger = logging.getLogger("redrive.extras.gateway")

BEHIND_SECONDS = 5.0
"""How long to wait if messages wait in the dead letter queue at the time of a verdict."""

POLICY = Policy(max_attempts=20, timeout=120)


NEW_CAUSE = (
    "the message came back to the dead letter queue, for another cause than before"
)


class CameBack(GiveUp):
    """The message came back to the dead letter queue, for another cause."""


class _Own(threading.local):
    """Connection of one thread to the source; it is opened when it is first used."""

    source: Source | None = None


class SendBack(HandOver):
    """Function of a source's handler."""

    def __init__(
        self, source: AnySource, database: Address, counts: tally.Tally
    ) -> None:
        self._source = source
        self._database = database
        self._counts = counts
        self._own = _Own()

    def source_of(self, job: Job) -> str:
        """Return the kind, which is also the name of its source."""
        return job.kind

    def send(
        self, payload: dict[str, Any], job: Job, sending: Sending
    ) -> dict[str, Any]:
        """Send the message; return the time of its verdict."""
        message = _message(payload, job, sending.token)
        # The attempt ends as snoozed, which does not close the breaker of the source.
        with job.dependency(job.kind):
            source = self._connected()
            if sending.may_repeat:
                logger.warning("job %d is sent again: a confirmation was lost", job.id)
                self._counts.add(tally.SENT_AGAIN, job.kind)

            # Before the send: the next attempt must know that the message may be out.
            sending.keep(SENDING)
            self._hand_over(source, message, sending)

        self._counts.add(tally.SENT, job.kind)
        return {"until": time.time() + self._source.verdict_seconds}

    def _hand_over(self, source: Source, message: Outgoing, sending: Sending) -> None:
        try:
            source.send(message)
        except NotSent as error:
            # The message is certainly not out, so another send repeats nothing.
            sending.keep(REFUSED)
            if not error.is_final:
                raise

            raise GiveUp(str(error)) from None
        except Exception:
            self._disconnect()
            raise

    def judge(self, job: Job, sent: dict[str, Any]) -> None:
        """Complete the job, unless its message has come back.

        The message may still wait in the dead letter queue, behind others.

        Raises:
            Snooze: it is too early for a verdict.
            Reported: the message came back, and its job has died of this cause before.
            CameBack: the message came back for another cause.
        """
        # After the clock was set back, `until` may be far away.
        left = min(float(sent["until"]) - time.time(), self._source.verdict_seconds)
        if left > 0:
            raise Snooze(left)

        with job.dependency(job.kind):
            waiting = self._connected().waiting()

        if waiting:
            raise Snooze(BEHIND_SECONDS)

        # The keys are made without the body and the token.
        mark = Mark(job=job.id, redrives=job.redrives, body="", token="")

        with self._database.connect("redrive gateway") as conn, conn.transaction():
            if idempotent(conn, mark.key):
                job.complete(conn)
                return

            failure = repeated_failure(conn, mark)
            # Either error rolls back, as `repeated_failure` requires.
            raise CameBack(NEW_CAUSE) if failure is None else Reported(failure)

    def _connected(self) -> Source:
        """Return the thread's connection to the source; open a new one if it was lost.

        Nothing was sent yet. So a broker that has restarted costs no attempt, and does
        not keep the breaker open until each thread has noticed it.
        """
        if self._own.source is not None:
            try:
                self._own.source.ping()
            except Exception:  # noqa: BLE001 # a client library may raise anything
                self._disconnect()

        if self._own.source is None:
            self._own.source = connect(self._source)

        return self._own.source

    def _disconnect(self) -> None:
        if self._own.source is not None:
            self._own.source.close()
            self._own.source = None


def _message(payload: dict[str, Any], job: Job, token: str) -> Outgoing:
    header: Any = job.headers.get("gateway")
    if not isinstance(header, dict):
        msg = "headers.gateway is missing, which says where the message died"
        raise GiveUp(msg)

    origin = cast("dict[str, Any]", header)
    try:
        return outgoing(
            payload, header=origin, job=job.id, redrives=job.redrives, token=token
        )
    except ValueError as error:
        raise GiveUp(str(error)) from None


def build(path: Path, database: Address, counts: tally.Tally) -> Handlers:
    """Return the handlers of a file of sources."""
    found = Handlers()
    for kind, source in load(path).items():
        send_back = SendBack(source, database, counts)

        # The default binds the source of this turn, not that of the last one.
        def run(payload: dict[str, Any], job: Job, call: SendBack = send_back) -> None:
            call(payload, job)

        found.handle(
            kind,
            queue=QUEUE,
            policy=POLICY,
            depends_on=[kind],
            redrive_rate=source.redrive_rate,
        )(run)

    return found


def _of_environment() -> Handlers:
    path = os.environ.get(VARIABLE)
    if not path:
        msg = f"{VARIABLE} is not set; it must name a file of sources"
        raise SettingsError(msg)

    url = os.environ.get("REDRIVE_DATABASE_URL", "")
    file = os.environ.get("REDRIVE_DATABASE_URL_FILE")

    # The URL comes before the file, as in the settings.
    address = Address(url, Path(file) if file and not url else None)

    directory = os.environ.get(tally.VARIABLE)
    counts = tally.Tally(Path(directory) if directory else None)

    return build(Path(path), address, counts)


handlers = _of_environment()
