"""claim_v1: what a claim takes, in which order, and what it returns."""

from dataclasses import asdict, replace
from secrets import token_hex

import psycopg
import pytest

from redrive.worker import store
from redrive.worker.claim.lanes import LaneBook
from redrive.worker.round_trip import START, Lane, Place
from tests.factories import (
    Claimed,
    claim,
    claim_one,
    exchange,
    failure,
    holders,
    last_claim,
    make_job,
    make_jobs,
    make_worker,
    settle_next,
    totals,
)
from tests.postgres import Database

LANE = [Lane(0, "default", 0)]
NEIGHBOURS = [Lane(0, "other", 0), Lane(1, "default", 0), Lane(0, "default", 1)]
"""Each differs in one thing alone."""


def test_a_claim_counts_the_delivery_and_the_attempt(database: Database) -> None:
    job_id = make_job(database.conn, payload={"n": 1})
    worker = make_worker(database.conn)
    job = claim_one(database.conn, worker)

    assert (job.id, job.deliveries, job.attempt, job.kind, job.payload) == (
        job_id,
        1,
        1,
        "invoice.charge",
        '{"n": 1}',
    )
    assert job.extras is None
    assert holders(database.conn) == {job_id: worker}
    assert database.rows("select deliveries, attempt from redrive.jobs") == [(0, 0)]
    assert totals(database.conn) == {"enqueued": 1, "claimed": 1}


def test_what_few_jobs_have_comes_as_rest(database: Database) -> None:
    make_job(
        database.conn,
        max_attempts=3,
        tenant="acme",
        headers={"traceparent": "00-1"},
        idempotency_key="ik",
        ordering_key="ok",
        expires_in=3600,
    )
    worker = make_worker(database.conn)
    assert settle_next(database.conn, worker, "retry", failure=failure(), losses=1)
    more = claim_one(database.conn, worker).more
    expires_in = more.pop("expires_in")

    assert 3000 < expires_in <= 3600
    assert more == {
        "max_attempts": 3,
        "losses": 1,
        "refunds": None,
        "streak": 1,
        "fingerprint": "f1",
        "redrives": 0,
        "tenant": "acme",
        "headers": {"traceparent": "00-1"},
        "idempotency_key": "ik",
        "ordering_key": "ok",
        "checkpoint": None,
        "source": None,
        "retried_for": None,
    }


@pytest.mark.parametrize(
    "option",
    [
        {"max_attempts": 3},
        {"tenant": "t"},
        {"headers": {"a": "b"}},
        {"idempotency_key": "k"},
        {"ordering_key": "k"},
        {"expires_in": 5},
    ],
    ids=lambda option: next(iter(option)),
)
def test_rest_is_there_as_soon_as_one_of_it_is_not_the_default(
    database: Database, option: dict[str, object]
) -> None:
    make_job(database.conn, **option)

    assert claim_one(database.conn, make_worker(database.conn)).extras is not None


def test_jobs_come_by_priority_and_then_by_when_they_are_due(
    database: Database,
) -> None:
    ids = {
        (priority, n): make_job(database.conn, priority=priority)
        for n in range(3)
        for priority in (5, -5, 0)
    }
    worker = make_worker(database.conn)
    claimed = [job.id for _ in range(9) for job in claim(database.conn, worker, 1)]

    assert claimed == [ids[priority, n] for priority in (-5, 0, 5) for n in range(3)]


def test_a_claim_takes_no_more_than_it_wants(database: Database) -> None:
    make_jobs(database.conn, 5)
    make_jobs(database.conn, 5, priority=1)
    worker = make_worker(database.conn)

    assert [len(claim(database.conn, worker, 7)) for _ in range(3)] == [7, 3, 0]


def test_a_job_is_claimed_once(database: Database) -> None:
    make_jobs(database.conn, 50)
    workers = [make_worker(database.conn, f"w{n}") for n in range(4)]
    taken = [claim(database.conn, worker, 20) for worker in workers]

    assert [len(jobs) for jobs in taken] == [20, 20, 10, 0]
    assert len({job.id for jobs in taken for job in jobs}) == 50


