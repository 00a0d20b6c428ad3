"""Jobs that come back go to the front lane of their lane, and begin before a backlog."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redrive.jobs.filter import JobFilter
from redrive.jobs.find import find
from redrive.jobs.why.facts import Surroundings
from redrive.worker import store
from redrive.worker.claim.lanes import LaneBook
from redrive.worker.round_trip import START, Place
from tests.factories import (
    Claimed,
    claim,
    claim_one,
    complete,
    complete_next,
    exchange,
    failure,
    lanes_of,
    last_claim,
    let_next_die,
    make_dead_letters,
    make_job,
    make_jobs,
    make_limited_worker,
    make_worker,
    redrive,
    settle,
    settle_next,
    silence,
)
from tests.postgres import Connection, Database, Session
from tests.sql.test_claim import LANE
from tests.sql.test_claim_places import buffers_of_claim
from tests.sql.test_hot import Cost
from tests.sql.test_limits import set_limit

KIND = "a.b"
LANES = "select id, lane from redrive.jobs where kind <> 'backlog' order by id"


def next_jobs(conn: Connection, worker: int, want: int = 1) -> list[int]:
    """Return what a worker claims that looks for lanes now."""
    book = LaneBook(None)
    book.replace(store.lanes(conn, None)[0], 0.0, 0.0)
    request = book.request(worker, want, 0.0, after=last_claim(conn))
    assert request is not None
    return [Claimed(*row).id for row in exchange(conn, claim=request).rows()]


def given_back(database: Database, delay: float, reason: str) -> int:
    conn = database.conn
    job = make_job(conn, KIND)
    worker = make_worker(conn)
    claimed = claim_one(conn, worker)
    assert settle(conn, worker, claimed, "release", delay=delay, reason=reason)
    return job


def released(database: Database) -> int:
    """A worker that stops gives back the job that it has begun."""
    return given_back(database, 0.0, "shutdown")


def put_off(database: Database) -> int:
    """A job waits until the breaker of a dependency closes."""
    return given_back(database, 0.001, "breaker bank")


def rescued(database: Database) -> int:
    """A worker is killed."""
    job = make_job(database.conn, KIND)
    worker = make_worker(database.conn, "lost")
    claim_one(database.conn, worker)
    silence(database.conn, worker)
    assert store.rescue(database.conn, 60.0)[:2] == (1, 1)
    return job


def lost_its_runner(database: Database) -> int:
    """A process is killed that ran several jobs."""
    job = make_job(database.conn, KIND)
    worker = make_worker(database.conn)
    assert settle_next(
        database.conn,
        worker,
        "retry",
        delay=0.0,
        losses=1,
        refund=True,
        failure=failure(),
    )
    return job


def retired(database: Database) -> int:
    """A worker does not know whether it has claimed this job."""
    job = make_job(database.conn, KIND)
    worker = make_worker(database.conn)
    claim_one(database.conn, worker)
    assert store.retire(database.conn, worker).released == 1
    return job


def waited_for_a_slot(database: Database) -> int:
    """The job that had the slot ends."""
    worker = make_limited_worker(database.conn, "emails")
    set_limit(database.conn, "emails", 1)
    _, job = (make_job(database.conn, KIND) for _ in range(2))
    complete(database.conn, worker, *claim(database.conn, worker))
    return job


def waited_for_a_rate(database: Database) -> int:
    """Its time under the rate has come."""
    worker = make_limited_worker(database.conn, "emails")
    set_limit(database.conn, "emails", rate=10.0)
    _, job = (make_job(database.conn, KIND) for _ in range(2))
    complete(database.conn, worker, *claim(database.conn, worker))
    database.rows("select pg_sleep(0.2)")
    return job


def waited_for_its_key(database: Database) -> int:
    """The job before it completes."""
    _, job = (make_job(database.conn, KIND, ordering_key="k") for _ in range(2))
    worker = make_worker(database.conn)
    complete_next(database.conn, worker)
    return job


def waited_for_a_death(database: Database) -> int:
    """The job before it dies."""
    _, job = (make_job(database.conn, KIND, ordering_key="k") for _ in range(2))
    worker = make_worker(database.conn)
    let_next_die(database.conn, worker)
    return job


def waited_for_a_cancellation(database: Database) -> int:
    """The job before it is cancelled."""
    first, job = (make_job(database.conn, KIND, ordering_key="k") for _ in range(2))
    database.rows("select redrive.cancel_v1(array[%s], 'ada', 'why')", first)
    return job


def overlooked(database: Database) -> int:
    """A chore wakes a job that nothing woke."""
    first, job = (make_job(database.conn, KIND, ordering_key="k") for _ in range(2))
    database.rows("delete from redrive.jobs where id = %s", first)
    assert database.value("select redrive.unpark_v1(100)") == 1
    return job


COME_BACK = [
    released,
    put_off,
    rescued,
    lost_its_runner,
    retired,
    waited_for_a_slot,
    waited_for_a_rate,
    waited_for_its_key,
    waited_for_a_death,
    waited_for_a_cancellation,
    overlooked,
]


@pytest.mark.parametrize("come_back", COME_BACK)
def test_a_job_that_comes_back_begins_before_a_backlog(
    database: Database, come_back: Callable[[Database], int]
) -> None:
    job = come_back(database)
    make_jobs(database.conn, 50, "backlog")
    hour = timedelta(hours=1)
    database.rows(
        "update redrive.jobs set run_at = run_at - %s where kind = 'backlog'", hour
    )
    database.rows("select pg_sleep(0.01)")

    assert job in next_jobs(database.conn, make_worker(database.conn), 2)


@pytest.mark.parametrize(
    ("outcome", "report"),
    [
        ("retry", {"delay": 0.0, "failure": failure()}),
        ("retry", {"delay": 0.0, "failure": failure(), "refund": True}),
        ("release", {"delay": 0.0, "reason": "snoozed"}),
    ],
)
def test_a_job_whose_attempt_ended_waits_behind_the_backlog(
    database: Database, outcome: str, report: dict[str, object]
) -> None:
    """Also one that came back before: jobs that fail do not delay others."""
    job, worker = released(database), make_worker(database.conn)
    backlog = make_jobs(database.conn, 2, "backlog")
    (held,) = claim(database.conn, worker, 1)
    assert held.id == job
    assert settle(database.conn, worker, held, outcome, **report)

    assert database.rows(LANES) == [(job, 0)]
    assert next_jobs(database.conn, worker, 3) == [*backlog, job]


def test_a_tenants_job_keeps_its_share_when_it_comes_back(database: Database) -> None:
    """And when it goes back to its lane, dies, or is redriven."""
    conn = database.conn
    worker = make_worker(conn)
    make_jobs(conn, 1, lane=3)
    lanes = []
    for outcome in ("release", "release", "retry", "release"):
        held = claim_one(conn, worker)
        assert settle(conn, worker, held, outcome, delay=0.0, failure=failure())
        lanes += database.column("select lane from redrive.jobs")
    let_next_die(conn, worker)
    lanes += database.column("select lane from redrive.dead_letters")

    assert lanes == [-4, -4, 3, -4, 3]


def test_a_fleet_that_stops_at_once_gives_back_thousands_in_their_order(
    database: Database,
) -> None:
    conn = database.conn
    ids = make_jobs(conn, 3000)
    for name in "abc":
        worker = make_worker(conn, name)
        claim(conn, worker, 1000)
        store.retire(conn, worker)
    make_jobs(conn, 100, "backlog")

    assert next_jobs(conn, make_worker(conn), 3000) == ids


def test_a_claim_reads_no_job_that_came_back_and_ended(database: Database) -> None:
    """An open snapshot keeps their rows. The claim begins behind the ones before it."""
    conn = database.conn
    worker = make_worker(conn)
    front = LANE[0].front
    make_jobs(conn, 3000)
    claim(conn, worker, 3000)
    store.retire(conn, worker)
    # A claim does read those of the last seconds.
    database.rows("update redrive.jobs set run_at = run_at - interval '1 min'")
    ahead, behind = make_worker(conn, "ahead"), make_worker(conn, "behind")
    place = [START]
    costs = []
    database.session().rows("begin isolation level repeatable read; select 1")
    for _ in range(3):
        # not a full scan, which is rare if it costs much
        database.rows(
            "update redrive.full_scans set next_at = now() + interval '1 min'"
        )
        costs.append(buffers_of_claim(database, behind, front, place[0]))
        done = claim(conn, ahead, 1000, lanes=[front], places=place)
        place = [max(Place(job.run_at, job.id, job.claim) for job in done)]
        complete(conn, ahead, *done)

    assert costs[2] <= costs[1] + 10


def test_a_new_worker_reads_the_dead_rows_of_a_front_lane_once(
    database: Database,
) -> None:
    """While it works off a backlog, it does not learn that it has looked at all lanes."""
    conn = database.conn
    make_jobs(conn, 100, "backlog")
    before = make_worker(conn, "before")
    database.session().rows("begin isolation level repeatable read; select 1")
    make_jobs(conn, 3000, lane=-1)
    long_ago = "update redrive.jobs set run_at = run_at - interval '1 min'"
    database.rows(long_ago)
    complete(conn, before, *claim(conn, before, 3000, lanes=[LANE[0].front]))
    database.rows("delete from redrive.claims")
    worker, book = make_worker(conn, "new"), LaneBook(None)
    book.replace([(LANE[0], None)], 0.0, 0.0)
    blocks = []
    for _ in range(3):
        request = book.request(worker, 10, 0.0, after=last_claim(conn))
        assert request is not None
        with Cost(Session(conn)) as cost:
            answer = exchange(conn, claim=replace(request, from_start=False))
            cost.keep()
        assert len(answer.rows()) == 10
        book.learn(request, answer.lanes, 0.001)
        blocks.append(cost.blocks)

    assert blocks[1] <= blocks[2] + 5 < blocks[0]


def test_jobs_that_become_visible_behind_the_place_of_a_front_lane_are_found_by_the_next_claim(
    database: Database,
) -> None:
    """A rescue of thousands commits long after the first of them is due. Limits wake others meanwhile."""
    conn = database.conn
    late, job = make_jobs(conn, 2)
    worker, rescuer = make_worker(conn), database.session()
    jobs = [*claim(conn, worker, 1), *claim(conn, worker, 1)]
    rescuer.rows("begin")
    assert settle(rescuer.conn, worker, jobs[0], "release", delay=0.0)
    assert settle(conn, worker, jobs[1], "release", delay=0.0)
    front = [LANE[0].front]
    (held,) = claim(conn, worker, lanes=front, places=[START])
    rescuer.rows("commit")
    place = [Place(held.run_at, held.id, held.claim)]
    database.rows("update redrive.full_scans set next_at = '-infinity'")

    assert held.id == job
    assert [job.id for job in claim(conn, worker, lanes=front, places=place)] == [late]


def test_an_empty_front_lane_costs_a_claim_one_search(database: Database) -> None:
    conn, worker = database.conn, make_worker(database.conn)
    make_jobs(conn, 300)
    session = database.session()
    costs = []
    for lanes in (LANE, LANE, [LANE[0].front, *LANE]):
        with Cost(session) as cost:
            places = [START] * len(lanes)
            assert (
                len(claim(session.conn, worker, 10, lanes=lanes, places=places)) == 10
            )
        costs.append((cost.full_scans, cost.index_scans, cost.updated, cost.blocks))
    _, without, beside = costs

    assert beside[:3] == (0, without[1] + 1, 0)
    assert beside[3] <= without[3] + 6


def test_a_look_for_lanes_reads_no_job_that_came_back_and_ended(
    database: Database,
) -> None:
    """The front lane is empty, an open snapshot keeps its rows, and a backlog waits."""
    conn = database.conn
    worker = make_worker(conn)
    make_jobs(conn, 10, "backlog")
    claim(conn, worker, 1)
    database.session().rows("begin isolation level repeatable read; select 1")
    lanes_of(conn)
    blocks = []
    for _ in range(2):
        ids = make_jobs(conn, 3000, lane=-1)
        complete(conn, worker, *claim(conn, worker, 3000, lanes=[LANE[0].front]))
        assert (
            database.value("select count(*) from redrive.jobs where id = any(%s)", ids)
            == 0
        )
        with Cost(Session(conn)) as cost:
            assert lanes_of(conn) == [LANE[0].front, *LANE]
        blocks.append(cost.blocks)

    assert blocks[1] <= blocks[0] + 5


def test_jobs_that_came_back_and_nobody_handles_are_read_once(
    database: Database,
) -> None:
    """They are first in line, and each claim of a backlog read all of them."""
    conn = database.conn
    for _ in range(3):
        released(database)
    database.rows("update redrive.jobs set run_at = run_at - interval '1 min'")
    make_jobs(conn, 50, "backlog")
    worker = store.register(
        conn, store.Registration("w", "test", 60, ["backlog"], None)
    )
    book = LaneBook(None)
    book.replace(store.lanes(conn, None)[0], 0.0, 0.0)
    claims = []
    for _ in range(2):
        request = book.request(worker, 10, 0.0, after=last_claim(conn))
        assert request is not None
        answer = exchange(conn, claim=request)
        book.learn(request, answer.lanes, 0.001)
        claims.append([request.lanes[(row.lane_no or 0) - 1] for row in answer.lanes])

    assert claims == [[LANE[0].front, *LANE], LANE]


def test_a_claim_of_limited_jobs_goes_on_with_the_next_lane(database: Database) -> None:
    """Otherwise one job that a limit wakes takes the whole turn of a worker."""
    conn = database.conn
    woken = waited_for_a_slot(database)
    plain = make_jobs(conn, 5, "plain")

    assert next_jobs(conn, make_worker(conn), 4) == [woken, *plain[:3]]


def test_a_limited_job_that_comes_back_is_the_first_in_the_line_of_its_limit(
    database: Database,
) -> None:
    """So is a job that was woken for a slot which another one took."""
    conn = database.conn
    worker = make_limited_worker(conn, "emails")
    set_limit(conn, "emails", 1)
    first, *rest = (make_job(conn, KIND) for _ in range(4))
    (held,) = claim(conn, worker)
    assert settle(conn, worker, held, "release", delay=0.0)
    order = []
    for _ in range(4):
        (job,) = claim(conn, worker)
        order.append(job.id)
        complete(conn, worker, job)

    assert order == [first, *rest]


@pytest.mark.parametrize("options", [{"kind": KIND}, {"ordering_key": "k"}])
def test_a_claim_with_slots_leaves_what_needs_a_lock_to_the_next_one(
    database: Database, options: dict[str, str]
) -> None:
    """It holds the keys of its limits, so it waits for no other session."""
    conn = database.conn
    woken = waited_for_a_slot(database)
    set_limit(conn, "emails", 2)
    plain = make_jobs(conn, 2, "plain")
    last = make_job(conn, **options)
    rest = make_jobs(conn, 2, "plain")
    book = LaneBook(None)
    book.replace(store.lanes(conn, None)[0], 0.0, 0.0)
    request = book.request(make_worker(conn), 99, 0.0)
    assert request is not None
    answer = exchange(conn, claim=request)

    assert [Claimed(*row).id for row in answer.rows()] == [woken, *plain]
    assert book.learn(request, answer.lanes, 0.0), "the next claim comes soon"
    assert next_jobs(conn, make_worker(conn), 99) == [last, *rest]


def test_a_job_that_comes_back_while_it_is_cancelled_is_not_claimed(
    database: Database,
) -> None:
    """It moves to its front lane after the cancellation has marked its lane."""
    conn = database.conn
    job, worker = make_job(conn), make_worker(conn)
    held = claim_one(conn, worker)
    operator = database.transaction(
        "select redrive.hold_waiting_v1(array[%s], true)", job
    )
    assert settle(conn, worker, held, "release", delay=0.0)
    operator.rows("select from redrive.jobs where id = %s for update", job)

    assert next_jobs(conn, worker) == []
    operator.rows("rollback")
    assert next_jobs(conn, worker) == [job]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "enqueue",
                "claim",
                "claim",
                "complete",
                "release",
                "release",
                "retry",
                "lose",
                "retire",
            ]
        ),
        st.integers(0, 1),
        st.integers(1, 4),
    ),
    min_size=20,
    max_size=60,
)


@given(steps=STEPS)
@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_whatever_comes_back_is_claimed_first_and_once(
    database: Database, steps: list[tuple[str, int, int]]
) -> None:
    """Two workers claim from their places. A step is about the jobs of one of them."""
    conn = database.conn
    database.rows("truncate redrive.jobs, redrive.claims, redrive.lanes")
    front: list[int] = []
    back: list[int] = []
    held: dict[int, list[Claimed]] = defaultdict(list)
    books: dict[int, LaneBook] = {}
    workers = [make_worker(conn) for _ in range(2)]
    for step, number, n in steps:
        worker = workers[number]
        some = held[worker][:n]
        match step:
            case "enqueue":
                back += make_jobs(conn, 2 * n)
                continue
            case "claim":
                book = books.setdefault(worker, LaneBook(None))
                book.replace(store.lanes(conn, None)[0], 0.0, 0.0)
                request = book.request(worker, n, 0.0, after=last_claim(conn))
                if request is None:
                    continue
                answer = exchange(conn, claim=request)
                book.learn(request, answer.lanes, 0.0)
                jobs = [Claimed(*row) for row in answer.rows()]
                is_first = request.lanes[0].is_front
                expected = front + back if is_first else back + front
                assert [job.id for job in jobs] == expected[:n]
                front, back = (
                    [job for job in line if job not in expected[:n]]
                    for line in (front, back)
                )
                held[worker] += jobs
                continue
            case "complete":
                complete(conn, worker, *some)
            case "release" | "retry":
                for job in some:
                    how = {"failure": failure()} if step == "retry" else {}
                    assert settle(conn, worker, job, step, delay=0.0, **how)
                if step == "release":
                    front += [job.id for job in some]
                else:
                    back += [job.id for job in some]
            case _:
                some = held[worker]
                if step == "lose":
                    silence(conn, worker)
                    store.rescue(conn, 60.0)
                else:
                    store.retire(conn, worker)
                front += sorted(job.id for job in some)
                workers[number] = make_worker(conn)
        held[worker] = held[worker][len(some) :]


def test_why_counts_the_jobs_that_came_back_as_ahead(database: Database) -> None:
    released(database)
    job = make_job(database.conn)
    (found,) = find(database.conn, JobFilter(ids=[job]))

    answer = Surroundings(database.conn).why(found)
    assert "1 due jobs stand before it" in answer.text


def test_a_redriven_job_waits_in_its_turn(database: Database) -> None:
    """A person sends it back. It has no place in a line of jobs that were interrupted."""
    (dead,) = make_dead_letters(database.conn, 1)
    assert redrive(database.conn, [dead]) == {dead: None}

    assert database.rows(LANES) == [(dead, 0)]
