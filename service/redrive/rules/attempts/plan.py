"""Plan of a policy: the waits of a job that fails again and again."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from redrive.rules.attempts.policy import (
    RETRIED_FOR,
    WINDOW,
    Policy,
    attempts_of,
    counted_wait,
    delay,
    dies_at_once,
    window_of,
)
from redrive.rules.instants import span
from redrive.rules.model import Category
from redrive.rules.rows import Fields

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
    used = earliest_sum = latest_sum = 0.0

    for attempt in range(2, most + 1):
        earliest = delay(policy, attempt=attempt - 1, jitter=0.0, category=category)
        latest = delay(policy, attempt=attempt - 1, jitter=1.0, category=category)

        earliest_sum += earliest
        # As `_retry_in_time` counts: waits of 0 count only in a policy's own window.
        used += earliest if policy.window is None else counted_wait(earliest)
        if used > end:
            return

        latest_sum = min(end, latest_sum + latest)
        yield Planned(
            attempt=attempt,
            earliest=earliest,
            latest=latest,
            after_earliest=earliest_sum,
            after_latest=latest_sum,
        )


def why_over(failures: Sequence[Fields]) -> str | None:
    """Say that the window of a job ended its retries; None if it did not.

    `failures`: the failures of the job, oldest first.
    """
    detail: Fields = failures[-1]["detail"] if failures else {}
    if WINDOW not in detail:
        return None

    window = _length(detail[WINDOW])
    used = _length(detail.get(RETRIED_FOR, 0.0))

    return f"the window of {window} for its retries was over after waits of {used}"


def _length(seconds: float) -> str:
    if seconds >= 1:
        return span(seconds)
    return f"{seconds:g} s"
