"""The next step of a campaign, against a queue that is simulated second by second."""

import math
import random
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.dead_letters.campaigns.pace import (
    AHEAD_SECONDS,
    GOING,
    IN_FLIGHT,
    Seen,
    State,
    Step,
    exposure,
    is_version,
    next_step,
)


@dataclass
class Queue:
    """Jobs that are put back, begun and ended; `dies(n)`: whether the nth that ends dies again.

    `due` has the time of each that was put back, ascending.
    """

    seen: Seen
    dies: Callable[[int], bool]
    begun: int = 0
    ended: int = 0
    due: list[float] = field(default_factory=list[float])
    dead_of: Counter[int] = field(default_factory=Counter[int])

    def advance(self, seconds: float, *, runs: bool = True) -> Step:
        """Let what is due begin and end, then take a step."""
        now, fed = self.seen.now + seconds, self.seen.fed
        dead, window_dead = self.seen.dead, self.seen.window_dead
        are_due = bisect_right(self.due, now)
        if runs:
            for n in range(self.ended, are_due):
                if self.dies(n):
                    dead += 1
                    self.dead_of[n // self.seen.window] += 1
            window_dead = max(self.dead_of.values(), default=0)
            self.begun = self.ended = are_due
        looked = replace(
            self.seen,
            now=now,
            ended=self.ended,
            dead=dead,
            window_dead=window_dead,
            in_flight=fed - self.ended,
            unclaimed=max(are_due - self.begun, 0),
        )
        step = next_step(looked)
        # As step_campaign carries it out.
        between = 1 / looked.rate if looked.rate else 0.0
        first = step.first_turn or 0.0
        if step.feed:
            first = max(first, now)
        self.due += [first + n * between for n in range(step.feed)]
        self.seen = replace(
            looked,
            state=step.state,
            said=step.said,
            fed_at=first + step.feed * between,
            active_at=now,
            fed=fed + step.feed,
            place=looked.place + step.feed,
            step=looked.step + 1,
        )
        return step

    def run(self, steps: int = 100_000, seconds: float = 2.0) -> State:
        """Step the campaign until it stops. Returns its state."""
        for _ in range(steps):
            if self.seen.state not in GOING:
                break
            self.advance(seconds)
        return self.seen.state


def queue(dies: Callable[[int], bool] = lambda _: False, **said: object) -> Queue:
    given_terms = {"step": 0, "state": State.WAITING, "matched": 10_000} | said
    return Queue(Seen(**given_terms), dies)  # type: ignore[arg-type]


def test_of_a_set_that_fails_always_only_the_canaries_run() -> None:
    tried = queue(lambda _: True)

    assert tried.run() is State.ABORTED
    assert tried.seen.fed == 3
    assert tried.seen.said == "3 of 3 died again, more than 10%"


@given(
    st.integers(0, 2**32), st.integers(1, 30), st.sampled_from([None, 0.5, 5.0, 500.0])
)
def test_what_a_third_of_dies_again_aborts_within_the_number_promised(
    seed: int, canaries: int, rate: float | None
) -> None:
    """Three of each ten die again, in any order: the plan says how many go back at most."""
    order = random.Random(seed).sample(range(10), 10)
    tried = queue(lambda n: order[n % 10] < 3, canaries=canaries, rate=rate)

    assert tried.run() is State.ABORTED
    assert tried.seen.fed <= max(exposure(canaries), 10)


@given(st.lists(st.integers(0, 24), min_size=400, max_size=400))
def test_a_share_below_the_limit_goes_through(places: list[int]) -> None:
    """One of each 25 dies again, at any place among them. Chance alone may exceed the limit."""
    bad = {n * 25 + place for n, place in enumerate(places)} - set(range(30))

    assert queue(lambda n: n in bad).run() is State.DONE


@pytest.mark.parametrize("step", [1, 100, 2_500, 30_000])
@pytest.mark.parametrize(
    ("limit", "window", "one_in"),
    [(0.1, 100, 33), (0.1, 100, 12), (0.01, 1000, 200), (0.3, 100, 4)],
)
def test_a_share_below_the_limit_goes_through_however_many_end_at_once(
    step: int, limit: float, window: int, one_in: int
) -> None:
    """3 % of 30,000 died again: it aborted after 1,533, for `the latest hundred` were 1,520."""
    seen = queue(
        matched=30_000,
        abort_share=limit,
        window=window,
        canaries=0,
        state=State.RUNNING,
    ).seen
    for ended in range(step, 30_001, step):
        looked = replace(
            seen,
            place=30_000,
            fed=30_000,
            in_flight=30_001 - ended,
            ended=ended,
            dead=ended // one_in,
            window_dead=-(-window // one_in),
        )
        assert next_step(looked).state is State.RUNNING, looked


@given(
    st.integers(0, 2**32),
    st.sampled_from([(0.01, 1000), (0.1, 100), (0.3, 100)]),
    st.sampled_from([None, 50.0, 900.0]),
)
def test_what_turns_bad_stops_early_however_many_end_at_once(
    seed: int, judged: tuple[float, int], rate: float | None
) -> None:
    """Three times the limit die from the 10,000th on: the next look or two notice it."""
    chance = random.Random(seed)
    limit, window = judged
    bad = {n for n in range(10_000, 100_000) if chance.random() < min(1.0, 3 * limit)}
    tried = queue(
        lambda n: n in bad,
        matched=100_000,
        rate=rate,
        abort_share=limit,
        window=window,
        canaries=0,
    )

    assert tried.run() is State.ABORTED
    at_once = IN_FLIGHT if rate is None else rate * 5
    assert tried.seen.fed <= 10_000 + 2 * window + 3 * at_once


def test_what_begins_to_fail_half_way_stops_soon() -> None:
    """A share of all that ended would take hundreds of deaths to notice."""
    tried = queue(lambda n: n >= 5000, rate=50.0)

    assert tried.run() is State.ABORTED
    assert tried.seen.fed <= 5000 + 21 + 50 * 4


def test_each_step_of_the_ramp_is_at_most_twice_the_one_before() -> None:
    tried = queue()
    fed = []
    while tried.seen.state in GOING and tried.seen.fed < 1000:
        fed.append(tried.advance(2.0).feed)

    assert fed[:6] == [3, 6, 12, 24, 48, 96]


@pytest.mark.parametrize("rate", [0.2, 1.0, 5.0, 47.0, 900.0])
def test_a_healthy_campaign_keeps_its_rate_across_a_pause(rate: float) -> None:
    """After a pause of 15 s ten jobs ran within 35 ms."""
    tried = queue(rate=rate, matched=int(rate * 600))
    while tried.seen.state is not State.RUNNING:
        tried.advance(2.0)
    began, fed = tried.seen.now, tried.seen.fed
    while tried.seen.now - began < 200:
        tried.advance(0.9)
    for _ in range(100):  # nothing runs
        tried.advance(2.1, runs=False)
    waiting = tried.seen.fed - tried.ended
    resumed, at_resume = tried.seen.now, tried.seen.fed
    while tried.seen.now - resumed < 200:
        tried.advance(0.7)

    assert waiting <= math.ceil(rate * AHEAD_SECONDS)
    assert tried.seen.fed - fed == pytest.approx(400 * rate, rel=0.1, abs=3)
    assert tried.seen.fed - at_resume <= 200 * rate * 1.1 + 1


def most_in_a_second(due: list[float]) -> int:
    """The most that are due within any one second."""
    return max(
        (bisect_left(due, at + 0.999) - n for n, at in enumerate(due)), default=0
    )


LATE = st.floats(0.0, 60.0) | st.floats(0.0, 0.5) | st.floats(0.0, 3.0)
"""How late a step comes."""


@given(
    st.lists(st.tuples(LATE, st.booleans()), min_size=5, max_size=20),
    st.floats(0.1, 1000.0),
    st.sampled_from([0, 3]),
)
def test_no_second_has_more_than_the_rate_whatever_pauses(
    steps: list[tuple[float, bool]], rate: float, canaries: int
) -> None:
    """A campaign at 100/s had 150 and 162 due within one second, 27 s after a pause."""
    tried = queue(rate=rate, canaries=canaries, matched=10_000_000)
    for seconds, runs in steps:
        before = tried.seen.fed
        tried.advance(seconds, runs=runs)
        waiting = bisect_right(tried.due, tried.seen.now) - tried.begun
        assert all(at >= tried.seen.now - 0.001 for at in tried.due[before:])
        assert waiting <= math.ceil(rate * AHEAD_SECONDS), "what can run at once"
    assert tried.due == sorted(tried.due)
    assert most_in_a_second(tried.due) <= math.ceil(rate)


@given(st.floats(0.1, 1000.0), st.lists(st.floats(0.1, 0.95), min_size=3, max_size=20))
def test_a_campaign_reaches_its_rate_with_steps_at_any_time(
    rate: float, waits: list[float]
) -> None:
    """Nothing is lost while each step comes before what was put back has run out."""
    tried = queue(rate=rate, canaries=0, matched=10_000_000)
    tried.advance(0.0)
    while tried.seen.now < 100:
        for seconds in waits:
            tried.advance(seconds)
    ran = bisect_right(tried.due, tried.seen.now)

    assert ran == pytest.approx(tried.seen.now * rate, rel=0.01, abs=1.01)


@given(st.floats(0.0, 5.0))
def test_one_that_is_resumed_has_no_second_schedule(pause: float) -> None:
    """What was put back before it was paused is still to run."""
    tried = queue(rate=50.0, canaries=0)
    tried.advance(0.0)
    tried.seen = replace(tried.seen, state=State.WAITING, fed=0)
    tried.advance(pause)

    assert most_in_a_second(tried.due) <= 50


def test_what_does_not_end_stops_the_feed() -> None:
    """Jobs that are begun and retry for hours, with a rate of 5 a second."""
    stuck = queue(rate=5.0, canaries=0)
    for _ in range(500):
        stuck.begun = stuck.seen.fed
        stuck.advance(2.0, runs=False)

    assert stuck.seen.fed == 300


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"not_before": 50.0, "now": 1.0}, "its time has not come"),
        (
            {"wanted_breakers": {"smtp": "closed"}, "breakers": {"smtp": "open"}},
            "breaker smtp is open, not closed",
        ),
        (
            {"wanted_breakers": {"smtp": "closed"}},
            "breaker smtp is unknown, not closed",
        ),
        ({"breakers": {"smtp": "open"}}, "breaker smtp is open"),
        (
            {"wanted_version": ">=1.4", "versions": ["1.3", "1.4"]},
            "version >=1.4 is not what all workers of its kinds run: 1.3, 1.4",
        ),
        (
            {"wanted_version": ">=1.4"},
            "version >=1.4 is not what all workers of its kinds run: none",
        ),
    ],
)
def test_it_waits_for_what_was_asked(said: dict[str, object], reason: str) -> None:
    step = next_step(queue(**said).seen)

    assert (step.state, step.feed, step.said) == (State.WAITING, 0, reason)


