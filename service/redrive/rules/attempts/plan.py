"""Plan of a policy: the waits of a job that fails again and again."""

from collections.abc import Iterator
from typing import NamedTuple

from redrive.rules.attempts.policy import (
    Policy,
    attempts_of,
    delay,
    dies_at_once,
    window_of,
)
from redrive.rules.model import Category

MOST_ROWS = 1000
"""Rows of a plan that has neither a limit of attempts nor a window that ends it."""


class Planned(NamedTuple):
    """An attempt after the first one. All times are in seconds.

    `earliest`, `latest`: the wait before it. `after_earliest`, `after_latest`: the sum
    of the waits up to it.
    """

    attempt: int
    earliest: float
    latest: float
    after_earliest: float
    after_latest: float


def planned(policy: Policy, category: Category) -> list[Planned]:
    """Return the attempts that may follow the first one, in order."""
    if dies_at_once(category, policy):
        return []

    most = attempts_of(policy, category) or MOST_ROWS
    return list(_planned(policy, category, most))


def _planned(policy: Policy, category: Category, most: int) -> Iterator[Planned]:
    window = window_of(policy, category)
    end = float("inf") if window is None else window
    earliest_sum = latest_sum = 0.0
    for attempt in range(2, most + 1):
        earliest = delay(policy, attempt - 1, 0.0, category)
        latest = delay(policy, attempt - 1, 1.0, category)
        earliest_sum += earliest
        if earliest_sum > end:
            return
        latest_sum = min(end, latest_sum + latest)
        yield Planned(attempt, earliest, latest, earliest_sum, latest_sum)
