"""Limits across the fleet: never exceeded, never in the way of others, none waits forever."""

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString

import psycopg
import pytest

from redrive.jobs.filter import JobFilter
from redrive.jobs.find import find
from redrive.worker import store
from redrive.worker.round_trip import (
    START,
    ClaimRequest,
    Lane,
    Place,
    Settlements,
    exchange,
)
from tests.factories import (
    Claimed,
    Depth,
    claim,
    claim_one,
    complete,
    depths,
    failure,
    lanes_of,
    last_claim,
    let_die,
    make_dead_letter,
    make_job,
    make_limited_worker,
    make_worker,
    redrive,
    settle,
    silence,
)
from tests.postgres import Connection, Database
from tests.sql.test_hot import Cost

LANE = [Lane(0, "default", 0)]
INSERT = "insert into redrive.jobs (kind, payload) select %s, %s::jsonb from generate_series(1, %s)"


def set_limit(
    conn: Connection,
    name: str,
    concurrency: int | None = None,
    rate: float | None = None,
) -> Any:
    row = conn.execute(
        "select redrive.set_limit_v1(%s, %s, %s, 'ada', 'why')",
        (name, concurrency, rate),
    ).fetchone()
    return row and row[0]


def slots(database: Database) -> dict[str, int]:
    """How many slots of each name are taken."""
    return dict(
        database.rows(
            "select name, count(*)::int from redrive.limit_slots group by name"
        )
    )


def waits(database: Database) -> dict[str, int]:
    """How many wait behind each name."""
    return dict(
        database.rows(
            "select name, count(*)::int from redrive.limit_waits group by name"
        )
    )


def sound(database: Database) -> bool:
    """Exactly the jobs that wait are parked; a slot is that of a claimed job."""
    return database.row(
        "select (select count(*) from redrive.jobs j where run_at = 'infinity' and ordering_key"
        " is null and not exists (select from redrive.limit_waits w where w.job = j.id)),"
        " (select count(*) from redrive.limit_waits w where not exists (select from redrive.jobs j"
        " where j.id = w.job and j.run_at = 'infinity')),"
        " (select count(*) from redrive.limit_slots s where s.job not in"
        " (select c.id from redrive.claims k, unnest(k.ids) as c(id)))"
    ) == (0, 0, 0)


def ids(jobs: Sequence[Claimed]) -> list[int]:
    return [job.id for job in jobs]


def test_no_more_run_than_a_limit_allows_and_each_end_lets_one_more_begin(
    database: Database,
) -> None:
    conn = database.conn
    worker = make_limited_worker(conn, "emails")
    set_limit(conn, "emails", 2)
    jobs = [make_job(conn, "a.b") for _ in range(5)]
    running = claim(conn, worker)
    assert ids(running) == jobs[:2]
    assert (slots(database), waits(database)) == ({"emails": 2}, {"emails": 3})
    assert not claim(conn, worker)

    complete(conn, worker, running[0])
    third = claim_one(conn, worker)
    assert third.id == jobs[2]
    assert (third.attempt, third.deliveries) == (1, 1), "waiting burns no attempt"
    assert settle(conn, worker, third, "retry", delay=60.0, failure=failure())
    assert settle(conn, worker, running[1], "release", delay=60.0)
    last = claim(conn, worker)
    assert ids(last) == jobs[3:]
    let_die(conn, worker, last[0])
    complete(conn, worker, last[1])
    assert (slots(database), waits(database)) == ({}, {})
    assert sound(database)


