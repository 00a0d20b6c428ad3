"""What a claim may cost: no write to a job, no second look at dead rows, so much WAL.

Tuples and blocks are those the server counted for the transaction itself, so these numbers are
exact; nothing is timed.
"""

import re
from collections.abc import Iterator
from typing import Any, LiteralString, Self

import pytest

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
    claim,
    complete,
    failure,
    holders,
    lanes_of,
    make_campaign,
    make_job,
    make_jobs,
    make_worker,
    settle,
    silence,
)
from tests.postgres import Connection, Database, Server, Session

pytestmark = pytest.mark.every_version

LANE = [Lane(0, "default", 0)]
COUNTERS = """
    select (select sum(pg_stat_get_xact_blocks_fetched(c.oid)) from pg_class c
            where c.relnamespace = 'redrive'::regnamespace and c.relkind in ('r', 'i'))::int,
           pg_stat_get_xact_numscans('redrive.jobs'::regclass)::int,
           pg_stat_get_xact_numscans('redrive.jobs_due_idx'::regclass)::int,
           pg_stat_get_xact_tuples_updated('redrive.jobs'::regclass)::int,
           pg_stat_get_xact_tuples_hot_updated('redrive.jobs'::regclass)::int
"""
FILL = (
    "insert into redrive.jobs (kind, run_at, payload)"
    " select 'invoice.charge', timestamptz '2020-01-01' + n * interval '1 ms',"
    " '{\"invoice\": 123456}'"
    " from generate_series(%s::int, %s::int) n"
)

EVERY_SORT = (
    "insert into redrive.jobs (kind, run_at, failed_at, fingerprint)"
    " select 'a', now() + case when n %% 3 = 1 then - interval '1 hour' else interval '1 hour' end,"
    " case when n %% 3 = 0 then now() end, case when n %% 3 = 0 then 'f' end"
    " from generate_series(%s::int, %s::int) n"
)
DEAD = (
    "with added as (insert into redrive.dead_letters (id, redrives, state, queue, kind, reason,"
    " category, error_class,"
    " message, fingerprint, attempts, deliveries, losses, priority, lane, created_at, died_at,"
    " headers, payload)"
    " select n, 0, 'open', 'default', 'a', 'expired', 'other', 'E', '', '', 1, 1, 0, 0, 0,"
    " now(), now(), '{}', '{}'"
    " from generate_series(%s::int, %s::int) n returning queue, kind, reason)"
    " insert into redrive.tallies select queue, kind, 'dead', reason, count(*) from added"
    " group by 1, 2, 4"
    " on conflict (queue, kind, event, reason) do update set n = tallies.n + excluded.n"
)


def fill(conn: Connection, first: int, last: int) -> None:
    """Insert a backlog past the triggers, which count and wake and are not what is measured."""
    with conn.transaction():
        conn.execute("set local session_replication_role = replica")
        conn.execute("set local statement_timeout = 0")
        conn.execute(FILL, (first, last))


