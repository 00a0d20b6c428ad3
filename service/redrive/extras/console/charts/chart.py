"""A chart: its curves, the values behind them, and the marks on its time axis."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import NamedTuple

from redrive.extras.console.charts import axes
from redrive.extras.console.charts.span import Span

Values = Sequence[float | None]
MOST_MARKS = 40
"""Most marks on a time axis, and most lines of a list of changes, the latest."""
COUNT, SECONDS = "", "s"
"""Units of the values."""


@dataclass(frozen=True, slots=True)
class Line:
    """One curve of a chart; None where nothing is known.

    Attributes:
        look: class of the style sheet: good, bad, warn, run, or dim.
    """

    name: str
    values: Values
    look: str = "run"

    @property
    def total(self) -> float:
        """Return the sum of the values."""
        return sum(_known(self.values))

    @property
    def last(self) -> float | None:
        """Return the latest value that is known."""
        known = _known(self.values)
        return known[-1] if known else None


def _known(values: Values) -> list[float]:
    """Return the values without the gaps."""
    return [value for value in values if value is not None]


@dataclass(frozen=True, slots=True)
class Mark:
    """A change at an instant, as a line on each time axis of a page.

    Attributes:
        kind: what changed, as a class of the style sheet: deploy, campaign, ...
        href: page to open, from the root of the cell, if it has one.
        label: a short text that the chart shows beside the line, such as a version.
    """

    at: datetime
    kind: str
    text: str
    href: str | None = None
    label: str = ""


class Changes(NamedTuple):
    """A change that happened once or several times.

    Attributes:
        mark: the last of them.
        first: when it happened first.
    """

    mark: Mark
    times: int
    first: datetime


def folded(marks: Sequence[Mark]) -> list[Changes]:
    """Fold changes that say the same into one, latest first."""
    found: dict[str, Changes] = {}
    for mark in sorted(marks, key=attrgetter("at")):
        _, times, first = found.pop(mark.text, (None, 0, mark.at))
        # The latest is the last one again.
        found[mark.text] = Changes(mark, times + 1, first)

    return [*reversed(found.values())][:MOST_MARKS]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of curves over a span.

    Attributes:
        name: name of the chart on its page, for addresses and ids.
        is_stacked: draw bars on top of each other; otherwise, draw curves.
        is_summed: the values are counts of events, which add up.
        unit: unit of the values; counts have none.
        nothing: what an empty chart says.
    """

    name: str
    title: str
    lines: Sequence[Line]
    span: Span
    marks: Sequence[Mark] = ()
    is_stacked: bool = False
    is_summed: bool = False
    unit: str = COUNT
    nothing: str = "Nothing in this span."

    @property
    def starts(self) -> Sequence[datetime]:
        """Return the starts of the steps."""
        return self.span.starts()

    @property
    def since(self) -> datetime:
        """Return the left end of the time axis."""
        return self.starts[0]

    @property
    def until(self) -> datetime:
        """Return the right end of the time axis."""
        return self.starts[-1] + self.span.step

    @property
    def top(self) -> float:
        """Return the top of the value axis."""
        highest = max(self._heights(), default=0)
        is_whole = self.unit != SECONDS

        return axes.top(highest, whole=is_whole)

    def _heights(self) -> Iterator[float]:
        for values in self._steps():
            known = _known(values)
            yield sum(known) if self.is_stacked else max(known, default=0)

    def _steps(self) -> Iterator[Values]:
        """Yield the values of all lines in each step."""
        return zip(*(line.values for line in self.lines), strict=True)

    @property
    def is_empty(self) -> bool:
        """Return True if no value is above 0."""
        return not any(value for line in self.lines for value in line.values)

    @property
    def shown_marks(self) -> Sequence[Mark]:
        """Return the marks within the time axis, oldest first, each once in a step."""
        found = [m for m in self.marks if self.since <= m.at < self.until]
        found.sort(key=attrgetter("at"))
        by_step: dict[tuple[datetime, str], Mark] = {}
        for mark in found:
            by_step.setdefault((self._step(mark), mark.text), mark)

        return [*by_step.values()][-MOST_MARKS:]

    def rows(self) -> Iterator[tuple[datetime, Sequence[float | None], str]]:
        """Yield the time, values and changes of each step, for the table."""
        changes: dict[datetime, list[str]] = defaultdict(list)
        for mark in self.shown_marks:
            changes[self._step(mark)].append(mark.text)

        for start, values in zip(self.starts, self._steps(), strict=True):
            yield start, values, "; ".join(changes[start])

    def _step(self, mark: Mark) -> datetime:
        """Return the start of the step in which a change was made."""
        step = self.span.step
        return self.since + (mark.at - self.since) // step * step

    @property
    def summary(self) -> str:
        """Return the chart in one sentence, for screen readers."""
        if self.is_empty:
            return f"{self.title}: nothing in this span"
        parts = [self._said(line) for line in self.lines]
        return f"{self.title}: {', '.join(parts)}"

    def _said(self, line: Line) -> str:
        if self.is_summed:
            total = axes.short(line.total, self.unit)
            return f"{total} {line.name}"

        values = [value for value in line.values if value]
        most = axes.short(max(values, default=0), self.unit)

        return f"{line.name} at most {most}"
