"""Decision to retry or give up: the only place that makes it, without side effects.

A policy is data. The runner knows the handlers and sends the policy to the supervisor.
The supervisor decides when the runner itself dies.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, cast

from redrive.rules.attempts import settlement
from redrive.rules.attempts.categories import Rule
from redrive.rules.attempts.defaults import DEFAULTS, HOUR
from redrive.rules.attempts.settlement import NotComplete
from redrive.rules.model import Category, Claimed, Failure, Reason
from redrive.rules.payloads.limits import FIRST_INSTANT, LAST_INSTANT
from redrive.rules.rows import Fields
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

MAX_TIMEOUT = 7 * 86_400.0
MAX_BACKOFF = 366 * 86_400.0
MAX_WINDOW = MAX_BACKOFF

RETRIED_FOR, WINDOW = "retried_for", "window"
"""Details of a failure: the job's waits so far, and the window that they exceed.

The next claim reads `retried_for` from the last failure of the job. So no column holds
it, and a redriven job, which has no failure yet, starts from zero.
"""

LASTS = "lasts"
"""Detail of a failure: seconds until the job can die at the earliest.

It supposes that each further attempt fails in the same way.
"""

OnDeath = Literal["continue", "hold"]
"""Effect of a death on later jobs of its ordering key: run them, or hold them."""

SELDOM_MENDED = frozenset({Category.AUTH, Category.MISSING})
"""Categories whose few attempts hold even if the policy allows more in total."""

DEAD_AT_ONCE = {
    Category.INVALID: Reason.INVALID_PAYLOAD,
    Category.BUG: Reason.NOT_RETRYABLE,
}
EXPECTED_TO_REPEAT = frozenset({Category.TRANSIENT, Category.THROTTLED, Category.LOST})
"""Categories in which an identical failure is no reason to stop retrying."""


def is_whole(value: object) -> bool:
    """Return True if this is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return is_whole(value) and value >= 1


def _is_count_or_absent(value: object) -> bool:
    return value is None or _is_count(value)


def _is_duration_or_absent(value: object) -> bool:
    return value is None or is_duration(value)


def _are_rules(value: Any) -> bool:
    return isinstance(value, Sequence) and all(
        isinstance(one, Rule) for one in cast("Sequence[object]", value)
    )


def _is_pair(value: Any) -> bool:
    match value:
        case [base, cap]:
            return is_duration(base) and is_duration(cap)
        case _:
            return False


def _by_category(is_one: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, Mapping) and all(map(is_one, cast("Fields", value).values()))
    )


