"""What a change of the console is: what it shows before, how it is asked for, what came of it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row, scalar_row

from redrive.console.access import Refused
from redrive.console.query import Query
from redrive.database.criteria import Criteria
from redrive.rules.limits import NAME

Connection = psycopg.Connection[Any]
Opening = Callable[[], AbstractContextManager[Connection]]

WHY_LENGTH = 2000


@dataclass(frozen=True, slots=True)
class Input:
    """Something more that a form asks for."""

    name: str
    label: str
    default: str = ""


@dataclass(frozen=True, slots=True)
class Preview:
    """What a change is about, before it is done.

    Attributes:
        matched: how many it would change.
        unit: what these are.
        verb: what the button says.
        shell: the same on the command line.
        query: what stands for exactly this, also a minute later.
        columns: of the rows that are shown of it.
        remarks: what to know before.
        obstacle: why it cannot be done from here; None = it can.
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


@dataclass(frozen=True, slots=True)
class Order:
    """A change as somebody wants it done."""

    query: Query
    why: str
    actor: str
    more: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a change: a sentence, the same as a report, and the page to go on with.

    `is_shown`: the report is what was asked for; no address and no other page has it.
    """

    text: str
    report: Mapping[str, Any]
    path: str
    is_shown: bool = False


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


def why_of(text: str) -> str:
    """The why of a change. Raises Refused where there is none."""
    why = text.strip()
    if not why:
        raise Refused(400, "why is missing: say why, the audit log keeps it")
    if len(why) > WHY_LENGTH or "\0" in why:
        raise Refused(400, f"why: at most {WHY_LENGTH} characters, and no NUL")
    return why


def counted(n: int, one: str) -> str:
    """How many of something, in words."""
    return f"{n:,} {one}" if n == 1 else f"{n:,} {one}s"


def named(query: Query, name: str) -> str:
    """The one value that a change without a filter is about."""
    values = [value.strip() for key, value in query if key == name and value.strip()]
    if len(values) != 1 or any(key != name for key, _ in query):
        raise Refused(400, f"{name} is missing: say which, once, and nothing else")
    return values[0]


def name_in(query: Query, name: str) -> str:
    """The one name. Raises Refused for what is none."""
    value = named(query, name)
    if not NAME.fullmatch(value):
        raise Refused(400, f"{name} is {value!r}; it must match ^[a-z][a-z0-9_.-]{{0,62}}$")
    return value


def rows_of(conn: Connection, query: LiteralString, *values: Any) -> list[dict[str, Any]]:
    """The rows of a statement."""
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, values).fetchall()


def called(conn: Connection, query: LiteralString, *values: Any) -> Any:
    """What a function says."""
    with conn.cursor(row_factory=scalar_row) as cursor:
        return cursor.execute(query, values).fetchone()