def test_a_job_of_the_future_is_left(database: Database) -> None:
    (soon,) = database.row("select clock_timestamp() + interval '1 minute'")
    make_job(database.conn, run_at=soon)

    assert claim(database.conn, make_worker(database.conn)) == []


def test_only_the_given_lanes_are_looked_at_in_their_order(database: Database) -> None:
    for queue in ("a", "b", "c"):
        make_jobs(database.conn, 2, queue=queue)
    make_jobs(database.conn, 2, queue="a", lane=3)
    worker = make_worker(database.conn)
    jobs = claim(
        database.conn,
        worker,
        lanes=[Lane(0, "c", 0), Lane(0, "a", 3), Lane(0, "nothing", 0)],
    )

    queue_of = dict(database.rows("select id, queue || lane from redrive.jobs"))
    assert [queue_of[job.id] for job in jobs] == ["c0", "c0", "a3", "a3"]


def make_neighbours(database: Database) -> None:
    """Due jobs in every lane that could be taken for ours."""
    for lane in NEIGHBOURS:
        make_jobs(database.conn, 2, **asdict(lane))


def test_a_claim_heeds_and_holds_its_own_lane_alone(database: Database) -> None:
    """Others are claimed from meanwhile, and how far they were claimed is no place in this one."""
    ids = make_jobs(database.conn, 2)
    make_neighbours(database)
    one, two = make_worker(database.conn, "one"), make_worker(database.conn, "two")
    for lane in NEIGHBOURS:
        assert len(claim(database.conn, two, 1, lanes=[lane])) == 1
    mine, other = database.transaction(), database.session(lock_timeout="1ms")
    taken = claim(mine.conn, one, lanes=LANE, places=[START])
    beside = [
        claim(other.conn, two, lanes=[lane], places=[START]) for lane in NEIGHBOURS
    ]
    mine.rows("commit")

    assert [job.id for job in taken] == ids
    assert [len(jobs) for jobs in beside] == [1, 1, 1]


def test_a_few_small_jobs_come_with_their_claim_and_others_are_read_later(
    database: Database,
) -> None:
    worker, found = make_worker(database.conn), []
    for count, size in ((8, 1), (9, 1), (1, 5000)):
        for _ in range(count):
            make_job(database.conn, payload={"n": token_hex(size)})
        rows = database.column(
            "select id from redrive.claim_v1(%s, '{default}', '{0}', '{0}', '{-infinity}', '{0}',"
            " '{0}', true, 100) where id is not null",
            worker,
        )
        found.append(len(rows))

    assert found == [8, 0, 0]


def test_what_is_read_of_claims_is_the_workers_own_and_new(database: Database) -> None:
    make_jobs(database.conn, 4)
    one, two = make_worker(database.conn, "one"), make_worker(database.conn, "two")
    old, other, new, another = (
        claim_one(database.conn, w) for w in (one, two, one, two)
    )
    read = "select id from redrive.claimed_v1(%s, %s) order by id"

    assert database.column(read, one, old.claim) == [new.id]
    assert database.column(read, two, 0) == [other.id, another.id]


@pytest.mark.every_version
def test_what_is_read_of_large_payloads_waits_compressed(database: Database) -> None:
    """As text they are 38 MB, more than may wait in memory: they would go by a file."""
    worker, jobs = make_worker(database.conn), make_jobs(database.conn, 600)
    database.rows(
        "update redrive.jobs set payload = jsonb_build_object('s', repeat('x', 64000))"
    )
    assert [job.id for job in claim(database.conn, worker, 600)] == jobs
    plan = database.value(
        "explain (analyze, buffers, format json)"
        " select payload::text from redrive.claimed_v1(%s, 0)",
        worker,
    )[0]["Plan"]

    assert (plan["Actual Rows"], plan["Temp Written Blocks"]) == (600, 0)


