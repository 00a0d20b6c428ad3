"""When a worker asks for jobs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.worker.polling import (
    LANE_WAIT_MS,
    MAX_BUSY_TURN_SECONDS,
    MAX_LANE_WAIT_MS,
    MAX_SECONDS,
    MIN_SECONDS,
    SOONEST_SECONDS,
    TURN_SECONDS,
    Polling,
    delay_seconds,
)


def test_polls_are_rare_when_idle_and_soon_after_activity():
    polling = Polling(100.0)
    intervals: list[float] = []
    for now in (100.0, 101.0, 200.0):
        polling.found_nothing(now, chance=0.5)
        intervals.append(polling.due_at() - now)
    polling.claimed(1, 2, 300.0, chance=0.5)
    intervals.append(polling.due_at() - 300.0)

    assert intervals == [
        pytest.approx(MIN_SECONDS),
        pytest.approx(0.2),
        pytest.approx(MAX_SECONDS),
        pytest.approx(MIN_SECONDS),
    ]


@given(st.floats(0, 1), st.floats(0, 1000))
def test_the_polls_of_a_fleet_are_spread(chance: float, idle: float):
    polling, even = Polling(0.0), Polling(0.0)
    polling.found_nothing(idle, chance)
    even.found_nothing(idle, 0.5)

    assert 0.79 <= (polling.due_at() - idle) / (even.due_at() - idle) <= 1.21


def test_a_full_claim_means_that_more_is_likely_to_wait():
    polling = Polling(100.0)
    at_first = polling.is_due(100.0)
    polling.claimed(5, 5, 100.0, chance=0.5)
    after_a_full_one = polling.is_due(100.0)
    polling.claimed(4, 5, 100.0, chance=0.5)

    assert at_first
    assert after_a_full_one
    assert not polling.expects_more
    assert not polling.is_due(100.0)
    assert polling.is_due(100.0 + MIN_SECONDS)


@pytest.mark.parametrize(
    ("count", "seconds"),
    [(1, MIN_SECONDS), (50, 0.004), (1_000, SOONEST_SECONDS), (0, MIN_SECONDS)],
)
def test_polls_follow_each_other_sooner_where_each_finds_many(
    count: int, seconds: float
):
    polling = Polling(100.0)
    polling.claimed(count, 2_000, 100.002, chance=0.5)

    assert polling.due_at() - 100.002 == pytest.approx(seconds)


def test_a_notification_is_a_reason_until_somebody_looks():
    polling = Polling(100.0)
    polling.found_nothing(150.0, chance=0.5)
    polling.notified(150.1)
    notified = polling.is_due(150.1)
    polling.looked()

    assert notified
    assert not polling.is_due(150.1)
    polling.found_nothing(150.2, chance=0.5)
    assert polling.due_at() == pytest.approx(150.22), "and it counts as activity"


@pytest.mark.parametrize(
    ("others", "rest"), [(0, 0.0), (1, 0.0025), (63, 0.1575), (500, 1.25)]
)
def test_one_of_many_that_found_too_little_rests_whatever_it_hears(
    others: int, rest: float
):
    polling = Polling(100.0)
    polling.others = others
    polling.claimed(1, 2, 150.0, chance=0.5)
    polling.lanes_due(150.0)
    polling.notified(150.0)
    notified = polling.due_at()
    polling.no_later_than(149.0)
    known = polling.due_at()
    polling.expect_more()

    assert notified == pytest.approx(150.0 + rest)
    assert known == 149.0, "a job of ours that is due waits for no rest"
    assert polling.is_due(150.0), "what is known to wait is fetched at once"


def test_workers_whose_looks_are_slow_look_one_at_a_time():
    """Where all processors are taken, looks that find nothing take them from whoever enqueues."""
    polling = Polling(100.0)
    polling.others = 7
    polling.notified(150.0)
    rests: list[float] = []
    for seconds in (0.0005, *[0.020] * 40, 0.0005):
        polling.took(seconds)
        polling.found_nothing(150.0, chance=0.5)
        rests.append(polling.due_at() - 150.0)

    assert rests[0] == rests[-1] == pytest.approx(7 * TURN_SECONDS)
    assert rests[40] == pytest.approx(7 * 0.020)
    polling.others = 0
    polling.took(0.020)
    polling.found_nothing(150.0, chance=0.5)
    assert polling.due_at() == 150.0, "one alone never rests"


def test_a_new_job_is_left_to_the_first_workers_of_a_fleet():
    polling = Polling(100.0)
    polling.found_nothing(200.0, chance=0.5)
    at = list[float]()
    for place in (0, 1, 2, 31):
        polling.looked()
        polling.delay = delay_seconds(place)
        polling.notified(201.0)
        polling.notified(201.9)  # which delays nothing
        at.append(polling.due_at())

    assert at == [pytest.approx(201.0 + s) for s in (0, 0, TURN_SECONDS, 0.075)]


def test_a_notification_wakes_nobody_who_is_about_to_look_anyhow():
    polling = Polling(100.0)
    polling.others = 7
    at_first = polling.notified(100.0)
    polling.looked()
    polling.claimed(1, 2, 100.0, chance=0.5)
    while_active = polling.notified(100.001)
    polling.looked()
    polling.found_nothing(200.0, chance=0.5)
    when_idle = polling.notified(200.001)

    assert (at_first, while_active, when_idle) == (False, False, True)
    assert polling.due_at() == pytest.approx(200.0 + 7 * TURN_SECONDS)


@pytest.mark.parametrize(
    ("others", "seconds"), [(0, 0.001), (1, 0.001), (7, 0.007), (63, 0.025)]
)
def test_a_lane_that_was_busy_is_tried_again_before_the_rest_is_over(
    others: int, seconds: float
):
    polling = Polling(100.0)
    polling.others = others
    polling.claimed(0, 2, 150.0, chance=0.5)
    polling.was_busy(150.0, chance=0.5)

    assert polling.due_at() == pytest.approx(150.0 + seconds)


def test_a_busy_lane_is_tried_again_later_if_a_turn_takes_long():
    polling = Polling(100.0)
    tried_at = list[float]()
    for turn in (0.04, 0.2, 60.0):
        polling.turn_seconds = turn
        polling.claimed(0, 2, 150.0, chance=0.5)
        polling.was_busy(150.0, chance=0.5)
        tried_at.append(polling.due_at() - 150.0)

    assert tried_at == pytest.approx([0.01, 0.05, MAX_BUSY_TURN_SECONDS])


def test_a_claim_waits_for_its_turn_as_long_as_turns_take():
    """100 workers gave up after 50 ms, and each vain claim cost as much as a claim."""
    polling = Polling(100.0)
    polling.others = 99
    at_first = polling.lane_wait_ms(100.0)
    polling.had_turn(0, 100.0, 100.05, has_waited=True)
    so_far = polling.lane_wait_ms(100.125)
    polling.had_turn(5, 100.125, 100.25, has_waited=True)
    after_a_turn = polling.lane_wait_ms(200.0)
    polling.had_turn(5, 200.0, 260.0, has_waited=True)

    assert (at_first, so_far, after_a_turn) == (LANE_WAIT_MS, 250, 500)
    assert polling.lane_wait_ms(300.0) == MAX_LANE_WAIT_MS


def test_a_time_without_jobs_is_no_turn():
    """An idle worker waited long for a lane, and took its rest for the time of a turn."""
    polling = Polling(100.0)
    polling.had_turn(0, 100.0, 100.1, has_waited=False)
    while_idle = polling.lane_wait_ms(160.0)
    polling.had_turn(5, 160.0, 160.1, has_waited=False)

    assert (while_idle, polling.turn_seconds) == (LANE_WAIT_MS, 0.0)
