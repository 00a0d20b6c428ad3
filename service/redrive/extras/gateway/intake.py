"""Intake: dead letters of a source are committed here, and then acknowledged there."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field

import psycopg

from redrive.database.connections.address import Address
from redrive.database.rows import Connection
from redrive.dead_letters.imports import store as imports
from redrive.dead_letters.imports.document import Imported
from redrive.errors import InvalidJob, SettingsError
from redrive.extras.gateway.batch import Batch, digest_of
from redrive.extras.gateway.connect import connect
from redrive.extras.gateway.file import AnySource
from redrive.extras.gateway.letters import LAST_FORM, letter_of
from redrive.extras.gateway.message import Message, Source

logger = logging.getLogger("redrive.extras.gateway")

FIRST_WAIT, LONGEST_WAIT = 0.5, 15.0
"""Seconds between two attempts to reach the broker and the database."""

LOOK_SECONDS = 15.0
"""How often to ask how many messages wait."""


@dataclass(slots=True)
class State:
    """State of an intake.

    `moved_at` is when a message was last taken in, or none waited: monotonic seconds.
    """

    errors: int = 0
    waiting: int | None = None
    moved_at: float = field(default_factory=time.monotonic)
    faults: dict[str, str] = field(default_factory=dict[str, str])


class Intake(threading.Thread):
    """Thread that takes in the dead letters of one source."""

    def __init__(
        self,
        kind: str,
        source: AnySource,
        database: Address,
        actor: str,
        stop: threading.Event,
    ) -> None:
        super().__init__(name=f"intake {kind}", daemon=True)
        self.kind = kind
        self.counts = Counter[str]()
        self.state = State()

        self._source = source
        self._database = database
        self._actor = actor
        self._stop_asked = stop

    def run(self) -> None:
        """Take in messages until told to stop; after an error, connect again."""
        wait = FIRST_WAIT
        while not self._stop_asked.is_set():
            taken_before = self.counts["taken"]
            try:
                self._take_until_error()
            except Exception as error:  # noqa: BLE001 # a client library may raise anything
                self._failed(error)

            # A connection that took in messages ends the row of failures.
            if self.counts["taken"] > taken_before:
                wait = FIRST_WAIT

            self._stop_asked.wait(wait)
            wait = min(2 * wait, LONGEST_WAIT)

    def _failed(self, error: Exception) -> None:
        self.state.errors += 1

        self.state.waiting = None  # Nobody knows, until the source says it again.

        part = "database" if isinstance(error, psycopg.Error) else "source"
        fault = str(error) if isinstance(error, SettingsError) else type(error).__name__
        if self.state.faults.get(part) == fault:
            return

        self.state.faults[part] = fault
        logger.warning(
            "the gateway connects again",
            extra={"source": self.kind, "part": part, "error": fault},
            exc_info=error,
        )

    def _take_until_error(self) -> None:
        with (
            self._database.connect("redrive gateway") as conn,
            closing(connect(self._source)) as source,
        ):
            self._take(conn, source)

    def _take(self, conn: Connection, source: Source) -> None:
        look_at, has_taken = 0.0, False
        while not self._stop_asked.is_set():
            if time.monotonic() >= look_at:
                self.state.waiting = source.waiting()
                look_at = time.monotonic() + LOOK_SECONDS

            messages = source.receive()
            if messages:
                self._take_batch(conn, source, messages)
            elif self.state.waiting and has_taken:
                look_at = 0.0  # All were taken, so the count is old.
            has_taken = bool(messages)
            if self.state.waiting == 0:
                self.state.moved_at = time.monotonic()

            self.state.faults.clear()

    def _take_batch(
        self,
        conn: Connection,
        source: Source,
        messages: Sequence[Message],
        form: int = 0,
    ) -> None:
        """Store and acknowledge messages.

        A message that the database refuses is tried in its other forms. If it refuses
        all of them, the message stays unacknowledged.
        """

        def store(some: Sequence[Message]) -> None:
            batch = Batch(self.kind, some, exact=self._source.exact, form=form)
            stored = batch.store(conn, self._actor)
            self.counts.update(batch.counts)

            if stored:
                self.state.moved_at = time.monotonic()

            # After the commit, because an acknowledged message is gone there.
            source.acknowledge(stored)

        def set_aside(message: Message, error: Exception) -> None:
            if form < LAST_FORM:
                self._take_batch(conn, source, [message], form + 1)
            else:
                self._refused(error)

        imports.take_apart(messages, store, set_aside)

    def _refused(self, error: Exception) -> None:
        self.counts["refused"] += 1
        code = error.sqlstate if isinstance(error, psycopg.Error) else None
        extra = {"source": self.kind, "error": type(error).__name__, "sqlstate": code}
        logger.warning("a message cannot be stored; it stays there", extra=extra)


def preview(
    conn: Connection, kind: str, source: AnySource, seen: imports.Preview
) -> int:
    """Add one batch of a source's messages to a preview; they stay there.

    Returns how many are too large to be taken in.
    """
    letters: list[Imported] = []
    with closing(connect(source)) as connected:
        messages = connected.receive()
        for message in messages:
            with suppress(InvalidJob):
                digest = digest_of(message)
                letters.append(letter_of(message, kind, digest, exact=source.exact))

        seen.add(conn, kind, letters)

    return len(messages) - len(letters)
