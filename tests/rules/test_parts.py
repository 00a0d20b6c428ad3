"""The parts of a worker that need no database and no process: protocol, capacity, lanes ..."""

import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.observability.metrics import Metrics
from redrive.rules.attempts import settlement
from redrive.rules.attempts.settlement import Outcome
from redrive.rules.model import Category, Failure, Reason
from redrive.worker.channel import Channel
from redrive.worker.exchange import EPOCH, START, Lane, LaneClaim, Place, lane_arrays
from redrive.worker.protocol import (
    Done,
    Ended,
    Extras,
    Jobs,
    Report,
    Unstarted,
    decode_down,
    decode_up,
    encode_frame,
    read_extras,
    report_of,
)
from redrive.worker.shared_state import RING, Running, SharedState
from redrive.worker.supervisor.claiming.lanes import (
    AGING_SHARE,
    LATE_COMMIT,
    LaneBook,
    sweep_pause,
)
from redrive.worker.supervisor.claiming.settlements import (
    PendingSettlements,
    SettlementBatch,
)
from redrive.worker.supervisor.drain import LAST_SECONDS, Drain
from redrive.worker.supervisor.held import Batch, ClaimedJob, held_from
from redrive.worker.supervisor.kinds import KnownKinds
from redrive.worker.supervisor.polling import (
    JUST_AFTER_SECONDS,
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
from redrive.worker.supervisor.runners.capacity import (
    AHEAD_SECONDS,
    MAX_AHEAD_SECONDS,
    MOST_AHEAD,
    Capacity,
)
from redrive.worker.supervisor.runners.dispatch import Dispatch
from redrive.worker.supervisor.runners.held_jobs import HeldJobs
from redrive.worker.supervisor.runners.runner_process import RunnerProcess
from redrive.worker.supervisor.telemetry import Telemetry

FAILURE = Failure("ValueError", "no", Category.OTHER, "f" * 16, {"stack": [1]})
NEW_YEAR = datetime(2030, 1, 1, tzinfo=UTC)


# ---------------------------------------------------------------------- protocol and channel


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (
            settlement.Retry(1.5, FAILURE, losses=1, refund=True),
            ("retry", 1.5, None, True, 1, "other"),
        ),
        (
            settlement.DeadLetter(Reason.EXPIRED, FAILURE),
            ("dead", 0.0, None, False, 0, "expired"),
        ),
        (
            settlement.Release("snoozed", at=NEW_YEAR),
            ("release", 0.0, NEW_YEAR, True, 0, "snoozed"),
        ),
        (settlement.Cancel("unwanted"), ("cancel", 0.0, None, False, 0, None)),
    ],
)
def test_a_settlement_crosses_as_a_report_and_comes_out_the_same(
    ending: Any, expected: tuple[Any, ...]
):
    report = report_of(7, 3, ending, seconds=0.25)
    (back,) = decode_up(encode_frame(Ended([report]))).reports

    assert back == report
    assert (
        back.outcome,
        back.delay,
        back.run_at,
        back.refund,
        back.losses,
        back.reason,
    ) == expected
    assert back.seconds == 0.25


def test_a_completion_has_no_report():
    with pytest.raises(AssertionError):
        report_of(1, 1, settlement.Complete())  # pyright: ignore[reportArgumentType]


@given(
    st.lists(
        st.tuples(
            st.integers(1, 2**62), st.integers(1, 2**31 - 1), st.text(max_size=20)
        ),
        max_size=20,
    )
)
def test_rows_cross_as_they_came(rows: list[tuple[int, int, str]]):
    sent = [
        (job, deliveries, 1, "kind", text, None, 1) for job, deliveries, text in rows
    ]
    back = decode_down(encode_frame(Jobs(5, ["default"], sent)))

    assert isinstance(back, Jobs)
    assert [(w.id, w.deliveries, w.payload) for w in back.rows] == rows


def test_a_channel_delivers_whole_frames_in_order_however_they_are_cut():
    ours, theirs = socket.socketpair()
    near, far = Channel(ours), Channel(theirs)
    dice, got = random.Random(3), []
    sent = [
        Unstarted(
            [dice.getrandbits(60) for _ in range(dice.choice([0, 1, 50, 400_000]))]
        )
        for _ in range(12)
    ]
    for message in sent:
        near.send(message)
        got += far.receive() or []
    while near.is_blocked:
        near.flush()
        got += far.receive() or []
    got += far.receive() or []
    near.close()

    assert [decode_up(frame) for frame in got] == sent
    assert far.receive() is None
    with pytest.raises(OSError):
        far.send(Done([]))
        far.send(Done([]))
    far.close()


