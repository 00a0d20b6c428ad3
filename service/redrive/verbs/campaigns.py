"""Changes of campaigns: pause, resume and cancel one."""

import time
from collections.abc import Mapping
from functools import partial

from redrive.database.rows import Connection
from redrive.dead_letters.campaigns import store as campaign
from redrive.dead_letters.campaigns.drive import drive_if_allowed
from redrive.dead_letters.campaigns.pace import GOING, State, again
from redrive.jobs.standing import alive
from redrive.rules.rows import Row
from redrive.verbs.query import Query
from redrive.verbs.refusal import Missing
from redrive.verbs.verb import Done, Opening, Order, Preview, Verb, id_of, named

DRIVE_SECONDS = 3.0
"""How long a request waits for the first step of the campaign that it starts."""

STEP_SECONDS = 0.1
"""Pause between two looks at a campaign whose steps workers take."""

CAMPAIGN_COLUMNS = (
    "campaign",
    "state",
    "matched",
    "redriven",
    "succeeded",
    "again",
    "why",
)

RESUMABLE = frozenset({State.PAUSED, State.ABORTED})
ENDABLE = GOING | RESUMABLE | {State.PLANNED}


def driven(conn: Connection, number: int) -> Row:
    """Wait for the first step of a campaign, so that the answer tells what it did."""
    give_up_at = time.monotonic() + DRIVE_SECONDS
    found = found_in(conn, number)
    while time.monotonic() < give_up_at:
        step = drive_if_allowed(conn, number)
        found = found_in(conn, number)
        if step is None:
            # Workers take it. Do not wait if there are none, or if they gave a reason to wait.
            if found["state"] != State.WAITING or found["said"] or not alive(conn):
                break
            time.sleep(STEP_SECONDS)
        elif not step.feed:
            break

    return found


def found_in(conn: Connection, number: int) -> Row:
    """Return a campaign as `campaign show` prints it.

    Raises:
        Refused: there is no such campaign.
    """
    # The query would fail if Postgres cannot hold the number as a bigint.
    found = None
    if 0 < number < 2**63:
        found = campaign.show(conn, number)
    if found is None:
        raise Missing(f"there is no campaign {number}")
    return found


def number_of(query: Query) -> int:
    """Return the number of the campaign that a query names. Raises Invalid."""
    return id_of([("id", named(query, "campaign"))])


def _preview_move(
    conn: Connection, order: Order, *, states: frozenset[State], rule: str
) -> Preview:
    """Preview a change of a campaign, which must be in one of the states."""
    found = found_in(conn, number_of(order.query))
    obstacle = None
    if found["state"] not in states:
        obstacle = f"Campaign {found['campaign']} is {found['state']}; {rule}."

    return Preview(
        matched=found["matched"],
        unit="dead letter",
        rows=[found | {"again": again(found)}],
        obstacle=obstacle,
    )


def _pause(opening: Opening, order: Order) -> Done:
    number = number_of(order.query)
    with opening() as conn:
        campaign.pause(conn, number, **order.signed)
        return _stands("paused", found_in(conn, number))


def _resume(opening: Opening, order: Order) -> Done:
    number = number_of(order.query)
    with opening() as conn:
        campaign.resume(conn, number, **order.signed)
        return _stands("resumed; its canaries run first", driven(conn, number))


def _cancel(opening: Opening, order: Order) -> Done:
    number = number_of(order.query)

    with opening() as conn:
        taken = campaign.cancel(conn, number, **order.signed)
        found = found_in(conn, number)

    outcome = f"cancelled; {taken:,} jobs are dead letters again"
    if found["is_retry"]:
        outcome = "cancelled; jobs that it has not retried wait for their next attempt"
    return _stands(outcome, found)


def _stands(outcome: str, found: Row) -> Done:
    number = found["campaign"]
    return Done(
        text=f"Campaign {number} is {outcome}.",
        report=found,
        path=f"/campaigns/{number}",
    )


CAMPAIGNS: Mapping[str, Verb] = {
    "campaign-pause": Verb(
        "Pause a campaign until it is resumed.",
        "campaign pause {campaign}",
        "Pause",
        "campaign",
        partial(
            _preview_move, states=GOING, rule="only a running campaign can be paused"
        ),
        _pause,
        remarks=(
            "No more dead letters are redriven until somebody resumes it. Redriven jobs continue.",
        ),
        columns=CAMPAIGN_COLUMNS,
        names=("campaign",),
        help="""
            \b
            redrive campaign pause 12 --why 'the bank asks us to'
        """,
    ),
    "campaign-resume": Verb(
        "Resume a campaign that was paused or has aborted.",
        "campaign resume {campaign}",
        "Resume",
        "campaign",
        partial(
            _preview_move,
            states=RESUMABLE,
            rule="only a campaign that is paused or aborted can be resumed",
        ),
        _resume,
        remarks=("Its canaries run first again.",),
        columns=CAMPAIGN_COLUMNS,
        names=("campaign",),
        help="""
            \b
            redrive campaign resume 12 --why 'the bank is ready'
        """,
    ),
    "campaign-cancel": Verb(
        "Cancel a campaign, and take back the jobs that have not started.",
        "campaign cancel {campaign}",
        "Cancel",
        "campaign",
        partial(
            _preview_move,
            states=ENDABLE,
            rule="only a campaign that has not ended can be cancelled",
        ),
        _cancel,
        remarks=(
            "Jobs that have not started become open dead letters again. Running jobs end as usual.",
        ),
        columns=CAMPAIGN_COLUMNS,
        names=("campaign",),
        help="""
            \b
            redrive campaign cancel 12 --why 'wrong filter'

            A job that is taken back is an open dead letter again, with its history. A
            job that is running, or was tried already, ends as usual.
        """,
    ),
}
"""Word in the address -> change."""