class Cost:
    """What a transaction did. Its counters are read inside of it, and run on from those not yet
    reported.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ending: LiteralString = "rollback"
        self.blocks = self.full_scans = self.index_scans = self.updated = self.hot = 0

    def __enter__(self) -> Self:
        self._session.rows("begin")
        self._before = self._read()
        return self

    def __exit__(self, *_: object) -> None:
        spent = (
            after - before
            for before, after in zip(self._before, self._read(), strict=True)
        )
        self.blocks, self.full_scans, self.index_scans, self.updated, self.hot = spent
        self._session.rows(self._ending)

    def keep(self) -> None:
        """Commit it in the end, instead of rolling it back."""
        self._ending = "commit"

    def _read(self) -> tuple[int, ...]:
        return self._session.row(COUNTERS)


def cost_of_a_claim(
    session: Session, worker: int, want: int = 100, place: Place = START
) -> Cost:
    with Cost(session) as cost:
        assert (
            len(claim(session.conn, worker, want, lanes=LANE, places=[place])) == want
        )
    return cost


# Index writes


def test_no_index_mentions_what_a_settlement_counts(database: Database) -> None:
    """Not even in a predicate: a row whose indexed columns change cannot be updated in place."""
    definitions = database.column(
        "select indexdef from pg_indexes where schemaname = 'redrive' and tablename = 'jobs'"
    )

    assert len(definitions) == 6
    for definition in definitions:
        assert not re.search(
            r"\b(worker|deliveries|attempt|losses|streak)\b", definition
        ), definition


def test_a_claim_writes_no_job(database: Database) -> None:
    """A claim leaves no dead row for each of its jobs."""
    make_jobs(database.conn, 3000)
    worker, session = make_worker(database.conn), database.session()
    claimed = 0
    while jobs := claim_and_commit(session, worker):
        complete(database.conn, worker, *jobs)
        claimed += len(jobs)

    assert claimed == 3000


def claim_and_commit(session: Session, worker: int) -> list[Claimed]:
    with Cost(session) as cost:
        jobs = claim(session.conn, worker, 100, lanes=LANE)
        cost.keep()
    assert cost.updated == 0
    return jobs


def test_a_retry_is_how_an_update_that_is_not_hot_would_be_seen(
    database: Database,
) -> None:
    make_jobs(database.conn, 100)
    worker, session = make_worker(database.conn), database.session()
    jobs = claim(database.conn, worker, 100)
    with Cost(session) as cost:
        for job in jobs:
            settle(session.conn, worker, job, "retry", delay=60.0, failure=failure())

    assert (cost.updated, cost.hot) == (100, 0)


# Plans

on_one_backlog = pytest.mark.xdist_group("backlog")
"""In one process: each would make 200 thousand jobs of its own."""


@pytest.fixture(scope="module")
def backlog(server: Server) -> Iterator[dict[str, Any]]:
    """A session that claimed from an empty table, and what a claim costs it at 10 and at 200
    thousand jobs.
    """
    with server.database() as database:
        worker = make_worker(database.conn)
        session = database.session()
        for _ in range(10):
            assert claim(session.conn, worker, 100, lanes=LANE) == []
            complete(session.conn, worker)
        fill(database.conn, 1, 10_000)
        at_10_thousand = cost_of_a_claim(session, worker)
        fill(database.conn, 10_001, 200_000)
        yield {
            "database": database,
            "session": session,
            "worker": worker,
            "at 10 thousand": at_10_thousand,
            "at 200 thousand": cost_of_a_claim(session, worker),
        }


@on_one_backlog
def test_a_claim_planned_on_an_empty_table_stays_an_index_scan_at_200_thousand(
    backlog: dict[str, Any],
) -> None:
    cost = backlog["at 200 thousand"]

    assert (cost.full_scans, cost.index_scans) == (0, 2)
    assert cost.blocks < 1_000, "the whole table has more than 2,000"
    assert (
        backlog["database"].value("select pg_relation_size('redrive.jobs') / 8192")
        > 2_000
    )


@on_one_backlog
def test_a_claim_reads_as_much_at_200_thousand_as_at_10_thousand(
    backlog: dict[str, Any],
) -> None:
    small, large = backlog["at 10 thousand"].blocks, backlog["at 200 thousand"].blocks

    assert large <= 2 * small
    assert small <= 2 * large


@on_one_backlog
def test_the_plan_is_the_same_once_the_table_was_analysed(
    backlog: dict[str, Any],
) -> None:
    backlog["database"].rows("analyze redrive.jobs")
    fresh = backlog["database"].session()

    for session in (backlog["session"], fresh):
        cost = cost_of_a_claim(session, backlog["worker"])
        assert (cost.full_scans, cost.index_scans) == (0, 2)
        assert cost.blocks <= 2 * backlog["at 10 thousand"].blocks


@on_one_backlog
def test_completing_and_settling_read_only_their_own_jobs(
    backlog: dict[str, Any],
) -> None:
    session, worker = backlog["session"], backlog["worker"]
    with Cost(session) as cost:
        jobs = claim(session.conn, worker, 20, lanes=LANE)
        complete(session.conn, worker, *jobs[:10])
        for job in jobs[10:]:
            settle(session.conn, worker, job, "retry", delay=1.0, failure=failure())

    assert cost.full_scans == 0
    assert cost.blocks < 1_000


@on_one_backlog
def test_recovery_reads_what_it_moves_and_not_the_table(
    backlog: dict[str, Any],
) -> None:
    """Rescue and retire scanned all jobs, and ran into their timeout beside a large table."""
    session, conn = backlog["session"], backlog["database"].conn
    costs: list[Cost] = []
    for give_back in (
        rescue_all,
        lambda session, worker: store.retire(session.conn, worker),
    ):
        worker = make_worker(conn, "lost")
        assert len(claim(conn, worker, 20, lanes=LANE)) == 20
        silence(conn, worker)
        with Cost(session) as cost:
            give_back(session, worker)
            cost.keep()
        assert worker not in holders(conn).values()
        costs.append(cost)

    assert [cost.full_scans for cost in costs] == [0, 0]
    assert all(cost.blocks < 1_500 for cost in costs), [cost.blocks for cost in costs]


def rescue_all(session: Session, _worker: int) -> None:
    assert store.rescue(session.conn, 60).jobs == 20


@on_one_backlog
def test_lanes_and_depths_do_not_walk_a_million_jobs(backlog: dict[str, Any]) -> None:
    session = backlog["session"]
    with Cost(session) as cost:
        found = {lane for lane, _ in store.lanes(session.conn, None)[0]}
    assert found - {LANE[0].front} == set(LANE)
    assert (cost.full_scans, cost.blocks < 100) == (0, True)
    with Cost(session) as cost:
        session.rows("select * from redrive.depths_v1()")
    assert cost.full_scans == 0


def test_a_snapshot_of_the_figures_reads_as_much_at_90_thousand_as_at_30_thousand(
    database: Database,
) -> None:
    """Jobs due, later and retrying, and dead letters. Nothing is vacuumed, so this is the most that
    it reads.
    """
    costs = []
    for first, last in ((1, 30_000), (30_001, 90_000)):
        with database.conn.transaction():
            database.rows("set local session_replication_role = replica")
            for statement in (EVERY_SORT, DEAD):
                database.rows(statement, first, last)
        session = database.session()
        session.rows("select redrive.stats_v1('0')")  # planning reads too
        with Cost(session) as cost:
            session.rows("select redrive.stats_v1('0')")
        scans = (
            "select pg_stat_get_xact_numscans(name) from unnest(%s::regclass[]) name"
        )
        assert session.column(scans, ["redrive.jobs", "redrive.dead_letters"]) == [0, 0]
        costs.append(cost.blocks)

    small, large = costs
    assert large <= small * 1.1, costs
    assert large < 35_000, "three looks at 10,000 jobs, and what they are found by"


def test_a_snapshot_reads_no_job_that_vacuum_has_seen(database: Database) -> None:
    with database.conn.transaction():
        database.rows("set local session_replication_role = replica")
        database.rows(EVERY_SORT, 1, 30_000)
    database.rows("vacuum redrive.jobs")
    session = database.session()
    session.rows("select redrive.stats_v1('0')")
    with Cost(session) as cost:
        session.rows("select redrive.stats_v1('0')")

    assert cost.blocks < 1_000


def test_without_its_guards_the_same_claim_reads_the_whole_table(
    server: Server,
) -> None:
    """So that the tests above can fail: this is what they would see."""
    with server.database() as database:
        for guard in ("enable_seqscan", "enable_bitmapscan", "plan_cache_mode"):
            database.rows(f"alter function redrive.claim_v1 reset {guard}")  # type: ignore[arg-type]
        worker, session = make_worker(database.conn), database.session()
        session.rows("set enable_indexscan = off")
        session.rows("set enable_bitmapscan = off")
        fill(database.conn, 1, 50_000)

        assert cost_of_a_claim(session, worker).full_scans > 0


# Dead rows


def test_a_floor_spares_a_claim_the_dead_rows_behind_it(database: Database) -> None:
    """An open snapshot keeps 200,000 finished jobs in table and index; only a scan from below meets
    them.
    """
    worker = make_worker(database.conn)
    session = database.session()
    holder = database.session()
    fill(database.conn, 1, 201_000)
    holder.rows("begin isolation level repeatable read")
    holder.rows("select count(*) from redrive.jobs")
    database.rows("set statement_timeout = 0")
    run_at, last = database.row(
        "select run_at, id from redrive.jobs order by run_at offset 200000 limit 1"
    )
    database.conn.execute("delete from redrive.jobs where run_at < %s", (run_at,))

    floored = cost_of_a_claim(session, worker, 100, Place(run_at, last, 0))
    swept = cost_of_a_claim(session, worker, 100)

    assert floored.blocks < 1_000
    assert swept.blocks > 2_000, "and this is what it was spared"


def test_a_look_for_lanes_walks_dead_rows_once(database: Database) -> None:
    """With 400,000 of them under an open snapshot each walk took 24 ms, and a look did two."""
    conn, snapshot = database.conn, database.session()
    snapshot.rows("begin isolation level repeatable read")
    snapshot.rows("select from redrive.jobs")
    fill(conn, 1, 3_000)
    database.rows("delete from redrive.jobs")
    make_job(conn)
    session, costs = database.session(), list[Cost]()
    for what in ("next_lanes_v1(null, '', 0, 0, 1)", "lanes_v2(null, '', 0, 0, 1000)"):
        with Cost(session) as cost:
            session.rows(f"select * from redrive.{what}")
        costs.append(cost)
    snapshot.rows("rollback")

    walk, look = (cost.blocks for cost in costs)
    assert 50 < walk < 1.5 * look < 2.25 * walk


def test_the_lanes_of_new_jobs_cost_the_same_among_any_number_of_jobs(
    database: Database,
) -> None:
    """They are looked for before each claim of a worker that cannot see all lanes at once."""
    blocks = list[int]()
    for done in (1_000, 20_000):
        fill(database.conn, done + 1, done + 5_000)
        database.rows("delete from redrive.jobs where id %% 2 = %s", 0)
        make_job(database.conn, queue="new")
        session = database.session()
        with Cost(session) as cost:
            assert len(store.new_lanes(session.conn, None)) == 2
        blocks.append(cost.blocks)

    assert max(blocks) < 100


def test_a_look_for_lanes_reads_no_dead_rows_of_a_lane_with_a_claim(
    database: Database,
) -> None:
    """A queue that drains keeps an entry of each job that is done, until the next vacuum."""
    worker = make_worker(database.conn)
    session = database.session()
    snapshot = database.session()
    snapshot.rows("begin isolation level repeatable read")
    snapshot.rows("select from redrive.jobs")
    make_job(database.conn, queue="another")
    fill(database.conn, 1, 30_000)
    database.rows("delete from redrive.jobs where queue = 'default' and id < 29000")

    def look() -> int:
        with Cost(session) as cost:
            found = lanes_of(session.conn)
        assert set(found) - {LANE[0].front} == {Lane(0, "another", 0), *LANE}
        return cost.blocks

    unclaimed = look()
    assert len(claim(database.conn, worker, 10, lanes=LANE)) == 10
    claimed = look()
    snapshot.rows("rollback")

    assert unclaimed > 200, "what a look is spared"
    assert claimed < 50


def figures(database: Database, campaign: int) -> list[int]:
    """Count the blocks of the depths, of the unhandled kinds, and of a campaign's look."""
    session, blocks = database.session(), list[int]()
    for call in ("depths_v1()", "unhandled_v1()", f"look_at_campaign_v1({campaign})"):
        session.rows(f"select * from redrive.{call}")  # planning reads too
        with Cost(session) as cost:
            assert session.rows(f"select * from redrive.{call}")
        blocks.append(cost.blocks)
    return blocks