def test_what_was_sent_before_the_end_is_still_received():
    ours, theirs = socket.socketpair()
    near, far = Channel(ours), Channel(theirs)
    near.send(Done([(1, 1, 0.5)]))
    near.close()

    assert [decode_up(frame) for frame in far.receive() or ()] == [Done([(1, 1, 0.5)])]
    assert far.receive() is None
    far.close()


@pytest.mark.parametrize(
    ("text", "losses"),
    [
        (None, 0),
        ('{"losses": 2, "headers": {"a": 1}}', 2),
        ('{"losses": 2, "headers": {"n": ' + "1" * 5_000 + "}}", 2),
        ('{"losses": 2, "headers": [1]}', 2),
        ('{"losses": 2, "headers": ' + '{"a":' * 3_000 + "1" + "}" * 3_000 + "}", 0),
        ("nonsense", 0),
    ],
    ids=["none", "ordinary", "digits", "no object", "deep", "no json"],
)
def test_what_a_producer_wrote_into_headers_cannot_keep_the_rest_from_being_read(
    text: str | None, losses: int
):
    assert read_extras(text).losses == losses
    assert isinstance(read_extras(text), Extras)


# ---------------------------------------------------------------------- shared


def test_the_other_side_of_a_shared_state_sees_what_was_written():
    mine = SharedState(3)
    import os

    theirs = SharedState(3, os.dup(mine.fd))
    theirs.start(0, 11, 1, 100)
    theirs.start(2, 2**62, 2**31 - 1, 300)
    theirs.complete(1, 7, 4)
    seen = (mine.taken, [tuple(r) for r in mine.running()], mine.completed())
    theirs.clear(0)

    assert seen == (2, [(11, 1, 100), (2**62, 2**31 - 1, 300)], {(7, 4)})
    assert [r.id for r in mine.running()] == [2**62]
    theirs.close()
    mine.close()


def test_a_shared_state_remembers_the_last_completions():
    shared = SharedState(1)
    for n in range(1, RING + 100):
        shared.complete(0, n, 1)

    assert shared.completed() == {(n, 1) for n in range(100, RING + 100)}
    shared.close()


WRITER = """
import sys
from redrive.worker.shared_state import SharedState
shared, n = SharedState(1, int(sys.argv[1])), 0
while True:
    n += 1
    shared.start(0, n, n, n)
    shared.clear(0)
"""


def test_a_job_never_shows_the_start_of_one_before_it_to_who_looks_while_it_is_written():
    shared, seen = SharedState(1), set[Running]()
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(shared.fd)], pass_fds=[shared.fd]
    ) as writer:
        while not shared.running():
            assert writer.poll() is None
        until = time.monotonic() + 1
        while time.monotonic() < until:
            seen.update(shared.running())
        writer.kill()
    shared.close()

    assert len(seen) > 1
    assert [
        entry for entry in seen if min(entry.deliveries, entry.since_ns) < entry.id
    ] == []


def test_large_payloads_are_handed_over_in_parts():
    """A runner could start nothing before the last byte of a claim of 20 MB had arrived."""
    ours, theirs = socket.socketpair()
    near, far = Channel(ours), Channel(theirs)
    jobs = [job(n, payload="x" * 100_000) for n in range(10)]
    process = RunnerProcess(
        cast("Any", None), near, cast("Any", None), alone=False, started_at=0.0
    )
    process.hand(jobs)
    process.hand(jobs[:1])
    frames = [cast("Jobs", decode_down(frame)) for frame in _all_of(near, far)]
    near.close()
    far.close()

    assert [[work.id for work in frame.rows] for frame in frames] == [
        [0, 1, 2],
        [3, 4, 5],
        [6, 7, 8],
        [9],
        [0],
    ]


def _all_of(near: Channel, far: Channel) -> list[bytes]:
    got = far.receive() or []
    while near.is_blocked:
        near.flush()
        got += far.receive() or []
    return got + (far.receive() or [])


# ---------------------------------------------------------------------- capacity


def job(
    number: int = 1, *, worker: int = 1, run_at: datetime = EPOCH, payload: str = "{}"
) -> ClaimedJob:
    row = (7, number, 1, 1, "kind", payload, None, run_at, 0.0)
    return held_from(
        Batch(worker, ["default"]), [LaneClaim(1, 1, run_at, number, 7, 7)], [row]
    )[0]


