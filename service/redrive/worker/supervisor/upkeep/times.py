"""Durations and waits on their way to the database, once a minute."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from operator import add, sub

from redrive.database.link import Link
from redrive.observability.metrics import Histogram
from redrive.rules.attempts.settlement import Outcome
from redrive.rules.times import DURATION_BUCKETS, WAIT_BUCKETS
from redrive.worker import store
from redrive.worker.store import Measured

Pair = tuple[str, str]
"""Queue and kind."""
Counts = Mapping[Pair, Sequence[int]]

LEFT_OUT = {Outcome.RELEASE.label, Outcome.CANCEL.label}
"""Attempts with these outcomes did not run to their end."""
NO_DURATION = (0,) * (len(DURATION_BUCKETS) + 1)
NO_WAIT = (0,) * (len(WAIT_BUCKETS) + 1)


class TimeBook:
    """What a worker has measured and not sent yet.

    The loop adds to the histograms; maintenance calls `write`.
    """

    def __init__(
        self,
        durations: Histogram,
        waits: Histogram,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._durations, self._waits, self._clock = durations, waits, clock
        self._sent: tuple[Counts, Counts] = ({}, {})
        self._minute = clock() // 60

    def write(self, link: Link, bound: float, *, is_last: bool = False) -> None:
        """Send what was measured, soon after a minute has ended, or at last.

        Raises psycopg.Error; then the times of this minute are lost.
        """
        minute = self._clock() // 60
        if minute == self._minute and not is_last:
            return
        self._minute = minute
        if measured := self._take():
            with link.use(bound=bound) as conn:
                store.count_times(conn, measured)

    def _take(self) -> list[Measured]:
        """Return what was measured since the last call."""
        durations, waits = _by_kind(self._durations), self._waits.counts()
        seen = durations, {(queue, kind): n for (queue, kind), n in waits.items()}
        (grown, waited), self._sent = map(_growth, self._sent, seen), seen
        return [
            Measured(*pair, grown.get(pair, NO_DURATION), waited.get(pair, NO_WAIT))
            for pair in grown.keys() | waited.keys()
        ]


def _by_kind(durations: Histogram) -> Counts:
    """Add up the outcomes of each queue and kind."""
    counts: dict[Pair, Sequence[int]] = defaultdict(lambda: NO_DURATION)
    for (queue, kind, outcome), found in durations.counts().items():
        if outcome not in LEFT_OUT:
            before = counts[queue, kind]
            counts[queue, kind] = list(map(add, before, found))
    return counts


def _growth(before: Counts, now: Counts) -> Counts:
    """Return by how much counts have grown, without those that have not."""
    grown: dict[Pair, Sequence[int]] = {}
    for pair, counts in now.items():
        old = before.get(pair, (0,) * len(counts))
        if any(more := list(map(sub, counts, old))):
            grown[pair] = more
    return grown
