"""When a worker says that its round trips are slow."""

from redrive.rules.pace import LEAST_KNOWN, LEAST_RECENT, Pace

USUAL = 0.02


def known(jobs: int = 1) -> tuple[Pace, float]:
    """Return a pace that knows the usual duration, and the time."""
    pace, now = Pace(), 0.0
    for _ in range(LEAST_KNOWN + LEAST_RECENT):
        now += 1
        pace.add(now, USUAL, jobs)
    return pace, now


def add(
    pace: Pace, now: float, seconds: float, times: int = 15, jobs: int = 1
) -> float:
    for _ in range(times):
        now += 1
        pace.add(now, seconds, jobs)
    return now


def test_ten_times_the_usual_is_slow_and_five_times_is_not() -> None:
    pace, now = known()
    now = add(pace, now, 8 * USUAL)
    assert pace.slow(now) is None
    now = add(pace, now, 12 * USUAL)
    slow = pace.slow(now)

    assert slow is not None
    assert 9 < slow.factor < 12.1


def test_slowness_ends_below_five_times_the_usual() -> None:
    pace, now = known()
    now = add(pace, now, 15 * USUAL)
    now = add(pace, now, 7 * USUAL)
    assert pace.slow(now), "it began, and has not ended"
    now = add(pace, now, 3 * USUAL)
    assert pace.slow(now) is None
    now = add(pace, now, 7 * USUAL)

    assert pace.slow(now) is None


def test_a_single_round_trip_is_no_slowness() -> None:
    pace, now = known()
    now = add(pace, now, 100 * USUAL, times=3)

    assert pace.slow(now) is None


def test_what_gets_slower_within_an_hour_is_slow() -> None:
    """As beside a snapshot that stays open: each round trip takes a little longer."""
    pace, now = known()
    for step in range(3600):
        now = add(pace, now, USUAL * (1 + step / 200), times=1)
    slow = pace.slow(now)

    assert slow is not None
    assert slow.factor > 15


def test_a_larger_round_trip_has_its_own_usual_duration() -> None:
    pace, now = known()
    now = add(pace, now, 30 * USUAL, times=LEAST_KNOWN + 15, jobs=500)

    assert pace.slow(now) is None


def test_less_than_a_tenth_of_a_second_is_not_slow() -> None:
    pace, now = Pace(), 0.0
    now = add(pace, now, 0.001, times=LEAST_KNOWN + LEAST_RECENT)
    now = add(pace, now, 0.09)

    assert pace.slow(now) is None


def test_what_was_slow_long_ago_is_forgotten() -> None:
    pace, now = known()
    now = add(pace, now, 20 * USUAL)

    assert pace.slow(now + 1000) is None
