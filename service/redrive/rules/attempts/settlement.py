"""Ends of an attempt: the five settlements, and the words for each of them.

| settlement | statement | counter event, metric label | log line |
|---|---|---|---|
| `Complete` | complete_v1 | completed; succeeded | completed |
| `Retry` | settle_v1, retry | retried | retried |
| `Release` | settle_v1, release | released | released |
| `DeadLetter` | settle_v1, dead | dead | dead-lettered |
| `Cancel` | settle_v1, cancel | cancelled | cancelled |

Import the module and not its names: `settlement.Retry` is what the policy chose, `signals.Retry`
what a handler asked for.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Self

from redrive.rules.model import Failure, Reason


class Outcome(StrEnum):
    """The word for a settlement: its value is what settle_v1 takes.

    `event` is what the database's counters call it, `label` the value of the metrics' label
    `outcome`, `logged` the words of the log line.
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
        """One row of the table above."""
        outcome = str.__new__(cls, value)
        outcome._value_ = value
        outcome.event, outcome.label, outcome.logged = event, label, logged
        return outcome


@dataclass(frozen=True, slots=True)
class Complete:
    """The work is done."""

    outcome: ClassVar = Outcome.COMPLETE


@dataclass(frozen=True, slots=True)
class Retry:
    """Run again `delay` seconds from now because of `failure`.

    `losses`: processes that died under this attempt. `refund`: the attempt does not count.
    """

    outcome: ClassVar = Outcome.RETRY
    delay: float
    failure: Failure
    losses: int = 0
    refund: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Move the job to the dead letters; fields as those of `Retry`."""

    outcome: ClassVar = Outcome.DEAD_LETTER
    reason: Reason
    failure: Failure
    losses: int = 0
    refund: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """Give the job back with its attempt refunded, to run at `at` or `delay` seconds from now."""

    outcome: ClassVar = Outcome.RELEASE
    why: str
    delay: float = 0.0
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """End the job; nothing is left of it."""

    outcome: ClassVar = Outcome.CANCEL
    why: str


NotComplete = Retry | Release | DeadLetter | Cancel
"""What settle_v1 carries out; `Complete` travels by itself, without anything to say."""

Settlement = Complete | NotComplete
"""How an attempt ends. Every `match` over it ends in `assert_never`."""