def test_tenants_of_a_fair_queue_take_turns(database: Database) -> None:
    """A loud one keeps nobody waiting; without lanes the quiet one comes last."""
    for queue, lanes in (("fair", 16), ("plain", 1)):
        database.rows("select redrive.set_lanes_v1(%s, %s, 'ada', 'x')", queue, lanes)
        for tenant in ("loud", "loud", "loud", "quiet", "quiet"):
            make_job(database.conn, queue=queue, tenant=tenant)
    worker = make_worker(database.conn)

    assert (
        sorted(tenants_in_turn(database, worker, "fair")[:4])
        == ["loud"] * 2 + ["quiet"] * 2
    )
    assert tenants_in_turn(database, worker, "plain") == ["loud"] * 3 + ["quiet"] * 2


def tenants_in_turn(database: Database, worker: int, queue: str) -> list[str]:
    """Whose jobs are claimed, one at a time, by a worker that knows where to look."""
    book, found = LaneBook([queue]), []
    book.replace(store.lanes(database.conn, [queue])[0], 0.0, 0.0)
    for _ in range(5):
        request = book.request(worker, 1, 0.0)
        assert request is not None
        answer = exchange(
            database.conn, claim=replace(request, after=last_claim(database.conn))
        )
        book.learn(request, answer.lanes, 0.0)
        found.append(Claimed(*answer.rows()[0]).more["tenant"])
    return found


def test_what_waited_before_a_queue_was_fair_delays_nobody_after(
    database: Database,
) -> None:
    """The loud one's jobs, and a tenant of any share: one claim for each lane at most."""
    make_jobs(database.conn, 2000, queue="q", tenant="loud")
    database.rows("select redrive.set_lanes_v1('q', 16, 'ada', 'x')")
    others = [f"t{n}" for n in range(60)]
    for tenant in others:
        make_job(database.conn, queue="q", tenant=tenant)
    lanes = database.column("select distinct lane from redrive.jobs order by 1")
    found = [
        job.more["tenant"] for jobs in in_turn(database, len(lanes), 50) for job in jobs
    ]

    assert lanes[0] == 0
    assert sorted(tenant for tenant in found if tenant != "loud") == sorted(others)


def test_a_low_priority_runs_within_sixteen_claims_of_a_flood(
    database: Database,
) -> None:
    """Before there were shares, no claim of a worker came to it while urgent jobs were due."""
    late = make_job(database.conn, queue="q", priority=5)
    make_jobs(database.conn, 1000, queue="q")
    claims = [{job.id for job in jobs} for jobs in in_turn(database, 17, 10)]

    assert [late in ids for ids in claims] == [False] * 15 + [True, False]
    assert {len(ids) for ids in claims} == {10}


def in_turn(database: Database, claims: int, want: int) -> list[list[Claimed]]:
    """Return what this number of claims takes, of a worker that knows where to look."""
    worker, book, found = make_worker(database.conn), LaneBook(["q"]), []
    book.replace(store.lanes(database.conn, ["q"])[0], 0.0, 0.0)
    for _ in range(claims):
        request = book.request(worker, want, 0.0)
        assert request is not None
        answer = exchange(
            database.conn, claim=replace(request, after=last_claim(database.conn))
        )
        book.learn(request, answer.lanes, 0.0)
        found.append([Claimed(*row) for row in answer.rows()])
    return found


def test_a_queue_gets_lanes_and_loses_them_again(database: Database) -> None:
    for lanes in (16, 1):
        database.rows(
            "select redrive.set_lanes_v1('q', %s, 'ada', 'a loud tenant')", lanes
        )
        assert database.rows("select queue, lanes, paused_at from redrive.queues") == [
            ("q", lanes, None)
        ]
    with pytest.raises(psycopg.errors.CheckViolation):
        database.rows("select redrive.set_lanes_v1('q', 257, 'ada', 'x')")

    assert database.rows(
        "select action, why, detail from redrive.audit order by id"
    ) == [
        ("set lanes", "a loud tenant", {"queue": "q", "lanes": lanes})
        for lanes in (16, 1)
    ]


