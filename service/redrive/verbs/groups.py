"""Changes of a group: acknowledge, mute, resolve, and their opposites."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

from redrive.database.rows import Connection
from redrive.dead_letters.groups import store as groups
from redrive.dead_letters.groups.acknowledgements import acknowledge, unacknowledge
from redrive.dead_letters.groups.fixes import order_of, worded
from redrive.rules.brief import counted
from redrive.rules.instants import seconds
from redrive.rules.rows import Row
from redrive.verbs.query import command
from redrive.verbs.refusal import Conflict, Invalid, Missing
from redrive.verbs.verb import (
    Done,
    Input,
    Opening,
    Order,
    Preview,
    Verb,
    named,
    sentence,
)

MOST_MUTED_SECONDS = 366 * 86_400
USUAL_MUTE = "1d"
COLUMNS = ("kind", "error_class", "message", "failing", "open", "state")
_IS_OVER = "the group has no failing jobs, and no open dead letters"


def look_at_group(conn: Connection, order: Order) -> Preview:
    """Preview a change of the group that the order names.

    Raises:
        Refused: the order names no group, or holds other parameters.
    """
    prefix = named(order.query, "group")
    group = groups.show(conn, prefix)
    if group is None:
        return Preview(matched=0, obstacle=sentence(_missing(conn, prefix)))
    return Preview(rows=[{**group, "state": worded(group)}])


def _missing(conn: Connection, prefix: str) -> str:
    return groups.missing(prefix, groups.named(conn, prefix))


def group_of(conn: Connection, order: Order) -> Row:
    """Return the group of a change.

    Raises:
        Refused: no group has the prefix, or several have it.
    """
    prefix = named(order.query, "group")
    group = groups.show(conn, prefix)
    if group is None:
        raise Missing(_missing(conn, prefix))

    return group


def _preview_acknowledge(conn: Connection, order: Order) -> Preview:
    seen = look_at_group(conn, order)
    if seen.rows and not (seen.rows[0]["open"] or seen.rows[0]["failing"]):
        return replace(seen, obstacle=sentence(_IS_OVER))
    return seen


def _acknowledge(opening: Opening, order: Order, *, is_acknowledged: bool) -> Done:
    act = acknowledge if is_acknowledged else unacknowledge

    with opening() as conn:
        name = group_of(conn, order)["group"]
        if not act(conn, [name], **order.signed):
            raise Conflict(_IS_OVER)

    state = f"acknowledged by {order.actor}" if is_acknowledged else "not acknowledged"

    return Done(
        text=f"{name} is {state}.",
        report={"group": name, "acknowledged": is_acknowledged},
        path=f"/groups/{name}",
    )


def _mute(opening: Opening, order: Order, *, is_muted: bool) -> Done:
    until = None
    state = "no longer muted"
    if is_muted:
        until = _end_of_mute(order.more.get("for") or USUAL_MUTE)
        state = f"muted until {until:%Y-%m-%d %H:%M} UTC"

    with opening() as conn:
        name = group_of(conn, order)["group"]
        groups.mute(conn, name, until, **order.signed)

    return Done(
        text=f"The group is {state}.",
        report={"group": name, "muted_until": until},
        path=f"/groups/{name}",
    )


def _end_of_mute(text: str) -> datetime:
    length = seconds(text)
    if length is None or not 0 < length <= MOST_MUTED_SECONDS:
        raise Invalid(f"for is {text!r}; write 30d, 12h, 5m or 10s")
    return datetime.now(UTC) + timedelta(seconds=length)


def _preview_unresolve(conn: Connection, order: Order) -> Preview:
    seen = look_at_group(conn, order)
    if seen.rows and seen.rows[0]["fixed_in"] is None:
        return replace(seen, obstacle="The group is not resolved.")
    return seen


def _resolve(opening: Opening, order: Order) -> Done:
    versions = [part for part in order.more.get("in", "").split(",") if part.strip()]

    with opening() as conn:
        found = group_of(conn, order)
        name = found["group"]
        try:
            fixes = groups.resolve(conn, name, versions, **order.signed)
        except ValueError as error:
            raise Invalid(str(error)) from None

    if fixes is None:
        raise Missing(f"there is no group {name}")

    return Done(
        text=" ".join(_resolved(found, fixes)),
        report={"group": name, "fixed_in": fixes},
        path=f"/groups/{name}",
    )


def _resolved(found: Row, fixes: Sequence[str]) -> Iterator[str]:
    """Yield sentences about a resolved group, and what is left to do."""
    shown = ", ".join(fixes)
    yield f"The group is resolved in {shown}."

    if found["open"]:
        shell = command(("dlq", "redrive", "--group", found["group"]))
        left = counted(found["open"], "dead letter")
        yield f"It still has {left}; once {fixes[-1]} runs: {shell}."

    unordered = [one for one in found["versions"] if order_of(one) is None]
    if unordered:
        yield (
            f"{unordered[0]} has no order, so a death in such a version never shows a"
            " regression; set REDRIVE_VERSION to one such as 1.4.2."
        )


def _unresolve(opening: Opening, order: Order) -> Done:
    with opening() as conn:
        name = group_of(conn, order)["group"]
        if not groups.unresolve(conn, name, **order.signed):
            raise Conflict("the group is not resolved")

    return Done(
        text="The group is open.",
        report={"group": name, "fixed_in": None},
        path=f"/groups/{name}",
    )


GROUPS: Mapping[str, Verb] = {
    "acknowledge": Verb(
        "Say that you work on a group.",
        "dlq ack {group}",
        "Acknowledge",
        "group",
        _preview_acknowledge,
        partial(_acknowledge, is_acknowledged=True),
        remarks=("It lasts until the group has no open dead letters left.",),
        columns=COLUMNS,
        names=("group",),
    ),
    "unacknowledge": Verb(
        "Say that nobody works on a group.",
        "dlq unack {group}",
        "Unacknowledge",
        "group",
        _preview_acknowledge,
        partial(_acknowledge, is_acknowledged=False),
        remarks=("The group counts again as one that nobody looked at.",),
        columns=COLUMNS,
        names=("group",),
    ),
    "mute": Verb(
        "Skip a group in redrives for a while.",
        "dlq mute {group}",
        "Mute",
        "group",
        look_at_group,
        partial(_mute, is_muted=True),
        remarks=("Redrives skip a muted group.",),
        columns=COLUMNS,
        names=("group",),
        inputs=(Input("for", "For how long (2h, 1d)", default=USUAL_MUTE),),
    ),
    "unmute": Verb(
        "Include a muted group in redrives again.",
        "dlq mute {group} --off",
        "Unmute",
        "group",
        look_at_group,
        partial(_mute, is_muted=False),
        remarks=("Redrives skip a muted group.",),
        columns=COLUMNS,
        names=("group",),
    ),
    "resolve": Verb(
        "Say in which version a group is fixed.",
        "dlq resolve {group}",
        "Resolve",
        "group",
        look_at_group,
        _resolve,
        remarks=(
            "Deaths in older versions are counted.",
            "If it dies in a version with the fix, it has regressed, and an alert fires.",
            "Its open dead letters stay. Redrive or dismiss them.",
        ),
        columns=COLUMNS,
        names=("group",),
        inputs=(
            Input(
                "in",
                "First version with the fix, of each release line",
                hint="1.4.2, or 1.4.2, 1.3.9",
                is_required=True,
                takes_many=True,
            ),
        ),
        help="""
            \b
            redrive dlq resolve 3f9a --in 1.4.2 --why 'the amount may be null'
            redrive dlq resolve 3f9a --in 1.4.2 --in 1.3.9 --why 'with a backport'

            Deaths in older versions are counted. If the group dies in a version with
            the fix, it has regressed, and an alert fires. Its open dead letters stay:
            redrive or dismiss them.
        """,
    ),
    "unresolve": Verb(
        "Open a resolved or regressed group again.",
        "dlq unresolve {group}",
        "Unresolve",
        "group",
        _preview_unresolve,
        _unresolve,
        remarks=("It is open again.",),
        columns=COLUMNS,
        names=("group",),
        help="""
            \b
            redrive dlq unresolve 3f9a --why 'the fix was not the fix'
        """,
    ),
}
"""Word in the address -> change."""
