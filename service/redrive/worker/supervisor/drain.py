"""The drain: the time between the signal that stops a worker and its end."""

import time

LAST_SECONDS = 1.5
"""What is left after the drain to give jobs back and end."""


class Drain:
    """`seconds` for what runs to end by itself, from the first signal on; a second one
    ends it.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._is_on = False
        self._over_at = self._exit_at = float("inf")

    def signal(self) -> None:
        """Take a signal.

        The clock starts here and not in the loop, which a frozen database may hold for
        seconds.
        """
        now = time.monotonic()
        self._over_at = min(
            self._over_at, now + (0.0 if self._is_asked else self.seconds)
        )
        self._exit_at = min(self._exit_at, self._over_at + LAST_SECONDS)

    @property
    def _is_asked(self) -> bool:
        return self._over_at < float("inf")

    @property
    def is_on(self) -> bool:
        """True if the loop has begun to drain."""
        return self._is_on

    def begins(self) -> bool:
        """Return True once, when the drain has been requested and begins now."""
        if self._is_on or not self._is_asked:
            return False
        self._is_on = True
        return True

    def is_over(self, now: float) -> bool:
        """Return True if running jobs must be given back."""
        return now >= self._over_at

    def is_overdue(self, now: float) -> bool:
        """Return True if the process must end, even if something hangs."""
        return now >= self._exit_at
