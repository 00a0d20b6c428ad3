"""What a statement reads beside rows that are dead and that an open snapshot keeps.

A report, a backup or a forgotten session keeps each row that was updated or deleted since it
began. The server counts the blocks of the transaction, so the numbers are exact.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from redrive.batches import open_batch
from redrive.worker import store
from redrive.worker.round_trip import START, Lane
from redrive.worker.upkeep.maintenance import CHORES
from tests.factories import (
    claim,
    claim_one,
    complete,
    complete_next,
    let_next_die,
    make_job,
    make_limited_worker,
    make_worker,
    redrive,
)
from tests.postgres import Database, Session
from tests.sql.test_hot import Cost

pytestmark = pytest.mark.every_version

DEAD = 20_000
LANES = [Lane(0, "default", lane) for lane in (-1, 0)]

SET = "select redrive.set_limit_v1('emails', %s, %s, 'ada', 'why')"


class Case(NamedTuple):
    """A table whose rows die often, and the statement that would meet them.

    Attributes:
        prepare: what is there before the snapshot.
        die: inserts or updates this many rows, so that they are dead.
        turn: the statement; it commits.
        most: blocks that it may read.
    """

    prepare: Callable[[Database, int], Any]
    die: str
    turn: Callable[[Session, int], Any]
    most: int


def limited(concurrency: int | None, rate: float | None = None) -> Callable[..., Any]:
    """Limit the kind of the worker."""
    return lambda database, _: database.rows(SET, concurrency, rate)


def one_job(session: Session, worker: int, **options: Any) -> None:
    """Enqueue a job, claim and complete it."""
    make_job(session.conn, "a.b", **options)
    (job,) = claim(session.conn, worker, 1, lanes=LANES, places=[START] * 2)
    assert complete(session.conn, worker, job) == {job.id}


def one_of_a_line(session: Session, worker: int) -> None:
    """Complete a job that another one waits for."""
    make_job(session.conn, "a.b")
    (job,) = claim(session.conn, worker, 1, lanes=LANES, places=[START] * 2)
    make_job(session.conn, "a.b")
    complete(session.conn, worker, job)
    (job,) = claim(session.conn, worker, 1, lanes=LANES, places=[START] * 2)
    complete(session.conn, worker, job)


def two_of_a_key(session: Session, worker: int) -> None:
    """Enqueue two jobs of one key, and complete one after the other."""
    for _ in range(2):
        make_job(session.conn, ordering_key="k")
    for _ in range(2):
        (job,) = claim(session.conn, worker, 9, lanes=LANES, places=[START] * 2)
        complete(session.conn, worker, job)


def two_of_a_key_in_a_walk(session: Session, worker: int) -> None:
    """Complete two jobs of one key, and look at the first job of each key."""
    two_of_a_key(session, worker)
    make_job(session.conn, ordering_key="k")
    assert session.value("select redrive.unpark_v1(9)") == 0
    (job,) = claim(session.conn, worker, 9, lanes=LANES, places=[START] * 2)
    complete(session.conn, worker, job)


def replaced(session: Session, worker: int) -> None:
    """Replace a job that waits."""
    assert worker
    make_job(
        session.conn,
        "a.b",
        {"n": 1},
        unique_for=3600,
        on_conflict="replace",
        delay=3600,
    )


def one_in_a_transaction(session: Session, worker: int) -> None:
    """Complete a job in its handler's own transaction."""
    job_id = make_job(session.conn)
    (job,) = claim(session.conn, worker, 1, lanes=LANES, places=[START] * 2)
    complete_in = "select redrive.complete_in_transaction_v1(%s, %s, %s)"
    assert session.rows(complete_in, worker, job_id, job.deliveries)


def one_of_a_batch(session: Session, worker: int) -> None:
    """Enqueue a job of a batch, complete it, and add its outcome to the batch."""
    one_job(session, worker, batch=session.value("select max(id) from redrive.batches"))
    session.rows("select redrive.fold_batches_v1(20)")


def keyed(dead: int) -> str:
    """Return statements under which this many jobs of one key end."""
    return (
        "insert into redrive.jobs (kind, ordering_key, run_at, priority)"
        f" select 'a', 'k', '2020-01-01', 9 from generate_series(1, {dead}) n;"
        # each of them was parked, and then due
        " update redrive.jobs set run_at = '2020-01-01';"
        " delete from redrive.jobs"
    )


KEYED = keyed(DEAD)

