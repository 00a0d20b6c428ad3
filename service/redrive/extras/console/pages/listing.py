"""Layout of a list: its columns, its order, and the links that keep both."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from redrive.database.criteria import Criteria
from redrive.rules.rows import Fields
from redrive.verbs.query import Query, not_a_choice, url

SORT, COLUMNS = "sort", "columns"
NAMES = (SORT, COLUMNS)
"""Parameters of an address that are no filter, but how the list is shown."""
PAGE = 50
MOST_SORTED = 1000
"""Number of rows that a sorted list reads."""
SHOWN_SORTED = 100


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns and order of a list.

    Attributes:
        known: all columns that the list can show.
        columns: the columns that it shows.
        sort: column to sort by, with a minus for descending; None keeps its own order.
    """

    known: Sequence[str]
    columns: Sequence[str]
    given: str | None
    sort: str | None

    def most(self, limit: int | None) -> int:
        """Return how many rows a page reads."""
        if self.sort is not None:
            return MOST_SORTED
        return min(limit or PAGE, PAGE)

    def sorted(self, rows: Sequence[Fields]) -> Sequence[Fields]:
        """Return the rows in the order that the address asks for; unknown ones last."""
        if self.sort is None:
            return rows

        name = self.sort.removeprefix("-")
        # None cannot be compared with a value, so only the other rows are sorted.
        known = [row for row in rows if row[name] is not None]
        unknown = [row for row in rows if row[name] is None]

        is_falling = self.sort.startswith("-")
        known.sort(key=itemgetter(name), reverse=is_falling)
        return [*known, *unknown][:SHOWN_SORTED]

    def link(self, path: str, chosen: Criteria, column: str) -> str:
        """Return the address that sorts by a column, or by it in reverse."""
        sort = f"-{column}" if self.sort == column else column

        return url(path, chosen, sort=sort, columns=self.given)

    def order_of(self, column: str) -> str | None:
        """Return the order of a column for screen readers; None if it has none."""
        return {column: "ascending", f"-{column}": "descending"}.get(self.sort or "")


def layout(
    query: Query, known: Sequence[str], default: Sequence[str], sortable: Sequence[str]
) -> Layout:
    """Read columns and order from an address.

    Raises:
        Refused: a column is unknown, or the list cannot be sorted by it.
    """
    asked = _asked(query)

    for name in asked:
        if name not in known:
            raise not_a_choice(COLUMNS, name, known)

    sort = dict(query).get(SORT) or None
    if sort is not None and sort.removeprefix("-") not in sortable:
        raise not_a_choice(SORT, sort, sortable)

    columns = [name for name in known if name in asked]
    text = ",".join(asked)

    return Layout(
        known=known, columns=columns or default, given=text or None, sort=sort
    )


def _asked(query: Query) -> list[str]:
    """Return the columns that an address names, each once or several with commas."""
    asked: list[str] = []
    for name, text in query:
        if name == COLUMNS:
            parts = text.split(",")
            asked += filter(None, parts)
    return asked


def filter_of(query: Query) -> Query:
    """Return the parameters that are a filter."""
    return [(name, text) for name, text in query if name not in NAMES]