_COUNT = "a whole number, 1 or more"
_DURATION = "a timedelta or a number of seconds"
_TYPES: Sequence[tuple[Sequence[str], Callable[[Any], bool], str]] = (
    (("max_losses", "same_failure_limit"), _is_count, _COUNT),
    (("max_attempts",), _is_count_or_absent, _COUNT),
    (("timeout",), is_duration, _DURATION),
    (("window", "backoff", "backoff_cap"), _is_duration_or_absent, _DURATION),
    (("rules",), _are_rules, "a list of Rule"),
    (("attempts",), _by_category(_is_count), "whole numbers by category, 1 or more"),
    (("backoffs",), _by_category(_is_pair), "(backoff, backoff_cap) by category"),
)
"""Allowed types of the fields.

They are checked because values from files or variables may be texts.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Rules for retrying jobs of a kind. Durations are timedeltas or seconds.

    A field that is None has a default by category: see docs/failures.md. `max_attempts`
    replaces the default attempts and the default window of transient, throttled, lost
    and other failures. `window` replaces the default window, and the default attempts
    of transient, throttled and lost failures.

    Args:
        max_attempts: total number of attempts, the first one included.
        window: longest time for retries: the sum of the waits between the attempts. A
            retry that would exceed it is not made. Time in a queue, behind a breaker, a
            limit or a snooze does not count. A redriven job gets a new window.
        timeout: hard limit of one attempt. If a handler ignores it, its process is
            killed.
        backoff: longest wait after the first failure. It doubles with each failure. The
            actual wait is random between half of it and all of it (equal jitter).
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

    Raises:
        ValueError: a field has a wrong type or is out of range; the text names it.
    """

    max_attempts: int | None = None
    window: Seconds | None = None
    timeout: Seconds = 300
    backoff: Seconds | None = None
    backoff_cap: Seconds | None = None
    max_losses: int = 3
    same_failure_limit: int = 3
    rules: Sequence[Rule] = ()
    attempts: Mapping[str, int] = field(default_factory=dict[str, int])
    backoffs: Mapping[str, tuple[Seconds, Seconds]] = field(
        default_factory=dict[str, tuple[Seconds, Seconds]]
    )

    def __post_init__(self) -> None:
        self._check_types()
        self._check_durations()
        self._check_categories()

    def _check_types(self) -> None:
        for names, is_right, rule in _TYPES:
            for name in names:
                value = getattr(self, name)
                if not is_right(value):
                    msg = f"Policy({name}={value!r}): must be {rule}"
                    raise ValueError(msg)

    def _check_durations(self) -> None:
        if not 0 < seconds(self.timeout) <= MAX_TIMEOUT:
            rule = "must be more than 0 and at most 7 days"
            msg = f"Policy(timeout={self.timeout}): {rule}"
            raise ValueError(msg)

        window = self.window
        if window is not None and not 0 < seconds(window) <= MAX_WINDOW:
            msg = f"Policy(window={window}): must be more than 0 and at most 366 days"
            raise ValueError(msg)

        _check_backoff(*_common_backoff(self))
        for base, cap in self.backoffs.values():
            _check_backoff(base, cap)

    def _check_categories(self) -> None:
        if not {*self.attempts, *self.backoffs} <= {*Category}:
            allowed = ", ".join(Category)
            msg = f"Policy(attempts=, backoffs=): the keys must be of: {allowed}"
            raise ValueError(msg)

    def without_rules(self) -> dict[str, Any]:
        """Return the fields as plain values, without the rules.

        A rule may name a class, which another process need not be able to import.
        """
        return {
            "max_attempts": self.max_attempts,
            "window": _seconds_or_none(self.window),
            "timeout": seconds(self.timeout),
            "backoff": _seconds_or_none(self.backoff),
            "backoff_cap": _seconds_or_none(self.backoff_cap),
            "max_losses": self.max_losses,
            "same_failure_limit": self.same_failure_limit,
            "attempts": dict(self.attempts),
            "backoffs": {
                category: (seconds(base), seconds(cap))
                for category, (base, cap) in self.backoffs.items()
            },
        }


def _seconds_or_none(duration: Seconds | None) -> float | None:
    return None if duration is None else seconds(duration)


def _check_backoff(base: Seconds, cap: Seconds) -> None:
    if not 0 <= seconds(base) <= seconds(cap) <= MAX_BACKOFF:
        msg = (
            f"Policy(backoff={base}, backoff_cap={cap}):"
            " must be 0 <= backoff <= cap <= 366 days"
        )
        raise ValueError(msg)


def _common_backoff(policy: Policy) -> tuple[Seconds, Seconds]:
    """Return what `backoff` and `backoff_cap` say, or an allowed pair if nothing."""
    base = policy.backoff or 0.0
    cap = policy.backoff_cap
    if cap is None:
        # A backoff above the default cap is allowed; then it is its own cap.
        cap = max(HOUR, seconds(base))

    return base, cap


def backoff_of(policy: Policy, category: Category) -> tuple[float, float]:
    """Return the longest first wait and the cap of a category, in seconds."""
    if category in policy.backoffs:
        base, cap = policy.backoffs[category]
        return seconds(base), seconds(cap)

    base, cap = _common_backoff(policy)
    # A policy without a backoff leaves the first wait to the category.
    if policy.backoff is None:
        base = min(DEFAULTS[category].backoff, seconds(cap))

    return seconds(base), seconds(cap)


