"""Speed of a runner while it has jobs; waits for the database do not count."""

from dataclasses import dataclass

FORGETTING = 0.3
"""Weight of a measurement that is slower than the last speed."""

LEAST_SECONDS = 0.05
"""Shortest time for a measurement that may be of few jobs: they also end together."""


@dataclass(slots=True)
class Speed:
    """Speed of one runner. Instants are monotonic seconds.

    `per_second`: jobs per second, as last measured. `ended`: jobs that ended since, in
    `busy_seconds`.
    """

    per_second: float = 0.0
    ended: int = 0
    busy_seconds: float = 0.0
    busy_since: float = 0.0

    def begin(self, now: float) -> None:
        """Note that the runner has jobs from now on."""
        self.busy_since = now

    def pause(self, now: float) -> None:
        """Note that the runner has no jobs from now on."""
        self.busy_seconds += now - self.busy_since

    def measure(self, now: float, *, is_busy: bool, least: float = 0.0) -> None:
        """Measure the speed. A higher one counts at once, a lower one by and by.

        Jobs of less than `least` seconds count with later ones, or not at all.
        """
        if is_busy:
            self.pause(now)
            self.begin(now)

        if self.busy_seconds < least:
            if is_busy:
                return
            self.ended = 0

        measured = self.ended / self.busy_seconds if self.busy_seconds > 0 else 0.0
        self.ended = 0
        self.busy_seconds = 0.0

        if measured < self.per_second:
            measured = (1 - FORGETTING) * self.per_second + FORGETTING * measured

        self.per_second = measured
