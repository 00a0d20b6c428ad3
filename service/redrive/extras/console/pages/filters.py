"""Filters of lists: a page with its form, and the filters that are no dataclasses."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from redrive.database import audit as log
from redrive.database.criteria import Criteria
from redrive.dead_letters.filter import CATEGORIES, Filter
from redrive.dead_letters.groups.store import STATES
from redrive.extras.console.pages.listing import Layout
from redrive.extras.console.state import Visit
from redrive.rules.rows import Fields, Row
from redrive.verbs.query import (
    Query,
    choices_of,
    name_of,
    no_filter,
    not_a_choice,
    pairs,
    parse,
    texts,
    url,
)
from redrive.verbs.refusal import Invalid

T = TypeVar("T")
SECONDS, SECONDS_MORE = 0.1, 1.0
"""How long a list searches for rare matches: the first page, and each later one."""
ALWAYS = {"id", "kind", "queue", "message"}
"""Columns of a list that are shown even if they are empty."""
GROUP_FILTERS = (
    *("kind", "category", "state", "new-since", "owner"),
    *("unacknowledged", "failing", "dead", "closed"),
)
REVIEW_FILTERS = ("since",)
WEEK = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class ListView:
    """One page of a list, with its filter.

    Attributes:
        path: address of the list without a filter.
        onward: address of the next page; None on the last page.
        layout: its columns and its order.
        is_cut: there are more rows than the page shows.
    """

    path: str
    chosen: Criteria
    rows: Sequence[Fields]
    onward: str | None
    layout: Layout
    is_cut: bool

    @property
    def columns(self) -> Sequence[str]:
        """Return the columns to show: all chosen columns, or each that has a value."""
        columns = self.layout.columns
        if self.layout.given:
            return columns
        return [
            name
            for name in columns
            if name in ALWAYS or any(row[name] for row in self.rows)
        ]

    @property
    def inputs(self) -> list[Fields]:
        """Return the fields of the filter's form, with the values that are set."""
        given = self.chosen.described()
        return [
            {
                "name": name_of(field),
                "help": criterion.help,
                "choices": choices_of(field, criterion),
                "value": ",".join(values),
                "values": values,
            }
            for field, criterion in self.chosen.criteria().items()
            for values in [texts(given.get(field, ""))]
        ]

    @property
    def may_change_all(self) -> bool:
        """Return True if a change of everything that matches may be offered."""
        return bool(self.rows) and self.chosen.narrows()

    def url(self, path: str) -> str:
        """Return the address of another page with the same filter."""
        return url(path, self.chosen)

    def sorted_by(self, column: str) -> str:
        """Return the address of the list, sorted by a column."""
        return self.layout.link(self.path, self.chosen, column)

    def export(self, form: str) -> str:
        """Return the address of the list as a file."""
        return url(f"/export{self.path}.{form}", self.chosen, columns=self.layout.given)

    @property
    def fields(self) -> list[tuple[str, str]]:
        """Return the filter as fields of a form."""
        return list(pairs(self.chosen))


def list_view(
    path: str,
    chosen: Criteria,
    rows: Sequence[Fields],
    place: str | None,
    shape: Layout,
) -> ListView:
    """Return a page of a list; `place` is where the next page begins, if there is one.

    A list in an order of its own has no next page.
    """
    onward = None
    if place and shape.sort is None:
        onward = url(path, chosen, after=place, columns=shape.given)

    shown = shape.sorted(rows)
    is_cut = place is not None or len(shown) < len(rows)

    return ListView(
        path=path, chosen=chosen, rows=shown, onward=onward, layout=shape, is_cut=is_cut
    )


def search_seconds(after: object) -> float:
    """Return how long a page of a list may search for rare matches."""
    return SECONDS if after is None else SECONDS_MORE


def group_choice(query: Query) -> Row:
    """Parse the filters of groups into the arguments of `groups.find`.

    Raises:
        Refused: a name or value is unknown.
    """
    given: dict[str, list[str]] = {name: [] for name in GROUP_FILTERS}

    for name, value in query:
        if name not in given:
            raise no_filter(name, GROUP_FILTERS)
        # A form also sends the fields that nobody has filled in.
        if not value:
            continue
        if name == "category" and value not in CATEGORIES:
            raise not_a_choice(name, value, CATEGORIES)
        if name == "state" and value not in STATES:
            raise not_a_choice(name, value, STATES)

        given[name].append(without_nul(name, value))

    new_since = given["new-since"]
    owner = given["owner"]

    return {
        "kind": given["kind"],
        "category": given["category"],
        "state": given["state"],
        "new_since": new_since[0] if new_since else None,
        "owner": owner[0] if owner else None,
        "unacknowledged": bool(given["unacknowledged"]),
        "failing": bool(given["failing"]),
        "dead": bool(given["dead"]),
        "closed": bool(given["closed"]),
    }


def audit_page(visit: Visit, size: int) -> tuple[Sequence[Fields], str | None]:
    """Return a page of the audit log, and the position of the next page if any.

    Raises:
        Refused: a filter or the position is invalid.
    """
    chosen = parse(log.Choice, visit.query)
    before = audit_place(visit.after)

    with visit.reading() as conn:
        # One row more than fits tells whether there is a next page.
        found = log.newest(conn, chosen, size + 1, before)

    return first_page(found, size)


def review_since(query: Query) -> datetime:
    """Parse the start of a review; the default is a week ago.

    Raises:
        Refused: a filter is unknown, or the text is not a time.
    """
    for name, _ in query:
        if name not in REVIEW_FILTERS:
            raise no_filter(name, REVIEW_FILTERS)
    return parse(Filter, query).since or datetime.now(UTC) - WEEK


def audit_place(text: str | None) -> int | None:
    """Parse the id of the last line shown.

    Raises:
        Refused: it is not an id.
    """
    lines = parse(Filter, [("id", text or "")]).ids
    return lines[0] if lines else None


def skipped(text: str | None) -> int:
    """Parse how many rows come before a page.

    Raises:
        Refused: the text is not a number.
    """
    return audit_place(text) or 0


def part(found: Sequence[T], size: int, skip: int) -> tuple[Sequence[T], str | None]:
    """Return the rows of a page, and how many come before the next page if there is one."""
    onward = None
    if len(found) > size:
        onward = str(skip + size)

    return found[:size], onward


def first_page(
    found: Sequence[Fields], size: int
) -> tuple[Sequence[Fields], str | None]:
    """Return the first rows, and the position of the next page if there are more."""
    if len(found) <= size:
        return found, None

    rows = found[:size]
    return rows, str(rows[-1]["id"])


def without_nul(name: str, text: str) -> str:
    """Return a text that Postgres can hold.

    Args:
        name: name of the text, for the message.

    Raises:
        Refused: it has a NUL.
    """
    if "\0" in text:
        raise Invalid(f"{name} must have no NUL")
    return text
