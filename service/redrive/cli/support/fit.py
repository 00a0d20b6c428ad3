"""Fit of a table to a screen: which columns it shows, and how wide they are."""

from collections.abc import Sequence
from typing import NamedTuple

LEAST = (
    *(
        "error",
        "tz",
        "last_job",
        "login",
        "fair_by",
        "rate",
        "version",
        "started",
        "slots",
    ),
    *(
        "created_at",
        "tenant",
        "worker",
        "attempt",
        "attempts",
        "deliveries",
        "redrives",
    ),
    *("time_to_dlq", "category", "total", "scheduled", "retrying", "running"),
    *("redriven", "actor", "queue", "owner", "waiting_for", "died_at", "last_seen"),
)
"""Columns that a narrow screen may leave out, the least important one first."""
WHOLE = frozenset({"id", "kind", "reason", "group", "state", "at"})
"""Columns that are cut only if nothing else is left to cut."""
BELOW = ("error_class", "message", "why", "start")
"""Columns that get lines of their own if a table is too wide."""
SHORT = 16
"""A column that may be cut keeps this many characters."""
GAP = 2
"""Characters between two columns."""


class Fit(NamedTuple):
    """Indices of columns in the table and of columns below each row, and widths."""

    beside: list[int]
    widths: list[int]
    below: list[int]
    left_out: list[str]


def fit(
    names: Sequence[str],
    cells: Sequence[Sequence[str]],
    screen: int,
    below: Sequence[str] = BELOW,
) -> Fit:
    """Choose the columns that a screen has room for.

    Empty columns go first. Texts such as messages then go below their row. Then the
    least important columns are left out, but never the first one, which names the row.
    """
    widths = [max(map(_length, column)) for column in zip(names, *cells, strict=True)]
    beside = list(range(len(names)))
    under: list[int] = []
    if _needed(beside, widths) > screen:
        beside = [i for i in beside if any(row[i] for row in cells)]
    if _needed(beside, widths) > screen:
        under = [i for i in beside if names[i] in below]
        beside = [i for i in beside if names[i] not in below]

    floors = list(map(_floor, names, widths))
    left_out = _leave_out(names, beside, floors, screen)
    _cut(beside, widths, floors, screen)

    return Fit(beside, [widths[i] for i in beside], under, left_out)


def _leave_out(
    names: Sequence[str], beside: list[int], floors: Sequence[int], screen: int
) -> list[str]:
    """Leave out the least important columns until the others fit; return their names."""
    left_out: list[str] = []
    for name in LEAST:
        if _needed(beside, floors) <= screen:
            break
        if name in names and (i := names.index(name)) in beside[1:]:
            beside.remove(i)
            left_out.append(name)

    return left_out


def _floor(name: str, width: int) -> int:
    """Return the width down to which a column is cut first."""
    return width if name in WHOLE else min(width, SHORT)


def _needed(shown: Sequence[int], widths: Sequence[int]) -> int:
    """Return how wide a table of these columns is, with a blank at each side."""
    return sum(widths[i] for i in shown) + GAP * len(shown)


def _cut(
    shown: Sequence[int], widths: list[int], floors: Sequence[int], screen: int
) -> None:
    """Cut the widest columns: down to their floors at first, then further."""
    for least in (floors, [1] * len(floors)):
        while (excess := _needed(shown, widths) - screen) > 0:
            longer = [i for i in shown if widths[i] > least[i]]
            if not longer:
                break
            longer.sort(key=widths.__getitem__)
            widest = longer[-1]
            next_widest = widths[longer[-2]] if len(longer) > 1 else 0
            # Cut it to the next widest one at once: a text may have megabytes.
            to = max(least[widest], widths[widest] - excess, next_widest - 1)
            widths[widest] = to


def _length(text: str) -> int:
    from rich.cells import cell_len  # noqa: PLC0415 # only for people

    return cell_len(text)
