"""The figures of several databases in one exporter, each with the label `cell`."""

import threading
import time
from collections.abc import Iterable, Mapping

from prometheus_client.metrics_core import Metric

from redrive.observability.stats import DatabaseStats, up

PATIENCE_SECONDS = 3.0
"""How long a scrape waits for cells that do not answer: the figures of the others must come through
before Prometheus gives the scrape up, by default after ten seconds.
"""


class CellStats:
    """Shows what each cell's reader shows; one that does not answer is down, and no other waits."""

    def __init__(self, cells: Mapping[str, DatabaseStats]) -> None:
        self._cells = cells

    def collect(self) -> Iterable[Metric]:
        """The families, each with the samples of all cells."""
        families: dict[str, Metric] = {}
        answers = self._ask()
        for cell in self._cells:
            for family in answers.get(cell) or [up(is_up=False)]:
                about = (family.name, family.documentation, family.type)
                samples = families.setdefault(family.name, Metric(*about)).samples
                samples += [
                    sample._replace(labels={"cell": cell, **sample.labels})
                    for sample in family.samples
                ]
        return families.values()

    def _ask(self) -> dict[str, list[Metric]]:
        """What has been answered in time. Whoever comes later is read by the next scrape."""
        answers: dict[str, list[Metric]] = {}

        def ask(cell: str, stats: DatabaseStats) -> None:
            answers[cell] = list(stats.collect())

        threads = [
            threading.Thread(target=ask, args=one, name="cell", daemon=True)
            for one in self._cells.items()
        ]
        deadline = time.monotonic() + PATIENCE_SECONDS
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return answers.copy()