def test_figures_read_no_dead_rows_of_a_lane_with_a_claim(database: Database) -> None:
    """Beside a queue with 490,000 of them, the list of lanes took 130 ms each time."""
    kinds = ["invoice.*"]
    worker = store.register(
        database.conn, store.Registration("worker", "test", 60, kinds, None)
    )
    snapshot = database.session()
    snapshot.rows("begin isolation level repeatable read")
    snapshot.rows("select from redrive.jobs")
    make_job(database.conn, "odd", queue="another")
    fill(database.conn, 1, 30_000)
    database.rows("delete from redrive.jobs where queue = 'default' and id < 29000")
    database.rows(
        "insert into redrive.tallies (queue, kind, event, reason, n)"
        " select queue, kind, 'enqueued', '', count(*) from redrive.jobs where queue = 'default'"
        " group by queue, kind"
    )
    campaign = make_campaign(database.conn)
    database.rows(
        "update redrive.campaigns set planned_login = 'ada',"
        ' plan = \'{"queues": ["another"], "kinds": []}\' where id = %s',
        campaign,
    )
    unclaimed = figures(database, campaign)
    claim(database.conn, worker, 10, lanes=LANE)
    claimed = figures(database, campaign)
    snapshot.rows("rollback")

    assert unclaimed[0] > 1_000, "what the depths are spared"
    assert max(claimed) < 65, claimed


