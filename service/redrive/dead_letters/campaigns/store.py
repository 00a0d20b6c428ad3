"""Campaigns: planned redrives that live in the database; plan, start, show and stop them.

Any live worker or client drives them; see `drive.py` beside this file.
"""

from dataclasses import dataclass, field, replace
from typing import LiteralString

from psycopg.types.json import Jsonb

from redrive.database.rows import Connection, first_row, rows, value
from redrive.dead_letters.campaigns.obstacles import Allow
from redrive.dead_letters.campaigns.pace import total_rate
from redrive.dead_letters.campaigns.terms import Terms
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.groups import store as groups
from redrive.dead_letters.reveal import reveal
from redrive.errors import Busy
from redrive.rules.rows import Row

MAX_REDRIVES = 5
NOTHING_MORE = Allow()


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a campaign; its ids are in the database.

    Attributes:
        plan: id of the plan and of its campaign; None = nothing was frozen.
        matched: number of open dead letters that the filter selects.
        missing: requested ids that are not among them.
        blocked: maps a cause to the number of dead letters that would stay.
        acted: number of dead letters with side effects on record.
        sample: a few ids to look at first.
        rates: maps a kind to the redrives per second that its handler allows.
        groups: causes of death, the most frequent first: count, group, kind,
            error_class, message, and the id of the oldest. At most a hundred of
            `group_count`.
    """

    plan: int | None
    matched: int
    missing: list[int]
    blocked: dict[str, int]
    acted: int
    sample: list[int]
    kinds: list[str]
    queues: list[str]
    groups: list[Row]
    group_count: int
    rates: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def allowed(self) -> float | None:
        """Return the redrives per second that its handlers allow; None = any number."""
        return total_rate(self.rates, len(self.kinds))


@dataclass(frozen=True, slots=True)
class Redriven:
    """Progress of a campaign.

    `blocked` maps a cause to the number of dead letters that stay.
    """

    matched: int
    redriven: int = 0
    blocked: dict[str, int] = field(default_factory=dict[str, int])
    campaign: int | None = None


def plan(
    conn: Connection,
    chosen: Filter,
    *,
    actor: str | None,
    max_redrives: int = MAX_REDRIVES,
    allow: Allow = NOTHING_MORE,
) -> Plan:
    """Freeze the open dead letters that a filter selects, the oldest first.

    Args:
        actor: author of the plan; None = preview only, nothing is frozen.
        allow: obstacles that the operator has confirmed.
    """
    selects = chosen.described() | allow.described()
    # A campaign redrives open dead letters only, so the state selects nothing.
    selects.pop("state", None)
    found = value(conn, _PLAN, Jsonb(selects), max_redrives, actor)
    reveal(conn, found["groups"])
    rates = value(conn, "select redrive.redrive_rates_v1(%s::text[])", found["kinds"])

    return Plan(**found, rates=rates)


def plan_retry(conn: Connection, group: str, *, actor: str) -> Row:
    """Freeze the failing jobs of a group that wait for another attempt.

    Returns its number as `plan`, or None if no job waits, and `matched`.
    """
    return value(conn, "select redrive.plan_retry_v1(%s, %s)", group, actor)


_PLAN: LiteralString = "select redrive.plan_campaign_v1(%s, %s, %s)"


def preview(
    conn: Connection,
    chosen: Filter,
    most: int,
    max_redrives: int = MAX_REDRIVES,
    allow: Allow = NOTHING_MORE,
) -> tuple[Plan, int]:
    """Preview a plan at a bounded cost; also return how many were examined.

    All dead letters are counted, and their kinds listed. Finding obstacles and causes
    of death takes several times as long. If there are more than `most`, only the oldest
    are examined.
    """
    # One more than `most` shows that there are others.
    examined = replace(chosen, limit=min(chosen.limit or most + 1, most + 1))
    found = plan(conn, examined, actor=None, max_redrives=max_redrives, allow=allow)
    if found.matched <= most:
        return found, found.matched

    kinds = _kinds(conn, chosen)
    matched = sum(kinds.values())

    return replace(found, matched=matched, kinds=sorted(kinds)), found.matched


def _kinds(conn: Connection, chosen: Filter) -> dict[str, int]:
    """Return the number of matching dead letters of each kind."""
    conditions, parameters = groups.where(conn, chosen)
    rows = conn.execute(
        "select d.kind, count(*) from redrive.dead_letters d"
        f" where {conditions} group by d.kind",
        parameters,
    )

    return dict(rows.fetchall())


def side_effects(conn: Connection, campaign: int) -> list[tuple[str, int]]:
    """List the side effects on record for a plan, the most frequent first.

    Each comes with its number of jobs.
    """
    return conn.execute(
        "select e.what, count(distinct e.job)::int from redrive.campaign_jobs j"
        " join redrive.side_effects e on e.job = j.id where j.campaign = %s"
        " group by e.what order by 2 desc, 1 limit 10",
        (campaign,),
    ).fetchall()


def start(
    conn: Connection, plan_id: int, terms: Terms, *, actor: str, why: str
) -> None:
    """Start a plan; from now on, any live worker drives it."""
    conn.execute(
        "select redrive.start_campaign_v1(%s, %s, %s, %s::float8, %s, %s, %s, %s)",
        (
            plan_id,
            actor,
            why,
            terms.rate,
            terms.canaries,
            terms.abort_share,
            terms.not_before,
            Jsonb(terms.conditions()),
        ),
    )


_SAME: LiteralString = """
    select o.id, o.actor from redrive.campaigns c
    join redrive.campaigns o on o.filter - 'until' = c.filter - 'until' and o.id <> c.id
    where c.id = %s and (o.started_at > c.created_at or o.started_at is not null
                         and o.state in ('waiting', 'canary', 'ramp', 'running', 'paused'))
    order by o.id limit 1"""


def start_alone(
    conn: Connection, plan_id: int, terms: Terms, *, actor: str, why: str
) -> None:
    """Start a plan, unless another campaign has the same dead letters.

    A campaign that had them since the plan counts too. Two clients that plan at once
    both see all open dead letters. Starts happen one after the other, so the second
    client finds the campaign of the first.

    Raises:
        Busy: another campaign has them; the text names it.
    """
    with conn.transaction():
        conn.execute("select redrive.lock_starts_v1()")
        same = conn.execute(_SAME, (plan_id,)).fetchone()
        if same is not None:
            other, starter = same
            msg = f"campaign {other} of {starter} has the same jobs; look at it first"
            raise Busy(msg)

        start(conn, plan_id, terms, actor=actor, why=why)


_SHOWN: LiteralString = """
    select c.id as campaign, c.state, c.matched, c.redriven, c.succeeded, c.dead_again,
           c.cancelled, greatest(c.matched - c.place, 0) as waiting,
           c.redriven - c.succeeded - c.dead_again - c.cancelled as in_flight,
           c.blocked, coalesce(c.plan -> 'invalid', '{}') as invalid,
           coalesce(c.plan -> 'kinds', '[]') as kinds, c.conditions ->> 'to_queue' as to_queue, c.rate, c.canaries,
           c.abort_share, c.actor, c.db_user as login, c.planned_by, c.planned_login, c.proposed_by, c.why, c.said,
           redrive.redrive_rates_v1(array(
               select jsonb_array_elements_text(c.plan -> 'kinds'))) as rates,
           c.filter, c.filter ? 'failing' as is_retry,
           c.conditions, c.not_before, c.created_at, c.started_at, c.ended_at
    from redrive.shown_campaigns c"""


def find(conn: Connection, states: tuple[str, ...] = (), limit: int = 100) -> list[Row]:
    """Return campaigns, the newest first; without states, all except plans."""
    query: LiteralString = (
        f"{_SHOWN} where case when %s::text[] = '{{}}' then c.state <> 'planned'"
        " else c.state = any (%s::text[]) end order by c.id desc limit %s"
    )
    wanted = list(states)
    return [_shown(row) for row in rows(conn, query, wanted, wanted, limit)]


def show(conn: Connection, campaign: int) -> Row | None:
    """Return the details of a campaign; None if no campaign has this id."""
    row = first_row(conn, f"{_SHOWN} where c.id = %s", campaign)
    return row and _shown(row)


def _shown(row: Row) -> Row:
    """Convert a row for display.

    Campaigns driven by a client report no waiting or in-flight counts.
    """
    if row["planned_login"] is None:
        return row | {"waiting": 0, "in_flight": 0}
    return row


def pause(conn: Connection, campaign: int, *, actor: str, why: str) -> None:
    """Pause a campaign: it puts no dead letter back until it is resumed."""
    conn.execute("select redrive.pause_campaign_v1(%s, %s, %s)", (campaign, actor, why))


def resume(conn: Connection, campaign: int, *, actor: str, why: str) -> None:
    """Resume a campaign that was paused or aborted itself, beginning with canaries."""
    conn.execute(
        "select redrive.resume_campaign_v1(%s, %s, %s)", (campaign, actor, why)
    )


def cancel(conn: Connection, campaign: int, *, actor: str, why: str) -> int:
    """End a campaign now; return how many unstarted jobs were taken back."""
    return value(
        conn, "select redrive.cancel_campaign_v1(%s, %s, %s)", campaign, actor, why
    )
