"""Durations and waits on their way to the database, once a minute."""

import time
from collections.abc import Mapping, Sequence

from redrive.observability.metrics import Histogram
from redrive.rules.attempts.settlement import Outcome
from redrive.rules.times import DURATION_BUCKETS, WAIT_BUCKETS
from redrive.worker.store import Measured

Pair = tuple[str, str]
"""Queue and kind."""
Counts = Mapping[Pair, Sequence[int]]

LEFT_OUT = {Outcome.RELEASE.label, Outcome.CANCEL.label}
"""Attempts with these outcomes did not run to their end."""
NO_DURATION = (0,) * (len(DURATION_BUCKETS) + 1)
NO_WAIT = (0,) * (len(WAIT_BUCKETS) + 1)


class TimeBook:
    """Book of what a worker has measured and not sent yet.

    The loop adds to the histograms; maintenance calls `take`.
    """

    def __init__(self, durations: Histogram, waits: Histogram) -> None:
        self._durations = durations
        self._waits = waits
        self._sent_durations: Counts = {}
        self._sent_waits: Counts = {}
        self._minute = time.time() // 60

    def take(self, *, is_last: bool = False) -> list[Measured]:
        """Take what was measured, soon after a minute has ended, or at last."""
        minute = time.time() // 60
        if minute == self._minute and not is_last:
            return []

        self._minute = minute
        durations = _by_kind(self._durations)
        waits = _by_kind(self._waits)

        grown = _growth(self._sent_durations, durations)
        waited = _growth(self._sent_waits, waits)

        self._sent_durations = durations
        self._sent_waits = waits

        return [
            Measured(*pair, grown.get(pair, NO_DURATION), waited.get(pair, NO_WAIT))
            for pair in grown.keys() | waited.keys()
        ]


def _by_kind(histogram: Histogram) -> Counts:
    """Add up the outcomes of each queue and kind."""
    counts: dict[Pair, Sequence[int]] = {}

    for labels, found in histogram.counts().items():
        queue, kind, *outcome = labels
        if LEFT_OUT.intersection(outcome):
            continue

        counts[queue, kind] = _sum(counts.get((queue, kind)), found)

    return counts


def _sum(before: Sequence[int] | None, found: Sequence[int]) -> Sequence[int]:
    if before is None:
        return found

    return [m + n for m, n in zip(before, found, strict=True)]


def _growth(before: Counts, now: Counts) -> Counts:
    """Return by how much counts have grown. A pair that has not grown is left out."""
    grown: dict[Pair, Sequence[int]] = {}

    for pair, counts in now.items():
        old = before.get(pair)
        if old is None:
            grown[pair] = counts
        elif old != counts:
            grown[pair] = [n - m for m, n in zip(old, counts, strict=True)]

    return grown
