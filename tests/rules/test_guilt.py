"""Who is to blame for a process that died, and what that costs everybody else."""

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.dead_letters.find import declared_secret
from redrive.rules.attempts.failure import made_up
from redrive.rules.attempts.policy import Policy, decide_loss
from redrive.rules.attempts.releases import put_off_suspect
from redrive.rules.attempts.settlement import DeadLetter, Outcome, Release, Retry
from redrive.rules.model import Category, Claimed, Reason
from redrive.worker.crash import Crash, decide_crash
from redrive.worker.held import Batch, Claim, ClaimedJob
from redrive.worker.kinds import KnownKinds
from redrive.worker.processes.breakers import MAX_REFUNDS, Breakers, Standing
from redrive.worker.protocol import Dependency, Kind, Report

LOST = made_up("RunnerLost", "killed", Category.LOST, "k")
COUNT = st.integers(1, 10)
FAILED = (DeadLetter, Retry)


def _held(
    attempt: int = 1, deliveries: int = 1, extras: str | None = None, kind: str = "k"
) -> ClaimedJob:
    batch, now = Batch(1, ["default"]), datetime.now(UTC)
    return ClaimedJob(
        1,
        deliveries,
        attempt,
        kind,
        "{}",
        extras,
        1,
        now,
        "default",
        batch,
        Claim(1, 1, 1, 1),
        0.0,
    )


@given(attempt=COUNT, losses=st.integers(0, 200), most=COUNT, max_losses=COUNT)
def test_nobody_dies_of_a_process_that_others_were_in(
    attempt: int, losses: int, most: int, max_losses: int
):
    """Whatever its losses and attempts; max_attempts=1 was dead at once."""
    policy = Policy(max_attempts=most, max_losses=max_losses)

    assert decide_loss(
        Claimed("k", attempt, losses=losses), LOST, policy, alone=False
    ) == Retry(0.0, LOST, losses=1, refund=True)


@given(attempt=COUNT, losses=st.integers(0, 200), most=COUNT, max_losses=COUNT)
def test_whoever_was_alone_in_the_process_killed_it(
    attempt: int, losses: int, most: int, max_losses: int
):
    policy = Policy(max_attempts=most, max_losses=max_losses)
    verdict = decide_loss(
        Claimed("k", attempt, losses=losses), LOST, policy, alone=True
    )

    if losses + 1 >= max_losses:
        assert verdict == DeadLetter(Reason.KILLED_WORKER, LOST, losses=1)
    elif attempt >= most:
        assert verdict == DeadLetter(Reason.ATTEMPTS_EXHAUSTED, LOST, losses=1)
    else:
        assert verdict == Retry(0.0, LOST, losses=1)


@pytest.mark.parametrize(
    ("crash", "was_running"),
    [
        (Crash(-9, running=2, killed_for=frozenset({99})), True),
        (Crash(-9, running=1, blameless=True), True),
        (Crash(-9, running=1), False),
    ],
    ids=["a neighbour hung", "killed by us", "had ended"],
)
def test_an_innocent_of_a_dead_runner_gets_its_last_attempt_back(
    crash: Crash, was_running: bool
):
    """One with max_attempts=1 was dead, or a suspect."""
    held = _held(extras='{"max_attempts": 1}')

    assert decide_crash(
        held, crash, KnownKinds(), {}, was_running=was_running
    ) == Release("neighbour_killed")


def test_what_a_handler_calls_secret_is_known_of_its_job_whatever_became_of_its_process():
    """`dlq show` hid what a handler declares secret, but not of a job that outlived its timeout."""
    kinds = KnownKinds()
    kinds.learn(
        {"k": Kind("k", 5.0, Policy(max_attempts=1).without_rules(), secret=("memo",))}
    )
    found = [
        decide_crash(_held(), crash, kinds, {}, was_running=True)
        for crash in (Crash(-9, 1, killed_for=frozenset({1})), Crash(-9, running=2))
    ]
    details = [
        {"detail": end.failure.detail} for end in found if isinstance(end, FAILED)
    ]

    assert [declared_secret([one]) for one in details] == [{"memo"}] * 2
    assert declared_secret([*details, {"detail": {}}]) == {"memo"}, (
        "a lost worker said nothing"
    )


@given(after=st.floats(0, 1e6), ahead=st.integers(0, 10**9), jitter=st.floats(0, 1))
def test_suspects_that_there_is_no_room_for_come_back_in_bounded_time(
    after: float, ahead: int, jitter: float
):
    """They were kept, and more than 20 of them ended all claiming."""
    assert (
        after + 0.5
        <= put_off_suspect("suspect", after, ahead, jitter).delay
        <= after + 450
    )


def test_a_handler_of_its_own_has_only_its_own_dependencies():
    """A breaker for mail.* took in mail.send, whose handler has no dependency."""
    breakers = _breakers({"mail.*": ("mail",), "mail.send": ()})
    report = Report(1, 1, Outcome.RETRY, category="transient")

    assert breakers.holds_back(_held(kind="mail.bulk"), report)
    assert not breakers.holds_back(_held(kind="mail.send"), report)


def _breakers(dependencies: Mapping[str, tuple[str, ...]]) -> Breakers:
    kinds = KnownKinds()
    kinds.learn({kind: Kind(kind, 60.0, {}, on) for kind, on in dependencies.items()})
    breakers = Breakers(kinds)
    breakers.configure([Dependency("mail")])
    return breakers


@pytest.mark.parametrize(
    ("deliveries", "refunds", "is_refunded"),
    [
        (1, None, True),
        (60, 3, True),
        (60, MAX_REFUNDS - 1, True),
        (21, MAX_REFUNDS, False),
    ],
)
def test_only_refunds_of_breakers_count_against_a_job(
    deliveries: int, refunds: int | None, is_refunded: bool
):
    """After 20 snoozes, or a few redrives, the attempt was no longer refunded."""
    breakers = _breakers({"k": ("mail",)})
    breakers._standing["mail"] = Standing("open", time.monotonic() + 5)
    extras = None if refunds is None else f'{{"refunds": {refunds}}}'
    held = _held(deliveries=deliveries, extras=extras)
    report = Report(1, deliveries, Outcome.RETRY, category="transient")

    assert breakers._final(held, report).refund is is_refunded


@pytest.mark.parametrize("asked", [0.0, 3600.0])
def test_a_refund_keeps_the_time_for_which_a_job_was_retried(asked: float):
    """With a Retry-After, a refund gave the job its whole window back."""
    breakers = _breakers({"k": ("mail",)})
    breakers._standing["mail"] = Standing("open", time.monotonic() + 5)
    held = _held(deliveries=3, extras='{"retried_for": 100.0}')
    failure = {"detail": {"retried_for": 115.0, "window": 110.0}}
    report = Report(
        1,
        3,
        Outcome.RETRY,
        category="throttled",
        delay=15.0 + asked,
        failure=json.dumps(failure),
    )

    final = breakers._final(held, report)

    assert json.loads(final.failure or "") == {"detail": {"retried_for": 100.0}}