def test_a_key_of_the_payload_has_its_own_slots(database: Database) -> None:
    """`customer:*` is for each; a key of its own overrides it."""
    conn = database.conn
    worker = make_limited_worker(conn, "customer:{customer.id}")
    set_limit(conn, "customer:*", 1)
    set_limit(conn, "customer:7", 2)
    for customer in (3, 3, 7, 7, 7, "x"):
        make_job(conn, "a.b", {"customer": {"id": customer}})
    make_job(conn, "a.b", {"customer": None})
    make_job(conn, "a.b", {})

    assert len(claim(conn, worker)) == 5
    assert slots(database) == {
        "customer:3": 1,
        "customer:7": 2,
        "customer:x": 1,
        "customer:": 1,
    }


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("tenant:{tenant}", "tenant:acme"),
        ("q:{queue}", "q:mail"),
        ("k:{kind}", "k:a.b"),
        ("a:{n}-{tenant}", "a:5-acme"),
        ("flat", "flat"),
    ],
)
def test_a_name_is_made_from_the_job(
    database: Database, template: str, name: str
) -> None:
    make_limited_worker(database.conn, template)
    make_job(database.conn, "a.b", {"n": 5}, queue="mail", tenant="acme")

    assert database.value("select limits from redrive.jobs") == [name]


def test_a_long_key_is_told_apart_by_its_hash(database: Database) -> None:
    make_limited_worker(database.conn, "c:{k}")
    for end in "ab":
        make_job(database.conn, "a.b", {"k": "x" * 5000 + end})

    names = database.column("select limits[1] from redrive.jobs")
    assert len(set(names)) == 2
    assert all(len(name) <= 255 for name in names)


def test_jobs_from_before_the_limit_count_when_they_are_claimed(
    database: Database,
) -> None:
    """Enqueued before their handler said it."""
    conn = database.conn
    for _ in range(3):
        make_job(conn, "a.b")
    worker = make_limited_worker(conn, "emails")
    set_limit(conn, "emails", 1)

    assert len(claim(conn, worker)) == 1
    assert waits(database) == {"emails": 2}


def test_of_two_limits_a_job_needs_both(database: Database) -> None:
    """It takes no slot of the one while it waits for the other, and all is used."""
    conn = database.conn
    worker = make_limited_worker(conn, "all", "c:{c}")
    set_limit(conn, "all", 3)
    set_limit(conn, "c:*", 1)
    jobs = [make_job(conn, "a.b", {"c": c}) for c in (1, 1, 1, 2, 3, 4)]
    database.rows("update redrive.jobs set run_at = now() - interval '1 s'")
    database.rows("delete from redrive.limit_waits")
    running = claim(conn, worker)

    assert ids(running) == [jobs[0], jobs[3], jobs[4]]
    assert waits(database) == {"c:1": 2, "all": 1}
    complete(
        conn, worker, running[0]
    )  # one of `all` and one of c:1 are free: one of each is woken
    assert slots(database) == {"all": 2, "c:2": 1, "c:3": 1}
    again = claim(conn, worker)
    assert len(again) == 1
    assert sound(database)
    while again := [*again, *running[1:]]:
        running = [running[0]]
        complete(conn, worker, *again)
        again = claim(conn, worker)
    assert database.value("select count(*) from redrive.jobs") == 0


def test_eight_claimers_at_once_exceed_no_limit_at_any_instant(
    database: Database,
) -> None:
    """Seen by a trigger that counts at every commit, and by the claims themselves."""
    conn = database.conn
    make_limited_worker(conn, "emails", "c:{c}")
    set_limit(conn, "emails", 5)
    set_limit(conn, "c:*", 2)
    for c in range(4):
        database.rows(INSERT, "a.b", f'{{"c": {c}}}', 50)
    database.rows(
        "create function public.seen() returns trigger language plpgsql as $$ begin"
        " if (select count(*) > 5 from redrive.limit_slots where name = 'emails')"
        " or exists (select from redrive.limit_slots where name <> 'emails' group by name"
        " having count(*) > 2) then raise 'exceeded'; end if; return null; end $$"
    )
    database.rows(
        "create constraint trigger seen after insert on redrive.limit_slots deferrable"
        " initially deferred for each row execute function public.seen()"
    )
    ran: list[int] = []
    holds: set[int] = set()
    most = 0
    lock = threading.Lock()
    ended_at = time.monotonic()

    def run() -> None:
        nonlocal most, ended_at
        session = database.connect()
        worker = make_worker(session)
        lanes = [lane for one in lanes_of(session) for lane in (one.front, one)]
        request = ClaimRequest(worker, lanes, [START] * len(lanes), 4)
        while len(ran) < 200 and time.monotonic() < ended_at + 60:
            jobs = [
                Claimed(*row)
                for row in exchange(session, Settlements(), request).rows()
            ]
            with lock:
                assert holds.isdisjoint(ids(jobs))
                holds.update(ids(jobs))
                most = max(most, len(holds))
            with lock:
                holds.difference_update(ids(jobs))
            for job in jobs:
                complete(session, worker, job)
                ran.append(job.id)
                ended_at = time.monotonic()
            if not jobs:
                session.execute("select redrive.tend_limits_v1(100)")

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(run) for _ in range(8)]:
            done.result()

    assert waits(database) == {}
    assert database.column("select id from redrive.jobs") == []
    assert len(ran) == len(set(ran)) == 200
    assert most <= 5
    assert slots(database) == {}


