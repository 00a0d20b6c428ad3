"""Find, show, redrive, dismiss and purge dead letters. Every change says who and why, and that is
kept.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row

from redrive.encryption import HIDDEN, shown_failure, shown_payload, shown_side_effect
from redrive.errors import RedriveError
from redrive.rules.redact import redact

Connection = psycopg.Connection[Any]
Progress = Callable[[int], None]

CHUNK = 500
SAMPLE = 5
MAX_REDRIVES = 5
STATES = ("open", "redriven", "resolved", "dismissed")

_COLUMNS: LiteralString = (
    "d.id, d.kind, d.queue, d.state, d.reason, d.category, d.error_class, d.message, d.attempts, d.deliveries,"
    ' d.redrives, d.created_at, d.died_at, d.fingerprint as "group", d.owner'
)


class Busy(RedriveError):
    """Another one is at it: the lock is held."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which dead letters; an empty field does not narrow. `group` may be the beginning of a
    fingerprint.
    """

    ids: Sequence[int] = ()
    kind: Sequence[str] = ()
    queue: Sequence[str] = ()
    reason: Sequence[str] = ()
    category: Sequence[str] = ()
    error_class: Sequence[str] = ()
    group: str | None = None
    state: Sequence[str] = ()
    tenant: Sequence[str] = ()
    environment: Sequence[str] = ()
    since: datetime | None = None
    until: datetime | None = None
    limit: int | None = None

    def narrows(self) -> bool:
        """Whether anything but state and limit is asked for."""
        return any(value for name, value in asdict(self).items() if name not in {"state", "limit"})

    def described(self) -> dict[str, Any]:
        """What is set, as JSON, for the audit log."""
        return {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in asdict(self).items()
            if value
        }


@dataclass(slots=True)
class Plan:
    """What a redrive would do. `blocked`: cause -> count; `groups`: the largest causes of death in
    it; `acted`: how many say they have already done something in the world.
    """

    ids: list[int]
    blocked: dict[str, int]
    groups: list[dict[str, Any]]
    sample: list[dict[str, Any]]
    acted: int = 0

    @property
    def matched(self) -> int:
        """Open dead letters the filter selects."""
        return len(self.ids)


@dataclass(slots=True)
class Redriven:
    """What a redrive did."""

    matched: int
    redriven: int = 0
    blocked: dict[str, int] = field(default_factory=dict[str, int])
    campaign: int | None = None


def where(chosen: Filter) -> tuple[LiteralString, list[Any]]:
    """The filter as SQL over `dead_letters d`: literal conditions, and their parameters."""
    conditions: list[LiteralString] = ["true"]
    parameters: list[Any] = []
    lists: list[tuple[LiteralString, Sequence[Any]]] = [
        ("d.id = any (%s::bigint[])", chosen.ids),
        ("d.kind = any (%s::text[])", chosen.kind),
        ("d.queue = any (%s::text[])", chosen.queue),
        ("d.reason = any (%s::text[])", chosen.reason),
        ("d.category = any (%s::text[])", chosen.category),
        ("d.error_class = any (%s::text[])", chosen.error_class),
        ("d.state = any (%s::text[])", chosen.state),
        ("d.tenant = any (%s::text[])", chosen.tenant),
        ("d.environment = any (%s::text[])", chosen.environment),
    ]
    for condition, values in lists:
        if values:
            conditions.append(condition)
            parameters.append(list(values))
    if chosen.group is not None:
        conditions.append("starts_with(d.fingerprint, %s)")
        parameters.append(chosen.group)
    if chosen.since is not None:
        conditions.append("d.died_at >= %s")
        parameters.append(chosen.since)
    if chosen.until is not None:
        conditions.append("d.died_at < %s")
        parameters.append(chosen.until)
    return " and ".join(conditions), parameters


def find(conn: Connection, chosen: Filter) -> Iterator[dict[str, Any]]:
    """Dead letters, the latest first, with the fields of `dlq ls --json`."""
    conditions, parameters = where(chosen)
    with conn.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(
            "select "
            + _COLUMNS
            + " from redrive.dead_letters d where "
            + conditions
            + " order by d.died_at desc, d.id desc limit %s",
            (*parameters, chosen.limit),
        ).fetchall()
    reveal(conn, found)
    yield from found


def reveal(conn: Connection, rows: Sequence[dict[str, Any]], job: str = "id") -> None:
    """Put the messages of failures back into rows with a `group` and a `job` where they are stored
    encrypted.
    """
    hidden = [row for row in rows if row["message"] == HIDDEN]
    if not hidden:
        return
    found = conn.execute(
        "select distinct on (job, fingerprint) job, fingerprint, message, detail from redrive.failures"
        " where job = any (%s::bigint[]) order by job, fingerprint, deliveries desc",
        ([row[job] for row in hidden],),
    )
    messages = {
        (owner, fingerprint): shown_failure(owner, {"message": message, "detail": detail})[
            "message"
        ]
        for owner, fingerprint, message, detail in found
    }
    for row in hidden:
        row["message"] = messages.get((row[job], row["group"]), HIDDEN)


def show(conn: Connection, job: int) -> dict[str, Any] | None:
    """Everything about a job that has died, its latest death first; the payload redacted. None when
    it never died.
    """
    with conn.cursor(row_factory=dict_row) as cursor:
        generations = cursor.execute(
            "select "
            + _COLUMNS
            + ", d.payload, d.notes, d.outcome, d.settled_at, d.campaign, d.blocked, d.tenant,"
            " d.idempotency_key, d.ordering_key, d.headers, d.max_attempts, d.losses, d.first_failed_at"
            " from redrive.dead_letters d where d.id = %s order by d.redrives desc",
            (job,),
        ).fetchall()
        if not generations:
            return None
        failures = cursor.execute(
            "select deliveries, attempt, at, worker, error_class, message, category, fingerprint, detail"
            " from redrive.failures where job = %s order by deliveries",
            (job,),
        ).fetchall()
        side_effects = cursor.execute(
            "select at, deliveries, what, detail from redrive.side_effects where job = %s order by at",
            (job,),
        ).fetchall()
    reveal(conn, generations[:1])
    failures = [shown_failure(job, failure) for failure in failures]
    side_effects = [shown_side_effect(job, effect) for effect in side_effects]
    latest = generations[0]
    lineage = [
        {
            name: g[name]
            for name in (
                "redrives",
                "state",
                "reason",
                "died_at",
                "outcome",
                "campaign",
                "settled_at",
            )
        }
        for g in reversed(generations)
    ]
    declared = failures[-1]["detail"].get("secret_fields", ()) if failures else ()
    hidden = {
        "payload": redact(shown_payload(latest), declared),
        "headers": redact(latest["headers"], declared),
    }
    return (
        latest | hidden | {"failures": failures, "lineage": lineage, "side_effects": side_effects}
    )


def plan(conn: Connection, chosen: Filter, *, max_redrives: int = MAX_REDRIVES) -> Plan:
    """Select the open dead letters of a filter, oldest first, and see what stands in their way."""
    conditions, parameters = where(chosen)
    with conn.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(
            "select d.id, d.fingerprint, d.kind, d.error_class, d.message, d.reason, d.died_at,"
            " o.cause,"
            " exists (select from redrive.side_effects e where e.job = d.id) as acted"
            " from redrive.dead_letters d cross join lateral redrive.redrive_obstacle_v1("
            "d.kind, d.idempotency_key, d.redrives, d.fingerprint, %s) o"
            " where d.state = 'open' and " + conditions + " order by d.died_at, d.id limit %s",
            (max_redrives, *parameters, chosen.limit),
        ).fetchall()
    blocked: dict[str, int] = {}
    groups: dict[str, dict[str, Any]] = {}
    for row in rows:
        if cause := row["cause"]:
            blocked[cause] = blocked.get(cause, 0) + 1
        group = groups.setdefault(
            row["fingerprint"],
            {name: row[name] for name in ("id", "kind", "error_class", "message")}
            | {"group": row["fingerprint"], "count": 0},
        )
        group["count"] += 1
    largest = sorted(groups.values(), key=lambda g: -g["count"])
    reveal(conn, largest)
    sample = [
        {name: row[name] for name in ("id", "kind", "reason", "died_at")} for row in rows[:SAMPLE]
    ]
    return Plan(
        [row["id"] for row in rows], blocked, largest, sample, sum(row["acted"] for row in rows)
    )


def redrive(  # noqa: PLR0913 # what a redrive needs
    conn: Connection,
    planned: Plan,
    chosen: Filter,
    *,
    why: str,
    actor: str,
    rate: float | None = None,
    max_redrives: int = MAX_REDRIVES,
    progress: Progress = lambda _: None,
) -> Redriven:
    """Put planned dead letters back to work, a chunk at a time; each chunk is one transaction.

    Args:
        rate: jobs per second, as a schedule from now on; None = all at once.
        progress: told how many were handled by each chunk.
    """
    row = conn.execute(
        "select redrive.open_campaign_v1(%s, %s, %s::jsonb, %s::float8, %s)",
        (actor, why, _json(chosen.described()), rate, planned.matched),
    ).fetchone()
    report = Redriven(planned.matched, campaign=int(row[0]) if row else None)
    for start in range(0, planned.matched, CHUNK):
        chunk = planned.ids[start : start + CHUNK]
        rows = conn.execute(
            "select id, blocked from redrive.redrive_v1(%s::bigint[], %s, %s::float8, %s, %s)",
            (chunk, report.campaign, rate, start, max_redrives),
        ).fetchall()
        for _, cause in rows:
            if cause is None:
                report.redriven += 1
            else:
                report.blocked[cause] = report.blocked.get(cause, 0) + 1
        progress(len(chunk))
    conn.execute(
        "select redrive.close_campaign_v1(%s, %s, %s::jsonb)",
        (report.campaign, report.redriven, _json(report.blocked)),
    )
    return report


def dismiss(conn: Connection, ids: Sequence[int], *, why: str, actor: str) -> list[int]:
    """Close open dead letters that will not be fixed. Returns the ids that were open."""
    rows = conn.execute(
        "select redrive.dismiss_v1(%s::bigint[], %s, %s)", (list(ids), actor, why)
    ).fetchall()
    return sorted(row[0] for row in rows)


def assign(conn: Connection, ids: Sequence[int], owner: str, *, why: str, actor: str) -> list[int]:
    """Say who looks after open dead letters, "" for nobody. Returns the ids that were open."""
    rows = conn.execute(
        "select redrive.assign_v1(%s::bigint[], %s, %s, %s)", (list(ids), owner, actor, why)
    ).fetchall()
    return sorted(row[0] for row in rows)


def note(conn: Connection, job: int, text: str, *, actor: str) -> bool:
    """Attach a note to a dead letter. Returns whether there is one."""
    row = conn.execute("select redrive.note_v1(%s, %s, %s)", (job, actor, text)).fetchone()
    return bool(row and row[0])


def purgeable(conn: Connection, chosen: Filter, older_than: float) -> list[tuple[int, int]]:
    """(id, generation) of the dead letters that ended, or for open ones died, more than
    `older_than` seconds ago.

    Without a state in the filter: resolved, dismissed, and redriven ones whose outcome is known.
    """
    conditions, parameters = where(chosen)
    states: LiteralString = (
        ""
        if chosen.state
        else " and (d.state in ('resolved', 'dismissed') or d.state = 'redriven' and d.outcome is not null)"
    )
    return conn.execute(
        "select d.id, d.redrives from redrive.dead_letters d where "
        + conditions
        + states
        + " and coalesce(d.settled_at, d.died_at) <= clock_timestamp() - %s * interval '1 second'"
        " order by d.died_at, d.id limit %s",
        (*parameters, older_than, chosen.limit),
    ).fetchall()


def purge(  # noqa: PLR0913 # what a purge needs
    conn: Connection,
    chosen: Filter,
    selected: Sequence[tuple[int, int]],
    *,
    why: str,
    actor: str,
    progress: Progress = lambda _: None,
) -> int:
    """Delete selected dead letters for good, with their failures. Returns how many went."""
    states = list(chosen.state or ("resolved", "dismissed", "redriven"))
    purged = 0
    for start in range(0, len(selected), CHUNK):
        chunk = selected[start : start + CHUNK]
        with conn.transaction():
            row = conn.execute(
                "select redrive.purge_v1(%s::bigint[], %s::int[], %s::text[])",
                ([c[0] for c in chunk], [c[1] for c in chunk], states),
            ).fetchone()
            gone = int(row[0]) if row else 0
            record(
                conn, actor, "purge", why, gone, {"filter": chosen.described(), "states": states}
            )
        purged += gone
        progress(len(chunk))
    return purged


def record(  # noqa: PLR0913
    conn: Connection, actor: str, action: str, why: str, n: int, detail: dict[str, Any]
) -> None:
    """Write a line of the audit log: what was done to `n` of them."""
    conn.execute(
        "select redrive.record_audit_v1(%s, %s, %s, %s, %s::jsonb)",
        (actor, action, why, n, _json(detail)),
    )


def forget_keys(conn: Connection, older_than: float) -> int:
    """Forget idempotency keys that succeeded, and what `idempotent` was asked for, longer ago.
    Returns how many.
    """
    statements: tuple[LiteralString, ...] = (
        "select redrive.forget_completions_v1(%s * interval '1 second', 10000)",
        "select redrive.forget_effects_v1(%s * interval '1 second', 10000)",
    )
    forgotten = 0
    for statement in statements:
        while (row := conn.execute(statement, (older_than,)).fetchone()) and row[0]:
            forgotten += int(row[0])
    return forgotten


def done_chore(conn: Connection, name: str, every: float | None) -> None:
    """Leave a mark that a scheduled task ran; `every` seconds it should, None = not known."""
    conn.execute(
        "select redrive.done_chore_v1(%s, %s::float8 * interval '1 second')", (name, every)
    )


def hold_lock(conn: Connection, name: str) -> None:
    """Take a lock for as long as the transaction open on `conn` lasts; works through PgBouncer.

    Raises:
        Busy: somebody has it.
    """
    conn.execute("set local idle_in_transaction_session_timeout = 0")
    row = conn.execute(
        "select pg_try_advisory_xact_lock(hashtext('redrive'), hashtext(%s))", (name,)
    ).fetchone()
    if not (row and row[0]):
        msg = f"another {name} is at it"
        raise Busy(msg)


def _json(value: Any) -> str:
    import msgspec  # noqa: PLC0415

    return msgspec.json.encode(value).decode()