def delay(
    policy: Policy, attempt: int, jitter: float, category: Category = Category.OTHER
) -> float:
    """Return the seconds to wait after an attempt: half of a ceiling, or more.

    `attempt` counts from 1; `jitter` is in [0, 1). The ceiling doubles with each
    attempt, from `backoff` up to `backoff_cap`. The wait is ceiling * (1 + jitter) / 2,
    so that no attempt is made too early to succeed. Source: Brooker, "Exponential
    Backoff And Jitter" (equal jitter), 2015.
    """
    base, cap = backoff_of(policy, category)
    doublings = min(max(attempt - 1, 0), MAX_EXPONENT)
    ceiling = min(cap, math.ldexp(base, doublings))
    return ceiling * (1.0 + jitter) / 2.0


def attempts_of(
    policy: Policy, category: Category, of_job: int | None = None
) -> int | None:
    """Return the number of attempts for failures of a category; None = not limited.

    `of_job`: the job's own `max_attempts`. It overrules that of the policy.
    """
    total = of_job or policy.max_attempts
    own = _own_attempts(policy, category, total)
    return _smaller(total, own)


def _smaller(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one or other
    return min(one, other)


def _own_attempts(policy: Policy, category: Category, total: int | None) -> int | None:
    """Return the attempts of a category by itself. `total`: limit for any category."""
    if category in policy.attempts:
        return policy.attempts[category]
    # A total replaces the default, except for failures that time seldom repairs.
    if total is not None and category not in SELDOM_MENDED | DEAD_AT_ONCE.keys():
        return None

    # A window alone ends the retries of an outage, however many there are.
    if policy.window is not None and category in EXPECTED_TO_REPEAT:
        return None

    return DEFAULTS[category].attempts


def window_of(
    policy: Policy, category: Category, of_job: int | None = None
) -> float | None:
    """Return the window of a category's retries in seconds; None = not limited.

    The default window does not forbid a wait that the policy sets.
    """
    if policy.window is not None:
        return seconds(policy.window)
    if of_job or policy.max_attempts or category in policy.attempts:
        return None

    window = DEFAULTS[category].window
    _, cap = backoff_of(policy, category)

    if window is None or cap > window:
        return None
    return window


def counted_wait(wait: float) -> float:
    """Return what a wait takes of a window that the policy sets.

    `Retry(after=0)` and a backoff of 0 would otherwise be retried without an end.
    """
    return wait or 1.0


def decide(
    job: Claimed, failure: Failure, policy: Policy, jitter: float
) -> NotComplete:
    """Choose how a failed attempt ends.

    Args:
        jitter: a random number in [0, 1) that spreads the waits.
    """
    if failure.verdict == "cancel":
        return settlement.Cancel(failure.message)

    reason = _why_no_retry(job, failure, policy)
    if reason is not None:
        return settlement.DeadLetter(reason, failure)

    category = _treated_as(failure)
    wait = delay(policy, job.attempt, jitter, category)

    # Added to Retry-After, so that jobs throttled together return at different times.
    asked = failure.retry_after or 0.0

    ending = _retry_in_time(job, failure, policy, category, wait, asked)
    return _foretold(job, ending, policy, category)


def _treated_as(failure: Failure) -> Category:
    """Return the category whose waits and attempts apply.

    A handler's rule that says `retry` states that time helps.
    """
    if failure.verdict == "retry":
        return Category.TRANSIENT
    return failure.category


def _why_no_retry(job: Claimed, failure: Failure, policy: Policy) -> Reason | None:
    """Return the first reason against another attempt, or None.

    A handler's rule that says `retry` overrules every reason except the limit of
    attempts.
    """
    if failure.verdict == "give_up":
        return Reason.NOT_RETRYABLE
    if failure.verdict != "retry" and dies_at_once(failure.category, policy):
        return DEAD_AT_ONCE[failure.category]
    if _is_last(job, policy, _treated_as(failure)):
        return _why_last(job, policy, _treated_as(failure))

    last = _last_alike(job, failure, policy)
    if last is not None and last <= job.attempt:
        return Reason.SAME_FAILURE

    return None


def dies_at_once(category: Category, policy: Policy) -> bool:
    """Return True if the first failure of this category is the last."""
    return category in DEAD_AT_ONCE and category not in policy.attempts


def _is_last(job: Claimed, policy: Policy, category: Category) -> bool:
    limit = attempts_of(policy, category, job.max_attempts)
    return limit is not None and job.attempt >= limit


def _why_last(job: Claimed, policy: Policy, category: Category) -> Reason:
    """Return the reason of a death after the last attempt."""
    total = job.max_attempts or policy.max_attempts
    if total is not None and job.attempt >= total:
        return Reason.ATTEMPTS_EXHAUSTED
    if category in policy.attempts or category in SELDOM_MENDED:
        return Reason.NOT_RETRYABLE

    return Reason.ATTEMPTS_EXHAUSTED


def decide_signal(
    job: Claimed, signal: Signal, failure: Failure, policy: Policy, jitter: float
) -> NotComplete:
    """Choose the settlement for a signal of a handler, recorded as `failure`.

    Args:
        jitter: a random number in [0, 1) that spreads the waits.
    """
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


def decide_loss(
    job: Claimed, failure: Failure, policy: Policy, *, alone: bool
) -> NotComplete:
    """Choose how an attempt ends after its process died.

    `alone`: nothing else ran in the process, so the job killed it. Otherwise the job is
    one of several suspects, and its attempt is refunded. After enough losses it runs
    alone.
    """
    # The next claim reads the waits so far from this failure, the last one.
    failure = _after(job.retried_for, failure)
    if not alone:
        return settlement.Retry(0.0, failure, losses=1, refund=True)

    if job.losses + 1 >= policy.max_losses:
        return settlement.DeadLetter(Reason.KILLED_WORKER, failure, losses=1)
    if _is_last(job, policy, Category.LOST):
        return settlement.DeadLetter(Reason.ATTEMPTS_EXHAUSTED, failure, losses=1)

    return settlement.Retry(0.0, failure, losses=1)


def why_not_started(job: Claimed, policy: Policy) -> Reason | None:
    """Return the reason why a claimed job must not start, or None."""
    if job.expires_in is not None and job.expires_in <= 0:
        return Reason.EXPIRED
    if job.attempt == 1:  # nearly every job: no policy forbids the first attempt
        return None

    limit = _most_attempts(job, policy)
    if limit is not None and job.attempt > limit:
        return Reason.ATTEMPTS_EXHAUSTED

    return None


def _most_attempts(job: Claimed, policy: Policy) -> int | None:
    """Return the attempts after which a job must not start, whatever failed before."""
    most = 0
    for category in Category:
        limit = attempts_of(policy, category, job.max_attempts)
        if limit is None:
            return None

        most = max(most, limit)

    return most


def _snooze(until: datetime | float) -> settlement.Release:
    if isinstance(until, datetime):
        at = max(until, FIRST_INSTANT)
        at = min(at, LAST_INSTANT)
        return settlement.Release("snoozed", at=at)

    delay = _bounded(until)
    return settlement.Release("snoozed", delay=delay)


def _retry_as_asked(
    job: Claimed, after: float | None, failure: Failure, policy: Policy, jitter: float
) -> NotComplete:
    """Retry as the handler asks, within the limits for transient failures."""
    category = Category.TRANSIENT
    if _is_last(job, policy, category):
        return settlement.DeadLetter(Reason.ATTEMPTS_EXHAUSTED, failure)

    if after is None:
        wait, asked = delay(policy, job.attempt, jitter, category), 0.0
    else:
        # The handler's wait replaces the backoff, and counts as one that was asked for.
        wait, asked = 0.0, _bounded(after)
    return _retry_in_time(job, failure, policy, category, wait, asked)


def _bounded(wait: float) -> float:
    """Limit a wait that a handler chose, so that it can be added to an instant."""
    return min(max(0.0, wait), MAX_WAIT)  # in this order: max(nan, 0.0) would be nan


def _retry_in_time(  # noqa: PLR0913 # the parts of one decision
    job: Claimed,
    failure: Failure,
    policy: Policy,
    category: Category,
    wait: float,
    asked: float,
) -> NotComplete:
    """Retry after `wait` and `asked`, unless the job expires or its window ends before.

    The handler or the other side asked for `asked`. It counts against a window that the
    policy sets. The default window does not shorten it.
    """
    total = wait + asked
    if job.expires_in is not None and total >= job.expires_in:
        return settlement.DeadLetter(Reason.EXPIRED, failure)

    window = window_of(policy, category, job.max_attempts)
    if policy.window is None:
        counted = wait
    else:
        counted = counted_wait(total)
    retried_for = job.retried_for + counted

    # A wait that does not count cannot exceed the window.
    if window is not None and counted and retried_for > window:
        failure = _with(failure, WINDOW, window)
        # The retry is not made, so its wait does not count.
        failure = _after(job.retried_for, failure)
        return settlement.DeadLetter(Reason.ATTEMPTS_EXHAUSTED, failure)

    return settlement.Retry(total, _after(retried_for, failure))


def _foretold(
    job: Claimed, ending: NotComplete, policy: Policy, category: Category
) -> NotComplete:
    """Add to a retry how long the job lives at least."""
    if not isinstance(ending, settlement.Retry):
        return ending

    failure = ending.failure
    window = window_of(policy, category, job.max_attempts)
    left = math.inf
    if window is not None:
        left = window - failure.detail.get(RETRIED_FOR, 0.0)

    lasts = ending.delay + _shortest(job, failure, policy, category, left)
    # Rounded down, because it is a lower limit.
    return replace(ending, failure=_with(failure, LASTS, math.floor(lasts)))


def _shortest(
    job: Claimed, failure: Failure, policy: Policy, category: Category, left: float
) -> float:
    """Return the least seconds from the next attempt to the death of the job.

    Args:
        left: seconds of the window that are left then.
    """
    if job.expires_in is not None:
        return 0.0

    _, cap = backoff_of(policy, category)
    # The longest wait that the window may forbid.
    by_window = max(0.0, left - cap)
    limit = _smaller(
        attempts_of(policy, category, job.max_attempts),
        _last_alike(job, failure, policy),
    )
    if limit is None:
        return by_window if math.isfinite(by_window) else 0.0

    retries = max(0, limit - job.attempt - 1)
    by_attempts = 0.0
    for n in range(retries):
        wait = delay(policy, job.attempt + 1 + n, 0.0, category)
        if 2 * wait >= cap:  # and so are all further ones
            by_attempts += (retries - n) * wait
            break
        by_attempts += wait

    return min(by_attempts, by_window)


def _last_alike(job: Claimed, failure: Failure, policy: Policy) -> int | None:
    """Return the attempt at which identical failures end the retries; None = never."""
    if failure.verdict == "retry" or failure.category in EXPECTED_TO_REPEAT:
        return None

    alike = job.streak + 1 if failure.fingerprint == job.fingerprint else 1
    return job.attempt + policy.same_failure_limit - alike


def _after(retried_for: float, failure: Failure) -> Failure:
    """Return the failure with the time for which its job has been retried."""
    if not retried_for:
        return failure
    return _with(failure, RETRIED_FOR, round(retried_for, 3))


def _with(failure: Failure, name: str, value: float) -> Failure:
    detail = {**failure.detail, name: value}
    return replace(failure, detail=detail)