def test_what_a_lost_worker_held_counts_until_it_is_taken_back(
    database: Database,
) -> None:
    """A slot goes with the claim, no sooner: the job may run still."""
    conn = database.conn
    lost = make_limited_worker(conn, "emails")
    other = make_limited_worker(conn, "emails")
    set_limit(conn, "emails", 1)
    first, second = make_job(conn, "a.b"), make_job(conn, "a.b")
    held = claim_one(conn, lost)
    silence(conn, lost)
    assert not claim(conn, other)

    store.rescue(conn, 30.0)
    assert not complete(conn, lost, held)
    running = claim(conn, other)
    assert len(running) == 1
    assert slots(database) == {"emails": 1}
    complete(conn, other, *running)
    assert {running[0].id, claim_one(conn, other).id} == {first, second}


def test_a_worker_that_retires_gives_its_slots_back(database: Database) -> None:
    conn = database.conn
    leaves = make_limited_worker(conn, "emails")
    other = make_limited_worker(conn, "emails")
    set_limit(conn, "emails", 1)
    make_job(conn, "a.b")
    make_job(conn, "a.b")
    claim_one(conn, leaves)
    store.retire(conn, leaves)

    assert slots(database) == {}
    assert len(claim(conn, other)) == 1
    assert sound(database)


def test_a_settlement_that_is_fenced_off_frees_no_slot(database: Database) -> None:
    """Of a job that somebody else runs by now."""
    conn = database.conn
    lost = make_limited_worker(conn, "emails")
    other = make_limited_worker(conn, "emails")
    set_limit(conn, "emails", 1)
    make_job(conn, "a.b")
    held = claim_one(conn, lost)
    silence(conn, lost)
    store.rescue(conn, 30.0)
    claim_one(conn, other)

    assert not complete(conn, lost, held)
    assert not settle(conn, lost, held, "release")
    assert slots(database) == {"emails": 1}


def test_lowering_a_limit_holds_for_what_begins_and_raising_it_wakes(
    database: Database,
) -> None:
    conn = database.conn
    worker = make_limited_worker(conn, "emails")
    set_limit(conn, "emails", 4)
    for _ in range(8):
        make_job(conn, "a.b")
    running = claim(conn, worker)
    set_limit(conn, "emails", 2)
    complete(conn, worker, *running[:2])
    assert not claim(conn, worker), "two run, and two may"
    complete(conn, worker, running[2])
    assert len(claim(conn, worker)) == 1
    set_limit(conn, "emails", 5)

    assert len(claim(conn, worker)) == 3
    assert waits(database) == {}


def test_removing_a_limit_wakes_all(database: Database) -> None:
    """On a paused queue, too."""
    conn = database.conn
    worker = make_limited_worker(conn, "emails")
    set_limit(conn, "emails", 0)
    for _ in range(5):
        make_job(conn, "a.b")
    make_job(conn, "a.b", queue="paused")
    database.rows("select redrive.pause_v1('paused', 'ada', 'why')")
    assert not claim(conn, worker)
    assert set_limit(conn, "emails") is True
    assert set_limit(conn, "emails") is False

    assert waits(database) == {}
    assert len(claim(conn, worker)) == 5


