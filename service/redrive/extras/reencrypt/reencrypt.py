"""Seal all stored data with the first key of the keyring.

Data of other keys and unencrypted data are both sealed. This is safe while workers and
producers run: a row is changed only if it is not locked and is still as it was read.
The run can be stopped and started again. It skips rows that the first key has sealed.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import LiteralString, NamedTuple

import msgspec

from redrive.database.rows import Connection, value
from redrive.database.rows import rows as rows_of
from redrive.encryption import (
    MARK,
    SEALED,
    Keyring,
    Undecryptable,
    Whose,
    is_sealed,
    open_payload,
)
from redrive.rules.rows import Fields, Row

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

UNREAD = (AttributeError, KeyError, RecursionError, TypeError, ValueError)
"""Errors of reading a value of another shape than workers write."""

CHUNK = 500
"""Number of jobs whose rows of one table are read and changed together."""


class Sealed(NamedTuple):
    """Envelope, and the header for a payload that was not encrypted before."""

    envelope: Row
    salt: str | None = None


class Change(NamedTuple):
    """One row to change: its place, the JSON that was read, and its replacement."""

    job: int
    n: int
    old: str
    new: str
    salt: str | None


def _seal_payload(keyring: Keyring, row: Fields) -> Sealed:
    old = row["old"].encode()
    whose = Whose.of(row)
    if row["old"].startswith(SEALED):
        old = open_payload(keyring, row["old"], whose, row["headers"])

    envelope, header = keyring.seal_payload(old, whose)
    return Sealed(envelope, header[MARK])


def _seal(keyring: Keyring, row: Fields, what: str) -> Sealed:
    """Seal a failure, a side effect or a handler's note."""
    record = _decode(row["old"])
    held = record["detail"] if what == "side effect" else record
    of = {"job": row["id"], "delivery": row["n"]}
    if is_sealed(held):
        return Sealed(keyring.seal_again(held, what=what, **of))

    if what == "failure":
        known = {"message": row["message"], "detail": held}
        return Sealed(keyring.seal_failure(known, row["id"], row["n"])["detail"])
    if what == "side effect":
        return Sealed(keyring.seal_side_effect(record["what"], detail=held, **of)[1])
    return Sealed(keyring.seal_record(held, what=what, **of))


_PAYLOAD: LiteralString = (
    "kind, queue, tenant, idempotency_key, ordering_key, payload::text as old,"
    # The other headers may hold what Python cannot read.
    " case when headers ? '$redrive'"
    " then jsonb_build_object('$redrive', headers -> '$redrive') else '{}' end as headers"
)


@dataclass(frozen=True, slots=True)
class Place:
    """Table that holds sealed data.

    Args:
        job: column with the job's id.
        n: column that distinguishes the rows of one job.
        column: column that is sealed.
        read: columns to read; `old` is the value that the update compares.
        seal: function that seals the content of a row; raises Undecryptable.
        or_stale: SQL for further rows to seal again, besides rows without the first
            key.
    """

    table: LiteralString
    job: LiteralString = "job"
    n: LiteralString = "deliveries"
    column: LiteralString = "payload"
    read: LiteralString = _PAYLOAD
    seal: Callable[[Keyring, Fields], Sealed] = _seal_payload
    or_stale: LiteralString = "false"

    def is_stale(self) -> LiteralString:
        """Return SQL for whether a row must be sealed again with `key`."""
        key: LiteralString = f"{self.column} -> '$redrive' ->> 'k'"
        return f"(({key}) is distinct from %(key)s or {self.or_stale})"

    def select_stale(self) -> LiteralString:
        """Return SQL for the stale rows of `limit` jobs after `last`."""
        is_stale = self.is_stale()
        # The jobs are limited and not the rows, so that a batch has all rows of a job.
        return f"""
            select {self.job} as id, {self.n} as n, {self.read} from {self.table}
            where {is_stale} and {self.job} in (
                select distinct {self.job} from {self.table}
                where {self.job} > %(last)s and {is_stale} order by 1 limit %(limit)s)
            order by 1"""


# A record that was moved to another delivery is unreadable, and is reported as such.
_OF_ANOTHER_DELIVERY: LiteralString = (
    "detail -> '$redrive' -> 'd' is distinct from to_jsonb(deliveries)"
)
# A payload from before an edit is bound to the same data as its dead letter's payload.
_EDITS: LiteralString = """
    (select e.job, e.n, e.payload, jsonb_build_object('$redrive', e.salt) as headers,
            d.kind, d.queue, d.tenant, d.idempotency_key, d.ordering_key
     from redrive.edits e
     join redrive.dead_letters d on d.id = e.job and d.redrives = e.redrives) as edits"""