def test_a_worker_with_other_kinds_in_the_lane_takes_its_own_and_no_other(
    database: Database,
) -> None:
    """Each worker takes only jobs of its own kinds, and no job stays behind."""
    for kind in ("a.one", "b.one", "b.two", "c.one", "c.ones") * 5:
        make_job(database.conn, kind)
    everything = make_worker(database.conn, "old")
    kinds = {"a": ["a.*", "c.one"], "b": ["b.one", "b.two", "c.one"]}
    workers = {name: make_worker(database.conn, name) for name in kinds}
    for name, worker in workers.items():
        database.rows(
            "update redrive.workers set kinds = %s where id = %s", kinds[name], worker
        )
    claimed: list[Claimed] = []
    for _ in range(4):
        a = claim(database.conn, workers["a"], 2, lanes=LANE, places=[START])
        b = claim(database.conn, workers["b"], 2, lanes=LANE, places=[START])
        assert {job.kind for job in a} == {"a.one", "c.one"}
        assert {job.kind for job in b} <= {"b.one", "b.two", "c.one"}
        claimed += a + b
    claimed += claim(database.conn, everything, 100, lanes=LANE, places=[START])

    assert sorted(job.id for job in claimed) == database.column(
        "select id from redrive.jobs order by id"
    )


def test_expired_jobs_are_claimed_and_say_so(database: Database) -> None:
    """What to do with them is policy, and policy is the worker's."""
    make_job(database.conn, expires_in=0.001)
    database.rows("select pg_sleep(0.002)")

    assert claim_one(database.conn, make_worker(database.conn)).more["expires_in"] <= 0


@pytest.mark.parametrize(
    "why", ["never registered", "lost", "retired", "being retired"]
)
def test_a_worker_that_is_not_alive_claims_nothing(
    database: Database, why: str
) -> None:
    make_jobs(database.conn, 3)
    worker = make_worker(database.conn)
    if why == "never registered":
        worker += 1
    elif why == "lost":
        database.rows("update redrive.workers set lost_at = now()")
    elif why == "being retired":
        database.rows("update redrive.workers set is_closed = true")
    else:
        store.retire(database.conn, worker)

    assert claim(database.conn, worker) == []
    assert holders(database.conn) == {}
    assert totals(database.conn) == {"enqueued": 3}


def test_an_empty_claim_takes_no_transaction_id_and_locks_no_row(
    database: Database,
) -> None:
    (later,) = database.row("select now() + interval '1 hour'")
    make_job(database.conn, run_at=later)
    make_neighbours(database)
    worker = make_worker(database.conn)
    session = database.transaction()

    assert claim(session.conn, worker, lanes=[*LANE, Lane(0, "nothing", 0)]) == []
    assert session.value("select pg_current_xact_id_if_assigned()") is None
    assert (
        session.value(
            "select count(*) from pg_locks where pid = pg_backend_pid() and mode = 'RowShareLock'"
            " and granted and locktype = 'tuple'"
        )
        == 0
    )

    make_job(database.conn)
    session.rows("commit")
    session.rows("begin")
    assert len(claim(session.conn, worker, lanes=LANE)) == 1
    assert session.value("select pg_current_xact_id_if_assigned()") is not None, (
        "and this is how one would be seen"
    )
    session.rows("commit")
    (place,) = database.rows("select upto, upto_id, id from redrive.claims")
    session.rows("begin")
    assert claim(session.conn, worker, lanes=LANE, places=[Place(*place)]) == []
    assert session.value("select pg_current_xact_id_if_assigned()") is None, (
        "nor where nothing is due after its place"
    )


def test_a_claim_does_not_wait_for_the_disk(database: Database) -> None:
    make_job(database.conn)
    worker = make_worker(database.conn)
    session = database.transaction()
    claim_one(session.conn, worker)

    assert session.value("show synchronous_commit") == "off"
    session.rows("commit")
    assert session.value("show synchronous_commit") == "on", "for this transaction only"
