"""Changes of queues: pause, resume, and how one is served."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import LiteralString, NamedTuple

from redrive.database.rows import Connection, value
from redrive.database.rows import rows as rows_of
from redrive.jobs.names import unknown
from redrive.rules.brief import counted
from redrive.rules.instants import seconds
from redrive.rules.rows import Row
from redrive.verbs.query import not_a_choice
from redrive.verbs.refusal import Conflict, Invalid, Missing
from redrive.verbs.verb import (
    Done,
    Input,
    Opening,
    Order,
    Preview,
    Verb,
    name_in,
    on_pause,
    sentence,
)

FAIR_LANES = 16
"""Number of lanes that tenants share; the lanes take turns.

Two tenants in the same lane are served in order.
"""
FAIRNESS = {
    "tenant": (FAIR_LANES, "tenants take turns"),
    "none": (1, "jobs run in the order of their times"),
}
"""Who takes turns -> number of lanes, and what that means."""

DAY_SECONDS = 86_400
MOST_DAYS = 400

_DEPTH: LiteralString = """
    select queue, ready, scheduled, retrying, running, dead, paused
    from redrive.depths_v1() where queue = %s"""
_PAUSE: LiteralString = "select redrive.pause_v1(%s, %s, %s)"
_RESUME: LiteralString = "select redrive.resume_v1(%s, %s, %s)"
_SET_LANES: LiteralString = "select redrive.set_lanes_v1(%s, %s, %s, %s)"
_SET_HISTORY: LiteralString = "select redrive.set_history_v1(%s, %s, %s, %s)"
CREATE = Input(
    "create", "Allow a queue that no job has been in yet", hint="true", kind="boolean"
)


def _preview(conn: Connection, order: Order, *, word: str, remark: str) -> Preview:
    name, rows, obstacle = _looked_up(conn, order)
    remarks = [remark]
    for row in rows:  # at most one
        remarks, obstacle = on_pause(
            f"Queue {name}", word, remark, is_paused=row["paused"]
        )

    return Preview(
        columns=_columns(rows),
        rows=rows,
        remarks=remarks,
        obstacle=obstacle,
        lifted_by="create" if word == "pause" and not rows else "",
    )


def _columns(rows: list[Row]) -> tuple[str, ...]:
    """Return the columns but the last, `paused`, which a sentence tells."""
    return tuple(rows[0])[:-1] if rows else ()


def _creates(order: Order) -> bool:
    return _truth("create", order.more.get("create", "")) or False


def _truth(name: str, text: str) -> bool | None:
    """Return what a text says: true, false, or nothing."""
    word = text.strip().lower()
    if word not in {"", "true", "false"}:
        raise Invalid(f"{name} is {text!r}; it must be true or false")
    return word == "true" if word else None


def _looked_up(conn: Connection, order: Order) -> tuple[str, list[Row], str | None]:
    """Return a queue's name, its row, and why it cannot be changed."""
    name = name_in(order.query, "queue")
    rows = rows_of(conn, _DEPTH, name)
    if rows or _creates(order):
        return name, rows, None

    warning = unknown(conn, "queue", name)
    return name, rows, sentence(warning or f"there is no queue {name}")


def _pause(opening: Opening, order: Order) -> Done:
    with opening() as conn:
        name = _required(conn, order)
        value(conn, _PAUSE, name, order.actor, order.why)

    return Done(
        text=f"{name} is paused.",
        report={"queue": name, "paused": True},
        path="/queues",
    )


def _required(conn: Connection, order: Order) -> str:
    """Return the name of a queue that may be changed. Raises Refused."""
    name, _, obstacle = _looked_up(conn, order)
    if obstacle:
        raise Missing(obstacle)
    return name


def _resume(opening: Opening, order: Order) -> Done:
    name = name_in(order.query, "queue")

    with opening() as conn:
        if not value(conn, _RESUME, name, order.actor, order.why):
            raise Conflict(f"{name} was not paused")

    return Done(
        text=f"{name} is resumed.",
        report={"queue": name, "paused": False},
        path="/queues",
    )


# ---------------------------------------------------------------------- settings


class _Setting(NamedTuple):
    """Setting of a queue to change, and its description."""

    name: str
    statement: LiteralString
    text: str
    values: tuple[object, ...] = ()


