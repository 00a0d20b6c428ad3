"""Changes in the console: a preview that counts, then the change.

And what previews share: filters as they were seen, the same as a shell command, how many.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row, scalar_row

from redrive.console.query import Query, command, pairs, parse, url
from redrive.console.security.access import Refused
from redrive.database.criteria import Criteria
from redrive.dead_letters.filter import Filter
from redrive.handlers import Handlers
from redrive.live_jobs.filter import JobFilter
from redrive.rules.payloads.limits import NAME

Connection = psycopg.Connection[Any]
Opening = Callable[[], AbstractContextManager[Connection]]

MOST = 10_000
"""Dead letters or jobs that one request changes; for more there is the command line."""
SAMPLE = 10
WHY_LENGTH = 2000


@dataclass(frozen=True, slots=True)
class Input:
    """Something more that a form asks for."""

    name: str
    label: str
    default: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Preview:
    """Preview of a change.

    Attributes:
        matched: how many it would change.
        unit: what these are.
        verb: what the button says.
        shell: the same on the command line.
        query: what stands for exactly this, also a minute later.
        columns: of the rows that are shown of it.
        remarks: what to know before.
        obstacle: why it cannot be done from here; None = it can.
        estimate: how long it takes on these terms.
        two: kinds for which whoever looks can only plan it: another one starts it.
    """

    title: str
    matched: int
    unit: str
    verb: str
    shell: str
    query: Query
    columns: Sequence[str] = ()
    rows: Sequence[Mapping[str, Any]] = ()
    remarks: Sequence[str] = ()
    obstacle: str | None = None
    inputs: Sequence[Input] = ()
    estimate: str = ""
    two: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Order:
    """A change as somebody wants it done. `handlers`: of ours, to read payloads with."""

    query: Query
    why: str
    actor: str
    more: Mapping[str, str] = field(default_factory=dict[str, str])
    handlers: Handlers | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """Result of a change: a sentence, the same as a report, and the next page."""

    text: str
    report: Mapping[str, Any]
    path: str
    is_shown: bool = False
    """The report is what was asked for; no address and no other page has it."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change there is: a preview, which changes nothing, and the doing.

    `plans`: the preview asks for what only a login that may change it is told.
    """

    what: str
    preview: Callable[[Connection, Query], Preview]
    do: Callable[[Opening, Order], Done]
    of: type[Criteria] | None = None
    names: Sequence[str] = ()
    plans: bool = False
    asks_why: bool = True

    def why(self, text: str) -> str:
        """The why of an order. Raises Refused where there is none."""
        return why_of(text) if self.asks_why else ""


def counted(n: int, one: str) -> str:
    """Format a number with its noun."""
    return f"{n:,} {one}" if n == 1 else f"{n:,} {one}s"


VAGUE = "Choose a filter first. For all there are, use the command line."


def refuse_vague(chosen: Criteria) -> None:
    """Refuse what is about everything there is: it was not looked at."""
    if not chosen.narrows():
        raise Refused(400, VAGUE)


def vague(chosen: Criteria, matched: int) -> str | None:
    """Why nobody can mean this."""
    if not chosen.narrows():
        return VAGUE
    return None if matched else "Nothing matches: there is nothing to do."


def obstacle_of(chosen: Criteria, matched: int) -> str | None:
    """Why it cannot be done in one request."""
    if matched > MOST:
        return f"More than {MOST:,} match. Narrow the filter, or use the command line."
    return vague(chosen, matched)


def until_of(chosen: Filter | JobFilter) -> datetime | None:
    """Return the end of the time filter, so that later dead letters are not included."""
    return chosen.until or (None if chosen.ids or not chosen.narrows() else datetime.now(UTC))


def as_seen(chosen: Filter | JobFilter) -> Query:
    """Return a query that selects exactly these rows, also a minute later."""
    limit = chosen.limit if (chosen.limit or MOST + 1) <= MOST else None
    return list(pairs(replace(chosen, limit=limit)))


def letters_of(query: Query, state: str = "open") -> Filter:
    """The dead letters that a change is about. Raises Refused for those in another state."""
    chosen = parse(Filter, query, states=(state,))
    if tuple(chosen.state) != (state,):
        raise Refused(400, f"state: only dead letters that are {state} can be changed so")
    limit = min(chosen.limit or MOST + 1, MOST + 1)
    return replace(chosen, limit=limit, until=until_of(chosen))


def shell_of(words: Sequence[str], query: Query, of: type[Criteria], **more: str) -> str:
    """Return the shell command as a person types it, without the instant of the
    preview.
    """
    asked = [(name, value) for name, value in query if (name, value) != ("state", "open")]
    return command(words, parse(of, asked), **more)


def refuse_other(matched: int, order: Order) -> None:
    """Refuse a change whose selection is no longer what was previewed."""
    seen = order.more.get("seen")
    if seen is not None and seen != str(matched):
        raise Refused(409, f"{matched:,} match now, you saw {seen}: look again")


def refuse_more(matched: int, order: Order) -> None:
    """Refuse to change more rows than one request may."""
    refuse_other(matched, order)
    if matched > MOST:
        raise Refused(409, f"more than {MOST:,} match: narrow the filter")


def back(chosen: Filter) -> str:
    """Return the page to show after a change: the job, or the list."""
    if len(chosen.ids) == 1:
        return f"/jobs/{chosen.ids[0]}"
    return url("/dead-letters", replace(chosen, limit=None, until=None))


def named(query: Query, name: str) -> str:
    """The one value that a change without a filter is about."""
    values = [value.strip() for key, value in query if key == name and value.strip()]
    if len(values) != 1 or any(key != name for key, _ in query):
        raise Refused(400, f"{name} is missing: say which, once, and nothing else")
    return values[0]


def id_of(query: Query) -> int:
    """The one id. Raises Refused where it is none."""
    return int(parse(Filter, [("id", named(query, "id"))]).ids[0])


def name_in(query: Query, name: str) -> str:
    """The one name. Raises Refused for what can be none."""
    value = named(query, name)
    if not NAME.fullmatch(value):
        raise Refused(400, f"{name} is {value!r}; it must match ^[a-z][a-z0-9_.-]{{0,62}}$")
    return value


def rows_of(conn: Connection, query: LiteralString, *values: Any) -> list[dict[str, Any]]:
    """The rows of a statement."""
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, values).fetchall()


def called(conn: Connection, query: LiteralString, *values: Any) -> Any:
    """The one value of a statement."""
    with conn.cursor(row_factory=scalar_row) as cursor:
        return cursor.execute(query, values).fetchone()


def why_of(text: str) -> str:
    """The why of a change. Raises Refused where there is none."""
    why = text.strip()
    if not why:
        raise Refused(400, "why is missing: say why, the audit log keeps it")
    if len(why) > WHY_LENGTH or "\0" in why:
        raise Refused(400, f"why: at most {WHY_LENGTH} characters, and no NUL")
    return why
