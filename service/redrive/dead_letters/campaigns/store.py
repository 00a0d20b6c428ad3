"""Campaigns: planned redrives that live in the database.

Any live worker or client drives them.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import LiteralString

import msgspec
import psycopg
from psycopg.types.json import Jsonb

from redrive.database.rows import Connection, column, first_row, rows, value
from redrive.dead_letters.campaigns import pace as rules
from redrive.dead_letters.campaigns.obstacles import Allow
from redrive.dead_letters.campaigns.pace import GOING, Seen, State, Step, total_rate
from redrive.dead_letters.campaigns.terms import Terms
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.groups import store as groups
from redrive.dead_letters.groups.fixes import is_fixed
from redrive.dead_letters.reveal import reveal
from redrive.errors import Busy
from redrive.rules.rows import Row

MAX_REDRIVES = 5
STEP_SIZE = 500
"""Dead letters that one transaction processes."""

REFUSED = "RD001"
"""SQLSTATE of a request that a rule of the database refuses."""

PATIENCE_SECONDS = 30.0
"""How long `feed` waits for a worker to run the released jobs."""
FEED_SECONDS = 0.2
"""Seconds between two checks while a client waits in `feed`."""

STEPS_SECONDS = 1.0
"""How long the chore takes steps in one go; other chores share its connection."""


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


def is_retry(found: Row) -> bool:
    """Return True if a campaign retries failing jobs, and redrives no dead letters."""
    return bool(found["filter"].get("failing"))


_PLAN: LiteralString = "select redrive.plan_campaign_v1(%s, %s, %s)"


def look(
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


def drive(conn: Connection, campaign: int) -> Step | None:
    """Take the next step of a campaign.

    Returns None if it is over or another driver is at it. A kill at any moment loses
    nothing: a step is one statement, and the next driver sees its result.
    """
    found = value(conn, "select redrive.look_at_campaign_v1(%s)::text", campaign)
    if found is None:
        return None

    seen = msgspec.json.decode(found, type=Seen)
    step = _next_step(seen)
    if step.feed == 0 and step.stands_as(seen):
        return step

    try:
        # A transaction stays short. What is left of the step is due in the next one.
        bounded = step.at_most(STEP_SIZE, seen.rate)
        is_taken = _take(conn, campaign, seen.step, bounded)
    except psycopg.Error as error:
        if error.sqlstate != REFUSED:
            raise

        # A dead letter may no longer be enqueued, if a rule was tightened since it died.
        step = Step(
            state=State.ABORTED,
            feed=0,
            fed_at=seen.fed_at,
            said=error.diag.message_primary,
        )
        is_taken = _take(conn, campaign, seen.step, step)

    return step if is_taken else None


def drive_if_allowed(conn: Connection, campaign: int) -> Step | None:
    """Take the next step if this login may act as a worker; otherwise, workers take it."""
    try:
        return drive(conn, campaign)
    except psycopg.errors.InsufficientPrivilege:
        return None


def _next_step(seen: Seen) -> Step:
    """Decide the next step; abort a campaign whose terms no worker can read."""
    try:
        return rules.next_step(seen)
    except ValueError as error:
        return Step(
            state=State.ABORTED,
            feed=0,
            fed_at=seen.fed_at,
            said=f"a term is not valid: {error}",
        )


def _take(conn: Connection, campaign: int, number: int, step: Step) -> bool:
    """Take a step; return False if another driver took one first."""
    fed = value(
        conn,
        "select redrive.step_campaign_v1(%s, %s, %s, %s, %s::float8, %s, %s::float8, %s::float8)",
        campaign,
        number,
        step.state.value,
        step.feed,
        step.fed_at,
        step.said,
        step.late_before,
        step.held_since,
    )
    return fed is not None


def heal(conn: Connection, end: float) -> psycopg.Error | None:
    """Plan and start campaigns for groups that a new version may have fixed.

    Groups are handled one by one until monotonic `end`. Returns an error if there was
    one; it stops no campaign.
    """
    statement: LiteralString = "select redrive.heal_v1(%s, %s::float8)"
    is_healing = True

    try:
        while is_healing:
            found = value(conn, statement, MAX_REDRIVES, rules.ABORT_SHARE)
            is_healing = found and time.monotonic() < end
    except psycopg.Error as error:
        return error

    return None


def retry_fixed(conn: Connection) -> None:
    """Retry the failing jobs of resolved groups once all workers have the fix."""
    for group in rows(conn, "select * from redrive.fixed_v1()"):
        versions = group["versions"]
        if versions and all(is_fixed(one, group["fixed_in"]) for one in versions):
            why = f"all workers have the fix: {', '.join(versions)}"
            conn.execute(
                "select redrive.retry_fixed_v1(%s, %s, %s, %s::float8)",
                (group["fingerprint"], why, rules.CANARIES, rules.ABORT_SHARE),
            )


def healing(conn: Connection) -> list[Row]:
    """List the open groups of bugs and invalid payloads, and groups whose jobs fail.

    Each says whether heal tries it, or why not.
    """
    return rows(
        conn,
        'select h.fingerprint as "group", h.kind, h.category, h.open,'
        " (select count(*) from redrive.jobs j"
        "  where j.fingerprint = h.fingerprint and j.failed_at is not null) as failing,"
        " h.first_seen, h.version, h.canaries, h.max_rate, h.cause is null as heals,"
        " h.cause as why from redrive.healing_v1(null) h"
        " order by h.cause is not null, h.open desc, h.fingerprint",
    )


def drive_all(conn: Connection) -> bool:
    """Take the next steps of all campaigns, for about a second.

    Returns whether a campaign releases jobs: its next step is due soon.

    Raises:
        psycopg.Error: the first error, with the others as notes. An error stops no
            other campaign.
    """
    end = time.monotonic() + STEPS_SECONDS
    trouble = heal(conn, end)
    errors = [] if trouble is None else [trouble]

    is_releasing = False
    going = column(conn, "select redrive.live_campaigns_v1()")

    while going and time.monotonic() < end:
        steps: dict[int, Step | None] = {}
        for campaign in going:
            steps[campaign] = _try_step(conn, campaign, errors)

        is_releasing |= any(
            s is not None and s.state in rules.RELEASING for s in steps.values()
        )
        going = [campaign for campaign, step in steps.items() if _has_more(step)]

    _raise_first(errors)
    return is_releasing


def _try_step(
    conn: Connection, campaign: int, errors: list[psycopg.Error]
) -> Step | None:
    try:
        return drive(conn, campaign)
    except psycopg.Error as error:
        errors.append(error)
        return None


def _has_more(step: Step | None) -> bool:
    """Return True if a driver should take the next step at once."""
    return step is not None and step.feed > STEP_SIZE


def _raise_first(errors: list[psycopg.Error]) -> None:
    if not errors:
        return

    first, *others = errors
    for error in others:
        first.add_note(f"and after it: {error}")

    raise first


_SHOWN: LiteralString = """
    select c.id as campaign, c.state, c.matched, c.redriven, c.succeeded, c.dead_again,
           c.cancelled, greatest(c.matched - c.place, 0) as waiting,
           c.redriven - c.succeeded - c.dead_again - c.cancelled as in_flight,
           c.blocked, coalesce(c.plan -> 'invalid', '{}') as invalid,
           coalesce(c.plan -> 'kinds', '[]') as kinds, c.conditions ->> 'to_queue' as to_queue, c.rate, c.canaries,
           c.abort_share, c.actor, c.db_user as login, c.planned_by, c.planned_login, c.proposed_by, c.why, c.said,
           redrive.redrive_rates_v1(array(
               select jsonb_array_elements_text(c.plan -> 'kinds'))) as rates,
           c.filter, c.conditions, c.not_before, c.created_at, c.started_at, c.ended_at
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


