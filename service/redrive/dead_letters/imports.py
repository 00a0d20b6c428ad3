"""Import dead letters of another system: preview, then take them by the chunk."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, LiteralString, NamedTuple

import msgspec
import psycopg
from psycopg.rows import scalar_row
from psycopg.types.json import Jsonb

from redrive.encryption import HIDDEN, Whose, configured
from redrive.rules.dead_letters import imported as rules
from redrive.rules.dead_letters.imported import Imported

Connection = psycopg.Connection[Any]

CHUNK = 500
"""Dead letters that one transaction imports, under one line of the audit log."""

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
        known: number of these that were imported before.
        kinds: number of each kind.
        groups: number of each group, including those imported before.
        messages: one message of each group.
    """

    matched: int = 0
    known: int = 0
    kinds: Counter[str] = field(default_factory=Counter[str])
    groups: Counter[Group] = field(default_factory=Counter[Group])
    messages: dict[Group, str] = field(default_factory=dict[Group, str])

    def add(self, conn: Connection, source: str, chunk: Sequence[Imported]) -> None:
        """Add a chunk to the preview."""
        self.matched += len(chunk)
        ids = [letter.source_id for letter in chunk]
        with conn.cursor(row_factory=scalar_row) as cursor:
            known = set(cursor.execute(_KNOWN, (source, ids)))
        self.known += sum(source_id in known for source_id in ids)
        for letter in chunk:
            kind, failure = letter.job["kind"], letter.failure
            group = Group(failure.fingerprint, kind, failure.error_class)
            self.kinds[kind] += 1
            self.groups[group] += 1
            self.messages.setdefault(group, failure.message)


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
        keyring = configured()
        told = msgspec.json.encode(fields, order="sorted")
        digest = keyring.digest(fields) if keyring else hashlib.sha256(told).hexdigest()
        self._alike[digest] += 1
        return replace(letter, source_id=f"{digest}-{self._alike[digest]}")


def take(
    conn: Connection, source: str, chunk: Sequence[Imported], *, why: str, actor: str
) -> int:
    """Import all of a chunk or none of it; return how many are new."""
    with conn.transaction():
        told = msgspec.json.encode([_told(letter) for letter in chunk]).decode()
        new = conn.execute(_IMPORT, (source, told, actor, why)).fetchall()
        conn.execute(
            "select redrive.import_failures_v1(%s::bigint[], %s::jsonb[])",
            (
                [id_ for _, id_ in new],
                [Jsonb(_record(chunk[int(n) - 1], id_)) for n, id_ in new],
            ),
        )
    return len(new)


def _told(letter: Imported) -> dict[str, Any]:
    """Return a dead letter as import_v1 takes it, encrypted if there are keys."""
    job, failure, keyring = letter.job, letter.failure, configured()
    payload, headers = msgspec.Raw(job["payload"]), msgspec.Raw(job["headers"])
    if keyring is not None:
        payload, salt = keyring.seal_payload(job["payload"].encode(), Whose.of(job))
        headers = msgspec.json.decode(headers) | salt
    return {
        **{name: job[name] for name in ("kind", "queue", "tenant", "idempotency_key")},
        "payload": payload,
        "headers": headers,
        "source_id": letter.source_id,
        "reason": letter.reason,
        "category": failure.category,
        "error_class": failure.error_class,
        "message": failure.message if keyring is None else HIDDEN,
        "fingerprint": failure.fingerprint,
        "attempts": letter.attempts,
        "died_at": letter.died_at,
        "created_at": letter.created_at,
    }


def _record(letter: Imported, job: int) -> dict[str, Any]:
    """Return its cause of death as import_failures_v1 takes it."""
    record, keyring = letter.failure.record(), configured()
    if keyring is not None:
        record = keyring.seal_failure(record, job, letter.attempts)
    return {"message": record["message"], "detail": record["detail"]}
