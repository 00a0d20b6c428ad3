"""The figures of several databases in one exporter, each with the label `cell`."""

from collections.abc import Iterable, Mapping
from functools import partial

from prometheus_client.metrics_core import Metric

from redrive.database.ask import ask_all
from redrive.observability.stats import DatabaseStats, up

PATIENCE_SECONDS = 3.0
"""How long a scrape waits for cells that do not answer: the figures of the others must
come through before Prometheus gives the scrape up, by default after ten seconds.
"""


class CellStats:
    """Shows what each cell's reader shows; one that does not answer is down, and no
    other waits.
    """

    def __init__(self, cells: Mapping[str, DatabaseStats]) -> None:
        self._cells = cells

    def collect(self) -> Iterable[Metric]:
        """The families, each with the samples of all cells."""
        families: dict[str, Metric] = {}
        asked = {cell: partial(_all_of, stats) for cell, stats in self._cells.items()}
        answers = ask_all(
            asked, PATIENCE_SECONDS
        )  # whoever is late is read by the next scrape
        for cell in self._cells:
            for family in answers.get(cell) or [up(is_up=False)]:
                about = (family.name, family.documentation, family.type)
                samples = families.setdefault(family.name, Metric(*about)).samples
                samples += [
                    sample._replace(labels={"cell": cell, **sample.labels})
                    for sample in family.samples
                ]
        return families.values()


def _all_of(stats: DatabaseStats) -> list[Metric]:
    return list(stats.collect())