def dead_claims(database: Database, worker: int, count: int = 20_000) -> None:
    """Give a worker claims that have ended and that an open snapshot keeps."""
    holder = database.session()
    holder.rows("begin isolation level repeatable read")
    holder.rows("select count(*) from redrive.claims")
    database.rows(
        "insert into redrive.claims (worker, queue, priority, lane, upto, upto_id, kinds, ids)"
        " select %s, 'default', 0, 0, '-infinity', 0, '{*}', array[n]"
        " from generate_series(1, %s) as g(n)",
        worker,
        count,
    )
    database.rows("delete from redrive.claims")


def test_no_scan_meets_the_dead_claims_behind_the_live_ones(database: Database) -> None:
    """First claim, retire and rescue read all of them: 0.2 to 0.7 s for a million."""
    conn, session = database.conn, database.session()
    busy, fresh = make_worker(conn, ttl=3600), make_worker(conn, ttl=3600)
    make_jobs(conn, 200)
    dead_claims(database, busy)
    claim(conn, busy, 10)

    def costs() -> list[int]:
        with Cost(session) as swept:
            assert len(claim(session.conn, fresh, 100, lanes=LANE)) == 100
        with Cost(session) as retired:
            assert store.retire(session.conn, busy).released == 10
        with Cost(session) as rescued:
            session.rows(
                "update redrive.workers set lost_at = now() where id = %s", busy
            )
            assert store.rescue(session.conn, 3600).jobs == 10
        return [cost.blocks for cost in (swept, retired, rescued)]

    before = costs()
    store.advance_floors(conn)
    store.rescue(conn, 3600)
    after = costs()

    for live, dead in zip(after, before, strict=True):
        assert live < dead / 3, (before, after)


