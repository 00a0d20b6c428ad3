"""Drain: the time between the signal that stops a worker and its end."""

import time

LAST_SECONDS = 1.5
"""Time after the drain to give jobs back and to end."""


class Drain:
    """Clock of a drain. Running jobs get `seconds` to end; a second signal ends it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.exit_status: int | None = None
        """Exit status of the worker; None until it must end."""
        self.is_on = False
        """True if the loop has begun to drain."""
        self._over_at = self._exit_at = float("inf")

    def signal(self) -> None:
        """Take a signal.

        The clock starts here and not in the loop, which a frozen database may hold for
        seconds.
        """
        seconds = 0.0 if self._is_asked else self.seconds

        self._over_at = min(self._over_at, time.monotonic() + seconds)
        self._exit_at = min(self._exit_at, self._over_at + LAST_SECONDS)

    @property
    def _is_asked(self) -> bool:
        return self._over_at < float("inf")

    def begins(self) -> bool:
        """Return True once, when the drain has been requested and begins now."""
        if self.is_on or not self._is_asked:
            return False
        self.is_on = True
        return True

    def is_over(self, now: float) -> bool:
        """Return True if running jobs must be given back."""
        return now >= self._over_at

    def is_overdue(self, now: float) -> bool:
        """Return True if the process must end, even if something hangs."""
        return now >= self._exit_at

    def end(self, status: int) -> None:
        """End with this exit status, unless there is one that says what went wrong."""
        self.exit_status = self.exit_status or status
