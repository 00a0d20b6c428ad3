"""Import dead letters of another system: preview, then take them by the chunk."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, LiteralString, NamedTuple, TypeVar

import msgspec
import psycopg
from psycopg.types.json import Jsonb

from redrive.database.rows import Connection, column
from redrive.dead_letters.imports import document as rules
from redrive.dead_letters.imports.document import Imported
from redrive.encryption import HIDDEN, Whose, configured

T = TypeVar("T")

CHUNK = 500
"""Dead letters that one transaction imports, under one line of the audit log."""

REFUSALS = ("RD001", "22", "23514", "54")
"""How the SQLSTATE begins if a row is at fault: its data, a check, or a limit."""

_KNOWN: LiteralString = """
    select i.source_id from redrive.imports i
    where i.source = %s and i.source_id = any (%s::text[])"""
_IMPORT: LiteralString = "select n, id from redrive.import_v1(%s, %s::jsonb, %s, %s)"


class Group(NamedTuple):
    """Fields that similar dead letters have in common."""

    fingerprint: str
    kind: str
    error_class: str


@dataclass(slots=True)
class Preview:
    """Preview of an import.

    Attributes:
        matched: number of dead letters read.
        known: number of dead letters that were imported before.
        kinds: number of each kind.
        groups: number of each group, with dead letters imported before.
        messages: one message of each group.
    """

    matched: int = 0
    known: int = 0
    kinds: Counter[str] = field(default_factory=Counter[str])
    groups: Counter[Group] = field(default_factory=Counter[Group])
    messages: dict[Group, str] = field(default_factory=dict[Group, str])

    def add(self, conn: Connection, source: str, chunk: Sequence[Imported]) -> None:
        """Add a chunk to the preview."""
        ids = [letter.source_id for letter in chunk]
        before = known(conn, source, ids)
        self.matched += len(chunk)
        self.known += sum(source_id in before for source_id in ids)

        for letter in chunk:
            self._count(letter)

    def _count(self, letter: Imported) -> None:
        kind = letter.job["kind"]
        failure = letter.failure
        group = Group(
            fingerprint=failure.fingerprint, kind=kind, error_class=failure.error_class
        )
        self.kinds[kind] += 1
        self.groups[group] += 1
        self.messages.setdefault(group, failure.message)


def known(conn: Connection, source: str, ids: Sequence[str | None]) -> set[str]:
    """Return the ids that were imported before."""
    return set(column(conn, _KNOWN, source, ids))


class Reader:
    """Reads dead letters of one source, and gives each a repeatable id."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._alike = Counter[str]()

    def read(self, fields: Mapping[str, Any]) -> Imported:
        """Check one dead letter.

        If it has no id in its system, it gets one from its content and the number of
        equal ones before it.

        Raises:
            InvalidJob: a field is wrong.
        """
        letter = rules.read(fields, self._source)
        if letter.source_id is not None:
            return letter

        content = digest(fields)
        self._alike[content] += 1

        return replace(letter, source_id=f"{content}-{self._alike[content]}")


def digest(fields: Mapping[str, Any]) -> str:
    """Return a digest of the fields; if there are keys, a secret one."""
    keyring = configured()
    if keyring is not None:
        return keyring.digest(fields)

    text = msgspec.json.encode(fields, order="sorted")
    return hashlib.sha256(text).hexdigest()


def take(  # noqa: PLR0913 # what a line of the audit log needs, and how it counts
    conn: Connection,
    source: str,
    chunk: Sequence[Imported],
    *,
    why: str,
    actor: str,
    is_live: bool = False,
) -> int:
    """Import all of a chunk or none of it; return how many are new.

    Args:
        is_live: the source is watched, so recent deaths count as added and may alert.
    """
    shown = [_row(letter) | {"is_live": is_live} for letter in chunk]
    rows = msgspec.json.encode(shown).decode()

    with conn.transaction():
        new = conn.execute(_IMPORT, (source, rows, actor, why)).fetchall()
        ids: list[int] = []
        records: list[Jsonb] = []

        for place, job in new:
            # import_v1 counts the rows from 1.
            letter = chunk[int(place) - 1]
            ids.append(job)
            records.append(Jsonb(_record(letter, job)))

        # A failure is sealed with the id of its job, which only the import gives.
        conn.execute(_IMPORT_FAILURES, (ids, records))

    return len(new)


def take_apart(
    rows: Sequence[T],
    write: Callable[[Sequence[T]], None],
    set_aside: Callable[[T, Exception], None],
) -> None:
    """Write rows in one call. If one of them is refused, write each half by itself.

    So one bad row does not stop the others.

    Args:
        write: writes all of its rows or none.
        set_aside: gets each row that is refused, and the error.

    Raises:
        psycopg.Error: the database is away, or refuses everything.
    """
    try:
        write(rows)
    except (LookupError, TypeError, ValueError, psycopg.Error) as error:
        if not _is_refused(error):
            raise
        if len(rows) == 1:
            set_aside(rows[0], error)
            return

        middle = len(rows) // 2
        for half in (rows[:middle], rows[middle:]):
            take_apart(half, write, set_aside)


def _is_refused(error: Exception) -> bool:
    """Return True if a row is at fault, and not the database or the login."""
    if isinstance(error, psycopg.Error):
        return (error.sqlstate or "").startswith(REFUSALS)
    # Only the values of a row raise the other errors.
    return True


_IMPORT_FAILURES: LiteralString = (
    "select redrive.import_failures_v1(%s::bigint[], %s::jsonb[])"
)


def _row(letter: Imported) -> dict[str, Any]:
    """Return a dead letter as import_v1 takes it, encrypted if there are keys."""
    job = letter.job
    failure = letter.failure
    columns = ("kind", "queue", "tenant", "idempotency_key")

    return {
        **{name: job[name] for name in columns},
        **_sealed(job),
        "source_id": letter.source_id,
        "reason": letter.reason,
        "category": failure.category,
        "error_class": failure.error_class,
        # With keys, the message is only in the failure, which is encrypted.
        "message": failure.message if configured() is None else HIDDEN,
        "fingerprint": failure.fingerprint,
        "attempts": letter.attempts,
        "died_at": letter.died_at,
        "created_at": letter.created_at,
    }


def _sealed(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the payload and the headers as they are stored."""
    payload = job["payload"]
    headers = msgspec.Raw(job["headers"])
    keyring = configured()
    if keyring is None:
        return {"payload": msgspec.Raw(payload), "headers": headers}

    plain = payload.encode()
    envelope, salt = keyring.seal_payload(plain, Whose.of(job))
    return {"payload": envelope, "headers": msgspec.json.decode(headers) | salt}


def _record(letter: Imported, job: int) -> dict[str, Any]:
    """Return its cause of death as import_failures_v1 takes it."""
    record = letter.failure.record()
    keyring = configured()
    if keyring is not None:
        record = keyring.seal_failure(record, job, letter.attempts)

    return {"message": record["message"], "detail": record["detail"]}
