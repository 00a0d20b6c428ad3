"""Findings of redrive check about the server's health, and about work left behind.

The alerts have the same limits.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, LiteralString, NamedTuple

import msgspec

from redrive.database.rows import Connection, records, value
from redrive.database.transactions import oldest_transaction
from redrive.observability.snapshot import (
    Connections,
    FreezeAge,
    Health,
    Standby,
    Vacuumed,
)
from redrive.rules.brief import counted

USED_CONNECTIONS = 0.8
LONG_TRANSACTION_SECONDS = 1800.0
DEAD_ROWS, DEAD_THRESHOLDS = 100_000, 5
FREEZE_MARGIN = 300_000_000
STANDBY_SECONDS, STANDBY_BYTES = 300.0, 10e9
SLOT_BYTES, ACTIVE_SLOT_BYTES = 5e9, 20e9
USED_SEQUENCE = 0.75
USED_NAMES = 0.8
USED_DISK = 0.8
FORGOTTEN_SECONDS = 86_400.0
ABORTED_HEALS = 3

_READ: LiteralString = "select redrive.health_v1(null)::text"
_SESSIONS: LiteralString = "select * from redrive.sessions_v1(3)"
_NOT_VACUUMED: LiteralString = """
    select string_agg('redrive.' || c.relname, ', ' order by c.relname)
    from pg_class c cross join pg_options_to_table(c.reloptions) o
    where c.relnamespace = 'redrive'::regnamespace and c.relkind = 'r'
      and o.option_name = 'autovacuum_enabled' and not o.option_value::boolean"""


class Verdict(NamedTuple):
    """Result of one check.

    `text` describes the good state, or the fault and its remedy.
    """

    ok: bool
    text: str


Finding = tuple[str, Verdict]
"""Name of a check, and its result."""


def good(text: str) -> Verdict:
    """Return the result of a check that found no fault."""
    return Verdict(ok=True, text=text)


def bad(text: str) -> Verdict:
    """Return the result of a check that found a fault."""
    return Verdict(ok=False, text=text)


class _Sessions(NamedTuple):
    """Connections of one login and application."""

    login: str
    application: str
    connections: int
    idle: int


def findings(conn: Connection, disk_budget: int) -> Iterator[Finding]:
    """Yield all findings of this module.

    Args:
        disk_budget: bytes that dead letters and the history may take; 0 = no budget.
    """
    body: Any = value(conn, _READ)
    health = None if body is None else msgspec.json.decode(body, type=Health)
    if health is None:
        text = "a sequence of schema redrive is locked, so nothing was read: try again"
        yield "server", bad(text)
        return

    yield "statistics", rights(health)
    yield "connections", _connections(conn, health)
    yield "transactions", _transactions(conn, health)
    yield "disk", disk(health, disk_budget)

    for name, look in LOOKS.items():
        yield name, look(health)


def rights(health: Health) -> Verdict:
    """Say whether all figures can be measured."""
    if health.sees_sessions:
        return good("the schema's owner sees all sessions")

    return bad(
        "redrive_owner sees no other sessions, so connections, long transactions and"
        " lag of standbys are not measured;"
        " as a superuser: grant pg_read_all_stats to redrive_owner"
    )


def _connections(conn: Connection, health: Health) -> Verdict:
    if not health.connections:
        return good("not measured")

    fullest = max(health.connections, key=_use)
    text = f"{fullest.used} of {fullest.available} of the {fullest.scope} are used"
    is_fine = _use(fullest) <= USED_CONNECTIONS
    if not is_fine:
        groups = "; ".join(map(_group, records(conn, _Sessions, _SESSIONS)))
        text += f"; most: {groups}; close some, or raise the limit"

    return Verdict(is_fine, text)


def _use(connections: Connections) -> float:
    """Return the share of the available connections that is used."""
    return connections.used / max(connections.available, 1)


def _group(sessions: _Sessions) -> str:
    idle = f"{sessions.connections} ({sessions.idle} idle)"
    application = sessions.application or "unnamed"
    return f"{idle} by {sessions.login}, {application}"


def _transactions(conn: Connection, health: Health) -> Verdict:
    oldest = oldest_transaction(conn)
    if oldest is None or oldest.seconds <= LONG_TRANSACTION_SECONDS:
        return good("none is long")

    worst = max(health.tables, key=lambda table: table.dead_rows)
    return bad(
        f"{oldest.text} holds vacuum back: rows that died since stay,"
        f" {worst.dead_rows} in redrive.{worst.table} alone; to end it: {oldest.end}"
    )


def autovacuum(conn: Connection) -> Verdict:
    """Name the tables for which autovacuum is off."""
    tables: str | None = value(conn, _NOT_VACUUMED)
    if tables is None:
        return good("on for all tables")

    return bad(
        f"off for {tables}, so dead rows stay and slow down claims; run for each:"
        " alter table ... reset (autovacuum_enabled)"
    )


def _bloat(health: Health) -> Verdict:
    worst = max(health.tables, key=_debt)
    text = (
        f"{worst.dead_rows} dead rows in redrive.{worst.table};"
        f" autovacuum begins at {worst.threshold:.0f}"
    )

    if worst.dead_rows <= DEAD_ROWS or _debt(worst) <= DEAD_THRESHOLDS:
        return good(text)

    # Nothing holds vacuum back, so a vacuum by hand removes the dead rows.
    if not health.horizons:
        text += f"; run: vacuum redrive.{worst.table}"
        return bad(text)

    holder = max(health.horizons, key=health.horizons.__getitem__)
    age = counted(health.horizons[holder], "transaction")
    text += f"; a {holder} holds vacuum back by {age}"

    return bad(text)


def _debt(table: Vacuumed) -> float:
    """Return the dead rows as a multiple of the threshold of autovacuum."""
    return table.dead_rows / max(table.threshold, 1)


def _wraparound(health: Health) -> Verdict:
    def excess(freeze: FreezeAge) -> int:
        return freeze.age - health.freeze_at[freeze.counter]

    oldest = max(health.freeze, key=excess)
    is_ours = oldest.scope == "database"
    owner = "this database" if is_ours else "the server's oldest database"
    text = f"the oldest {oldest.counter} id of {owner} is {oldest.age} old"
    if excess(oldest) <= FREEZE_MARGIN:
        return good(text)

    text += (
        f"; autovacuum should have frozen it at {health.freeze_at[oldest.counter]}, and"
        " Postgres accepts no writes from 2.1 billion on: end what holds vacuum"
        " back, then run vacuum freeze in that database"
    )
    return bad(text)


def _standbys(health: Health) -> Verdict:
    late = list(filter(_is_late, health.standbys))
    if not late:
        count = counted(len(health.standbys), "standby", "standbys")
        return good(f"{count}, none is late")

    first = late[0]
    delay = f"{first.lag_seconds:.0f} s and {_mib(first.lag_bytes)}"
    return bad(
        f"{first.name} is {delay} behind:"
        " a failover to it would lose that, or wait for it"
    )


def _is_late(standby: Standby) -> bool:
    is_slow = standby.lag_seconds > STANDBY_SECONDS
    return is_slow or standby.lag_bytes > STANDBY_BYTES


def _slots(health: Health) -> Verdict:
    for slot in health.slots:
        most = ACTIVE_SLOT_BYTES if slot.is_active else SLOT_BYTES
        if slot.kept_bytes > most:
            use = "its receiver is late" if slot.is_active else "nobody uses it"
            return bad(
                f"the server keeps {_mib(slot.kept_bytes)} of WAL for {slot.name},"
                f" and {use}; it fills the disk. If nobody needs the slot:"
                f" select pg_drop_replication_slot('{slot.name}')"
            )

    count = counted(len(health.slots), "replication slot")
    return good(f"{count}, none keeps much WAL")


def _sequences(health: Health) -> Verdict:
    name, share = max(health.sequences.items(), key=lambda item: item[1])
    text = f"redrive.{name} has used {share:.1%} of its numbers"
    if share <= USED_SEQUENCE:
        return good(text)

    text += ": nothing can be inserted once they are used up; ask for help now"
    return bad(text)


def _names(health: Health) -> Verdict:
    fullest = max(health.names, key=lambda n: n.used / max(n.allowed, 1), default=None)
    if fullest is None:
        return good("not measured")

    text = f"{fullest.used} of {fullest.allowed} allowed names of {fullest.what} are in use"
    if fullest.used <= USED_NAMES * fullest.allowed:
        return good(text)

    text += (
        ": enqueue refuses new ones above that; see redrive queue limits, and raise it with"
        f" redrive queue limit {fullest.what}=N"
    )
    return bad(text)


def disk(health: Health, budget: int) -> Verdict:
    """Compare the size of dead letters and of the history with the budget, in bytes."""
    used = sum(health.disk.values())
    text = f"dead letters and history take {_mib(used)}"
    if not budget:
        text += "; REDRIVE_DISK_BUDGET_GIB sets no limit"
        return good(text)

    text += f" of {_mib(budget)}"
    if used <= USED_DISK * budget:
        return good(text)

    most = max(health.disk, key=health.disk.__getitem__)
    remedy = "delete old ones with redrive purge --older-than 7d"
    if most == "history":
        remedy = "keep fewer days with redrive queue set QUEUE --history 1d"

    text += f", most of it {most.replace('_', ' ')}: {remedy}, or raise the budget"
    return bad(text)


def _forgotten(health: Health) -> Verdict:
    for state, seconds in health.campaigns.items():
        if seconds > FORGOTTEN_SECONDS:
            return bad(
                f"a campaign has been {state} for {_days(seconds)} with dead letters"
                " left: see redrive campaign ls; resume or cancel it"
            )

    if health.heals_aborted >= ABORTED_HEALS:
        return bad(
            f"{health.heals_aborted} campaigns of heal aborted within a day, so the"
            " deploy did not fix what it should: see redrive campaign ls"
        )

    return good("none waits for a decision")


def _limits(health: Health) -> Verdict:
    name, seconds = max(
        health.limits.items(), key=lambda item: item[1], default=("", 0.0)
    )
    if seconds <= FORGOTTEN_SECONDS:
        return good("no job has waited for a day")

    return bad(
        f"a job has waited for limit {name} for {_days(seconds)}:"
        " see redrive limit ls; raise it with redrive limit set"
    )


def _mib(size: float) -> str:
    return f"{size / 2**20:.0f} MiB"


def _days(seconds: float) -> str:
    return f"{seconds / 86_400:.1f} days"


LOOKS: Mapping[str, Callable[[Health], Verdict]] = {
    "bloat": _bloat,
    "wraparound": _wraparound,
    "standbys": _standbys,
    "slots": _slots,
    "sequences": _sequences,
    "names": _names,
    "campaigns": _forgotten,
    "limits": _limits,
}
"""Checks that need no further query."""
