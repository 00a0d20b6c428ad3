"""Default retries by category, the window of a policy, and how explicit values combine."""

import random
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import Policy, Retry
from redrive.rules.attempts import settlement
from redrive.rules.attempts.plan import planned
from redrive.rules.attempts.policy import (
    attempts_of,
    backoff_of,
    decide,
    decide_loss,
    decide_signal,
    window_of,
)
from redrive.rules.model import Category, Claimed, Failure, Reason

HOUR = 3600.0
TWO_DAYS = 48 * HOUR


def _failure(category: str = "transient", **more: Any) -> Failure:
    return Failure("E", "m", Category(category), "f", **more)


def _limits(policy: Policy, of_job: int | None = None) -> dict[str, Any]:
    return {
        str(one): (attempts_of(policy, one, of_job), window_of(policy, one, of_job))
        for one in Category
    }


DEFAULT = {
    "transient": (100, TWO_DAYS),
    "throttled": (100, TWO_DAYS),
    "lost": (10, None),
    "other": (5, None),
    "auth": (2, None),
    "missing": (2, None),
    "invalid": (1, None),
    "bug": (1, None),
}
FIVE = {"transient": (5, None), "throttled": (5, None), "lost": (5, None)}
HOURLY = {
    "transient": (None, HOUR),
    "throttled": (None, HOUR),
    "lost": (None, HOUR),
    "other": (5, HOUR),
    "auth": (2, HOUR),
    "missing": (2, HOUR),
    "invalid": (1, HOUR),
    "bug": (1, HOUR),
}


@pytest.mark.parametrize(
    ("policy", "of_job", "expected"),
    [
        (Policy(), None, DEFAULT),
        (Policy(timeout=30, backoff=1, same_failure_limit=9), None, DEFAULT),
        (Policy(max_attempts=5), None, DEFAULT | FIVE),
        (
            Policy(backoff=timedelta(days=3)),
            None,
            DEFAULT | {"transient": (100, None), "throttled": (100, None)},
        ),
        (Policy(), 5, DEFAULT | FIVE),
        (Policy(max_attempts=9), 5, DEFAULT | FIVE),
        (Policy(max_attempts=1), None, dict.fromkeys(DEFAULT, (1, None))),
        (Policy(window=timedelta(hours=1)), None, HOURLY),
        (
            Policy(window=HOUR, max_attempts=5),
            None,
            HOURLY | dict.fromkeys(FIVE, (5, HOUR)),
        ),
        (
            Policy(attempts={"transient": 20, "auth": 4}),
            None,
            DEFAULT | {"transient": (20, None), "auth": (4, None)},
        ),
        (
            Policy(max_attempts=3, attempts={"auth": 4, "bug": 2}),
            None,
            DEFAULT
            | dict.fromkeys(("transient", "throttled", "lost", "other"), (3, None))
            | {"auth": (3, None), "bug": (2, None)},
        ),
    ],
)
def test_explicit_limits_replace_the_defaults_of_their_categories(
    policy: Policy, of_job: int | None, expected: dict[str, Any]
):
    """The only default was 5 attempts within 15 to 30 seconds."""
    assert _limits(policy, of_job) == expected


@pytest.mark.parametrize(
    ("policy", "category", "expected"),
    [
        (Policy(), "transient", (30, 3600)),
        (Policy(), "other", (60, 3600)),
        (Policy(backoff=2), "other", (2, 3600)),
        (Policy(backoff=timedelta(hours=2)), "lost", (7200, 7200)),
        (Policy(backoff_cap=10), "transient", (10, 10)),
        (Policy(backoff_cap=600), "other", (60, 600)),
        (Policy(backoffs={"throttled": (30, 900)}), "throttled", (30, 900)),
        (Policy(backoffs={"throttled": (30, 900)}), "transient", (30, 3600)),
    ],
)
def test_a_backoff_that_is_not_set_has_a_default_by_category(
    policy: Policy, category: str, expected: tuple[float, float]
):
    assert backoff_of(policy, Category(category)) == expected


def _retried_for(ending: Any) -> float:
    assert isinstance(ending, settlement.Retry)
    return ending.failure.detail.get("retried_for", 0.0)


def _ends_after(policy: Policy, failure: Failure) -> tuple[int, float, Any]:
    """Fail again and again; return the attempts, the sum of the waits, and the death."""
    retried_for, attempt = 0.0, 1
    while True:
        job = Claimed("k", attempt, retried_for=retried_for)
        ending = decide(job, failure, policy, 0.5)
        if not isinstance(ending, settlement.Retry):
            return attempt, retried_for, ending
        retried_for, attempt = _retried_for(ending), attempt + 1


def test_a_retry_that_would_begin_after_the_window_is_not_made():
    """Only the producer could limit a job's time."""
    policy = Policy(window=timedelta(hours=1))

    attempts, retried_for, death = _ends_after(policy, _failure())

    assert attempts == 8
    assert HOUR / 2 < retried_for <= HOUR
    assert death.reason is Reason.ATTEMPTS_EXHAUSTED
    assert death.failure.detail == {"retried_for": retried_for, "window": HOUR}