def test_it_begins_once_all_holds() -> None:
    seen = queue(
        not_before=50.0,
        now=50.0,
        wanted_breakers={"smtp": "closed"},
        breakers={"smtp": "closed", "other": "half_open"},
        wanted_version=">=1.4",
        versions=["1.4.2", "1.10"],
    ).seen

    assert (next_step(seen).state, next_step(seen).feed) == (State.CANARY, 3)


def test_it_waits_while_a_breaker_is_open() -> None:
    going = {"place": 500, "fed": 500, "ended": 400, "in_flight": 100}
    seen = queue(state=State.RAMP, **going, breakers={"smtp": "open"}).seen
    waiting = next_step(seen)
    seen = replace(seen, state=State.WAITING, breakers={"smtp": "half_open"})
    after = next_step(seen)

    assert (waiting.state, waiting.feed) == (State.WAITING, 0)
    assert waiting.said == "breaker smtp is open"
    assert (after.state, after.said) == (State.RAMP, None)
    assert after.feed > 0


def test_deaths_abort_it_also_while_a_breaker_is_open() -> None:
    going = {"place": 500, "fed": 500, "ended": 100, "dead": 11}
    seen = queue(state=State.WAITING, **going, breakers={"smtp": "open"}).seen

    assert next_step(seen).said == "11 of 100 died again, more than 10%"


