"""Changes of breakers: hold one open or closed, or reset it."""

from collections.abc import Mapping
from functools import partial
from typing import LiteralString

from redrive.database.rows import Connection
from redrive.database.rows import rows as rows_of
from redrive.jobs import breakers
from redrive.verbs.refusal import Missing
from redrive.verbs.verb import Done, Opening, Order, Preview, Verb, name_in, one_of

_READ: LiteralString = """
    select name, state, failures, successes from redrive.shown_breakers where name = %s"""
_COLUMNS = ("name", "state", "failures", "successes")


def _look(conn: Connection, order: Order) -> Preview:
    name = name_in(order.query, "name")
    return one_of(rows_of(conn, _READ, name), f"breaker {name}")


def _force(opening: Opening, order: Order, *, state: str | None) -> Done:
    name = name_in(order.query, "name")

    with opening() as conn:
        if not breakers.force(conn, name, state, **order.signed):
            raise Missing(f"there is no breaker {name}")

    text = f"{name} is held {state}." if state else f"{name} is reset."

    return Done(text=text, report={"name": name, "forced": state}, path="/breakers")


BREAKERS: Mapping[str, Verb] = {
    "hold-open": Verb(
        "Hold a breaker open.",
        "breaker force {name} open",
        "Hold open",
        "breaker",
        _look,
        partial(_force, state="open"),
        remarks=(
            "Jobs that need it are released without an attempt until the breaker is reset.",
        ),
        columns=_COLUMNS,
        names=("name",),
    ),
    "hold-closed": Verb(
        "Hold a breaker closed.",
        "breaker force {name} closed",
        "Hold closed",
        "breaker",
        _look,
        partial(_force, state="closed"),
        remarks=(
            "Jobs that need it run, even if they fail, until the breaker is reset.",
        ),
        columns=_COLUMNS,
        names=("name",),
    ),
    "reset": Verb(
        "Reset a breaker that is held open or closed.",
        "breaker reset {name}",
        "Reset",
        "breaker",
        _look,
        partial(_force, state=None),
        remarks=("The breaker closes, and opens again if jobs fail.",),
        columns=_COLUMNS,
        names=("name",),
        help="""
            \b
            redrive breaker reset smtp --why 'the provider says it is back'
        """,
    ),
}