def runner(
    held: int = 0,
    *,
    ready: bool = True,
    retiring: bool = False,
    alone: bool = False,
    pid: int = 1,
) -> RunnerProcess:
    # no process, no channel, no shared state: capacity asks for none of them
    nothing: Any = SimpleNamespace(pid=pid)
    jobs = HeldJobs({number: job(number) for number in range(held)})
    return RunnerProcess(
        nothing, nothing, nothing, alone, 0.0, held=jobs, ready=ready, retiring=retiring
    )


def test_slow_handlers_are_not_fetched_ahead_and_fast_ones_are():
    capacity, slow, fast = Capacity(4), runner(pid=1), runner(pid=2)
    slow.held.speed.ended, slow.held.speed.busy_seconds = 1, 0.1
    fast.held.speed.ended, fast.held.speed.busy_seconds = 20_000, 0.1
    for one in (slow, fast):
        one.held.measure(100.1)

    assert capacity.of(slow) == 4
    assert capacity.of(fast) == 4 + MOST_AHEAD
    for n in range(60):
        fast.held.measure(100.2 + n / 10)
    assert capacity.of(fast) == 4, "its speed is forgotten when it has none"


def test_a_runner_is_as_fast_as_it_is_while_it_has_jobs():
    """Or a burst after a quiet hour would be fetched by the slot's worth, however fast it is."""
    capacity, one = Capacity(4), runner()
    one.held.speed.ended, one.held.speed.busy_seconds = 15, 0.001
    capacity.measure(one, 100.0)
    before = one.held.speed.per_second
    one.held.speed.ended = 16
    capacity.measure(one, 100.0)
    one.held.by_id[1] = job(1)
    one.held.speed.busy_since, one.held.speed.ended = 100.0, 16
    capacity.measure(one, 100.002)

    assert before == 0.0, "too few to say"
    assert one.held.speed.per_second == pytest.approx(0.7 * 16_000 + 0.3 * 8_000)
    assert one.held.speed.busy_since == 100.002


def test_only_runners_that_take_jobs_have_room():
    capacity = Capacity(4)
    others = [runner(ready=False), runner(retiring=True), runner(alone=True)]

    assert capacity.free(others) == 0
    assert capacity.to_claim(others, backlog=True) == 0
    assert capacity.free([runner(1), *others]) == 3
    assert capacity.to_claim([runner(3)], backlog=False) == 1
    assert capacity.to_claim([runner(4)], backlog=True) == 0


def test_jobs_are_fetched_ahead_by_half_of_what_may_be_and_only_from_a_backlog():
    """A claim for each job that ends would cost more than the jobs do."""
    capacity, busy = Capacity(4), runner(4)
    busy.held.speed.per_second = 20 / AHEAD_SECONDS
    nearly_full = runner(4 + 11)
    nearly_full.held.speed.per_second = busy.held.speed.per_second

    assert capacity.to_claim([busy], backlog=True) == 4 + 10
    assert capacity.to_claim([busy], backlog=False) == 0
    assert capacity.to_claim([nearly_full], backlog=True) == 0


def test_a_sweep_that_found_only_late_jobs_is_followed_by_another():
    book = LaneBook(None)
    book.replace([(A, None)], 0.0, 0.001)
    now = time.monotonic()
    for upto, is_due in ((NOON, False), (NOON, True), (NOON + timedelta(1), False)):
        request = book.request(1, 5, now + 60)
        book.learn(request, [lane_claim(1, upto)], 0.001)

        assert (book.request(1, 5, time.monotonic()).from_start is None) == is_due


def test_a_worker_that_waits_for_its_turn_fetches_more_ahead():
    """C38: 100 workers claimed 30 jobs at a time, and each claim costs as much as 50 jobs."""
    capacity, idle = Capacity(4), runner()
    idle.held.speed.per_second = 20 / AHEAD_SECONDS
    free = {}
    for turn in (AHEAD_SECONDS / 2, 2 * AHEAD_SECONDS, 60.0):
        capacity.turn_seconds = turn
        free[turn] = capacity.free([idle])

    assert list(free.values()) == [
        24,
        44,
        4 + int(20 * MAX_AHEAD_SECONDS / AHEAD_SECONDS),
    ]


def test_a_turn_lasts_from_the_first_claim_that_other_workers_kept_waiting():
    polling = Polling(0.0)
    polling.had_turn(5, 1.0, 1.1, has_waited=False)
    assert polling.turn_seconds == 0.0

    polling.had_turn(0, 2.0, 2.1, has_waited=True)
    polling.had_turn(0, 2.2, 2.3, has_waited=True)
    polling.had_turn(5, 2.4, 2.5, has_waited=False)
    assert polling.turn_seconds == 0.5

    polling.had_turn(0, 3.0, 3.1, has_waited=True)
    polling.had_turn(0, 4.0, 4.1, has_waited=False)  # nothing was left
    polling.had_turn(5, 5.0, 5.25, has_waited=True)
    assert polling.turn_seconds == 0.25