def test_a_claim_on_its_way_is_not_left_behind(database: Database) -> None:
    """What has not committed is seen by nobody, and may have a low id."""
    conn, late = database.conn, database.session()
    worker = make_worker(conn, ttl=3600)
    make_jobs(conn, 10)
    late.rows("begin")
    (job,) = claim(late.conn, worker, 1)
    database.rows("select setval('redrive.claims_id_seq', 1000000)")
    store.advance_floors(conn)
    late.rows("commit")
    assert database.value("select claims_from from redrive.workers") == 0, (
        "it was passed over"
    )

    store.advance_floors(conn)
    first = database.value("select id from redrive.claims")
    assert database.value("select claims_from from redrive.workers") == first
    store.rescue(conn, 3600)
    assert database.value("select claims_from from redrive.epoch") == first
    assert store.retire(conn, worker).released == 1
    assert (
        database.value("select deliveries from redrive.jobs where id = %s", job.id) == 1
    )


def test_a_sequence_that_was_set_back_hides_no_claim(database: Database) -> None:
    """As after a restore, or a switch to a logical replica."""
    conn = database.conn
    worker = make_worker(conn, ttl=3600)
    make_jobs(conn, 10)
    database.rows("update redrive.workers set claims_from = 1000000")
    claim(conn, worker, 1)
    store.advance_floors(conn)

    assert store.retire(conn, worker).released == 1


def test_the_old_claim_of_one_worker_holds_back_no_other(database: Database) -> None:
    conn = database.conn
    busy, idle = make_worker(conn, ttl=3600), make_worker(conn, ttl=3600)
    make_jobs(conn, 10)
    claim(conn, busy, 1)
    database.rows("select setval('redrive.claims_id_seq', 1000000)")
    store.advance_floors(conn)

    floor = "select claims_from from redrive.workers where id = %s"
    assert database.value(floor, idle) == 1000001


def test_floors_stay_where_they_are_for_an_old_snapshot(database: Database) -> None:
    """It does not see what was committed since, and might pass over a claim."""
    conn = database.conn
    worker = make_worker(conn, ttl=3600)
    make_jobs(conn, 10)
    claim(conn, worker, 1)
    database.rows("select setval('redrive.claims_id_seq', 1000000)")
    with conn.transaction():
        conn.execute("set transaction isolation level repeatable read")
        store.advance_floors(conn)

    assert database.value("select claims_from from redrive.workers") == 0