@pytest.mark.parametrize(
    ("recoveries", "state"),
    [({"smtp": 4, "bank": 9}, State.WAITING), ({"smtp": 5}, State.ABORTED)],
)
def test_a_breaker_that_opens_again_and_again_aborts_it(
    recoveries: dict[str, int], state: State
) -> None:
    """Each time, regular jobs that depend on it are put off."""
    going = {"place": 500, "fed": 500, "ended": 500, "recoveries": recoveries}
    breakers = {"smtp": "open", "bank": "closed"}
    seen = queue(state=State.RUNNING, **going, breakers=breakers).seen

    assert next_step(seen).state is state
    assert next_step(replace(seen, fed=0)).state is State.WAITING
    assert next_step(replace(seen, canaries=0)).feed > 0


def test_it_does_not_begin_while_others_wait_for_long() -> None:
    seen = queue(others_late=31.0).seen
    said = "a ready job of its queues has waited for 31 s"

    assert next_step(seen) == Step(State.WAITING, 0, None, said)
    assert next_step(replace(seen, others_late=30.0)).feed == 3
    assert next_step(replace(seen, others_late=30.0)).late_before == 30.0
    assert next_step(replace(seen, canaries=0)).feed > 0


def test_it_holds_back_while_others_wait_longer_than_when_it_began() -> None:
    """Twelve seconds are no rise where they were four before."""
    seen = queue(state=State.RAMP, place=500, fed=500, ended=500, late_before=4.0).seen
    held = next_step(replace(seen, others_late=14.1, now=100.0))

    assert next_step(replace(seen, others_late=14.0)).feed > 0
    assert (held.state, held.feed, held.held_since) == (State.RAMP, 0, 100.0)
    assert (
        held.said == "a ready job of its queues has waited for 14 s, 4 s when it began"
    )
    assert next_step(replace(seen, others_late=14.1, canaries=0)).feed > 0
    longer = replace(seen, others_late=20.0, now=130.0, held_since=100.0)
    assert next_step(longer).held_since == 100.0
    assert next_step(replace(longer, others_late=1.0)).held_since is None


