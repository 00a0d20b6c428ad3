"""Which lanes a worker asks for jobs, and in which order."""

import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from redrive.worker.claim.lanes import (
    AGING_SHARE,
    FRONT_SHARE,
    LATE_COMMIT,
    MOST_FRONTS,
    LaneBook,
    sweep_pause,
)
from redrive.worker.polling import JUST_AFTER_SECONDS, Polling
from redrive.worker.round_trip import START, Lane, LaneClaim, Place, lane_arrays

A, B, URGENT = Lane(0, "a", 0), Lane(0, "b", 0), Lane(-5, "c", 0)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def lane_claim(lane_no: int | None, upto: datetime | None, jobs: int = 5) -> LaneClaim:
    return LaneClaim(lane_no, jobs, upto, 2, 7, 7)


def learn(
    book: LaneBook, lane: Lane | None, upto: datetime | None, now: float = 1.0
) -> bool:
    """Make a claim that found jobs in `lane`; None: it found nothing in any lane."""
    request = book.request(1, 5, now)
    lane_no = None if lane is None else request.lanes.index(lane) + 1
    return book.learn(request, [lane_claim(lane_no, upto)], 0.001)


def place(book: LaneBook, lane: Lane = A) -> Place:
    """Return where the next scan of `lane` starts."""
    request = book.request(1, 5, 1.0)
    return request.places[request.lanes.index(lane)]


def served(
    waiting: dict[Lane, int], claims: int, want: int = 5
) -> list[dict[Lane, int]]:
    """Return the lanes and numbers of jobs of each claim, if these numbers wait in each lane."""
    book, taken = LaneBook(None), []
    book.replace([(lane, None) for lane in waiting], 0.0, 0.001)
    for _ in range(claims):
        request, left, found = book.request(1, want, 1.0), want, []
        taken.append({})
        for number, lane in enumerate(request.lanes, 1):
            if left and waiting.get(lane):
                taken[-1][lane] = min(left, waiting[lane])
                waiting[lane] -= taken[-1][lane]
                left -= taken[-1][lane]
                found.append(lane_claim(number, NOON, taken[-1][lane]))
        if left:
            found.append(lane_claim(None, NOON, 0))
        book.learn(request, found, 0.001)
    return taken


def test_urgent_lanes_come_first_and_equal_ones_in_turn():
    taken = served({A: 20, B: 20, URGENT: 6}, 6)

    assert taken[:2] == [{URGENT: 5}, {URGENT: 1, A: 4}]
    assert taken[2:] == [{B: 5}, {A: 5}, {B: 5}, {A: 5}]


def test_jobs_that_come_back_go_before_a_backlog_of_their_priority():
    later = Lane(5, "a", 0)
    taken = served({A: 99, A.front: 7, later.front: 5, URGENT: 5}, 4)

    assert taken[:3] == [{URGENT: 5}, {A.front: 5}, {A.front: 2, A: 3}]
    assert later.front not in taken[3]


def test_a_flood_of_jobs_that_come_back_leaves_every_fourth_claim_to_the_others():
    """A limit that is larger than all slots together wakes a job for each one that ends."""
    taken = served({A: 10**6, A.front: 10**9, B: 10**6}, 20 * FRONT_SHARE)
    by_lane = Counter(lane for claim in taken for lane in claim)

    assert by_lane[A.front] == 60
    assert by_lane[A] == by_lane[B] == 10


def test_a_front_lane_whose_jobs_no_claim_takes_all_leaves_a_turn_to_the_others():
    """A claim takes limited jobs of one lane only, and the jobs under few limits."""
    book = LaneBook(None)
    book.replace([(A, None)], 0.0, 0.001)
    first: list[Lane] = []
    for _ in range(2 * FRONT_SHARE):
        request = book.request(1, 5, 1.0)
        first.append(request.lanes[0])
        places = [lane_claim(n, at, 0) for n in (1, 2) for at in (NOON, None)]
        assert book.learn(request, places, 0.001)

    assert first == 2 * [*[A.front] * (FRONT_SHARE - 1), A]


