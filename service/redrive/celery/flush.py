"""Send the records of a spool to Postgres: once, or in a thread of Celery's worker."""

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, LiteralString, NamedTuple

import msgspec
import psycopg

from redrive.celery.database import Connect
from redrive.celery.records import PREFIX, SOURCE, Record, decode, read_letter
from redrive.celery.spool import Spool
from redrive.database.rows import rows
from redrive.dead_letters.imports.store import CHUNK, take, take_apart
from redrive.dead_letters.triage import dismiss
from redrive.enqueue import enqueue_many
from redrive.errors import InvalidJob, RedriveError
from redrive.handlers.hand_over import token_of

logger = logging.getLogger("redrive.celery")

WHY = "a task failed for good"
LATE = "the task was sent again, and its success was reported late"
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds between two looks at the spool; the pause doubles while Postgres is away."""

LAST_SECONDS = 10.0
"""How long the end of a worker waits for the last records to be sent."""

REPEAT_SECONDS = 60.0
"""A trouble that lasts is logged this often."""


class Filed(NamedTuple):
    """A record and its file."""

    path: Path
    record: Record


def flush(spool: Spool, connect: Connect) -> int:
    """Send all records, and return how many were sent.

    A record that was sent before changes nothing. So it does not matter if this is
    killed before the file is deleted.

    Raises:
        psycopg.Error: the database is away, or refuses everything.
    """
    with spool.turn() as is_ours:
        paths = spool.waiting() if is_ours else []
        if not paths:
            return 0

        spool.tidy()
        with connect() as conn:
            return sum(_send(conn, spool, found) for found in _chunks(spool, paths))


def _chunks(spool: Spool, paths: Sequence[Path]) -> Iterator[list[Filed]]:
    """Yield the records of some files at a time."""
    for at in range(0, len(paths), CHUNK):
        yield _read(spool, paths[at : at + CHUNK])


def _read(spool: Spool, paths: Sequence[Path]) -> list[Filed]:
    found: list[Filed] = []
    for path in paths:
        try:
            found.append(Filed(path, decode(path.read_bytes())))
        except FileNotFoundError:
            # A program that cleans up may have deleted it.
            continue
        except msgspec.DecodeError as error:
            _set_aside(spool, path, error)

    return found


def _send(conn: Any, spool: Spool, found: Sequence[Filed]) -> int:
    """Send records together, and set aside each one that is refused."""
    sent: list[Filed] = []

    def write(records: Sequence[Filed]) -> None:
        _write(conn, [one.record for one in records])
        spool.remove(one.path for one in records)
        sent.extend(records)

    def set_aside(one: Filed, error: Exception) -> None:
        _set_aside(spool, one.path, error)

    take_apart(found, write, set_aside)
    return len(sent)


def _write(conn: Any, records: Sequence[Record]) -> None:
    letters = [read_letter(record) for record in records if record.letter]
    if letters:
        take(conn, SOURCE, letters, why=WHY, actor=SOURCE, is_live=True)

    outcomes: list[Any] = [record.outcome for record in records if record.outcome]
    if outcomes:
        enqueue_many(conn, outcomes)
        _dismiss_late(conn, outcomes)


def _dismiss_late(conn: Any, outcomes: Sequence[Mapping[str, Any]]) -> None:
    """Dismiss dead letters whose task succeeded after the time for a verdict."""
    ends = [outcome["payload"] for outcome in outcomes]
    late = _late(conn, [end for end in ends if end["outcome"] == "succeeded"])
    if late:
        dismiss(conn, sorted(late), actor=SOURCE, why=LATE)


def _late(conn: Any, succeeded: Sequence[Mapping[str, Any]]) -> set[int]:
    """Return the open dead letters of tasks that have succeeded."""
    jobs = [end["job"] for end in succeeded]
    sends = [end["send"] for end in succeeded]

    # Who can write to the broker can forge a mark, but does not know the token.
    tokens = {(end["job"], end["token"]) for end in succeeded}
    late: set[int] = set()

    for row in rows(conn, _OPEN, jobs, sends, f"{PREFIX}%"):
        job = row["id"]
        if (job, token_of(job, row)) in tokens:
            late.add(job)

    return late


_OPEN: LiteralString = """
    select d.id, c.deliveries, c.data
    from unnest(%s::bigint[], %s::int[]) v(job, send)
    join redrive.dead_letters d on d.id = v.job and d.redrives = v.send
    join redrive.checkpoints c on c.job = d.id
    where d.state = 'open' and d.redrives > 0 and d.kind like %s"""
"""Dead letters that are open although their task was sent, with their checkpoints."""


def _set_aside(spool: Spool, path: Path, error: Exception) -> None:
    spool.set_aside(path)
    rule = f"{error.path}: {error.rule}" if isinstance(error, InvalidJob) else ""
    logger.error(
        "record %s cannot be stored and is set aside: %s",
        path.stem,
        rule or type(error).__name__,
    )


class Sender:
    """Thread that sends the records of a spool as soon as there are any.

    It holds no connection while the spool is empty.
    """

    def __init__(self, spool: Spool, connect: Connect) -> None:
        self._spool = spool
        self._connect = connect
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._warned_at = 0.0

    def start(self) -> None:
        """Start the thread, once."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="redrive-celery", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Send what is left, and end the thread."""
        if self._thread is not None:
            self._end.set()
            self._thread.join(LAST_SECONDS)
            self._thread = None

    def _run(self) -> None:
        pause = FIRST_PAUSE
        is_last = False

        while not is_last:
            # One more turn follows the end, for the last records.
            is_last = self._end.wait(pause)
            pause = FIRST_PAUSE if self._turn() else min(LONGEST_PAUSE, 2 * pause)

    def _turn(self) -> bool:
        """Send what is there; False if that failed."""
        try:
            if self._spool.waiting():
                flush(self._spool, self._connect)
        except Exception as error:  # noqa: BLE001 # this thread must outlive any trouble
            self._warn(error)
            return False

        return True

    def _warn(self, error: Exception) -> None:
        now = time.monotonic()
        if self._warned_at and now - self._warned_at < REPEAT_SECONDS:
            return

        self._warned_at = now
        logger.warning(
            "%d records wait in %s: %s",
            len(self._spool.waiting()),
            self._spool.directory,
            trouble(error),
        )


def trouble(error: Exception) -> str:
    """Return the text of a trouble, without values of rows."""
    match error:
        case psycopg.OperationalError(sqlstate=None):
            return f"the database cannot be reached: {str(error).strip().partition(chr(10))[0]}"

        case psycopg.Error():
            return (
                f"the database refused: {error.diag.message_primary} ({error.sqlstate})"
            )

        case RedriveError() | OSError():
            return str(error)
        case _:
            return type(error).__name__
