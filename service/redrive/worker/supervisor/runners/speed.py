"""Speed of a runner while it has jobs: waiting for the database does not make it
slow.
"""

from dataclasses import dataclass

FORGETTING = 0.3
"""Weight of a measurement that is slower than what was believed."""


@dataclass(slots=True)
class Speed:
    """The speed of one runner. Instants are monotonic seconds.

    `per_second`: jobs per second as last measured; `ended` jobs in `busy_seconds` came
        since.
    """

    per_second: float = 0.0
    ended: int = 0
    busy_seconds: float = 0.0
    busy_since: float = 0.0

    def begin(self, now: float) -> None:
        """The runner had no job and gets one."""
        self.busy_since = now

    def pause(self, now: float) -> None:
        """The runner has no job left."""
        self.busy_seconds += now - self.busy_since

    def measure(self, now: float, *, is_busy: bool) -> None:
        """Take the speed; a faster one is believed at once, a slower one by and by."""
        if is_busy:
            self.pause(now)
            self.begin(now)
        measured = self.ended / self.busy_seconds if self.busy_seconds > 0 else 0.0
        self.ended, self.busy_seconds = 0, 0.0
        if measured < self.per_second:
            measured = (1 - FORGETTING) * self.per_second + FORGETTING * measured
        self.per_second = measured