def test_held_back_for_long_it_aborts() -> None:
    seen = queue(state=State.RAMP, place=500, fed=500, ended=500, late_before=4.0).seen
    late = replace(seen, others_late=700.0, held_since=100.0)

    assert next_step(replace(late, now=700.0)).state is State.RAMP
    aborted = next_step(replace(late, now=700.1))
    assert (aborted.state, aborted.feed) == (State.ABORTED, 0)
    assert aborted.said == (
        "a ready job of its queues has waited for 700 s, 4 s when it began; held for 600 s"
    )


def test_one_that_is_resumed_is_judged_by_how_late_others_are_then() -> None:
    """What was before its abort is forgotten."""
    seen = queue(late_before=1.0, held_since=5.0, others_late=25.0, now=900.0).seen
    step = next_step(seen)

    assert (step.feed, step.late_before, step.held_since) == (3, 25.0, None)


@pytest.mark.parametrize("state", sorted(set(State) - GOING))
def test_what_does_not_go_on_stays_as_it_is(state: State) -> None:
    assert next_step(queue(state=state, said="so").seen) == Step(state, 0, None, "so")


def test_it_is_done_when_all_have_ended() -> None:
    seen = queue(
        state=State.RUNNING, matched=5, place=5, fed=5, ended=4, in_flight=1
    ).seen

    assert next_step(seen).state is State.RAMP
    assert next_step(replace(seen, ended=5, in_flight=0)).state is State.DONE
    assert next_step(queue(matched=0).seen).state is State.DONE


@pytest.mark.parametrize("matched", [1, 2, 3])
@pytest.mark.parametrize("abort_share", [0.1, 0.5])
def test_canaries_that_were_all_jobs_and_died_again_abort(
    matched: int, abort_share: float
) -> None:
    """The walk of the runbook: such a heal was `done`, and no alert counted it."""
    tried = queue(lambda _: True, matched=matched, abort_share=abort_share)

    assert tried.run() is State.ABORTED
    assert tried.seen.said == (
        f"{matched} of {matched} died again, more than {abort_share:.0%}"
    )
    resumed = queue(matched=matched, place=matched).seen
    assert next_step(resumed).state is State.DONE, "nothing is left to try"


@pytest.mark.parametrize(
    "more", [{"canaries": 0}, {"matched": 5, "place": 5, "fed": 5, "ended": 5}]
)
def test_deaths_after_the_canaries_do_not_abort_a_campaign_that_has_ended(
    more: dict[str, int],
) -> None:
    few = {"state": State.RUNNING, "matched": 3, "place": 3, "fed": 3, "ended": 3}

    assert next_step(queue(**few | {"dead": 2} | more).seen).state is State.DONE


def test_a_cancelled_canary_holds_nothing_up() -> None:
    seen = queue(state=State.CANARY, place=3, fed=3, ended=2, in_flight=0).seen

    assert next_step(seen).feed == 5


def test_what_is_no_version_is_not_among_them() -> None:
    assert not is_version("a3f9c1", ">=1.4")
    assert is_version("1.5.0rc1", ">=1.4")
