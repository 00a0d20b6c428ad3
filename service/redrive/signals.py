"""What a handler raises to say how its attempt ends. They are not errors, nor logged as such."""

from datetime import datetime, timedelta

Seconds = timedelta | float | int
"""A duration: a timedelta or a number of seconds."""


def is_duration(value: object) -> bool:
    """Whether this is a duration, and not what only reads like one."""
    return isinstance(value, (timedelta, float, int)) and not isinstance(value, bool)


def seconds(duration: Seconds) -> float:
    """Return a duration in seconds."""
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)


class Signal(Exception):
    """The base of what a handler may raise."""


class Retry(Signal):
    """Try again no sooner than `after`; the attempt counts."""

    def __init__(self, why: str = "", *, after: Seconds | None = None) -> None:
        super().__init__(why)
        self.after = None if after is None else seconds(after)


class Snooze(Signal):
    """Run again at or in `until`: an aware datetime or a duration. The attempt does not count."""

    def __init__(self, until: datetime | Seconds) -> None:
        super().__init__()
        if isinstance(until, datetime) and until.tzinfo is None:
            msg = "Snooze(until=...) takes an aware datetime: one that says its time zone"
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
    """Raised by `job.dependency(name)` while its breaker is open: release, without an attempt."""

    def __init__(self, name: str, after: float) -> None:
        super().__init__(name)
        self.name = name
        self.after = after
