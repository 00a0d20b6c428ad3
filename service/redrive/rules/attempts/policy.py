"""Decision to retry or give up: the only place that makes it, without side effects.

A policy is data. The runner knows the handlers and sends the policy to the supervisor.
The supervisor decides when the runner itself dies.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, cast

from redrive.rules.attempts import settlement
from redrive.rules.attempts.categories import Rule
from redrive.rules.attempts.settlement import NotComplete
from redrive.rules.model import Category, Claimed, Failure, Reason
from redrive.rules.payloads.limits import FIRST_INSTANT, LAST_INSTANT
from redrive.signals import (
    Cancel,
    DependencyOpen,
    GiveUp,
    Retry,
    Seconds,
    Signal,
    Snooze,
    is_duration,
    seconds,
)

MAX_WAIT = 100 * 366 * 86_400.0
"""Longest wait, in seconds.

The database cannot compute an instant further away, and would reject the whole batch.
"""

MAX_EXPONENT = 62
"""Largest power of two to compute.

With a larger one any wait exceeds the cap, and floats overflow.
"""

ONE_RETRY = 2
"""Attempts for failures that time seldom repairs, such as a missing permission."""

RETURNS_PER_SECOND = 100.0
"""Released jobs that return to one process each second after a breaker closes.

More jobs at once might open the breaker again."""

SUSPECTS_PER_SECOND = 2.0
"""Suspects that return to one worker each second; it runs only a few at a time."""

LONGEST_SPREAD_SECONDS = 300.0
MAX_TIMEOUT = 7 * 86_400.0
MAX_BACKOFF = 366 * 86_400.0

OnDeath = Literal["continue", "hold"]
"""Effect of a death on later jobs of its ordering key: run them, or hold them."""

CATEGORY_ATTEMPTS = {Category.AUTH: ONE_RETRY, Category.MISSING: ONE_RETRY}
DEAD_AT_ONCE = {
    Category.INVALID: Reason.INVALID_PAYLOAD,
    Category.BUG: Reason.NOT_RETRYABLE,
}
EXPECTED_TO_REPEAT = frozenset({Category.TRANSIENT, Category.THROTTLED, Category.LOST})
"""Categories in which an identical failure is no reason to stop retrying."""


def is_whole(value: object) -> bool:
    """Return True if this is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def _are_rules(value: Any) -> bool:
    return isinstance(value, Sequence) and all(
        isinstance(one, Rule) for one in cast("Sequence[object]", value)
    )


def _is_pair(value: Any) -> bool:
    if not isinstance(value, (list, tuple)):
        return False
    durations = cast("Sequence[object]", value)
    return len(durations) == 2 and all(map(is_duration, durations))  # noqa: PLR2004 # a pair


def _by_category(is_one: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, Mapping)
        and all(map(is_one, cast("Mapping[str, Any]", value).values()))
    )


