"""Sampling of similar log lines: a few per minute in full, the others as a number.

Ten thousand failures a second would cost more to log than to settle.
"""

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

Sort = TypeVar("Sort", bound=Hashable)

WINDOW_SECONDS = 60.0
IN_FULL = 10
"""Number of lines of each sort that are written in a window."""

MAX_SORTS = 200
"""Number of sorts in a window. Lines of further sorts are only counted together."""


class Sampler(Generic[Sort]):
    """Choice of the lines to write. All instants are monotonic."""

    def __init__(self) -> None:
        self._seen: Counter[Sort] = Counter()
        self._others = 0
        self._over_at = float("inf")

    def lets_through(self, sort: Sort, now: float) -> bool:
        """Return True for the first lines of a sort; the others are counted."""
        # A window begins with its first line.
        if self._over_at == float("inf"):
            self._over_at = now + WINDOW_SECONDS

        if sort not in self._seen and len(self._seen) >= MAX_SORTS:
            self._others += 1
            return False

        self._seen[sort] += 1
        return self._seen[sort] <= IN_FULL

    def held_back(self, now: float) -> list[tuple[Sort | None, int]]:
        """Return how many lines of each sort were held back in a window that is over.

        The sort None stands for all sorts beyond MAX_SORTS.
        """
        if now < self._over_at:
            return []

        found: list[tuple[Sort | None, int]] = []
        for sort, seen in self._seen.most_common():
            if seen > IN_FULL:
                found.append((sort, seen - IN_FULL))

        if self._others:
            found.append((None, self._others))

        self._seen.clear()
        self._others = 0
        self._over_at = float("inf")

        return found