PLACES = {
    "dead_letters": Place("redrive.dead_letters", job="id", n="redrives"),
    "jobs": Place("redrive.jobs", job="id", n="0"),
    "failures": Place(
        "redrive.failures",
        column="detail",
        read="message, detail::text as old",
        seal=partial(_seal, what="failure"),
        or_stale=_OF_ANOTHER_DELIVERY,
    ),
    "side_effects": Place(
        "redrive.side_effects",
        column="detail",
        read="jsonb_build_object('what', what, 'detail', detail)::text as old",
        seal=partial(_seal, what="side effect"),
        or_stale=_OF_ANOTHER_DELIVERY,
    ),
    "history": Place("redrive.history", job="id"),
    "edits": Place(_EDITS, n="n"),
    "checkpoints": Place(
        "redrive.checkpoints",
        column="data",
        read="data::text as old",
        seal=partial(_seal, what="checkpoint"),
    ),
    "progress": Place(
        "redrive.progress",
        column="detail",
        read="detail::text as old",
        seal=partial(_seal, what="progress"),
    ),
    "results": Place(
        "(select * from redrive.results where result is not null) r",
        column="result",
        read="result::text as old",
        seal=partial(_seal, what="result"),
    ),
}


@dataclass(slots=True)
class Report:
    """Numbers of rows.

    `skipped`: changed meanwhile or locked. `unreadable`: table and job of each row that
    no key opens, or that cannot be read.
    """

    rewritten: int = 0
    skipped: int = 0
    unreadable: list[Row] = field(default_factory=list[Row])
    left: dict[str | None, dict[str, int]] = field(
        default_factory=dict[str | None, dict[str, int]]
    )


def count(conn: Connection) -> dict[str | None, dict[str, int]]:
    """Count rows by table and by the key that sealed them; None = not encrypted."""
    found: dict[str | None, dict[str, int]] = {}
    for name, place in PLACES.items():
        rows = conn.execute(
            f"select {place.column} -> '$redrive' ->> 'k', count(*) from {place.table} group by 1"
        )
        for key, n in rows:
            by_table = found.setdefault(key, dict.fromkeys(PLACES, 0))
            by_table[name] = n

    return found


def count_stale(conn: Connection, key: str) -> int:
    """Count the rows that must be sealed again with the key."""
    return sum(
        value(
            conn,
            f"select count(*) from {place.table} where {place.is_stale()}",
            key=key,
        )
        or 0
        for place in PLACES.values()
    )


def reencrypt(
    conn: Connection,
    keyring: Keyring,
    *,
    run: int | None = None,
    rate: float | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Report:
    """Seal everything with the first key.

    Args:
        run: line of the audit log that began the run; None = one line for each batch.
        rate: maximum rows per second; None = no limit.
        progress: called with the number of rows in each batch.
    """
    report = Report()
    for name, place in PLACES.items():
        for rows in _paced(_stale(conn, place, keyring.ids[0]), rate):
            changes = list(_changes(keyring, name, rows, report))
            changed = _rewrite(conn, run, name, changes) if changes else 0
            report.rewritten += changed
            report.skipped += len(changes) - changed
            progress(len(rows))

    # A group quotes the message of its first failure, which is sealed now.
    conn.execute("select redrive.hide_messages_v1()")
    report.left = count(conn)

    return report


def _paced(
    batches: Iterable[Sequence[Fields]], rate: float | None
) -> Iterator[Sequence[Fields]]:
    """Yield the batches, with a wait after each one that exceeded the rate."""
    for rows in batches:
        began = time.monotonic()
        yield rows
        if rate is not None:
            time.sleep(max(0.0, began + len(rows) / rate - time.monotonic()))


def _stale(conn: Connection, place: Place, key: str) -> Iterator[list[Row]]:
    """Yield the rows that the key has not sealed, in batches of CHUNK jobs."""
    query = place.select_stale()
    last = 0
    while found := rows_of(conn, query, key=key, last=last, limit=CHUNK):
        yield found
        last = found[-1]["id"]


def _rewrite(
    conn: Connection, run: int | None, name: str, changes: Sequence[Change]
) -> int:
    """Make the changes in one transaction. Return how many rows were changed."""
    return value(
        conn,
        "select redrive.reencrypt_v1("
        "%s, %s, %s::bigint[], %s::int[], %s::jsonb[], %s::jsonb[], %s::text[])",
        *(run, name, *map(list, zip(*changes, strict=True))),
    )


def _changes(
    keyring: Keyring, name: str, rows: Sequence[Fields], report: Report
) -> Iterator[Change]:
    """Yield a change for each row that a key opens; report the others as unreadable."""
    for row in rows:
        try:
            envelope, salt = PLACES[name].seal(keyring, row)
        except (Undecryptable, *UNREAD):
            report.unreadable.append({"table": name, "job": row["id"]})
        else:
            new = _encode(envelope).decode()
            yield Change(row["id"], row["n"], row["old"], new, salt)
