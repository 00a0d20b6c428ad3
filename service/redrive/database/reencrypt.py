"""Seal what is stored with the first key of the keyring, whatever it is sealed with now, if at all.

Safe while everything runs: a row is changed only if it still holds what was read and nobody has it
locked. It can be stopped and started again: what is sealed with the first key already is not looked
at.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, LiteralString

import msgspec
import psycopg
from psycopg.rows import dict_row

from redrive.encryption import MARK, SEALED, Keyring, Undecryptable, is_sealed

Connection = psycopg.Connection[Any]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

CHUNK = 500
"""Jobs whose rows of one table are looked at and changed at once."""

PLACES: dict[str, tuple[LiteralString, LiteralString, LiteralString, LiteralString]] = {
    "dead_letters": ("id", "redrives", "payload", "kind, headers, payload::text as old"),
    "jobs": ("id", "0", "payload", "kind, headers, payload::text as old"),
    "failures": ("job", "deliveries", "detail", "message, detail::text as old"),
    "side_effects": (
        "job",
        "deliveries",
        "detail",
        "jsonb_build_object('what', what, 'detail', detail)::text as old",
    ),
}
"""Table -> the columns of the job and of the row in it, what is sealed, and what is read of it."""

TABLES: dict[str, LiteralString] = {
    "dead_letters": "redrive.dead_letters",
    "jobs": "redrive.jobs",
    "failures": "redrive.failures",
    "side_effects": "redrive.side_effects",
}


@dataclass(slots=True)
class Report:
    """Rows. `skipped` had changed or were locked; `unreadable`: no key at hand opens them."""

    rewritten: int = 0
    skipped: int = 0
    unreadable: int = 0
    left: dict[str | None, dict[str, int]] = field(default_factory=dict[str | None, dict[str, int]])


def count(conn: Connection) -> dict[str | None, dict[str, int]]:
    """Rows by the key they are sealed with (None: in clear) and by table."""
    found: dict[str | None, dict[str, int]] = {}
    for place, (_, _, column, _) in PLACES.items():
        rows = conn.execute(
            "select "
            + column
            + " -> '$redrive' ->> 'k', count(*) from "
            + TABLES[place]
            + " group by 1"
        )
        for key, n in rows:
            found.setdefault(key, dict.fromkeys(PLACES, 0))[place] = n
    return found


def reencrypt(
    conn: Connection,
    keyring: Keyring,
    *,
    rate: float | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Report:
    """Seal everything with the first key.

    Args:
        rate: rows per second at most; None = as fast as it goes.
        progress: told how many rows were looked at by each batch.
    """
    report = Report()
    for place in PLACES:
        last = 0
        while rows := _stale(conn, place, keyring.ids[0], last):
            began = time.monotonic()
            last = rows[-1]["id"]
            _rewrite(conn, keyring, place, rows, report)
            progress(len(rows))
            if rate is not None:
                time.sleep(max(0.0, len(rows) / rate - (time.monotonic() - began)))
    conn.execute("select redrive.hide_messages_v1()")
    report.left = count(conn)
    return report


def _stale(conn: Connection, place: str, key: str, last: int) -> list[dict[str, Any]]:
    """Rows of the next jobs that are not sealed with the key, by job."""
    job, n, column, read = PLACES[place]
    table = TABLES[place]
    stale: LiteralString = " (" + column + " -> '$redrive' ->> 'k') is distinct from %s"
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(
            "select "
            + job
            + " as id, "
            + n
            + " as n, "
            + read
            + " from "
            + table
            + " where "
            + stale
            + " and "
            + job
            + " in (select distinct "
            + job
            + " from "
            + table
            + " where "
            + job
            + " > %s and"
            + stale
            + " order by 1 limit %s) order by 1",
            (key, last, key, CHUNK),
        ).fetchall()


def _rewrite(
    conn: Connection, keyring: Keyring, place: str, rows: Sequence[dict[str, Any]], report: Report
) -> None:
    """Change one batch, in one transaction."""
    changes: list[tuple[dict[str, Any], str, str | None]] = []
    for row in rows:
        try:
            new, salt = _sealed(keyring, place, row)
        except Undecryptable:
            report.unreadable += 1
        else:
            changes.append((row, _encode(new).decode(), salt))
    found = conn.execute(
        "select redrive.reencrypt_v1(%s, %s::bigint[], %s::int[], %s::jsonb[], %s::jsonb[], %s::text[])",
        (
            place,
            [row["id"] for row, _, _ in changes],
            [row["n"] for row, _, _ in changes],
            [row["old"] for row, _, _ in changes],
            [new for _, new, _ in changes],
            [salt for _, _, salt in changes],
        ),
    ).fetchone()
    rewritten = int(found[0]) if found else 0
    report.rewritten += rewritten
    report.skipped += len(changes) - rewritten


def _sealed(keyring: Keyring, place: str, row: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """What takes the place of a row's value, and the header a payload gets that was in clear."""
    job = row["id"]
    if place in {"jobs", "dead_letters"}:
        if row["old"].startswith(SEALED):
            return keyring.seal_again(
                _decode(row["old"]), "payload", row["kind"], str(row["headers"].get(MARK))
            ), None
        envelope, salt = keyring.seal_payload(row["old"].encode(), row["kind"])
        return envelope, salt[MARK]
    old = _decode(row["old"])
    if place == "failures":
        if is_sealed(old):
            return keyring.seal_again(old, "failure", str(job)), None
        return keyring.seal_failure({"message": row["message"], "detail": old}, job)["detail"], None
    if is_sealed(old["detail"]):
        return keyring.seal_again(old["detail"], "side effect", str(job)), None
    return keyring.seal_side_effect(old["what"], old["detail"], job)[1], None
