"""Signals that a handler raises to end its attempt. They are not logged as errors."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

Seconds = timedelta | float | int
"""A duration: a timedelta or a number of seconds."""

LONGEST_WAIT = timedelta(days=366)
"""The longest time that a handler may put its own job off."""


def is_duration(value: object) -> bool:
    """Return True if this is a timedelta or a number; False for a bool or a text."""
    return isinstance(value, (timedelta, float, int)) and not isinstance(value, bool)


def seconds(duration: Seconds) -> float:
    """Return a duration in seconds; infinite if a float cannot hold it."""
    if isinstance(duration, timedelta):
        return duration.total_seconds()

    try:
        return float(duration)
    except OverflowError:  # a whole number may have any size
        return math.inf if duration > 0 else -math.inf


def _check_wait(argument: str, wait: float) -> None:
    """Raise ValueError if a job would wait too long. A negative wait counts as 0."""
    if not wait <= LONGEST_WAIT.total_seconds():  # nan fails each comparison
        msg = (
            f"{argument}: must be at most {LONGEST_WAIT.days} days from now;"
            " to end the job, raise GiveUp or Cancel"
        )
        raise ValueError(msg)


class Signal(Exception):
    """Base class of the signals that a handler may raise."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By default, pickle calls __init__ with the text, which is another argument.
        return Signal.__new__, (type(self), *self.args), vars(self)


class Retry(Signal):
    """Retry the job after at least `after`, at most 366 days; the attempt counts.

    Raises:
        ValueError: `after` is longer than 366 days, infinite or not a number.
    """

    def __init__(self, why: str = "", *, after: Seconds | None = None) -> None:
        super().__init__(why)
        self.after = None if after is None else seconds(after)
        if self.after is not None:
            _check_wait(f"Retry(after={after})", self.after)


class Snooze(Signal):
    """Run the job again at or in `until`; the attempt does not count.

    `until` is an aware datetime or a duration, at most 366 days from now.

    Raises:
        ValueError: `until` is too late, infinite, not a number, or has no time zone.
    """

    def __init__(self, until: datetime | Seconds) -> None:
        super().__init__()
        if isinstance(until, datetime) and until.tzinfo is None:
            msg = (
                "Snooze(until=...) takes an aware datetime: one that says its time zone"
            )
            raise ValueError(msg)

        self.until: datetime | float = (
            until if isinstance(until, datetime) else seconds(until)
        )
        wait = until - datetime.now(UTC) if isinstance(until, datetime) else until

        _check_wait(f"Snooze(until={until})", seconds(wait))


class GiveUp(Signal):
    """Dead-letter the job now, because a retry cannot succeed."""

    def __init__(self, why: str) -> None:
        super().__init__(why)


class Cancel(Signal):
    """End the job without a dead letter: its work is no longer wanted."""

    def __init__(self, why: str = "") -> None:
        super().__init__(why)


class DependencyOpen(Signal):
    """Release the job with its attempt refunded, because a breaker is open.

    `job.dependency(name)` raises this.
    """

    def __init__(self, name: str, after: float) -> None:
        super().__init__(name)
        self.name = name
        self.after = after