def test_a_producer_walks_no_dead_rows_of_a_hot_key(database: Database) -> None:
    """With a snapshot open each enqueue read all that had ended of its key: 3.4 to 14.8 ms."""
    session, holder = database.session(), database.session()
    make_job(database.conn, ordering_key="k")
    holder.rows("begin isolation level repeatable read")
    holder.rows("select count(*) from redrive.jobs")
    database.rows(
        "insert into redrive.jobs (kind, ordering_key) select 'a', 'k' from generate_series(1, 1000)"
    )
    database.rows(
        "delete from redrive.jobs where id < (select max(id) from redrive.jobs)"
    )
    with Cost(session) as cost:
        make_job(session.conn, ordering_key="k")

    assert cost.blocks < 40, "20, and 60 from the other end"


# Empty polls, and WAL


def test_an_empty_poll_reads_a_handful_of_blocks_and_takes_no_transaction_id(
    database: Database,
) -> None:
    database.rows(
        "insert into redrive.jobs (kind, run_at) select 'a', now() + interval '1 hour'"
        " from generate_series(1, 1000)"
    )
    session = database.session()
    request = ClaimRequest(make_worker(database.conn), LANE, [START], 1, is_large=False)
    exchange(session.conn, Settlements(), request)  # planning reads too
    with Cost(session) as cost:
        assert exchange(session.conn, Settlements(), request).rows() == []
        assert session.value("select pg_current_xact_id_if_assigned()") is None

    assert cost.blocks <= 5


def test_the_wal_of_a_job_is_bounded(database: Database) -> None:
    """Enqueue, claim and completion of jobs with a payload of 200 bytes, in batches of 100."""
    if database.value("show full_page_writes") == "on":
        pytest.skip("full page images would be counted")
    worker, conn = make_worker(database.conn), database.conn
    lsn = "select pg_current_wal_insert_lsn()"
    insert = (
        "insert into redrive.jobs (kind, payload)"
        " select 'a', jsonb_build_object('text', repeat('x', 185)) from generate_series(1, 1000)"
    )
    spent = {"enqueue": 0, "claim": 0, "complete": 0}
    for round_no in range(3):
        if round_no == 1:  # the first one warms up: new pages are written whole
            spent = dict.fromkeys(spent, 0)
        start = database.value(lsn)
        conn.execute(insert)
        spent["enqueue"] += database.value(
            "select pg_current_wal_insert_lsn() - %s::pg_lsn", start
        )
        for _ in range(10):
            start = database.value(lsn)
            jobs = claim(conn, worker, 100, lanes=LANE)
            claimed = database.value(lsn)
            assert len(jobs) == 100
            complete(conn, worker, *jobs)
            spent["claim"] += database.value(
                "select %s::pg_lsn - %s::pg_lsn", claimed, start
            )
            spent["complete"] += database.value(
                "select pg_current_wal_insert_lsn() - %s::pg_lsn", claimed
            )
    per_job = {step: int(wal) / 2000 for step, wal in spent.items()}

    assert per_job["claim"] < 200, per_job
    assert per_job["claim"] + per_job["complete"] < 300, per_job
    assert sum(per_job.values()) < 800, per_job


@pytest.mark.parametrize("special", [{}, {"ordering_key": "k", "idempotency_key": "i"}])
def test_a_batch_reads_its_own_jobs_though_planned_on_a_table_that_vacuum_found_empty(
    database: Database, special: dict[str, str]
) -> None:
    """An idle queue is like that when a backlog comes: settlements ran into their timeout."""
    worker, session = make_worker(database.conn), database.session()
    make_jobs(database.conn, 50)
    complete(database.conn, worker, *claim(database.conn, worker))
    database.rows("vacuum analyze")
    for n in range(20):
        make_job(database.conn, **{name: f"{key}{n}" for name, key in special.items()})
    fill(database.conn, 1, 20_000)
    database.rows("update redrive.jobs set run_at = '2019-01-01' where id <= 70")
    jobs = claim(session.conn, worker, 100, lanes=LANE)
    with Cost(session) as cost:
        complete(session.conn, worker, *jobs[:50])
        for job in jobs[50:]:  # a statement each
            settle(session.conn, worker, job, "retry", delay=1.0, failure=failure())

    assert cost.blocks < 60 * len(jobs)