def test_what_runs_when_a_limit_is_set_counts(database: Database) -> None:
    conn = database.conn
    worker = make_limited_worker(conn, "c:{c}")
    for _ in range(3):
        make_job(conn, "a.b", {"c": 1})
    running = claim(conn, worker)
    set_limit(conn, "c:*", 3)
    make_job(conn, "a.b", {"c": 1})
    assert not claim(conn, worker)
    complete(conn, worker, running[0])

    assert len(claim(conn, worker)) == 1


def test_a_job_behind_its_key_and_a_limit_waits_for_both_in_order(
    database: Database,
) -> None:
    """The head of a key that waits for room does not let the second pass, and nobody wakes it
    for nothing.
    """
    conn = database.conn
    worker = make_limited_worker(conn, "emails")
    set_limit(conn, "emails", 1)
    other = make_job(conn, "a.b")
    busy = claim_one(conn, worker)
    first, second = (make_job(conn, "a.b", ordering_key="k") for _ in range(2))
    assert busy.id == other
    assert not claim(conn, worker)
    assert store.unpark(conn) == 0
    assert database.value("select count(*) from redrive.running_keys") == 0
    complete(conn, worker, busy)
    head = claim_one(conn, worker)
    assert head.id == first
    complete(conn, worker, head)

    assert claim_one(conn, worker).id == second


def test_a_redriven_job_is_limited_as_any_other(database: Database) -> None:
    conn = database.conn
    worker = make_limited_worker(conn, "emails")
    dead = make_dead_letter(conn, "a.b")
    set_limit(conn, "emails", 1)
    make_job(conn, "a.b")
    first = claim_one(conn, worker)
    assert redrive(conn, [dead]) == {dead: None}
    assert waits(database) == {"emails": 1}
    complete(conn, worker, first)

    assert claim_one(conn, worker).id == dead


def test_a_job_that_waits_can_be_cancelled_and_not_pushed_past_its_limit(
    database: Database,
) -> None:
    conn = database.conn
    worker = make_limited_worker(conn, "emails")
    set_limit(conn, "emails", 1)
    make_job(conn, "a.b")
    waiting = make_job(conn, "a.b")
    running = claim_one(conn, worker)
    assert (
        database.rows(
            "select redrive.run_now_v1(array[%s::bigint], 'ada', 'why')", waiting
        )
        == []
    )
    assert database.rows(
        "select outcome from redrive.cancel_v1(array[%s::bigint], 'ada', 'why')",
        waiting,
    ) == [("cancelled",)]

    assert waits(database) == {}
    complete(conn, worker, running)
    assert database.value("select count(*) from redrive.jobs") == 0


@pytest.mark.every_version
def test_a_hundred_thousand_behind_one_key_cost_others_nothing(
    database: Database,
) -> None:
    """What a claim of others looks at is the same in blocks, and no claim writes them."""
    conn = database.conn
    worker = make_limited_worker(conn, "c:{c}")
    set_limit(conn, "c:*", 1)
    cost = (
        "explain (analyze, buffers, format json) select * from redrive.claim_v1(%s,"
        " '{default}', '{0}', '{0}', '{1970-01-01}', '{0}', '{0}', true, 10)"
    )

    def blocks() -> int:
        make_job(conn, "other")
        with conn.transaction(force_rollback=True):
            plan = database.value(cost, worker)[0]["Plan"]
            found = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        claimed = claim(conn, worker)
        complete(conn, worker, *claimed)
        assert [job.kind for job in claimed] == ["other"]
        return int(found)

    make_job(conn, "a.b", {"c": 1})
    held = claim_one(conn, worker)
    blocks()
    before = blocks()
    thousands = 100 if os.environ.get("CI") == "true" else 20
    for _ in range(thousands):
        database.rows(INSERT, "a.b", '{"c": 1}', 1_000)
    database.rows("vacuum (analyze) redrive.jobs")
    blocks()
    after = blocks()

    assert waits(database) == {"c:1": thousands * 1_000}
    assert after <= before + 25, "a level more of each index"
    complete(conn, worker, held)
    assert len(claim(conn, worker)) == 1
    line = database.row(
        "select name, place from redrive.limit_line_v1(array[(select max(job) from"
        " redrive.limit_waits)])"
    )
    assert line == ("c:1", 1001)