_TYPES: Sequence[tuple[Sequence[str], Callable[[Any], bool], str]] = (
    (("max_attempts", "max_losses", "same_failure_limit"), is_whole, "a whole number"),
    (
        ("timeout", "backoff", "backoff_cap"),
        is_duration,
        "a timedelta or a number of seconds",
    ),
    (("rules",), _are_rules, "a list of Rule"),
    (("attempts",), _by_category(is_whole), "whole numbers by category"),
    (("backoffs",), _by_category(_is_pair), "(backoff, backoff_cap) by category"),
)
"""Allowed types of the fields.

They are checked because values from files or variables may be texts.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Rules for retrying jobs of a kind. Durations are timedeltas or seconds.

    Args:
        max_attempts: total number of attempts, the first one included.
        timeout: hard limit of one attempt. If a handler ignores it, its process is
            killed.
        backoff: longest wait after the first failure. It doubles with each failure; the
            actual wait is random between 0 and this value (full jitter).
        backoff_cap: upper limit of the doubling.
        max_losses: number of processes that must die while they run the job before it
            is dead-lettered. The last of them must have run nothing else.
        same_failure_limit: number of identical failures in a row that end the retries
            early. Transient categories are exempt.
        rules: the handler's own rules, checked before the table of categories. The
            first match is used.
        attempts: limits of attempts for single categories: {"auth": 4}.
        backoffs: limits (backoff, backoff_cap) for single categories: {"throttled":
            (30, 900)}.
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
        self._check_types()
        self._check_limits()
        self._check_durations()
        self._check_categories()

    def _check_types(self) -> None:
        for names, is_right, rule in _TYPES:
            for name in names:
                value = getattr(self, name)
                if not is_right(value):
                    msg = f"Policy({name}={value!r}): must be {rule}"
                    raise ValueError(msg)

    def _check_limits(self) -> None:
        for name in ("max_attempts", "max_losses", "same_failure_limit"):
            if getattr(self, name) < 1:
                msg = f"Policy({name}={getattr(self, name)}): must be 1 or more"
                raise ValueError(msg)

    def _check_durations(self) -> None:
        if not 0 < seconds(self.timeout) <= MAX_TIMEOUT:
            msg = f"Policy(timeout={self.timeout}): must be more than 0 and at most 7 days"
            raise ValueError(msg)

        for base, cap in ((self.backoff, self.backoff_cap), *self.backoffs.values()):
            if not 0 <= seconds(base) <= seconds(cap) <= MAX_BACKOFF:
                allowed = "must be 0 <= backoff <= cap <= 366 days"
                msg = f"Policy(backoff={base}, backoff_cap={cap}): {allowed}"
                raise ValueError(msg)

    def _check_categories(self) -> None:
        unknown = {*self.attempts, *self.backoffs} - {*Category}
        if unknown or any(limit < 1 for limit in self.attempts.values()):
            allowed = ", ".join(Category)
            rule = f"must have categories as keys ({allowed}), attempts of 1 or more"
            msg = f"Policy(attempts=, backoffs=): {rule}"
            raise ValueError(msg)


def delay(
    policy: Policy, attempt: int, jitter: float, category: Category = Category.OTHER
) -> float:
    """Return the seconds to wait after an attempt: a ceiling times `jitter`.

    `attempt` counts from 1; `jitter` is in [0, 1). The ceiling doubles with each
    attempt, from `backoff` up to `backoff_cap`. Source: Brooker, "Exponential Backoff
    And Jitter" (full jitter), 2015.
    """
    default = (policy.backoff, policy.backoff_cap)
    base, cap = policy.backoffs.get(category, default)
    doublings = min(max(attempt - 1, 0), MAX_EXPONENT)
    doubled = seconds(base) * 2.0**doublings
    return min(seconds(cap), doubled) * jitter


def decide(
    job: Claimed, failure: Failure, policy: Policy, jitter: float
) -> NotComplete:
    """Choose how a failed attempt ends."""
    if failure.verdict == "cancel":
        return settlement.Cancel(failure.message)

    reason = _why_no_retry(job, failure, policy)
    if reason is not None:
        return settlement.DeadLetter(reason, failure)

    wait = delay(policy, job.attempt, jitter, failure.category)
    # Added to Retry-After, so that jobs throttled together return at different times.
    return _retry_unless_expired(job, failure, (failure.retry_after or 0.0) + wait)


def _why_no_retry(job: Claimed, failure: Failure, policy: Policy) -> Reason | None:
    """Return the first reason against another attempt, or None.

    A handler's rule that says `retry` overrules every reason except the limit of
    attempts.
    """
    insists = failure.verdict == "retry"
    if failure.verdict == "give_up":
        return Reason.NOT_RETRYABLE
    if not insists and _dies_at_once(failure.category, policy):
        return DEAD_AT_ONCE[failure.category]
    if job.attempt >= _limit(job, policy):
        return Reason.ATTEMPTS_EXHAUSTED

    return None if insists else _why_give_up(job, failure, policy)


def _dies_at_once(category: Category, policy: Policy) -> bool:
    return category in DEAD_AT_ONCE and category not in policy.attempts


def _why_give_up(job: Claimed, failure: Failure, policy: Policy) -> Reason | None:
    """Return the reason to stop before the job's limit of attempts, or None."""
    category = failure.category
    limit = policy.attempts.get(category, CATEGORY_ATTEMPTS.get(category))
    if limit is not None and job.attempt >= limit:
        return Reason.NOT_RETRYABLE

    alike = job.streak + 1 if failure.fingerprint == job.fingerprint else 1
    if alike >= policy.same_failure_limit and category not in EXPECTED_TO_REPEAT:
        return Reason.SAME_FAILURE

    return None