def _settings(more: Mapping[str, str]) -> list[_Setting]:
    """Return the settings to change. Raises Refused if a value is invalid."""
    found = [*_fairness(more), *_pausing(more), *_keeping(more)]
    if not found:
        raise Invalid("give fair-by, paused or history")
    return found


def _fairness(more: Mapping[str, str]) -> Iterator[_Setting]:
    text = more.get("fair-by", "").strip()
    if not text:
        return
    if text not in FAIRNESS:
        raise not_a_choice("fair-by", text, FAIRNESS)

    lanes, words = FAIRNESS[text]
    text = f"{words}, for jobs enqueued from now on"
    yield _Setting("fair-by", _SET_LANES, text, (lanes,))


def _pausing(more: Mapping[str, str]) -> Iterator[_Setting]:
    paused = _truth("paused", more.get("paused", ""))
    if paused:
        yield _Setting("paused", _PAUSE, "paused")
    elif paused is not None:
        yield _Setting("paused", _RESUME, "not paused")


def _keeping(more: Mapping[str, str]) -> Iterator[_Setting]:
    text = more.get("history", "").strip()
    if text == "off":
        words = "jobs that end from now on are no longer kept"
        yield _Setting("history", _SET_HISTORY, words, (None,))
    elif text:
        days = (seconds(text) or 0) / DAY_SECONDS
        if not days.is_integer() or not 1 <= days <= MOST_DAYS:
            rule = f"it must be 1d to {MOST_DAYS}d in whole days, or off"
            raise Invalid(f"history is {text!r}; {rule}")

        kept = counted(int(days), "day")
        words = f"jobs that end from now on are kept for {kept}"
        yield _Setting("history", _SET_HISTORY, words, (int(days),))


def _preview_set(conn: Connection, order: Order) -> Preview:
    _, rows, obstacle = _looked_up(conn, order)
    given = {key: text for key, text in order.more.items() if text}
    remarks: list[str] = []
    if order.is_whole or given.keys() & {each.name for each in SETTINGS}:
        remarks = [sentence(one.text) for one in _settings(given)]

    return Preview(
        columns=_columns(rows),
        rows=rows,
        remarks=remarks,
        obstacle=obstacle,
        lifted_by="create" if not rows else "",
    )


def _set(opening: Opening, order: Order) -> Done:
    wanted = _settings(order.more)

    with opening() as conn, conn.transaction():
        name = _required(conn, order)
        for one in wanted:
            conn.execute(one.statement, (name, *one.values, order.actor, order.why))

    texts = "; ".join(one.text for one in wanted)
    values = {one.name: order.more[one.name].strip() for one in wanted}

    return Done(
        text=f"{name} is set: {texts}.",
        report={"queue": name, **values},
        path=f"/queues/{name}",
    )


SETTINGS = (
    Input(
        "fair-by",
        "Who takes turns, for jobs enqueued from now on",
        choices=tuple(FAIRNESS),
    ),
    Input(
        "paused",
        "Stop claiming from it",
        hint="true or false",
        kind="boolean",
        has_off=True,
    ),
    Input("history", "How long to keep jobs that end from now on", hint="7d, or off"),
)
QUEUES: Mapping[str, Verb] = {
    "pause": Verb(
        "Stop claiming from a queue.",
        "queue pause {queue}",
        "Pause",
        "queue",
        partial(
            _preview,
            word="pause",
            remark="Workers stop claiming from it within a second. Running jobs continue.",
        ),
        _pause,
        names=("queue",),
        inputs=(CREATE,),
        help="""
            \b
            redrive queue pause mail --why 'the provider is down'
        """,
    ),
    "resume": Verb(
        "Claim from a paused queue again.",
        "queue resume {queue}",
        "Resume",
        "queue",
        partial(_preview, word="resume", remark="Workers claim from it again."),
        _resume,
        names=("queue",),
        help="""
            \b
            redrive queue resume mail --why 'the provider is back'
        """,
    ),
    "set-queue": Verb(
        "Set how a queue is served.",
        "queue set {queue}",
        "Set",
        "queue",
        _preview_set,
        _set,
        names=("queue",),
        inputs=(*SETTINGS, CREATE),
        help="""
            \b
            redrive queue set mail --fair-by tenant --why 'one customer imports a million addresses'
            redrive queue set mail --paused --why 'the provider is down'
            redrive queue set mail --history 7d --why 'support asks how a mail ended'
        """,
    ),
}
"""Word in the address -> change."""