KEYS = (
    "insert into redrive.running_keys (queue, ordering_key, job)"
    f" select 'default', 'k' || n, n from generate_series(1, {DEAD}) n;"
    " delete from redrive.running_keys"
)


def one_chore(name: str) -> Callable[[Session, int], Any]:
    """Take a chore as if it were due, and do it."""
    do = CHORES[name][1]

    def turn(session: Session, _: int) -> None:
        store.take_chores(session.conn, {name: 0.0})
        do(session.conn)

    return turn


CASES = {
    "keys of jobs that ran": Case(lambda *_: None, KEYS, one_chore("unpark"), 700),
    "jobs of many ordering keys between the keys of others": Case(
        lambda database, _: database.rows(
            "insert into redrive.jobs (kind, ordering_key, run_at) select 'a', 'k' || n, '2200-01-01'"
            f" from generate_series(1, {DEAD}, 50) n"
        ),
        KEYED.replace("'k'", "'k' || n || 'x'") + " where priority = 9",
        one_chore("unpark"),
        25_000,
    ),
    "outcomes of a batch": Case(
        lambda database, _: open_batch(database.conn),
        "insert into redrive.batch_deltas (batch)"
        f" select max(id) from redrive.batches, generate_series(1, {DEAD}) n group by n;"
        f" insert into redrive.batch_deltas (batch) select n from generate_series(1, {DEAD}) n;"
        " delete from redrive.batch_deltas where not is_folded",
        one_of_a_batch,
        500,
    ),
    "full scans of a lane": Case(
        lambda *_: None,
        "select redrive.set_full_scan_v1('default', 0::smallint, 0::smallint, null, now())"
        f" from generate_series(1, {DEAD})",
        one_job,
        300,
    ),
    "heartbeats": Case(
        lambda *_: None,
        "select redrive.beat_v1(array[id], array[n], array[jsonb_build_object('slots', n)])"
        " from redrive.workers, generate_series(1, 2000) n",
        one_job,
        400,
    ),
    "replacements of a unique job": Case(
        lambda *_: None,
        "set session_replication_role = replica;"
        " insert into redrive.replacements (xact, job, wanted)"
        f" select '1', n, '{{}}' from generate_series(1, {DEAD}) n;"
        " delete from redrive.replacements; reset session_replication_role",
        replaced,
        300,
    ),
    "claims of a handler's transaction": Case(
        lambda *_: None,
        "insert into redrive.claims (worker, queue, priority, lane, upto, upto_id, ids)"
        " select id, 'default', 0, 0, '-infinity', 0, '{}' from redrive.workers,"
        f" generate_series(1, {DEAD});"
        " delete from redrive.claims; select redrive.advance_floors_v1()",
        one_in_a_transaction,
        150,
    ),
    "claims, if jobs stand still": Case(
        lambda *_: None,
        "insert into redrive.claims (worker, queue, priority, lane, upto, upto_id, ids)"
        " select id, 'default', 0, 0, '-infinity', 0, '{}' from redrive.workers,"
        f" generate_series(1, {DEAD});"
        " delete from redrive.claims; select redrive.advance_floors_v1();"
        " select redrive.rescue_v1('1 hour')",
        lambda session, _: session.rows("select * from redrive.due_v1(null, null)"),
        150,
    ),
    "jobs of an ordering key": Case(lambda *_: None, KEYED, two_of_a_key, 500),
    "jobs of an ordering key in the walk of all keys": Case(
        lambda *_: None, KEYED, two_of_a_key_in_a_walk, 500
    ),
    "the claimed job of an ordering key": Case(
        lambda *_: None,
        "insert into redrive.running_keys values ('default', 'k', 0);"
        + "update redrive.running_keys set job = job - 1;" * 2000
        + "delete from redrive.running_keys where job < 0",
        two_of_a_key,
        500,
    ),
    "slots of a limit": Case(
        limited(2),
        "insert into redrive.limit_slots (name, job)"
        f" select 'emails', -n from generate_series(1, {DEAD}) n;"
        " delete from redrive.limit_slots where job < 0",
        one_job,
        400,
    ),
    "the pace of a rate": Case(
        limited(None, 1e6),
        "select redrive.set_pace_v1('emails', '2000-01-02', null)"
        f" from generate_series(1, {DEAD}) n",
        one_job,
        400,
    ),
    "an empty line of a limit": Case(
        limited(1),
        "insert into redrive.limit_lines values ('emails', 'default', 'a.b', 0);"
        " insert into redrive.limit_waits (job, name, queue, kind, priority, due)"
        " select -n, 'emails', 'default', 'a.b', 0, now() - interval '1 hour'"
        f" from generate_series(1, {DEAD}) n;"
        " delete from redrive.limit_waits where job < 0",
        one_job,
        300,
    ),
    "jobs that waited for a limit": Case(
        limited(1),
        "insert into redrive.limit_waits (job, name, queue, kind, priority, due)"
        " select -n, 'emails', 'default', 'a.b', 0, now() - interval '1 hour'"
        f" from generate_series(1, {DEAD}) n; delete from redrive.limit_waits where job < 0",
        one_of_a_line,
        700,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_statement_reads_few_of_the_dead_rows_that_an_open_snapshot_keeps(
    database: Database, name: str
) -> None:
    """All that it reads is bounded, however many died before. The first one finds the place."""
    case = CASES[name]
    worker = make_limited_worker(database.conn, "emails")
    case.prepare(database, worker)
    snapshot, session = database.session(), database.session()
    for _ in range(3):
        case.turn(session, worker)
    snapshot.rows("begin isolation level repeatable read")
    snapshot.rows("select count(*) from redrive.jobs")
    for statement in case.die.split(";"):
        database.rows(statement)  # type: ignore[arg-type]
    costs: list[int] = []
    for _ in range(4):
        with Cost(session) as cost:
            case.turn(session, worker)
            cost.keep()
        costs.append(cost.blocks)
    snapshot.rows("rollback")

    assert costs[-1] < case.most, costs


# Places that move on


ENDED = CASES["slots of a limit"].die
WOKEN = CASES["jobs that waited for a limit"].die
ADVANCE = "select redrive.advance_slots_v1('{emails}')"


def die(database: Database, statements: str) -> None:
    """Leave dead rows. Nothing vacuums them in these tests."""
    for statement in statements.split(";"):
        database.rows(statement)  # type: ignore[arg-type]


def test_a_long_job_counts_wherever_the_place_of_the_slots_has_moved(
    database: Database,
) -> None:
    """And it does not keep that place before all that ended since."""
    worker = make_limited_worker(database.conn, "emails")
    database.rows(SET, 2, None)
    snapshot = database.session()
    snapshot.rows("begin isolation level repeatable read")
    snapshot.rows("select count(*) from redrive.limit_slots")
    make_job(database.conn, "a.b")
    long = claim_one(database.conn, worker)
    for _ in range(3):
        die(database, ENDED)
        one_job(database, worker)
        make_job(database.conn, "a.b")
        last = claim_one(database.conn, worker)
        make_job(database.conn, "a.b")
        assert claim(database.conn, worker) == []
        complete(database.conn, worker, last)
        complete_next(database.conn, worker)
    slot = "select id > %s from redrive.limit_slots where job = %s"
    snapshot.rows("rollback")

    assert database.value(slot, DEAD, long.id), "it was written again"


def test_a_slot_that_is_being_freed_delays_no_move(database: Database) -> None:
    worker = make_limited_worker(database.conn, "emails")
    database.rows(SET, 2, None)
    make_job(database.conn, "a.b")
    running = claim_one(database.conn, worker)
    database.rows(ADVANCE)
    settling = database.transaction()
    complete(settling.conn, worker, running)
    die(database, ENDED)
    database.session(lock_timeout="1ms").rows(ADVANCE)
    settling.rows("commit")
    make_job(database.conn, "a.b")

    assert claim_one(database.conn, worker)


def test_a_sequence_that_was_set_back_hides_no_slot(database: Database) -> None:
    """As after a restore, or a switch to a logical replica."""
    worker = make_limited_worker(database.conn, "emails")
    database.rows(SET, 1, None)
    database.rows("insert into redrive.limit_keys values ('emails')")
    die(database, ENDED)
    database.rows(ADVANCE)
    database.rows("select setval('redrive.limit_slots_id_seq', 1)")
    store.tend_limits(database.conn)
    make_job(database.conn, "a.b")
    make_job(database.conn, "a.b")

    assert len(claim(database.conn, worker)) == 1


def test_a_limit_that_is_set_counts_what_runs_before_the_place_of_its_slots(
    database: Database,
) -> None:
    worker = make_limited_worker(database.conn, "emails")
    make_job(database.conn, "a.b")
    claim_one(database.conn, worker)
    database.rows("insert into redrive.limit_keys values ('emails')")
    die(database, ENDED)
    database.rows(ADVANCE)
    database.rows(SET, 1, None)
    make_job(database.conn, "a.b")

    assert claim(database.conn, worker) == []


def test_a_job_that_appears_before_the_place_of_its_line_is_woken(
    database: Database,
) -> None:
    """Its transaction was open for long, so jobs that were due later have been woken."""
    worker = make_limited_worker(database.conn, "emails")
    database.rows(SET, 1, None)
    make_job(database.conn, "a.b")
    running = claim_one(database.conn, worker)
    late = make_job(database.conn, "a.b")
    database.rows("update redrive.limit_lines set due = now() + interval '1 minute'")
    complete(database.conn, worker, running)
    assert claim(database.conn, worker) == []
    store.tend_limits(database.conn)

    assert claim_one(database.conn, worker).id == late


def test_a_job_that_waited_in_a_backlog_is_woken_though_its_line_has_moved_on(
    database: Database,
) -> None:
    """It was due before the place of its line, because no other job waited there."""
    worker = make_limited_worker(database.conn, "emails")
    make_job(database.conn, "a.b")
    old = make_job(database.conn, "a.b")
    database.rows(SET, 1, None)
    database.rows(
        "insert into redrive.limit_lines values ('emails', 'default', 'a.b', 0)"
    )
    database.rows("select redrive.advance_lines_v1('emails')")
    assert database.value("select isfinite(due) from redrive.limit_lines")
    (running,) = claim(database.conn, worker)
    complete(database.conn, worker, running)

    assert claim_one(database.conn, worker).id == old


def test_a_line_that_is_missing_is_found(database: Database) -> None:
    """A transaction began to wait in it while it was deleted as idle."""
    worker = make_limited_worker(database.conn, "emails")
    database.rows(SET, 1, None)
    make_job(database.conn, "a.b")
    running = claim_one(database.conn, worker)
    make_job(database.conn, "a.b")
    database.rows("delete from redrive.limit_lines")
    complete(database.conn, worker, running)
    store.tend_limits(database.conn)

    assert claim_one(database.conn, worker)
    assert database.column("select kind from redrive.limit_lines") == ["a.b"]


def test_a_line_in_which_no_job_has_waited_for_an_hour_is_forgotten(
    database: Database,
) -> None:
    database.rows(
        "insert into redrive.limit_lines (name, queue, kind, priority, begun_at)"
        " values ('old', 'default', 'a', 0, now() - interval '2 hours'),"
        " ('new', 'default', 'a', 0, now())"
    )
    store.tend_limits(database.conn)

    assert database.column("select name from redrive.limit_lines") == ["new"]


HOT = keyed(500)
"""Far more than the hundred after which a key is hot."""


def heat(database: Database, worker: int) -> None:
    """Give the ordering key k a row in hot_keys, and its place."""
    for _ in range(2):
        die(database, HOT)
        make_job(database.conn, ordering_key="k", idempotency_key=None)
        complete_next(database.conn, worker)
    assert database.value("select jobs_from > 0 from redrive.hot_keys")


@pytest.fixture
def held(database: Database) -> Iterator[Session]:
    """A snapshot that stays open."""
    snapshot = database.session()
    snapshot.rows("begin isolation level repeatable read")
    snapshot.rows("select count(*) from redrive.jobs")
    yield snapshot
    snapshot.rows("rollback")


@pytest.mark.usefixtures("held")
def test_jobs_of_a_hot_key_run_one_at_a_time_in_their_order(database: Database) -> None:
    """Whatever the lane, and while the claim of another worker has not ended."""
    worker = make_worker(database.conn)
    heat(database, worker)
    ids = [
        make_job(database.conn, ordering_key="k", priority=priority)
        for priority in (1, 0, 1)
    ]
    database.rows("update redrive.jobs set run_at = now() where id = any (%s)", ids)
    other = database.session()
    for job in ids:
        other.rows("begin")
        (claimed,) = claim(other.conn, worker)
        assert claimed.id == job
        assert claim(database.conn, worker) == []
        other.rows("commit")
        assert claim(database.conn, worker) == []
        complete(database.conn, worker, claimed)


@pytest.mark.usefixtures("held")
def test_a_key_that_becomes_hot_is_claimed_by_one_worker(database: Database) -> None:
    """The other claim began before it, and sees neither the row nor the claimed job."""
    worker = make_worker(database.conn)
    die(database, HOT)
    first = make_job(database.conn, ordering_key="k")
    second = make_job(database.conn, ordering_key="k", priority=5)
    database.rows("update redrive.jobs set run_at = now()")
    one, two = database.transaction(), database.session()
    assert [j.id for j in claim(one.conn, worker)] == [first]
    assert one.rows("select from redrive.hot_keys")
    insert = (
        "insert into redrive.running_keys values ('default', 'k', %s)"
        " on conflict do nothing returning job"
    )
    late = database.start_blocked(two, lambda: two.rows(insert, second), by=one)
    one.rows("commit")

    assert late.result(60) == []


@pytest.mark.usefixtures("held")
def test_a_redriven_job_of_a_hot_key_goes_before_younger_ones(
    database: Database,
) -> None:
    worker = make_worker(database.conn)
    dead = make_job(database.conn, ordering_key="k")
    let_next_die(database.conn, worker)
    heat(database, worker)
    make_job(database.conn, ordering_key="k")
    running = claim_one(database.conn, worker)
    make_job(database.conn, ordering_key="k")
    redrive(database.conn, [dead])
    assert claim(database.conn, worker) == []
    complete(database.conn, worker, running)

    assert claim_one(database.conn, worker).id == dead


@pytest.mark.usefixtures("held")
def test_a_place_of_a_key_waits_for_transactions_that_may_insert_older_jobs(
    database: Database,
) -> None:
    worker, late = make_worker(database.conn), database.transaction()
    older = make_job(late.conn, ordering_key="k")
    heated = "select jobs_from from redrive.hot_keys"
    for _ in range(2):
        die(database, HOT)
        make_job(database.conn, ordering_key="k")
        complete_next(database.conn, worker)
    assert database.value(heated) == 0
    make_job(database.conn, ordering_key="k")
    late.rows("commit")

    assert claim_one(database.conn, worker).id == older


def test_a_key_that_nobody_uses_is_hot_no_longer(database: Database) -> None:
    database.rows(
        "insert into redrive.hot_keys select 'default', key, 3, 5, 9, '1', now() - age"
        " from (values ('k', interval '2 hours'), ('new', '0'), ('runs', '2 hours')) v(key, age)"
    )
    running = make_job(database.conn, ordering_key="runs")
    worker = make_worker(database.conn)
    assert claim_one(database.conn, worker).id == running
    database.rows(
        "insert into redrive.running_keys select 'default', k, 0"
        " from unnest(array['k', 'new', 'runs']) k"
    )
    store.unpark(database.conn)

    assert database.column("select ordering_key from redrive.hot_keys order by 1") == [
        "new",
        "runs",
    ]
    left = "select ordering_key, generation from redrive.running_keys order by 1, 2"
    assert database.rows(left) == [("new", 0), ("runs", 0), ("runs", 3)]


def test_keys_whose_jobs_are_gone_are_freed_in_steps(database: Database) -> None:
    database.rows(
        "insert into redrive.running_keys (queue, ordering_key, job)"
        " select 'default', repeat('k', 100) || n, n from generate_series(1, 40000) n"
    )
    left: list[int] = []
    while sum(left[-1:]) or not left:
        store.unpark(database.conn)
        left.append(database.value("select count(*) from redrive.running_keys"))

    assert len(left) == 2, left


def test_the_walk_of_all_keys_meets_each_one_beside_hot_ones(
    database: Database,
) -> None:
    """It reads hot keys from their places, and skips keys without jobs."""
    with database.conn.transaction():
        database.rows("set local session_replication_role = replica")
        database.rows(
            "insert into redrive.jobs (kind, queue, ordering_key, run_at)"
            " select 'a', q, k, 'infinity' from unnest(array['a', 'b', 'c']) q,"
            " unnest(array['d', 'k', 'z']) k, generate_series(1, 2)"
        )
        database.rows(
            "insert into redrive.hot_keys"
            " (queue, ordering_key, generation, jobs_from, next_from, next_xid)"
            " select q, k, 1, 0, 0, '1' from (values ('a', 'd'), ('b', 'f'), ('b', 'k'),"
            " ('b', 'z'), ('bb', 'x'), ('d', 'd')) h(q, k)"
        )
    first = "select min(id) from redrive.jobs group by queue, ordering_key order by 1"
    heads = database.column(first)
    woken = sum(database.value("select redrive.unpark_v1(2)") for _ in range(10))

    assert woken == len(heads) == 9
    due = "select id from redrive.jobs where run_at < 'infinity' order by 1"
    assert database.column(due) == heads