def feed(
    conn: Connection, campaign: int, *, progress: Callable[[int], None] = lambda _: None
) -> Row:
    """Wait until every dead letter of a campaign is processed, or it stops.

    A login that may act as a worker drives it meanwhile. If nothing moves for
    `PATIENCE_SECONDS`, for example because no worker is up, this returns, and workers
    drive the campaign later.

    Args:
        progress: called with the number of dead letters processed since the last call.
    """
    found = _known(conn, campaign)
    processed = 0
    moved_at = time.monotonic()

    while _is_going(found) and time.monotonic() < moved_at + PATIENCE_SECONDS:
        step = drive_if_allowed(conn, campaign)
        # Without a release, only the workers can change something.
        if step is None or not step.feed:
            time.sleep(FEED_SECONDS)

        before = found
        found = _known(conn, campaign)
        if found != before:
            moved_at = time.monotonic()

        now = found["matched"] - found["waiting"]
        progress(now - processed)
        processed = now

    return found


def _is_going(found: Row) -> bool:
    return bool(found["waiting"]) and found["state"] in GOING


def _known(conn: Connection, campaign: int) -> Row:
    found = show(conn, campaign)
    assert found is not None  # noqa: S101 # it was started, and is kept for longer than this takes
    return found


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


def watch(conn: Connection, campaign: int, *, every: float = 1.0) -> Iterator[Row]:
    """Yield a campaign's progress until it is over or stops by itself.

    A login that may act as a worker drives it meanwhile.

    The last value has nothing in flight and nothing left to put back.

    Args:
        every: seconds between two steps.
    """
    while (found := show(conn, campaign)) is not None:
        yield found
        if _stands(found):
            return

        step = drive_if_allowed(conn, campaign)
        if not _has_more(step):
            time.sleep(every)


def _stands(found: Row) -> bool:
    """Return True if the campaign is at rest: no job of it runs or waits."""
    if found["state"] in {State.PAUSED, State.PLANNED}:
        return True
    return found["state"] not in GOING and not found["in_flight"]
