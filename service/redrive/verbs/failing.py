"""Changes of a group's failing jobs: retry them now, hold them, give them up."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from redrive.database.rows import Connection
from redrive.dead_letters.campaigns import store as campaign
from redrive.dead_letters.campaigns.pace import CANARIES
from redrive.errors import Busy
from redrive.jobs import failing
from redrive.rules.brief import brief, counted
from redrive.rules.rows import Fields
from redrive.verbs.campaigns import driven
from redrive.verbs.groups import COLUMNS as GROUP_COLUMNS
from redrive.verbs.groups import group_of, look_at_group
from redrive.verbs.refusal import Conflict
from redrive.verbs.terms import INPUTS, estimate, terms_of
from redrive.verbs.verb import SAMPLE, Done, Opening, Order, Preview, Verb, refuse_more

COLUMNS = ("id", "queue", "attempt", "failed_at", "next_retry")
_NONE_WAIT = "no failing job of the group waits for another attempt now"


def _preview_jobs(conn: Connection, order: Order, *, remarks: Sequence[str]) -> Preview:
    """Preview a change of the failing jobs of a group."""
    seen = look_at_group(conn, order)
    if not seen.rows:
        return seen

    (group,) = seen.rows
    cause = f"{group['error_class']}: {brief(group['message'])}"

    return replace(
        seen,
        matched=group["failing"],
        unit="failing job",
        remarks=(cause, *remarks),
        columns=COLUMNS,
        rows=failing.jobs_of(conn, group["group"], SAMPLE),
        obstacle=None if group["failing"] else "No job of the group fails now.",
    )


def _preview_retry(conn: Connection, order: Order) -> Preview:
    remark = (
        "Jobs that run already are left out. Each job keeps its attempts and failures."
    )
    seen = _preview_jobs(conn, order, remarks=(remark,))
    terms = terms_of(order.more, CANARIES)

    return replace(
        seen,
        values={"canaries": str(terms.canaries)},
        estimate=estimate(seen.matched, terms, None, again="fail again"),
    )


def _retry(opening: Opening, order: Order) -> Done:
    terms = terms_of(order.more, CANARIES)

    with opening() as conn:
        name = group_of(conn, order)["group"]
        with conn.transaction():
            made = campaign.plan_retry(conn, name, actor=order.actor)
            if made["plan"] is None:
                raise Conflict(_NONE_WAIT)

        try:
            campaign.start_alone(conn, made["plan"], terms, **order.signed)
        except Busy as error:
            raise Conflict(str(error)) from None
        found = driven(conn, made["plan"])

    number = found["campaign"]
    keys = ("matched", "redriven", "blocked", "campaign", "state")

    return Done(
        text=_retried(found),
        report={"group": name} | {key: found[key] for key in keys},
        path=f"/campaigns/{number}",
    )


def _retried(found: Fields) -> str:
    number = found["campaign"]
    if found["waiting"] == found["matched"]:
        jobs = counted(found["waiting"], "job")
        return f"Campaign {number} has started; workers retry {jobs}."

    text = f"{counted(found['redriven'], 'job')} retried by campaign {number}"
    if found["waiting"]:
        text += f"; {found['waiting']:,} follow if they do not fail again"

    return f"{text}. To see how they end: redrive campaign show {number}."


def _hold(opening: Opening, order: Order, *, is_held: bool) -> Done:
    with opening() as conn:
        name = group_of(conn, order)["group"]
        if not failing.hold(conn, name, is_held=is_held, **order.signed):
            raise Conflict("the group is not held")

    text = "The failing jobs of the group are no longer held. They are retried within half an hour."
    if is_held:
        text = (
            "The failing jobs of the group are held, and so are jobs that fail later."
        )

    return Done(
        text=text, report={"group": name, "held": is_held}, path=f"/groups/{name}"
    )


def _preview_hold(conn: Connection, order: Order) -> Preview:
    seen = look_at_group(conn, order)
    if seen.rows and seen.rows[0]["held_at"]:
        remark = "The group is held already. This replaces the reason."
        return replace(seen, remarks=(remark,))
    return seen


def _preview_release(conn: Connection, order: Order) -> Preview:
    seen = look_at_group(conn, order)
    if seen.rows and not seen.rows[0]["held_at"]:
        return replace(seen, obstacle="The group is not held.")
    return seen


def _give_up(opening: Opening, order: Order) -> Done:
    with opening() as conn:
        name = group_of(conn, order)["group"]
        jobs = failing.ids(conn, name)
        if not jobs:
            raise Conflict(_NONE_WAIT)

        refuse_more(len(jobs), replace(order, more={}))
        more = {"progress": order.advance} if order.advance else {}
        n = failing.give_up(conn, jobs, **order.signed, **more)

    text = f"{counted(n, 'job')} given up; they are dead letters now."
    left = len(jobs) - n
    if left:
        text += f" {counted(left, 'job')} had ended or ran, and stayed."

    return Done(
        text=text, report={"group": name, "given_up": n}, path=f"/groups/{name}"
    )


FAILING: Mapping[str, Verb] = {
    "retry": Verb(
        "Retry the failing jobs of a group now, a few first.",
        "dlq retry {group}",
        "Retry now",
        "group",
        _preview_retry,
        _retry,
        columns=GROUP_COLUMNS,
        names=("group",),
        inputs=tuple(
            replace(each, hint=each.hint.replace("die again", "fail again"))
            for each in INPUTS
            if each.name != "to-queue"
        ),
        help="""
            \b
            redrive dlq retry 3f9a --why 'the provider is back'
            redrive dlq retry 3f9a --rate 10 --why 'the provider is back'

            It is a campaign: three canaries go first, and it stops if too many fail
            again. To watch it: redrive campaign watch.
        """,
    ),
    "hold": Verb(
        "Let the failing jobs of a group wait.",
        "dlq hold {group}",
        "Hold",
        "group",
        _preview_hold,
        partial(_hold, is_held=True),
        remarks=(
            "Its failing jobs wait, and so do jobs that fail for this cause later.",
            "Jobs whose next attempt is due within a second may still run.",
            "They wait until somebody releases the group, or until it is resolved and fixed.",
        ),
        columns=GROUP_COLUMNS,
        names=("group",),
        help="""
            \b
            redrive dlq hold 3f9a --why 'the provider is down until Monday'

            Jobs that fail for this cause later wait, too. They spend no attempt until
            you release the group. If the group is resolved in a version, they are tried
            when all workers run it.
        """,
    ),
    "release": Verb(
        "Let the held jobs of a group run again.",
        "dlq release {group}",
        "Release",
        "group",
        _preview_release,
        partial(_hold, is_held=False),
        remarks=(
            "Its jobs are retried within half an hour, at most about ten of them a second.",
            "To try a few first: redrive dlq retry.",
        ),
        columns=GROUP_COLUMNS,
        names=("group",),
        help="""
            \b
            redrive dlq release 3f9a --why 'the provider is back'

            They are retried within half an hour. To try a few first: redrive dlq retry.
        """,
    ),
    "give-up": Verb(
        "Turn the failing jobs of a group into dead letters.",
        "dlq give-up {group}",
        "Give up",
        "group",
        partial(
            _preview_jobs,
            remarks=(
                "They are not retried any longer. You can redrive them later.",
                "Jobs that run now are left out.",
            ),
        ),
        _give_up,
        columns=GROUP_COLUMNS,
        names=("group",),
        nothing={"given_up": 0},
        help="""
            \b
            redrive dlq give-up 3f9a --why 'the customer has left'

            They are not retried any longer. You can redrive them later.
        """,
    ),
}
"""Word in the address -> change."""
