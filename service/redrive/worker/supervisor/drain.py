"""The grace: the time between the signal that stops a worker and its end."""

import time

LAST_SECONDS = 1.5
"""What is left after the grace to give jobs back and end."""


class Drain:
    """`seconds` for what runs to end by itself, from the first signal on. A second signal ends it
    at once.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.is_on = False
        """Whether the loop has begun to act on it."""
        self._over_at = self._exit_at = float("inf")

    def signal(self) -> None:
        """Take a signal. The clock starts here and not in the loop, which a frozen database may
        hold for seconds.
        """
        now = time.monotonic()
        self._over_at = min(self._over_at, now + (0.0 if self.is_asked else self.seconds))
        self._exit_at = min(self._exit_at, self._over_at + LAST_SECONDS)

    @property
    def is_asked(self) -> bool:
        """Whether there was a signal."""
        return self._over_at < float("inf")

    def is_over(self, now: float) -> bool:
        """Whether what still runs must be given back."""
        return now >= self._over_at

    def is_overdue(self, now: float) -> bool:
        """Whether the process must end, whatever hangs."""
        return now >= self._exit_at
