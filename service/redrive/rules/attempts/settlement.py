"""Ends of an attempt: the five settlements, and the words for each of them.

| settlement | statement | counter event, metric label | log line |
|---|---|---|---|
| `Complete` | complete_v1 | completed; succeeded | completed |
| `Retry` | settle_v1, retry | retried | retried |
| `Release` | settle_v1, release | released | released |
| `DeadLetter` | settle_v1, dead | dead | dead-lettered |
| `Cancel` | settle_v1, cancel | cancelled | cancelled |

Import the module, not its names: the policy chooses `settlement.Retry`, and a handler
raises `signals.Retry`.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Self

from redrive.rules.model import Failure, Reason


class Outcome(StrEnum):
    """Name of a settlement; its value is the argument of settle_v1.

    `event`: its name in the database's counters. `label`: its value of the metrics'
    label `outcome`. `logged`: its words in the log line.
    """

    event: str
    label: str
    logged: str

    COMPLETE = ("complete", "completed", "succeeded", "completed")
    RETRY = ("retry", "retried", "retried", "retried")
    RELEASE = ("release", "released", "released", "released")
    DEAD_LETTER = ("dead", "dead", "dead", "dead-lettered")
    CANCEL = ("cancel", "cancelled", "cancelled", "cancelled")

    def __new__(cls, value: str, event: str, label: str, logged: str) -> Self:
        """Create a member from one row of the table above."""
        outcome = str.__new__(cls, value)
        outcome._value_ = value
        outcome.event = event
        outcome.label = label
        outcome.logged = logged

        return outcome


@dataclass(frozen=True, slots=True)
class Complete:
    """Success: the work is done."""

    outcome: ClassVar = Outcome.COMPLETE


@dataclass(frozen=True, slots=True)
class Retry:
    """Run the job again in `delay` seconds because of `failure`.

    `losses`: number of processes that died during this attempt. `refund`: the attempt
    does not count.
    """

    outcome: ClassVar = Outcome.RETRY
    delay: float
    failure: Failure
    losses: int = 0
    refund: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Move the job to the dead letters; the fields are the same as in `Retry`."""

    outcome: ClassVar = Outcome.DEAD_LETTER
    reason: Reason
    failure: Failure
    losses: int = 0
    refund: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """Release the job with its attempt refunded, to run at `at` or after `delay` s."""

    outcome: ClassVar = Outcome.RELEASE
    why: str
    delay: float = 0.0
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """End the job without a dead letter."""

    outcome: ClassVar = Outcome.CANCEL
    why: str


NotComplete = Retry | Release | DeadLetter | Cancel
"""Settlements of settle_v1. `Complete` has its own statement and no data."""

Settlement = Complete | NotComplete
"""End of an attempt. Every `match` over it ends in `assert_never`."""