@pytest.mark.parametrize("signal", [None, Retry(after=0), Retry(after=-1)])
def test_a_window_ends_retries_without_a_wait(signal: Retry | None):
    """They were retried without an end, thousands of times a minute."""
    policy = Policy(window=10, backoff=0)
    ends = list[Any]()
    for retried_for in (0.0, 9.0, 10.0):
        job = Claimed("k", 1_000_000, retried_for=retried_for)
        ends.append(
            decide_signal(job, signal, _failure(), policy, 0.5)
            if signal
            else decide(job, _failure(), policy, 0.5)
        )

    assert [_retried_for(ending) for ending in ends[:2]] == [1, 10]
    assert isinstance(ends[2], settlement.DeadLetter)
    assert len(planned(policy, Category.TRANSIENT)) == 10


def test_the_default_retries_a_transient_failure_for_two_days():
    attempts, retried_for, death = _ends_after(Policy(), _failure())

    assert 60 < attempts < 80
    assert TWO_DAYS - HOUR < retried_for <= TWO_DAYS
    assert death.failure.detail["window"] == TWO_DAYS


def test_a_wait_that_somebody_asked_for_counts_only_against_an_explicit_window():
    week = _failure("throttled", retry_after=7 * 24 * HOUR)
    asked = Retry(after=7 * 24 * HOUR)
    hourly = Policy(window=HOUR)

    assert _retried_for(decide(Claimed("k", 1), week, Policy(), 0.0)) == 15
    assert _retried_for(decide_signal(Claimed("k", 1), asked, week, Policy(), 0)) == 0
    for ending in (
        decide(Claimed("k", 1), week, hourly, 0.0),
        decide_signal(Claimed("k", 1), asked, week, hourly, 0.0),
    ):
        assert isinstance(ending, settlement.DeadLetter)
        assert ending.reason is Reason.ATTEMPTS_EXHAUSTED
        assert ending.failure.detail["window"] == HOUR


def test_a_lost_process_keeps_the_time_that_was_used():
    lost = _failure("lost")
    job = Claimed("k", 3, retried_for=90.0)

    for alone in (True, False):
        assert _retried_for(decide_loss(job, lost, Policy(), alone=alone)) == 90


def test_a_rule_that_says_retry_has_the_patience_of_an_outage():
    insisted = _failure("bug", verdict="retry")

    assert _ends_after(Policy(), insisted)[0] > 60
    assert _ends_after(Policy(max_attempts=3), insisted)[0] == 3


LIVES = [
    (Policy(), "transient"),
    (Policy(), "other"),
    (Policy(), "auth"),
    (Policy(window=timedelta(hours=1)), "transient"),
    (Policy(window=timedelta(hours=1)), "other"),
    (Policy(max_attempts=20), "throttled"),
    (Policy(max_attempts=20, backoff=1, backoff_cap=4), "transient"),
    (Policy(max_attempts=9, same_failure_limit=4), "other"),
    (Policy(window=60, backoff=0), "transient"),
    (Policy(attempts={"transient": 4}), "transient"),
]


@pytest.mark.parametrize(("policy", "category"), LIVES)
@given(chance=st.randoms(use_true_random=False))
def test_no_job_dies_before_its_last_failure_has_said(
    policy: Policy, category: str, chance: random.Random
):
    failure = _failure(category)
    retried_for, attempt, elapsed = 0.0, 1, 0.0
    foretold: list[float] = []
    while True:
        job = Claimed(
            "k", attempt, retried_for=retried_for, streak=attempt - 1, fingerprint="f"
        )
        ending = decide(job, failure, policy, chance.random())
        if not isinstance(ending, settlement.Retry):
            break
        foretold.append(elapsed + ending.failure.detail["lasts"])
        elapsed += ending.delay
        retried_for, attempt = _retried_for(ending), attempt + 1

    assert foretold
    assert all(at <= elapsed + 1e-6 for at in foretold)


def test_a_job_with_the_default_policy_is_known_to_live_for_most_of_two_days():
    ending = decide(Claimed("k", 1), _failure(), Policy(), 0.5)

    assert isinstance(ending, settlement.Retry)
    assert 46 * HOUR < ending.failure.detail["lasts"] <= 48 * HOUR


def test_a_job_that_expires_is_known_to_live_until_its_next_attempt():
    ending = decide(Claimed("k", 1, expires_in=HOUR), _failure(), Policy(), 0.0)

    assert isinstance(ending, settlement.Retry)
    assert ending.failure.detail["lasts"] == int(ending.delay)


def test_nothing_is_foretold_if_the_handler_chooses_its_waits():
    ending = decide_signal(Claimed("k", 1), Retry(after=5), _failure(), Policy(), 0.5)

    assert isinstance(ending, settlement.Retry)
    assert "lasts" not in ending.failure.detail
