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
COLUMNS = ("kind", "error_class", "message", "failing", "open")
_IS_OVER = "the group has no failing jobs, and no open dead letters"


def preview_group(
    conn: Connection, order: Order, verb: str, shell: str, remarks: Sequence[str]
) -> Preview:
    """Preview a change of the group that the order names.

    Args:
        verb: text of the button.
        shell: shell command that makes the same change.
        remarks: sentences that the user reads before the change.

    Raises:
        Refused: the order names no group, or holds other parameters.
    """
    prefix = named(order.query, "group")
    group = groups.show(conn, prefix)
    seen = Preview(
        title=f"{verb} a group",
        matched=0,
        unit="group",
        verb=verb,
        shell=shell,
        query=order.query,
        columns=COLUMNS,
        remarks=remarks,
    )

    if group is None:
        return replace(seen, obstacle=sentence(_missing(conn, prefix)))

    return replace(seen, matched=1, rows=[group])


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


def _preview_acknowledge(
    conn: Connection, order: Order, *, verb: str, word: str, remark: str
) -> Preview:
    words = ("dlq", word, named(order.query, "group"))
    shell = command(words, why="...")
    seen = preview_group(conn, order, verb, shell, (remark,))
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


def _preview_mute(conn: Connection, order: Order, *, verb: str) -> Preview:
    words = ["dlq", "mute", named(order.query, "group")]
    if verb == "Unmute":
        words.append("--off")

    shell = command(words, None, **{"for": order.more.get("for")}, why="...")
    remarks = ("Redrives skip a muted group.",)

    return preview_group(conn, order, verb, shell, remarks)


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


_REMARKS = (
    "Deaths in older versions are counted.",
    "If it dies in a version with the fix, it has regressed, and an alert fires.",
    "Its open dead letters stay. Redrive or dismiss them.",
)


def _preview_resolve(conn: Connection, order: Order) -> Preview:
    words = ("dlq", "resolve", named(order.query, "group"))
    versions = order.more.get("in") or "..."
    shell = command(words, None, **{"in": versions}, why="...")

    return _with_state(preview_group(conn, order, "Resolve", shell, _REMARKS))


def _preview_unresolve(conn: Connection, order: Order) -> Preview:
    words = ("dlq", "unresolve", named(order.query, "group"))
    shell = command(words, why="...")
    seen = preview_group(conn, order, "Unresolve", shell, ("It is open again.",))
    if seen.rows and seen.rows[0]["fixed_in"] is None:
        seen = replace(seen, obstacle="The group is not resolved.")

    return _with_state(seen)


def _with_state(seen: Preview) -> Preview:
    """Show the state of the group, too."""
    rows = [{**group, "state": worded(group)} for group in seen.rows]
    columns = (*COLUMNS, "state")

    return replace(seen, columns=columns, rows=rows)


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
        partial(
            _preview_acknowledge,
            verb="Acknowledge",
            word="ack",
            remark="It lasts until the group has no open dead letters left.",
        ),
        partial(_acknowledge, is_acknowledged=True),
        names=("group",),
    ),
    "unacknowledge": Verb(
        "Say that nobody works on a group.",
        partial(
            _preview_acknowledge,
            verb="Unacknowledge",
            word="unack",
            remark="The group counts again as one that nobody looked at.",
        ),
        partial(_acknowledge, is_acknowledged=False),
        names=("group",),
    ),
    "mute": Verb(
        "Skip a group in redrives for a while.",
        partial(_preview_mute, verb="Mute"),
        partial(_mute, is_muted=True),
        names=("group",),
        inputs=(Input("for", "For how long (2h, 1d)", default=USUAL_MUTE),),
    ),
    "unmute": Verb(
        "Include a muted group in redrives again.",
        partial(_preview_mute, verb="Unmute"),
        partial(_mute, is_muted=False),
        names=("group",),
    ),
    "resolve": Verb(
        "Say in which version a group is fixed.",
        _preview_resolve,
        _resolve,
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
    ),
    "unresolve": Verb(
        "Open a resolved or regressed group again.",
        _preview_unresolve,
        _unresolve,
        names=("group",),
    ),
}