def test_jobs_that_come_back_to_tenants_take_turns():
    """A tenant with thousands of them does not delay the one of another tenant."""
    loud, quiet = Lane(0, "a", 1), Lane(0, "a", 2)
    taken = served({loud.front: 10**6, quiet.front: 1, quiet: 99}, 2)

    assert {lane for claim in taken for lane in claim} == {loud.front, quiet.front}


def test_a_front_lane_is_looked_at_although_no_look_has_found_it():
    """A job that this worker settles may wake the next one, which is claimed at once."""
    book = LaneBook(None)
    book.replace([(A, None), (B.front, None)], 0.0, 0.001)

    assert set(book.request(1, 5, 1.0).lanes) == {A, A.front, B.front}
    assert book.known == {A, B.front}


def test_of_many_lanes_few_are_looked_at_in_vain():
    """Each empty front lane costs every claim a search."""
    book = LaneBook(None)
    book.replace([(Lane(0, "a", n), None) for n in range(500)], 0.0, 0.001)

    assert len(book.request(1, 5, 1.0).lanes) == 500 + MOST_FRONTS


def test_a_low_priority_gets_one_in_sixteen_claims_of_a_flood():
    """Of a flood of urgent jobs without it none of the others ever ran."""
    later = Lane(5, "a", 0)
    flood = {URGENT: 10**9, A: 10**6, later: 10**6}
    taken = served(flood, 10 * AGING_SHARE)
    by_lane = {
        lane: [n for n, claim in enumerate(taken) if lane in claim] for lane in flood
    }

    assert by_lane[A] + by_lane[later] != []
    assert sorted(by_lane[A] + by_lane[later]) == [
        n for n in range(len(taken)) if n % AGING_SHARE == AGING_SHARE - 1
    ]
    assert len(by_lane[A]) == len(by_lane[later])


def test_each_of_many_lanes_is_looked_at_within_its_bound():
    """However many lanes there are, and however many jobs wait in more urgent lanes."""
    lanes = [Lane(n, "a", 0) for n in range(20)]
    taken = served(dict.fromkeys(lanes, 10**9), len(lanes) * AGING_SHARE)

    assert {lane for claim in taken for lane in claim} == set(lanes)


def test_nothing_ages_while_claims_look_at_all_lanes():
    """There is no flood then, and what is urgent is always first."""
    later = Lane(5, "a", 0)
    book = LaneBook(None)
    book.replace([(later, None), (URGENT, None)], 0.0, 0.001)
    for n in range(40):
        request = book.request(1, 5, 1.0)
        assert [lane for lane in request.lanes if not lane.is_front] == [URGENT, later]
        urgent = request.lanes.index(URGENT) + 1
        rest = [] if n % (AGING_SHARE - 1) else [lane_claim(None, NOON, 0)]
        book.learn(request, [lane_claim(urgent, NOON), *rest], 0.001)


def test_a_tenant_with_many_jobs_delays_another_by_a_claim_for_each_lane():
    lanes = {Lane(0, "a", n): 1 for n in range(16)} | {Lane(0, "a", 3): 100_000}
    taken = served(lanes, 16)

    assert {lane for claim in taken for lane in claim} == set(lanes)


def test_a_scan_goes_on_where_the_lane_has_been_claimed_and_a_sweep_looks_before_it():
    book = LaneBook(None)
    book.replace([(A, None)], 0.0, 0.001)
    first = book.request(1, 5, 1.0), place(book)
    is_any_busy = learn(book, A, NOON)
    second = book.request(1, 5, time.monotonic() - 1), place(book)
    third = book.request(1, 5, time.monotonic() + 60), place(book)

    assert (first[0].from_start, first[1]) == (None, START)
    assert (second[0].from_start, second[1]) == (False, Place(NOON, 2, 7))
    assert (third[0].from_start, third[1]) == (None, Place(NOON, 2, 7))
    assert not is_any_busy