def test_a_rate_holds_over_any_window(database: Database) -> None:
    """At most the burst and what the rate allows, counted when a job begins; not much less.

    After a pause nothing bursts beyond that.
    """
    conn = database.conn
    worker = make_limited_worker(conn, "emails")
    set_limit(conn, "emails", rate=50.0)  # a burst is five
    for _ in range(300):
        make_job(conn, "a.b")
    claims: list[tuple[float, float]] = []  # of each job, from when until when

    def run(seconds: float, least: int = 0) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(claims) < least:
            began = time.monotonic()
            jobs = claim(conn, worker, 50)
            claims.extend([(began, time.monotonic())] * len(jobs))
            complete(conn, worker, *jobs)
            if not jobs:
                time.sleep(0.002)

    run(1.0, least=30)  # 55 of them, unless the machine has stopped meanwhile
    time.sleep(1.0)
    run(1.5)
    for n, (since, _) in enumerate(claims):
        for m, (_, until) in enumerate(claims[n:], n):
            assert m - n + 1 <= 5 + (until - since) * 50 + 1
    assert sound(database)


def test_rates_are_exact_by_the_database_clock(database: Database) -> None:
    """However long nobody asked, a burst is what may begin at once."""
    tokens = "select redrive.tokens_v1(%s, %s, %s, %s)"
    after = "select redrive.next_at_v1(%s, %s, %s, %s, %s)"
    now = datetime(2026, 1, 1, tzinfo=UTC)
    for rate, burst in ((1 / 60, 1), (50.0, 5), (1000.0, 100)):
        at, next_at, begun = now, now - timedelta(days=9), 0
        for step in (0.0, 0.001, 0.5, 3.0, 0.02, 100.0, 0.0):
            at += timedelta(seconds=step)
            n = database.value(tokens, next_at, rate, burst, at)
            assert 0 <= n <= burst
            next_at = database.value(after, next_at, rate, burst, n, at)
            begun += n
            assert begun <= burst + (at - now).total_seconds() * rate + 1e-3
            assert database.value(tokens, next_at, rate, burst, at) == 0
        # a clock that went back
        assert database.value(tokens, next_at, rate, burst, at - timedelta(days=1)) == 0
        assert (
            database.value(after, next_at, rate, burst, 0, at - timedelta(days=1)) < at
        )


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_a_job_that_its_handler_completed_keeps_its_slot_until_the_handler_has_returned(
    database: Database, isolation: LiteralString
) -> None:
    """At any isolation; and a crash in between keeps nobody waiting."""
    conn = database.conn
    worker = make_limited_worker(conn, "emails")
    set_limit(conn, "emails", 1)
    for _ in range(3):
        make_job(conn, "a.b")
    for is_reported in (True, False):
        job = claim_one(conn, worker)
        handler = database.session()
        handler.rows(f"begin isolation level {isolation}")
        handler.rows("select count(*) from redrive.jobs")
        assert handler.value(
            "select redrive.complete_in_transaction_v1(%s, %s, %s)",
            worker,
            job.id,
            job.deliveries,
        )
        assert not claim(conn, worker)
        handler.rows("commit")
        assert slots(database) == {"emails": 1}
        if is_reported:  # as the worker does when the handler has returned
            assert not settle(conn, worker, job, "release")
        else:
            store.tend_limits(conn)
        assert slots(database) == {}
        store.tend_limits(conn)

    assert len(claim(conn, worker)) == 1


