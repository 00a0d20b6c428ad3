"""Changes of breakers: hold one open or closed, or reset it."""

from collections.abc import Mapping
from functools import partial

from redrive.database.rows import Connection
from redrive.database.rows import rows as rows_of
from redrive.jobs import breakers
from redrive.verbs.query import command
from redrive.verbs.refusal import Missing
from redrive.verbs.verb import Done, Opening, Order, Preview, Verb, name_in

_FORCED = {
    "open": "Jobs that need it are released without an attempt until the breaker is reset.",
    "closed": "Jobs that need it run, even if they fail, until the breaker is reset.",
    None: "The breaker closes, and opens again if jobs fail.",
}


def _preview_breaker(
    conn: Connection, order: Order, *, verb: str, state: str | None
) -> Preview:
    name = name_in(order.query, "name")
    rows = rows_of(
        conn,
        "select name, state, failures, successes from redrive.shown_breakers where name = %s",
        name,
    )
    words = ("breaker", "force", name, state) if state else ("breaker", "reset", name)

    return Preview(
        title=f"{verb}: breaker {name}",
        matched=len(rows),
        unit="breaker",
        verb=verb,
        shell=command(words, why="..."),
        query=order.query,
        columns=("name", "state", "failures", "successes"),
        rows=rows,
        remarks=(_FORCED[state],),
        obstacle=None if rows else f"There is no breaker {name}.",
    )


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
        partial(_preview_breaker, verb="Hold open", state="open"),
        partial(_force, state="open"),
        names=("name",),
    ),
    "hold-closed": Verb(
        "Hold a breaker closed.",
        partial(_preview_breaker, verb="Hold closed", state="closed"),
        partial(_force, state="closed"),
        names=("name",),
    ),
    "reset": Verb(
        "Reset a breaker that is held open or closed.",
        partial(_preview_breaker, verb="Reset", state=None),
        partial(_force, state=None),
        names=("name",),
    ),
}