@pytest.mark.parametrize(
    ("cost", "pause"),
    [(0.0005, 0.1), (0.01, 2.0), (0.08, 5.0), (0.25, 5.0), (1.0, 20.0)],
)
def test_a_sweep_takes_a_small_share_of_the_time_and_comes_every_five_seconds_if_it_can(
    cost: float, pause: float
):
    """With a snapshot held open a sweep took 80 ms, and a twentieth of all jobs waited for one."""
    assert sweep_pause(cost) == pytest.approx(pause)


def test_who_got_ready_asks_for_what_would_be_asked_for():
    ready, other = books = LaneBook(None), LaneBook(None)
    changes: list[Callable[[LaneBook], object]] = [
        lambda book: book.replace([(A, None)], 0.0, 0.001),
        lambda book: learn(book, A, NOON),
        lambda book: book.replace([(A, None), (B, None), (URGENT, None)], 0.1, 0.101),
        lambda book: learn(book, B, NOON),
        lambda book: learn(book, None, NOON),
        lambda book: book.start_over(),
    ]
    for change in changes:
        ready.get_ready()
        for book in books:
            change(book)
        ready.get_ready()
        asked = ready.request(1, 5, 2.0)

        assert asked == other.request(1, 5, 2.0)
        assert [array.packed() for array in asked.arrays] == [
            array.packed() for array in lane_arrays(asked.lanes, asked.places)
        ]


def test_a_lane_that_others_claim_from_keeps_its_place():
    book = LaneBook(None)
    book.replace([(A, None)], 0.0, 0.001)
    learn(book, A, NOON)

    assert learn(book, A, None)
    assert place(book) == Place(NOON, 2, 7)


def test_what_nobody_claims_is_walked_by_the_sweep_alone():
    """Jobs that nobody handles were walked by every poll."""
    book = LaneBook(None)
    book.replace([(A, None)], 0.0, 0.001)
    learn(book, None, NOON)

    assert place(book) == Place(NOON - LATE_COMMIT, 0, 0)


def test_a_clock_that_goes_back_leaves_no_job_behind_a_place():
    book = LaneBook(None)
    book.replace([(A, None)], 0.0, 0.001)
    learn(book, A, NOON)
    learn(book, None, NOON - timedelta(hours=1))

    assert place(book) == START


def test_a_lane_that_was_busy_until_its_turn_came_is_not_busy():
    book = LaneBook(None)
    book.replace([(A, None), (B, None)], 0.0, 0.001)
    busy, turn = lane_claim(1, None, 0), lane_claim(1, NOON)
    other = lane_claim(2, None, 0)

    assert not book.learn(book.request(1, 5, 1.0), [busy, turn], 0.001)
    assert book.learn(book.request(1, 5, 1.0), [busy, other, turn], 0.001)


def test_the_places_of_one_connection_are_not_those_of_the_next():
    """The server may have forgotten the claims that they were true of."""
    book = LaneBook(None)
    book.replace([(A, None)], 0.0, 0.001)
    learn(book, A, NOON)
    book.start_over()

    assert place(book) == START


def test_nothing_is_asked_without_lanes_or_room():
    book = LaneBook(None)

    assert book.request(1, 5, 1.0) is None
    book.replace([(A, 3.0), (B, 2.0)], 0.0, 0.001)
    assert book.request(1, 0, 1.0) is None


def test_lanes_say_when_the_next_job_is_due_and_when_they_are_stale():
    book = LaneBook(None)

    assert book.is_stale(0.0, was_notified=False)
    assert book.replace([(A, 3.0), (B, 2.0), (URGENT, None)], 9.999, 10.003) == 2.0
    assert not book.is_stale(10.5, was_notified=False)
    assert book.is_stale(10.5, was_notified=True)
    assert not book.is_stale(10.05, was_notified=True), (
        "looking costs: not more than a twentieth of the time"
    )
    assert book.is_stale(11.1, was_notified=False)
    assert book.replace([], 11.1, 11.18) is None
    assert not book.is_stale(12.7, was_notified=True), "it walked over dead rows"
    assert book.is_stale(12.8, was_notified=True)
    book.replace([], 20.0, 20.006)
    assert not book.is_stale(21.0, was_notified=True)
    assert book.is_stale(21.01, was_notified=True), (
        "a new lane waits no longer for a slow network"
    )
    book.replace([(A, None)], 20.0, 20.001, others=8)
    assert not book.is_stale(20.15, was_notified=True), "eight others look as often"
    assert book.is_stale(20.17, was_notified=True)
    book.replace([(A, None)], 30.0, 30.001, others=10_000)
    assert book.is_stale(31.01, was_notified=True)