def test_the_other_half_is_fetched_before_one_half_is_handed_out():
    """The database waited while jobs were handed out, and then the runner for the database."""
    capacity, idle = Capacity(4), runner()
    idle.held.speed.per_second = 20 / AHEAD_SECONDS

    assert capacity.to_claim([idle], backlog=False) == 24
    assert capacity.to_claim([idle], coming=14, backlog=True) == 10
    assert capacity.to_claim([idle], coming=14, backlog=False) == 0
    assert capacity.to_claim([idle], coming=24, backlog=True) == 0


def test_jobs_that_wait_for_the_next_claim_to_be_sent_are_in_hand_like_others():
    pool: Any = SimpleNamespace(runners=[], held=lambda: 0)
    dispatch = Dispatch(pool, Capacity(4), KnownKinds())
    dispatch.load([job(1, worker=1), job(2, worker=2)])

    assert dispatch.is_loaded
    assert [held.id for held in dispatch] == [1, 2]
    dispatch.forget({1})
    assert [held.id for held in dispatch.give_up()] == [2]
    assert not dispatch.is_loaded
    assert not dispatch.unload()


@given(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.integers(0, 30))
def test_every_job_is_dealt_once_and_within_the_room_where_there_is_room(
    held: list[int], count: int
):
    capacity = Capacity(6)
    runners = [runner(n, pid=pid) for pid, n in enumerate(held)]
    free = capacity.free(runners)
    jobs = [job(n) for n in range(count)]
    dealt = list(capacity.shares(runners, jobs))

    assert [one for _, share in dealt for one in share] == jobs
    assert all(share for _, share in dealt)
    if count <= free:
        assert all(len(r.held) + len(share) <= 6 for r, share in dealt if r is not None)


def test_jobs_nobody_can_take_are_nobodys():
    jobs = [job()]

    assert list(Capacity(4).shares([runner(ready=False)], jobs)) == [(None, jobs)]


def test_a_report_of_an_earlier_claim_takes_no_job_out_of_hand():
    one = runner(3)
    ended = [
        one.held.take_ended(0, 7),
        one.held.take_ended(9, 1),
        one.held.take_ended(0, 1),
    ]
    completed = one.held.take_completed([(1, 7, 0.5), (9, 1, 0.5), (1, 1, 0.5)])

    assert [held and held.id for held in ended] == [None, None, 0]
    assert [(held.id, seconds) for held, seconds in completed] == [(1, 0.5)]
    assert len(one.held) == 1
    assert one.held.speed.ended == 2


def test_an_identity_that_is_lost_takes_its_jobs_along():
    one = runner(2)
    one.held.by_id[5] = job(5, worker=2)

    one.held.forget({2})

    assert sorted(one.held.by_id) == [0, 1]


# ---------------------------------------------------------------------- polling


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
    """C38: 100 workers gave up after 50 ms, and each vain claim cost as much as a claim."""
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


# ---------------------------------------------------------------------- drain


def test_a_drain_begins_once_and_a_second_signal_ends_it():
    drain = Drain(30.0)
    before = drain.begins() or drain.is_on or drain.is_over(1e9)
    began = time.monotonic()
    drain.signal()

    assert not before
    assert (drain.begins(), drain.begins(), drain.is_on) == (True, False, True)
    assert not drain.is_over(began + 29)
    assert drain.is_over(time.monotonic() + 30)
    drain.signal()
    assert drain.is_over(time.monotonic())
    assert not drain.is_overdue(time.monotonic() + LAST_SECONDS - 1)
    assert drain.is_overdue(time.monotonic() + LAST_SECONDS)


# ---------------------------------------------------------------------- lanes

A, B, URGENT = Lane(0, "a", 0), Lane(0, "b", 0), Lane(-5, "c", 0)


def test_what_may_be_settled_already_is_not_stale_whatever_is_asked_meanwhile():
    """A claim by itself settles nothing, and says nothing of what was sent before."""
    telemetry = Telemetry(Metrics(), None)
    pending, nothing = PendingSettlements(telemetry), SettlementBatch([], [])
    pending.completed([(job(), 0.1)])
    pending.put_back(pending.take(), outcome_unknown=True)
    pending.put_back(nothing)
    pending.done(nothing, nothing.claims(), None, set())
    taken = pending.take()
    pending.done(taken, taken.claims(), set(), set())

    (stale,) = telemetry.metrics.stale.collect()
    assert [
        sample.value for sample in stale.samples if sample.name.endswith("_total")
    ] == []


