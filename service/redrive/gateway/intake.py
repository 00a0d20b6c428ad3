"""Intake: dead letters of a source are committed here, and then acknowledged there.

A message with an id is imported once. A message without one is known by its content. If
an equal one was imported before, and the broker says that it delivered this one before,
it may be a duplicate. It is imported and counted, because the other choice might lose it.
"""

import logging
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, LiteralString

import psycopg

from redrive.database.address import Address
from redrive.dead_letters import imports
from redrive.errors import InvalidJob, SettingsError
from redrive.gateway.connect import connect
from redrive.gateway.file import AnySource
from redrive.gateway.message import Counts, Mark, Message, Source, letter_of
from redrive.rules.dead_letters.imported import Imported

logger = logging.getLogger("redrive.gateway")

Connection = psycopg.Connection[Any]

WHY = "taken in by redrive gateway"
FIRST_WAIT, LONGEST_WAIT = 0.5, 15.0
"""Seconds between two attempts to reach the broker and the database."""

LOOK_SECONDS = 15.0
"""How often to ask how many messages wait."""

_RETURNED: LiteralString = """
    select redrive.first_time_v1(key) from unnest(%s::text[]) key order by key"""

_GENUINE: LiteralString = """
    select v.n::int
    from unnest(%s::bigint[], %s::text[]) with ordinality v(job, source_id, n)
    where exists (select from redrive.imports i
                  where i.source = %s and i.source_id = v.source_id and i.job = v.job)
       or exists (select from redrive.jobs j
                  where j.id = v.job and j.headers ->> 'source_id' = v.source_id)"""
"""Marks of jobs that were taken in. Any publisher may write others."""

_STANDING: LiteralString = """
    select v.n::int
    from unnest(%s::bigint[], %s::text[]) with ordinality v(job, source_id, n)
    where exists (select from redrive.imports i
                  where i.source = %s and i.source_id = v.source_id and i.job = v.job)
      and (exists (select from redrive.jobs j where j.id = v.job)
           or exists (select from redrive.dead_letters d
                      where d.id = v.job and d.state = 'open'))"""
"""Marks whose jobs are live or open dead letters."""


class _Overtaken(Exception):
    """Another gateway took in an equal message meanwhile, and perhaps not this one."""


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
        self.counts = Counts()
        self._source = source
        self._database = database
        self._actor = actor
        self._stop_asked = stop

    def run(self) -> None:
        """Take in messages until told to stop; after an error, connect again."""
        wait = FIRST_WAIT
        while not self._stop_asked.is_set():
            taken_before = self.counts.taken
            try:
                self._take_until_error()
            except Exception as error:  # noqa: BLE001 # a client library may raise anything
                self._failed(error)
            if self.counts.taken > taken_before:
                wait = FIRST_WAIT
            self._stop_asked.wait(wait)
            wait = min(2 * wait, LONGEST_WAIT)

    def _failed(self, error: Exception) -> None:
        self.counts.errors += 1
        part = "database" if isinstance(error, psycopg.Error) else "source"
        fault = str(error) if isinstance(error, SettingsError) else type(error).__name__
        if self.counts.faults.get(part) != fault:
            self.counts.faults[part] = fault
            extra = {"source": self.kind, "part": part, "error": fault}
            logger.warning("the gateway connects again", extra=extra, exc_info=error)

    def _take_until_error(self) -> None:
        with self._database.connect("redrive gateway") as conn:
            source = connect(self._source)
            try:
                self._take(conn, source)
            finally:
                source.close()

    def _take(self, conn: Connection, source: Source) -> None:
        looked = 0.0
        while not self._stop_asked.is_set():
            if time.monotonic() - looked > LOOK_SECONDS:
                self.counts.waiting = source.waiting()
                looked = time.monotonic()
            messages = source.receive()
            if self._take_batch(conn, source, messages) or self.counts.waiting == 0:
                self.counts.moved_at = time.monotonic()
            self.counts.faults.clear()

    def _take_batch(
        self, conn: Connection, source: Source, messages: Sequence[Message]
    ) -> bool:
        """Store and acknowledge messages; return True if there were any to store."""
        if not messages:
            return False
        found, done = self._committed(conn, messages)
        self._count(found)
        source.acknowledge(done)
        return bool(done)

    def _committed(
        self, conn: Connection, messages: Sequence[Message]
    ) -> tuple[Counts, Sequence[Message]]:
        """Store messages; do it again if another gateway took in equal ones."""
        while True:
            found = Counts()
            with suppress(_Overtaken), conn.transaction():
                return found, self._commit(conn, messages, found)

    def _commit(
        self, conn: Connection, messages: Sequence[Message], found: Counts
    ) -> Sequence[Message]:
        """Store messages; return all that may be acknowledged."""
        came_back = returns(conn, self.kind, messages)
        others = [m for n, m in enumerate(messages) if n not in came_back]
        digests = [digest_of(message) for message in others]
        before = imports.known(conn, self.kind, digests)
        letters = list(self._letters(others, digests, set(before), found))
        found.returned = len(came_back)
        if letters:
            new = [letter for letter, _ in letters]
            found.taken = imports.take(conn, self.kind, new, why=WHY, actor=self._actor)
            found.known = len(new) - found.taken
            if found.taken < len({letter.source_id for letter in new} - before):
                raise _Overtaken
        return [messages[n] for n in came_back] + [message for _, message in letters]

    def _count(self, found: Counts) -> None:
        for name in ("taken", "known", "returned", "possible_duplicates", "refused"):
            total = getattr(self.counts, name) + getattr(found, name)
            setattr(self.counts, name, total)

    def _letters(
        self,
        messages: Sequence[Message],
        digests: Sequence[str],
        known: set[str],
        found: Counts,
    ) -> Iterator[tuple[Imported, Message]]:
        """Yield each message with its dead letter; leave out messages that do not fit."""
        for message, digest in zip(messages, digests, strict=True):
            source_id, is_doubtful = identity(message, digest, is_known=digest in known)
            known.add(digest)
            letter = self._letter(message, source_id, is_doubtful=is_doubtful)
            if letter is None:
                found.refused += 1
                continue
            found.possible_duplicates += is_doubtful
            yield letter, message

    def _letter(
        self, message: Message, source_id: str, *, is_doubtful: bool
    ) -> Imported | None:
        """Return the dead letter of a message; None if it does not fit."""
        notes: dict[str, Any] = {"possible_duplicate": True} if is_doubtful else {}
        if message.mark:
            notes["came_back_from"] = message.mark.job
        is_exact = self._source.exact
        try:
            return letter_of(message, self.kind, source_id, exact=is_exact, **notes)
        except InvalidJob as error:
            extra = {"source": self.kind, "fault": error.path, "rule": error.rule}
            logger.warning("a message is too large; it stays there", extra=extra)
            return None


