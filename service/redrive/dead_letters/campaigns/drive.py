"""Take the steps of campaigns, as workers do, or a client that waits.

What a step does is decided in `pace.py`; here it is looked up and carried out.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import msgspec
import psycopg

from redrive.database.rows import Connection, column, value
from redrive.dead_letters.campaigns import pace
from redrive.dead_letters.campaigns.heal import heal
from redrive.dead_letters.campaigns.pace import GOING, Seen, State, Step
from redrive.dead_letters.campaigns.store import show
from redrive.rules.rows import Row

STEP_SIZE = 500
"""Dead letters that one transaction processes."""

REFUSED = "RD001"
"""SQLSTATE of a request that a rule of the database refuses."""

PATIENCE_SECONDS = 30.0
"""How long `drive_to_end` waits for a worker to run the released jobs."""
LOOK_SECONDS = 0.2
"""Seconds between two checks while a client waits in `drive_to_end`."""

STEPS_SECONDS = 1.0
"""How long the chore takes steps in one go; other chores share its connection."""


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
        bounded = replace(step, feed=min(step.feed, STEP_SIZE))
        is_taken = _take(conn, campaign, seen.step, bounded)
    except psycopg.Error as error:
        if error.sqlstate != REFUSED:
            raise

        # A dead letter may no longer be enqueued, if a rule was tightened since it died.
        said = error.diag.message_primary
        step = Step(State.ABORTED, first_turn=seen.fed_at, said=said)
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
        return pace.next_step(seen)
    except ValueError as error:
        said = f"a term is not valid: {error}"
        return Step(State.ABORTED, first_turn=seen.fed_at, said=said)


def _take(conn: Connection, campaign: int, number: int, step: Step) -> bool:
    """Take a step; return False if another driver took one first."""
    fed = value(
        conn,
        "select redrive.step_campaign_v1(%s, %s, %s, %s, %s::float8, %s, %s::float8, %s::float8)",
        campaign,
        number,
        step.state.value,
        step.feed,
        step.first_turn,
        step.said,
        step.late_before,
        step.held_since,
    )
    return fed is not None


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
            s is not None and s.state in pace.RELEASING for s in steps.values()
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


def drive_to_end(
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

    while found["waiting"] and found["state"] in GOING:
        if time.monotonic() >= moved_at + PATIENCE_SECONDS:
            break

        step = drive_if_allowed(conn, campaign)
        # Without a release, only the workers can change something.
        if step is None or not step.feed:
            time.sleep(LOOK_SECONDS)

        before = found
        found = _known(conn, campaign)
        if found != before:
            moved_at = time.monotonic()

        now = found["matched"] - found["waiting"]
        progress(now - processed)
        processed = now

    return found


def _known(conn: Connection, campaign: int) -> Row:
    found = show(conn, campaign)
    assert found is not None  # noqa: S101 # it was started, and is kept for longer than this takes
    return found


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