def test_an_identity_left_behind_ends_no_claim():
    """After a restore, the current identity may have a claim with the number of an earlier one's
    claim. The end of the earlier claim would end it too, and its jobs would run twice.
    """
    batch = SettlementBatch([job(22, worker=1)], [])

    assert batch.columns(batch.claims(), 3).ended == []
    assert batch.columns(batch.claims(), None).ended == []
    assert batch.columns(batch.claims(), 1).ended == [7]


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def lane_claim(lane_no: int | None, upto: datetime | None, jobs: int = 5) -> LaneClaim:
    return LaneClaim(lane_no, jobs, upto, 2, 7, 7)


def served(
    waiting: dict[Lane, int], claims: int, want: int = 5
) -> list[dict[Lane, int]]:
    """How many jobs of which lanes each claim takes, of so many that wait in each."""
    book, taken = LaneBook(None), []
    book.replace([(lane, None) for lane in waiting], 0.0, 0.001)
    for _ in range(claims):
        request, left, found = book.request(1, want, 1.0), want, []
        taken.append({})
        for number, lane in enumerate(request.lanes, 1):
            if left and waiting[lane]:
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
    """However many lanes there are, and however many jobs wait in those that are more urgent."""
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
        assert request.lanes == [URGENT, later]
        rest = [] if n % (AGING_SHARE - 1) else [lane_claim(None, NOON, 0)]
        book.learn(request, [lane_claim(1, NOON), *rest], 0.001)


def test_a_tenant_with_many_jobs_delays_another_by_a_claim_for_each_lane():
    lanes = {Lane(0, "a", n): 1 for n in range(16)} | {Lane(0, "a", 3): 100_000}
    taken = served(lanes, 16)

    assert {lane for claim in taken for lane in claim} == set(lanes)


def test_a_scan_goes_on_where_the_lane_has_been_claimed_and_a_sweep_looks_before_it():
    book = LaneBook(None)
    book.replace([(A, None)], 0.0, 0.001)
    first = book.request(1, 5, 1.0)
    is_any_busy = book.learn(first, [lane_claim(1, NOON)], 0.001)
    second = book.request(1, 5, time.monotonic() - 1)
    third = book.request(1, 5, time.monotonic() + 60)

    assert (first.from_start, list(first.places)) == (None, [START])
    assert (second.from_start, list(second.places)) == (False, [Place(NOON, 2, 7)])
    assert (third.from_start, list(third.places)) == (None, [Place(NOON, 2, 7)])
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
        lambda book: book.learn(book.request(1, 5, 1.0), [lane_claim(1, NOON)], 0.001),
        lambda book: book.replace([(A, None), (B, None), (URGENT, None)], 0.1, 0.101),
        lambda book: book.learn(book.request(1, 5, 1.0), [lane_claim(2, NOON)], 0.001),
        lambda book: book.learn(
            book.request(1, 5, 1.0), [lane_claim(None, NOON)], 0.001
        ),
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
    book.learn(book.request(1, 5, 1.0), [lane_claim(1, NOON)], 0.001)

    assert book.learn(book.request(1, 5, 1.0), [lane_claim(1, None)], 0.001)
    assert list(book.request(1, 5, 1.0).places) == [Place(NOON, 2, 7)]


def test_what_nobody_claims_is_walked_by_the_sweep_alone():
    """C11: jobs that nobody handles were walked by every poll."""
    book = LaneBook(None)
    book.replace([(A, None)], 0.0, 0.001)
    book.learn(book.request(1, 5, 1.0), [lane_claim(None, NOON)], 0.001)

    assert list(book.request(1, 5, 1.0).places) == [Place(NOON - LATE_COMMIT, 0, 0)]


def test_a_clock_that_goes_back_leaves_no_job_behind_a_place():
    """C17"""
    book = LaneBook(None)
    book.replace([(A, None)], 0.0, 0.001)
    book.learn(book.request(1, 5, 1.0), [lane_claim(1, NOON)], 0.001)
    book.learn(
        book.request(1, 5, 1.0), [lane_claim(None, NOON - timedelta(hours=1))], 0.001
    )

    assert list(book.request(1, 5, 1.0).places) == [START]


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
    book.learn(book.request(1, 5, 1.0), [lane_claim(1, NOON)], 0.001)
    book.start_over()

    assert list(book.request(1, 5, 1.0).places) == [START]


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
        "whoever knows none may look when it polls"
    )


def test_a_report_is_small():
    assert len(encode_frame(Ended([Report(1, 1, Outcome.RELEASE)]))) < 60
