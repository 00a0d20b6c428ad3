"""The figures of several databases in one exporter, each with the label `cell`."""

from collections.abc import Iterable, Mapping
from functools import partial

from prometheus_client.metrics_core import Metric

from redrive.database.ask import ask_all
from redrive.observability.stats import DatabaseStats, up

PATIENCE_SECONDS = 3.0
"""How long a scrape waits for cells that do not answer.

Prometheus must get the other cells' figures before its timeout of 10 seconds.
"""


class CellStats:
    """Figures of all cells.

    A cell that does not answer is reported as down, and no other cell waits for it.
    """

    def __init__(self, cells: Mapping[str, DatabaseStats]) -> None:
        self._cells = cells

    def collect(self) -> Iterable[Metric]:
        """Return the families, each with the samples of all cells."""
        asked = {cell: partial(_all_of, stats) for cell, stats in self._cells.items()}
        # The next scrape reads the answer of a cell that is late.
        answers = ask_all(asked, PATIENCE_SECONDS)
        down = [up(is_up=False)]
        families: dict[str, Metric] = {}

        for cell in self._cells:
            for family in answers.get(cell) or down:
                empty = Metric(family.name, family.documentation, family.type)
                merged = families.setdefault(family.name, empty)
                merged.samples += [
                    sample._replace(labels={"cell": cell, **sample.labels})
                    for sample in family.samples
                ]

        return families.values()


def _all_of(stats: DatabaseStats) -> list[Metric]:
    return list(stats.collect())
