"""What a handler raises to say how its attempt ends. Not errors: none of them is logged as one."""

from datetime import datetime, timedelta

Seconds = timedelta | float | int
"""A duration: a timedelta or a number of seconds."""


def seconds(duration: Seconds) -> float:
    """Read a duration as seconds."""
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)


class Signal(Exception):
    """The base of the four."""


class Retry(Signal):
    """Try again no sooner than `after`; the attempt counts."""

    def __init__(self, why: str = "", *, after: Seconds | None = None) -> None:
        super().__init__(why)
        self.after = None if after is None else seconds(after)


class Snooze(Signal):
    """Run again at `until` (an aware datetime) or in `until` (a duration); the attempt does not
    count.
    """

    def __init__(self, until: datetime | Seconds) -> None:
        super().__init__()
        if isinstance(until, datetime) and until.tzinfo is None:
            msg = "Snooze(until=...) takes an aware datetime: 9 o'clock where?"
            raise ValueError(msg)
        self.until: datetime | float = until if isinstance(until, datetime) else seconds(until)


class GiveUp(Signal):
    """Dead-letter the job now: trying again cannot help."""

    def __init__(self, why: str) -> None:
        super().__init__(why)


class Cancel(Signal):
    """End the job without a dead letter: its work is no longer wanted."""

    def __init__(self, why: str = "") -> None:
        super().__init__(why)


class DependencyOpen(Signal):
    """Raised by `job.dependency(name)` while its breaker is open: the job is given back, its
    attempt refunded.
    """

    def __init__(self, name: str, after: float) -> None:
        super().__init__(name)
        self.name = name
        self.after = after