def digest_of(message: Message) -> str:
    """Return what identifies a message: its id, or a digest of all that is known of it."""
    if message.is_unique:
        return str(message.source_id)
    names = ("body", "origin", "headers", "death", "source_id", "mark")
    return imports.digest({name: getattr(message, name) for name in names})


def identity(message: Message, digest: str, *, is_known: bool) -> tuple[str, bool]:
    """Return the source id of a message, and True if it may be a duplicate.

    Args:
        is_known: a message with this digest was imported before.
    """
    if message.source_id is not None or not is_known:
        return digest, False
    return f"{digest[:40]}-{uuid.uuid4().hex}", message.may_be_known


def returns(conn: Connection, kind: str, messages: Sequence[Message]) -> set[int]:
    """Record the messages that came back dead; return the numbers of these.

    The key of a mark decides between this and the job's success: both take it, and the
    first one commits. Then a job that is live will fail, and one that has succeeded is
    gone, so that its message is imported like any other.
    """
    marked = [(n, message.mark) for n, message in enumerate(messages) if message.mark]
    genuine = _selected(conn, _GENUINE, kind, marked)
    conn.execute(_RETURNED, (sorted({mark.key for _, mark in genuine}),))
    return {n for n, _ in _selected(conn, _STANDING, kind, genuine)}


Marked = Sequence[tuple[int, Mark]]
"""Numbers of messages, and their marks."""


def _selected(
    conn: Connection, query: LiteralString, kind: str, marked: Marked
) -> Marked:
    """Return the marks that a query selects."""
    if not marked:
        return []
    jobs = [mark.job for _, mark in marked]
    ids = [mark.source_id for _, mark in marked]
    found = conn.execute(query, (jobs, ids, kind)).fetchall()
    return [marked[int(n) - 1] for (n,) in found]


def preview(
    conn: Connection, kind: str, source: AnySource, seen: imports.Preview
) -> None:
    """Add one batch of a source's messages to a preview; they stay there."""
    connected = connect(source)
    try:
        letters: list[Imported] = []
        for message in connected.receive():
            with suppress(InvalidJob):
                digest = digest_of(message)
                letters.append(letter_of(message, kind, digest, exact=source.exact))
        seen.add(conn, kind, letters)
    finally:
        connected.close()