def decide_signal(
    job: Claimed, signal: Signal, failure: Failure, policy: Policy, jitter: float
) -> NotComplete:
    """Choose the settlement for a signal of a handler, recorded as `failure`."""
    match signal:
        case Cancel():
            return settlement.Cancel(failure.message)
        case GiveUp():
            return settlement.DeadLetter(Reason.GAVE_UP, failure)
        case Snooze(until=until):
            return _snooze(until)
        case DependencyOpen(after=after):  # the recorded name is free of secrets
            return settlement.Release(f"breaker {failure.message}", delay=after)
        case Retry(after=after):
            return _retry_as_asked(job, after, failure, policy, jitter)
        case _:  # an application's own signal counts as a failure
            return decide(job, failure, policy, jitter)


def put_off(
    name: str, open_for: float, cooldown: float, ahead: int, jitter: float
) -> settlement.Release:
    """Release a job that waits for a dependency, and spread the returns over time.

    Args:
        name: the name of the dependency.
        open_for: seconds until its breaker lets a probe through; a negative number
            counts as 0.
        cooldown: the breaker's cooldown in seconds.
        ahead: number of jobs that were put off since the breaker opened.
        jitter: a random number in [0, 1).
    """
    spread = max(cooldown, min(LONGEST_SPREAD_SECONDS, ahead / RETURNS_PER_SECOND))
    return settlement.Release(f"breaker {name}", max(0.0, open_for) + spread * jitter)


def put_off_suspect(
    why: str, after: float, ahead: int, jitter: float
) -> settlement.Release:
    """Release a suspect for about `after` seconds, because it cannot run now.

    Args:
        why: the resource that is missing.
        after: seconds until the resource may be free.
        ahead: number of suspects put off since it was last free, this one included.
        jitter: a random number in [0, 1).
    """
    spread = min(LONGEST_SPREAD_SECONDS, 1.0 + ahead / SUSPECTS_PER_SECOND)
    return settlement.Release(why, after + spread * (0.5 + jitter))


def decide_loss(
    job: Claimed, failure: Failure, policy: Policy, *, alone: bool
) -> NotComplete:
    """Choose how an attempt ends after its process died.

    `alone`: nothing else ran in the process, so the job killed it. Otherwise the job is
    one of several suspects, and its attempt is refunded. After enough losses it runs
    alone.
    """
    if not alone:
        return settlement.Retry(0.0, failure, losses=1, refund=True)
    if job.losses + 1 >= policy.max_losses:
        return settlement.DeadLetter(Reason.KILLED_WORKER, failure, losses=1)
    if job.attempt >= _limit(job, policy):
        return settlement.DeadLetter(Reason.ATTEMPTS_EXHAUSTED, failure, losses=1)

    return settlement.Retry(0.0, failure, losses=1)


def why_not_started(job: Claimed, policy: Policy) -> Reason | None:
    """Return the reason why a claimed job must not start, or None."""
    if job.expires_in is not None and job.expires_in <= 0:
        return Reason.EXPIRED
    if job.attempt > _limit(job, policy):
        return Reason.ATTEMPTS_EXHAUSTED

    return None


def _limit(job: Claimed, policy: Policy) -> int:
    """Return the job's own limit of attempts, or else that of its kind's policy."""
    return job.max_attempts or policy.max_attempts


def _snooze(until: datetime | float) -> settlement.Release:
    if isinstance(until, datetime):
        at = min(max(until, FIRST_INSTANT), LAST_INSTANT)
        return settlement.Release("snoozed", at=at)
    return settlement.Release("snoozed", delay=_bounded(until))


def _retry_as_asked(
    job: Claimed, after: float | None, failure: Failure, policy: Policy, jitter: float
) -> NotComplete:
    """Retry as the handler asks, within the limit of attempts and the job's window."""
    if job.attempt >= _limit(job, policy):
        return settlement.DeadLetter(Reason.ATTEMPTS_EXHAUSTED, failure)
    wait = delay(policy, job.attempt, jitter) if after is None else _bounded(after)
    return _retry_unless_expired(job, failure, wait)


def _bounded(wait: float) -> float:
    """Limit a wait that a handler chose, so that it can be added to an instant."""
    return min(max(0.0, wait), MAX_WAIT)  # in this order: max(nan, 0.0) would be nan


def _retry_unless_expired(job: Claimed, failure: Failure, wait: float) -> NotComplete:
    if job.expires_in is not None and wait >= job.expires_in:
        return settlement.DeadLetter(Reason.EXPIRED, failure)
    return settlement.Retry(wait, failure)