def test_a_lane_that_was_empty_at_one_dear_look_is_still_looked_at():
    """Looks may be seconds apart there, and so long its next job would wait."""
    book = LaneBook(None)
    now = time.monotonic()
    book.replace([(A, None), (B, None)], now - 20, now - 19.9)
    book.replace([], now - 10, now - 9.9)
    after_one = book.known
    request = book.request(1, 5, now)
    book.learn(request, [lane_claim(request.lanes.index(B) + 1, NOON)], 0.001)
    book.replace([], now - 5, now - 4.9)

    assert after_one == {A, B}
    assert book.known == {B}, "a claim has found jobs there since"


def test_a_lane_that_is_empty_for_a_moment_is_still_looked_at():
    """Under a steady load it often is, and its next job would wait for the next look."""
    book = LaneBook(None)
    book.replace([(A, None), (B, None)], 10.0, 10.01)
    book.replace([(B, None)], 10.5, 10.51)
    soon = book.known
    book.replace([], 11.1, 11.11)
    later = book.known
    book.replace([], 12.2, 12.203)

    assert (soon, later) == ({A, B}, {B})
    assert book.known == set()
    assert book.is_stale(12.5, was_notified=False), (
        "a worker that knows no lane may look when it polls"
    )


def test_a_job_that_is_known_to_be_due_is_not_waited_for_longer():
    polling = Polling(0.0)
    polling.lanes_due(100.5)
    polling.found_nothing(100.0, chance=0.5)
    by_lane = polling.due_at()
    polling.job_due(100.2)
    by_job = polling.due_at()
    polling.lanes_due(None)
    polling.found_nothing(100.0, chance=0.5)

    assert by_lane == 100.5 + JUST_AFTER_SECONDS
    assert by_job == 100.2 + JUST_AFTER_SECONDS
    assert polling.due_at() == 105.0
    polling.retry_soon()
    assert polling.is_due(100.0)


def test_a_sweep_that_found_only_late_jobs_is_followed_by_another():
    book = LaneBook(None)
    book.replace([(A, None)], 0.0, 0.001)
    now = time.monotonic()
    for upto, is_due in ((NOON, False), (NOON, True), (NOON + timedelta(1), False)):
        learn(book, A, upto, now + 60)

        assert (book.request(1, 5, time.monotonic()).from_start is None) == is_due


# More lanes than one look returns


def partial(found: list[tuple[Lane, float | None]]) -> LaneBook:
    """Return a book after a look that saw a part of the lanes."""
    book = LaneBook(None)
    book.continue_at = B
    book.replace(found, 0.0, 0.001)
    return book


def test_a_lane_that_one_look_has_seen_is_claimed_from_when_its_job_is_due():
    book = partial([(A, 30.0), (B, 90.0)])
    book.replace([(URGENT, None)], 10.0, 10.001)
    book.replace([(URGENT, None)], 20.0, 20.001)

    assert book.known == {URGENT}
    assert book.add_due(29.0) == 30.0
    assert A not in book.request(1, 5, 29.0).lanes
    assert book.add_due(30.0) is None, (
        "the next look but one sees the other one in time"
    )
    assert A in book.request(1, 5, 30.0).lanes
    assert B not in book.known


def test_few_lanes_are_not_remembered_twice():
    book = LaneBook(None)
    book.replace([(A, 1.0)], 0.0, 0.001)

    assert book.add_due(9.0) is None