def test_a_limit_that_somebody_has_locked_stops_no_job_of_another(
    database: Database,
) -> None:
    """A handler of a limited kind committed late, and no worker claimed anything meanwhile."""
    conn = database.conn
    worker = make_limited_worker(conn, "emails")
    set_limit(conn, "emails", 5, 100.0)
    first, second = make_job(conn, "a.b"), make_job(conn, "a.b")
    job = claim_one(conn, worker)
    assert job.id == first
    setter = database.session()
    handler = database.transaction(
        "select redrive.complete_in_transaction_v1(%s, %s, %s)",
        worker,
        job.id,
        job.deliveries,
    )
    setter.rows("begin")
    setter.rows("select from redrive.limit_keys where name = 'emails' for update")

    other = make_job(conn, "c.d")
    conn.execute("set lock_timeout = '8s'")  # an error here is a wait there
    assert ids(claim(conn, worker)) == [other]
    assert database.column("select job from redrive.limit_waits") == [second]
    setter.rows("rollback")
    store.tend_limits(conn)
    conn.execute("select pg_sleep(0.1)")  # its turn under the rate
    assert ids(claim(conn, worker)) == [second]
    handler.rows("rollback")


@pytest.mark.parametrize(
    ("name", "concurrency", "rate", "fault"),
    [
        ("1emails", 1, None, "name:"),
        ("a*", 1, None, "name:"),
        ("emails", -1, None, "concurrency:"),
        ("emails", None, 0.0, "rate:"),
        ("emails", None, 1e-300, "rate:"),  # its waits stopped the chore of all limits
    ],
)
def test_a_limit_that_cannot_be_is_refused(
    database: Database,
    name: str,
    concurrency: int | None,
    rate: float | None,
    fault: str,
) -> None:
    with pytest.raises(psycopg.Error, match=fault) as caught:
        set_limit(database.conn, name, concurrency, rate)

    assert caught.value.sqlstate == "RD001"


def test_a_job_says_which_limit_it_waits_behind(database: Database) -> None:
    """`job show` and `job ls`; and nothing of it stays when all has ended."""
    conn = database.conn
    worker = make_limited_worker(conn, "emails")
    set_limit(conn, "emails", 1)
    for _ in range(3):
        make_job(conn, "a.b")
    (running,) = claim(conn, worker)
    found = list(find(conn, JobFilter(state=["blocked"])))
    assert [row["waiting_for"] for row in found] == ["limited", "limited"]
    assert found[1]["why"].text == "limit emails holds 1 of 1; it is the second in line"
    assert database.rows(
        "select name, concurrency, used, waiting from redrive.limits_v1()"
    ) == [("emails", 1, 1, 2)]
    assert database.rows("select queue, waiting from redrive.limited_v1()") == [
        ("default", 2)
    ]
    assert depths(conn)["default"] == Depth(scheduled=2, running=1), (
        "not ready: another pod could not run them either"
    )
    while running:
        complete(conn, worker, running)
        running = next(iter(claim(conn, worker)), None)  # type: ignore[assignment]
    set_limit(conn, "emails")
    store.tend_limits(conn)

    assert database.value("select count(*) from redrive.limit_keys") == 0


def test_a_claim_that_takes_slots_waits_for_the_disk_and_no_other_does(
    database: Database,
) -> None:
    """A crash that forgot the claim of a job that runs would let one more run."""
    conn = database.conn
    worker = make_limited_worker(conn, "emails")
    set_limit(conn, "emails", 1)
    waited: dict[str, str] = {}
    for kind in ("other", "a.b"):
        make_job(conn, kind)
        session = database.transaction()
        assert session.rows(
            "select 1 from redrive.claim_v1(%s, '{default}', '{0}', '{0}', '{1970-01-01}', '{0}',"
            " '{0}', true, 1) where claim is not null and lane_no is not null",
            worker,
        )
        waited[kind] = session.value("show synchronous_commit")
        session.rows("commit")

    assert waited == {"other": "off", "a.b": "on"}


def test_a_job_without_room_that_somebody_holds_is_left_where_it_is(
    database: Database,
) -> None:
    """It cannot be parked, and no claim waits for that."""
    worker = make_limited_worker(database.conn, "one")
    job = make_job(database.conn, "a.b")
    database.rows("select redrive.set_limit_v1('one', 0, null, 'ada', 'why')")
    hasty = database.session(lock_timeout="1ms")
    other = database.transaction(
        "select from redrive.jobs where id = %s for update", job
    )

    assert claim(hasty.conn, worker) == []
    other.rows("rollback")
    assert database.column("select run_at < 'infinity' from redrive.jobs") == [True]


