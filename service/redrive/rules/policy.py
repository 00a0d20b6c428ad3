"""When to try again and when to give up: the only place that decides it, and it is pure.

A policy is data. It crosses from the runner, which knows the handlers, to the supervisor, which
judges what the runner cannot: its own death.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from redrive.rules import settlement
from redrive.rules.categories import Rule
from redrive.rules.limits import FIRST_INSTANT, LAST_INSTANT
from redrive.rules.model import Category, Claimed, Failure, Reason
from redrive.rules.settlement import NotComplete
from redrive.signals import Cancel, DependencyOpen, GiveUp, Retry, Seconds, Signal, Snooze, seconds

MAX_WAIT = 100 * 366 * 86_400.0
"""Seconds. Further away no instant can be computed: the database would refuse the whole batch."""

MAX_EXPONENT = 62
"""Past this, 2 ** n times any base is past any cap: the power is never computed (power(2, 2000)
overflows).
"""

ONE_RETRY = 2
"""Attempts for what seldom mends itself but sometimes does: a permission or a record that was about
to appear.
"""

RETURNS_PER_SECOND = 100.0
"""Jobs that come back to one process when a breaker's time is over, to be given back again if it
opens anew.
"""

LONGEST_SPREAD_SECONDS = 300.0

CATEGORY_ATTEMPTS = {Category.AUTH: ONE_RETRY, Category.MISSING: ONE_RETRY}
AT_ONCE = {Category.INVALID: Reason.INVALID_PAYLOAD, Category.BUG: Reason.NOT_RETRYABLE}
RETRIED_FOREVER_ALIKE = frozenset({Category.TRANSIENT, Category.THROTTLED, Category.LOST})
"""Categories in which the same failure again says nothing new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a kind of job is retried. Durations are timedeltas or seconds.

    Args:
        max_attempts: attempts in all, the first one included.
        timeout: of one attempt; it is hard: a handler that ignores it is killed with its process.
        backoff: the longest wait after the first failure; it doubles with each one (full jitter
            below it).
        backoff_cap: the longest wait of all.
        max_losses: processes that may die under a job before it is taken for their killer.
        same_failure_limit: failures alike in a row, outside the transient categories, that end the
            retries early.
        rules: what this handler knows better than the table of categories; the first that matches
            holds.
        attempts: attempts for failures of a category, where they differ: {"auth": 4}.
        backoffs: (backoff, backoff_cap) for failures of a category, where they differ:
            {"throttled": (30, 900)}.
    """

    max_attempts: int = 5
    timeout: Seconds = 300
    backoff: Seconds = 2
    backoff_cap: Seconds = 3600
    max_losses: int = 3
    same_failure_limit: int = 3
    rules: Sequence[Rule] = ()
    attempts: Mapping[str, int] = field(default_factory=dict[str, int])
    backoffs: Mapping[str, tuple[Seconds, Seconds]] = field(
        default_factory=dict[str, tuple[Seconds, Seconds]]
    )

    def __post_init__(self) -> None:
        for name in ("max_attempts", "max_losses", "same_failure_limit"):
            if getattr(self, name) < 1:
                msg = f"Policy({name}={getattr(self, name)}): must be 1 or more"
                raise ValueError(msg)
        if not 0 < seconds(self.timeout) <= 7 * 86_400:
            msg = f"Policy(timeout={self.timeout}): must lie above 0 and at most at 7 days"
            raise ValueError(msg)
        for base, cap in ((self.backoff, self.backoff_cap), *self.backoffs.values()):
            if not 0 <= seconds(base) <= seconds(cap) <= 366 * 86_400:
                msg = f"Policy(backoff={base}, backoff_cap={cap}): must be 0 <= backoff <= cap <= 366 days"
                raise ValueError(msg)
        unknown = {*self.attempts, *self.backoffs} - {*Category}
        if unknown or any(limit < 1 for limit in self.attempts.values()):
            msg = f"Policy(attempts=, backoffs=) go by category, with 1 attempt or more: {', '.join(Category)}"
            raise ValueError(msg)


def delay(
    policy: Policy, attempt: int, jitter: float, category: Category = Category.OTHER
) -> float:
    """Seconds to wait after the `attempt`th attempt (from 1): full jitter, `jitter` in [0, 1) times
    the ceiling.

    The ceiling doubles from `backoff` up to `backoff_cap`. Source: Brooker, "Exponential Backoff
    And Jitter", 2015.
    """
    base, cap = policy.backoffs.get(category, (policy.backoff, policy.backoff_cap))
    return min(seconds(cap), seconds(base) * 2.0 ** min(max(attempt - 1, 0), MAX_EXPONENT)) * jitter


def decide(job: Claimed, failure: Failure, policy: Policy, jitter: float) -> NotComplete:
    """Choose how a failed attempt ends."""
    limit = job.max_attempts or policy.max_attempts
    category = failure.category
    if failure.verdict == "cancel":
        return settlement.Cancel(failure.message)
    if failure.verdict == "give_up":
        return settlement.DeadLetter(Reason.NOT_RETRYABLE, failure)
    insists = failure.verdict == "retry"
    if category in AT_ONCE and category not in policy.attempts and not insists:
        return settlement.DeadLetter(AT_ONCE[category], failure)
    if job.attempt >= limit:
        return settlement.DeadLetter(Reason.ATTEMPTS_EXHAUSTED, failure)
    if (
        job.attempt >= policy.attempts.get(category, CATEGORY_ATTEMPTS.get(category, limit))
        and not insists
    ):
        return settlement.DeadLetter(Reason.NOT_RETRYABLE, failure)
    alike = job.streak + 1 if failure.fingerprint == job.fingerprint else 1
    if alike >= policy.same_failure_limit and category not in RETRIED_FOREVER_ALIKE and not insists:
        return settlement.DeadLetter(Reason.SAME_FAILURE, failure)
    wait = delay(policy, job.attempt, jitter, category)
    return _again_or_expired(job, failure, max(wait, failure.retry_after or 0.0))


def decide_signal(
    job: Claimed, signal: Signal, failure: Failure, policy: Policy, jitter: float
) -> NotComplete:
    """Choose how an attempt ends whose handler said so. `failure` is the signal as a record."""
    match signal:
        case Cancel():
            return settlement.Cancel(failure.message)
        case GiveUp():
            return settlement.DeadLetter(Reason.GAVE_UP, failure)
        case Snooze(until=until):
            if isinstance(until, datetime):
                return settlement.Release(
                    "snoozed", at=min(max(until, FIRST_INSTANT), LAST_INSTANT)
                )
            return settlement.Release("snoozed", delay=_bounded(until))
        case DependencyOpen(name=name, after=after):
            return settlement.Release(f"breaker {name}", delay=after)
        case Retry(after=after):
            if job.attempt >= (job.max_attempts or policy.max_attempts):
                return settlement.DeadLetter(Reason.ATTEMPTS_EXHAUSTED, failure)
            wait = delay(policy, job.attempt, jitter) if after is None else _bounded(after)
            return _again_or_expired(job, failure, wait)
        case _:
            return decide(job, failure, policy, jitter)


def put_off(
    name: str, open_for: float, cooldown: float, ahead: int, jitter: float
) -> settlement.Release:
    """Give a job back that waits for a dependency: they come back after `open_for`, and not all at
    once.

    Args:
        name: the dependency.
        open_for: seconds until its breaker lets a probe through; none when negative.
        cooldown: seconds, of its breaker.
        ahead: jobs put off since it opened.
        jitter: in [0, 1).
    """
    spread = max(cooldown, min(LONGEST_SPREAD_SECONDS, ahead / RETURNS_PER_SECOND))
    return settlement.Release(f"breaker {name}", max(0.0, open_for) + spread * jitter)


def decide_loss(job: Claimed, failure: Failure, policy: Policy, *, alone: bool) -> NotComplete:
    """Choose how an attempt ends whose process died.

    `alone`: nothing else ran in it, so the job did it. Otherwise it is one suspect of several: it
    gets its attempt back, and its loss makes it run alone next time. With one attempt only it must
    not start again either way.
    """
    losses = job.losses + 1
    limit = job.max_attempts or policy.max_attempts
    if losses >= policy.max_losses:
        return settlement.DeadLetter(Reason.KILLED_WORKER, failure, losses=1)
    if job.attempt >= limit and (alone or limit == 1):
        return settlement.DeadLetter(Reason.ATTEMPTS_EXHAUSTED, failure, losses=1)
    return settlement.Retry(0.0, failure, losses=1, refund=not alone)


def why_not_started(job: Claimed, policy: Policy) -> Reason | None:
    """Say why a job just claimed must not start at all, or None."""
    if job.expires_in is not None and job.expires_in <= 0:
        return Reason.EXPIRED
    if job.losses >= policy.max_losses:  # rescue counts losses too, but knows no policy
        return Reason.KILLED_WORKER
    if job.attempt > (job.max_attempts or policy.max_attempts):
        return Reason.ATTEMPTS_EXHAUSTED
    return None


def _bounded(wait: float) -> float:
    """A wait that an instant can be made of: a handler may say timedelta.max, a negative number,
    infinity or nan.
    """
    return min(max(0.0, wait), MAX_WAIT)  # in this order: max(nan, 0.0) would be nan


def _again_or_expired(job: Claimed, failure: Failure, wait: float) -> NotComplete:
    if job.expires_in is not None and wait >= job.expires_in:
        return settlement.DeadLetter(Reason.EXPIRED, failure)
    return settlement.Retry(wait, failure)
