"""The parts of a worker that need no database and no process: protocol, capacity, settlements ..."""

import random
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
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
from redrive.worker.drain import LAST_SECONDS, Drain
from redrive.worker.held import Batch, ClaimedJob, held_from
from redrive.worker.kinds import KnownKinds
from redrive.worker.polling import Polling
from redrive.worker.processes.capacity import (
    AHEAD_SECONDS,
    MAX_AHEAD_SECONDS,
    MOST_AHEAD,
    Capacity,
)
from redrive.worker.processes.dispatch import Dispatch
from redrive.worker.processes.held_jobs import HeldJobs
from redrive.worker.processes.pool import RunnerPool
from redrive.worker.processes.runner_process import RunnerProcess
from redrive.worker.processes.speed import Speed
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
from redrive.worker.round_trip import EPOCH, LaneClaim
from redrive.worker.settle.settlements import PendingSettlements, SettlementBatch
from redrive.worker.shared_state import RING, Running, SharedState
from redrive.worker.telemetry import Telemetry

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


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux has files without a place"
)
def test_a_shared_state_needs_no_writable_directory(monkeypatch: pytest.MonkeyPatch):
    """A container may have none: no /tmp, no home."""
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    SharedState(3).close()


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


@pytest.mark.parametrize("held", [0, 6])
def test_jobs_that_end_together_just_after_a_measurement_do_not_look_fast(held: int):
    """Ten jobs of a second that end within 0.1 ms were a speed of 100,000 a second."""
    capacity, one = Capacity(10), runner(held)
    one.held.speed = Speed(ended=10, busy_seconds=0.0001, busy_since=100.0)
    pool: Any = SimpleNamespace(runners=[one], is_any_ready=lambda: True)
    RunnerPool.measure(pool, 100.0)
    few = capacity.of(one)
    one.held.speed.busy_seconds = 1.0
    RunnerPool.measure(pool, 100.0)

    assert few == 10
    assert capacity.of(one) == 10


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


def test_a_worker_that_waits_for_its_turn_fetches_more_ahead():
    """100 workers claimed 30 jobs at a time, and each claim costs the time of 50 jobs."""
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


# ---------------------------------------------------------------------- settlements


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


def test_a_report_is_small():
    assert len(encode_frame(Ended([Report(1, 1, Outcome.RELEASE)]))) < 60