@pytest.mark.parametrize("name", ["customer:1", "customer:*"])
def test_a_limit_that_is_lifted_from_many_jobs_wakes_them_in_steps(
    database: Database, name: str
) -> None:
    """One statement woke all of 300,000 jobs, was cancelled, and so was each next one."""
    step, count = store.WOKEN_AT_A_TIME, 28_000
    is_prefix = name.endswith("*")
    set_limit(database.conn, name, concurrency=0)
    make_limited_worker(database.conn)
    database.rows(
        "with made as (insert into redrive.jobs (kind, limits)"
        " select 'a.b', array['customer:' || 1 + g %% %s] from generate_series(1, %s) g"
        " returning id, limits)"
        " insert into redrive.limit_waits (job, name, queue, kind, priority, due)"
        " select id, limits[1], 'default', 'a.b', 0, now() from made",
        4 if is_prefix else 1,
        count,
    )
    database.rows("update redrive.jobs set run_at = 'infinity'")
    waiting = "select count(*) from redrive.limit_waits"

    set_limit(database.conn, name, concurrency=None if is_prefix else 1_000_000)
    lefts = [database.value(waiting)]
    while lefts[-1] and len(lefts) < 9:
        database.rows("select redrive.tend_limits_v1(1000)")
        lefts.append(database.value(waiting))

    steps = [a - b for a, b in zip([count, *lefts], lefts, strict=False)]
    assert lefts[-1] == 0
    assert max(steps) < 2 * step
    due = "select count(*) from redrive.jobs where run_at <= clock_timestamp()"
    assert database.value(due) == count


@pytest.mark.parametrize(
    ("limit", "are_named", "found"),
    [
        ("customer:*", True, [200, 101]),
        # each counts as one name until its claim gives it the names of its kind
        ("customer:*", False, [100, 100, 101]),
        ("other", True, [301]),
    ],
)
def test_a_claim_takes_the_jobs_under_a_hundred_names_and_the_next_one_goes_on(
    database: Database, limit: str, found: list[int], *, are_named: bool
) -> None:
    """Each name costs time: a claim of thousands did not end before its timeout."""
    conn = database.conn
    worker = make_limited_worker(conn, "customer:{c}")
    set_limit(conn, limit, 2)
    database.rows(
        "insert into redrive.jobs (kind, payload)"
        " select 'a.b', jsonb_build_object('c', n / 2) from generate_series(2, 301) n"
    )
    if not are_named:
        database.rows("update redrive.jobs set limits = null")
    make_job(conn, "plain")
    place, counts, is_more = START, [], True
    while is_more:
        request = ClaimRequest(worker, LANE, [place], 999, after=last_claim(conn))
        lane, *rest = exchange(conn, Settlements(), request).lanes
        place = Place(lane.upto, lane.upto_id, lane.as_of)
        counts.append(lane.jobs)
        is_more = [row.upto for row in rest] == [None]

    assert counts == found
    assert sound(database)


def test_a_claim_finds_the_keys_of_its_names_among_any_number(
    database: Database,
) -> None:
    """Its statements were planned when there were few."""
    session = database.session()
    lock = "select redrive.lock_limits_v1(array(select 'customer:' || n from generate_series(%s, %s + 9) n))"
    database.rows("vacuum analyze redrive.limit_keys")
    costs: list[int] = []
    for start in (20_000, 20_020):
        session.rows(lock, start, start)
        with Cost(session) as cost:
            session.rows(lock, start + 10, start + 10)
            cost.keep()
        costs.append(cost.blocks)
        database.rows(
            "insert into redrive.limit_keys select 'customer:' || n from generate_series(1, 19999) n"
            " on conflict do nothing"
        )

    assert costs[1] < 2 * costs[0], costs
