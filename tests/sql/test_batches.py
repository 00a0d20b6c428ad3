"""Batches: one callback, when all jobs have ended or succeeded, whatever became of them between."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, LiteralString, NamedTuple

import psycopg
import pytest
from psycopg import IsolationLevel, errors

from redrive.batches import close_batch, open_batch
from redrive.enqueue import enqueue, enqueue_many
from redrive.errors import InvalidJob
from redrive.results import Ended, wait
from redrive.worker import store
from tests.factories import (
    Claimed,
    claim,
    complete,
    let_die,
    make_worker,
    outcome,
    redrive,
    settle,
    silence,
)
from tests.postgres import Connection, Database
from tests.sql.test_enqueue_copy import of_asyncpg

SUCCESS: Any = {"kind": "batch.succeeded", "payload": {"of": "batch"}}
END: Any = {"kind": "batch.ended"}


class Counts(NamedTuple):
    """What became of the jobs of a batch."""

    total: int = 0
    succeeded: int = 0
    dead: int = 0
    cancelled: int = 0


class Batch:
    """A batch, a worker for its jobs, and the callbacks that have come."""

    def __init__(self, database: Database, jobs: int = 2) -> None:
        self.database, self.conn = database, database.conn
        self.worker = make_worker(self.conn)
        self.id = open_batch(self.conn, on_success=SUCCESS, on_end=END)
        self.jobs = [
            enqueue(self.conn, "page", {"n": n}, batch=self.id) for n in range(jobs)
        ]
        self.came: list[Claimed] = []

    def claimed(self) -> Iterator[Claimed]:
        """Claim what is due of the batch; callbacks that come with it are kept."""
        for job in claim(self.conn, self.worker):
            if job.kind == "page":
                yield job
            else:
                self.came.append(job)

    def callbacks(self) -> list[tuple[str, Counts]]:
        """Fold all there is, and claim and complete what is due then."""
        fold(self.conn)
        fold(self.conn)  # twice: it makes no difference
        assert list(self.claimed()) == []
        found = [(job.kind, self._counts(job)) for job in self.came]
        complete(self.conn, self.worker, *self.came)
        self.came.clear()
        return found

    def _counts(self, job: Claimed) -> Counts:
        header = dict(job.more["headers"]["batch"])
        assert header.pop("id") == self.id
        return Counts(**header)

    def state(self) -> tuple[str | None, bool, bool]:
        """Its outcome, whether it has ended, and whether it is over."""
        outcome, ended, over = self.database.row(
            "select outcome, ended_at is not null, over_at is not null from redrive.batches"
            " where id = %s",
            self.id,
        )
        return outcome, ended, over


def fold(conn: Connection) -> None:
    """See which batches have ended."""
    store.fold_batches(conn)


@pytest.fixture
def batch(database: Database) -> Batch:
    return Batch(database)


def left(database: Database) -> list[str]:
    """The kinds of the jobs that live."""
    return database.column("select kind from redrive.jobs order by kind")


def test_when_all_have_succeeded_both_callbacks_come_once(batch: Batch) -> None:
    close_batch(batch.conn, batch.id)
    first, second = batch.claimed()
    complete(batch.conn, batch.worker, first)
    assert batch.callbacks() == []
    complete(batch.conn, batch.worker, second)

    counts = Counts(total=2, succeeded=2)
    assert sorted(batch.callbacks()) == [
        ("batch.ended", counts),
        ("batch.succeeded", counts),
    ]
    assert batch.callbacks() == []
    assert batch.state() == ("succeeded", True, True)


def test_nothing_comes_before_it_is_closed(batch: Batch) -> None:
    complete(batch.conn, batch.worker, *batch.claimed())
    assert batch.callbacks() == []
    assert close_batch(batch.conn, batch.id)

    assert len(batch.callbacks()) == 2
    assert not close_batch(batch.conn, batch.id)
    assert batch.callbacks() == []


def test_an_empty_batch_succeeds(database: Database) -> None:
    batch = Batch(database, jobs=0)
    close_batch(batch.conn, batch.id)

    assert {kind for kind, _ in batch.callbacks()} == {"batch.ended", "batch.succeeded"}


def test_a_dead_letter_holds_on_success_until_its_redrive_has_succeeded(
    batch: Batch,
) -> None:
    close_batch(batch.conn, batch.id)
    first, second = batch.claimed()
    complete(batch.conn, batch.worker, first)
    let_die(batch.conn, batch.worker, second)
    assert batch.callbacks() == [("batch.ended", Counts(total=2, succeeded=1, dead=1))]
    assert batch.state() == (None, True, False)
    for _ in range(2):
        redrive(batch.conn, [second.id])
        fold(batch.conn)
        (again,) = batch.claimed()
        let_die(batch.conn, batch.worker, again)
        assert batch.callbacks() == []
    redrive(batch.conn, [second.id])
    complete(batch.conn, batch.worker, *batch.claimed())

    assert batch.callbacks() == [("batch.succeeded", Counts(total=2, succeeded=2))]
    assert batch.state() == ("succeeded", True, True)


def test_what_is_redriven_before_the_others_end_is_waited_for(batch: Batch) -> None:
    close_batch(batch.conn, batch.id)
    first, second = batch.claimed()
    let_die(batch.conn, batch.worker, first)
    fold(batch.conn)
    redrive(batch.conn, [first.id])
    complete(batch.conn, batch.worker, second)
    fold(batch.conn)
    (again,) = batch.claimed()
    assert batch.came == []
    complete(batch.conn, batch.worker, again)

    assert len(batch.callbacks()) == 2


@pytest.mark.parametrize("end", ["purge", "dismiss and purge"])
def test_a_dead_letter_that_is_purged_holds_nothing_any_more(
    batch: Batch, end: str
) -> None:
    close_batch(batch.conn, batch.id)
    first, second = batch.claimed()
    complete(batch.conn, batch.worker, first)
    let_die(batch.conn, batch.worker, second)
    assert [kind for kind, _ in batch.callbacks()] == ["batch.ended"]
    if end == "dismiss and purge":
        batch.database.rows("select redrive.dismiss_v1(%s, 'ada', 'why')", [second.id])
        assert batch.callbacks() == []
    batch.database.rows(
        "select redrive.purge_v1(null, %s, '{0}', '{open,dismissed}')", [second.id]
    )

    assert batch.callbacks() == []
    assert batch.state() == ("ended", True, True)
    assert left(batch.database) == [], "on_success will not come: it is cancelled"


def test_the_record_of_a_redrive_may_be_purged(batch: Batch) -> None:
    """It counts as what it was: the job has ended otherwise since."""
    close_batch(batch.conn, batch.id)
    first, second = batch.claimed()
    let_die(batch.conn, batch.worker, first)
    redrive(batch.conn, [first.id])
    complete(batch.conn, batch.worker, second, *batch.claimed())
    batch.database.rows(
        "select redrive.purge_v1(null, %s, '{0}', '{resolved}')", [first.id]
    )

    counts = Counts(total=2, succeeded=2)
    assert sorted(batch.callbacks()) == [
        ("batch.ended", counts),
        ("batch.succeeded", counts),
    ]


@pytest.mark.parametrize("how", ["waiting", "running"])
def test_a_cancelled_job_ends_it_without_success(batch: Batch, how: str) -> None:
    close_batch(batch.conn, batch.id)
    if how == "waiting":
        batch.database.rows(
            "select redrive.cancel_v1(%s, 'ada', 'why')", batch.jobs[:1]
        )
    for job in batch.claimed():
        if job.id == batch.jobs[0]:
            assert settle(batch.conn, batch.worker, job, "cancel")
        else:
            complete(batch.conn, batch.worker, job)

    assert batch.callbacks() == [
        ("batch.ended", Counts(total=2, succeeded=1, cancelled=1))
    ]
    assert batch.state() == ("ended", True, True)
    assert left(batch.database) == []


@pytest.mark.parametrize("outcome", ["retry", "release"])
def test_what_comes_back_has_not_ended(batch: Batch, outcome: str) -> None:
    close_batch(batch.conn, batch.id)
    for job in list(batch.claimed()):
        assert settle(batch.conn, batch.worker, job, outcome)
    fold(batch.conn)

    assert batch.state() == (None, False, False)
    complete(batch.conn, batch.worker, *batch.claimed())
    assert len(batch.callbacks()) == 2


def test_a_job_of_a_lost_worker_is_waited_for(batch: Batch) -> None:
    close_batch(batch.conn, batch.id)
    lost = list(batch.claimed())
    silence(batch.conn, batch.worker)
    rescued = store.rescue(batch.conn, 30)
    assert rescued.jobs == 2
    assert complete(batch.conn, batch.worker, *lost) == set()
    batch.worker = make_worker(batch.conn)
    assert batch.state() == (None, False, False)
    complete(batch.conn, batch.worker, *batch.claimed())

    counts = Counts(total=2, succeeded=2)
    assert sorted(batch.callbacks()) == [
        ("batch.ended", counts),
        ("batch.succeeded", counts),
    ]


def test_the_last_two_complete_at_once_in_two_sessions(batch: Batch) -> None:
    """Neither sees the other's: the fold sees both."""
    close_batch(batch.conn, batch.id)
    first, second = batch.claimed()
    one, other = batch.database.connect(), batch.database.connect()
    for conn, job in ((one, first), (other, second)):
        conn.autocommit = False
        assert complete(conn, batch.worker, job) == {job.id}
    fold(batch.conn)
    assert batch.state() == (None, False, False)
    one.commit()
    fold(batch.conn)
    other.commit()

    counts = Counts(total=2, succeeded=2)
    assert sorted(batch.callbacks()) == [
        ("batch.ended", counts),
        ("batch.succeeded", counts),
    ]


def test_two_that_fold_at_once_call_back_once(batch: Batch) -> None:
    close_batch(batch.conn, batch.id)
    complete(batch.conn, batch.worker, *batch.claimed())
    other = batch.database.connect()
    with other.transaction():
        fold(other)
        fold(batch.conn)  # has nothing to do, and does not wait

    assert len(batch.callbacks()) == 2


def test_a_job_of_the_batch_may_add_to_it(batch: Batch) -> None:
    close_batch(batch.conn, batch.id)
    first, second = batch.claimed()
    complete(batch.conn, batch.worker, first)
    adding = batch.database.connect()
    with adding.transaction():
        enqueue(adding, "page", batch=batch.id)
        complete(adding, batch.worker, second)
    fold(batch.conn)
    assert batch.state() == (None, False, False)
    complete(batch.conn, batch.worker, *batch.claimed())

    counts = Counts(total=3, succeeded=3)
    assert sorted(batch.callbacks()) == [
        ("batch.ended", counts),
        ("batch.succeeded", counts),
    ]


def test_it_is_not_over_while_somebody_adds_to_it(batch: Batch) -> None:
    close_batch(batch.conn, batch.id)
    complete(batch.conn, batch.worker, *batch.claimed())
    adding = batch.database.connect()
    adding.autocommit = False
    enqueue(adding, "page", batch=batch.id)
    fold(batch.conn)
    assert batch.state() == (None, False, False)
    adding.commit()
    fold(batch.conn)
    complete(batch.conn, batch.worker, *batch.claimed())

    counts = Counts(total=3, succeeded=3)
    assert sorted(batch.callbacks()) == [
        ("batch.ended", counts),
        ("batch.succeeded", counts),
    ]


@pytest.mark.parametrize(
    "level", list(IsolationLevel)[1:], ids=lambda level: level.name
)
def test_one_that_is_over_takes_no_more(batch: Batch, level: IsolationLevel) -> None:
    conn = batch.database.connect()
    conn.isolation_level = level
    conn.autocommit = False
    conn.execute("select 1")  # takes the snapshot
    close_batch(batch.conn, batch.id)
    complete(batch.conn, batch.worker, *batch.claimed())
    batch.callbacks()

    with pytest.raises(psycopg.DatabaseError) as refused:
        enqueue(conn, "page", batch=batch.id)
    if level is not IsolationLevel.READ_COMMITTED:
        assert isinstance(refused.value, errors.SerializationFailure)
        conn.rollback()
        with pytest.raises(
            psycopg.DatabaseError, match="no batch with this id"
        ) as refused:
            enqueue(conn, "page", batch=batch.id)
    assert refused.value.sqlstate == "RD001"


@pytest.mark.parametrize(
    "level", list(IsolationLevel)[1:], ids=lambda level: level.name
)
def test_adding_waits_neither_for_closing_nor_for_counting(
    batch: Batch, level: IsolationLevel
) -> None:
    """Closing waits for nobody either, and a snapshot from before is no reason to try again."""
    conn = batch.database.connect()
    conn.isolation_level = level
    conn.autocommit = False
    conn.execute("select 1")
    close_batch(batch.conn, batch.id)
    for job in batch.claimed():
        complete(batch.conn, batch.worker, job)
        break
    fold(batch.conn)
    enqueue(conn, "page", batch=batch.id)
    conn.commit()

    assert batch.database.value("select sum(total)::int from redrive.batch_deltas") == 3


def test_one_that_nobody_closes_is_given_up(batch: Batch) -> None:
    """Its producer died: its jobs run, its callbacks never do, and nothing waits without end."""
    batch.database.rows("update redrive.batches set close_by = now()")
    fold(batch.conn)

    assert batch.state() == ("abandoned", False, True)
    assert left(batch.database) == ["page", "page"]
    complete(batch.conn, batch.worker, *batch.claimed())
    assert batch.callbacks() == []
    with pytest.raises(psycopg.DatabaseError, match="was not closed in time"):
        close_batch(batch.conn, batch.id)


def test_what_is_rolled_back_leaves_no_batch(database: Database) -> None:
    with database.conn.transaction(force_rollback=True):
        batch = open_batch(database.conn, on_end=END)
        enqueue(database.conn, "page", batch=batch)
        close_batch(database.conn, batch)

    assert left(database) == []
    assert database.value("select count(*) from redrive.batch_deltas") == 0


def test_a_key_that_is_taken_adds_nothing(batch: Batch) -> None:
    """Live, or succeeded between two snapshots: the job that has it is outside the batch."""
    enqueue(batch.conn, "other", idempotency_key="k")
    enqueue(batch.conn, "other", idempotency_key="k", batch=batch.id)
    batch.database.rows("insert into redrive.completions values ('other', 'done', 1)")
    enqueue(batch.conn, "other", idempotency_key="done", batch=batch.id)
    close_batch(batch.conn, batch.id)
    complete(batch.conn, batch.worker, *(j for j in claim(batch.conn, batch.worker)))

    assert {counts for _, counts in batch.callbacks()} == {Counts(total=2, succeeded=2)}


def test_a_redrive_that_is_withdrawn_is_dead_as_before(batch: Batch) -> None:
    job = enqueue(batch.conn, "page", idempotency_key="k", batch=batch.id)
    close_batch(batch.conn, batch.id)
    for one in batch.claimed():
        let_die(batch.conn, batch.worker, one)
    enqueue(batch.conn, "page", idempotency_key="k")
    worker = batch.database.connect()
    worker.autocommit = False
    complete(worker, batch.worker, *batch.claimed())
    operator = batch.database.session()
    waiting = operator.start(lambda: redrive(operator.conn, [job]))
    batch.database.wait_until_blocked(operator)
    worker.commit()

    assert waiting.result(60) == {job: "succeeded"}
    assert batch.callbacks() == [("batch.ended", Counts(total=3, dead=3))]


def test_a_batch_of_batches(database: Database) -> None:
    """A callback is a job like others: it may belong to a batch itself."""
    outer = Batch(database, jobs=0)
    callback: Any = {"kind": "page", "payload": {"n": 9}, "batch": outer.id}
    inner = open_batch(database.conn, on_success=callback)
    enqueue(database.conn, "page", batch=inner)
    close_batch(database.conn, inner)
    close_batch(database.conn, outer.id)
    for _ in range(2):
        fold(database.conn)
        assert outer.state() == (None, False, False)
        complete(database.conn, outer.worker, *outer.claimed())

    assert {counts for _, counts in outer.callbacks()} == {Counts(total=1, succeeded=1)}


def test_a_callback_that_was_cancelled_does_not_come(batch: Batch) -> None:
    parked = batch.database.value("select on_end from redrive.batches")
    batch.database.rows("select redrive.cancel_v1(%s, 'ada', 'why')", [parked])
    close_batch(batch.conn, batch.id)
    complete(batch.conn, batch.worker, *batch.claimed())

    assert [kind for kind, _ in batch.callbacks()] == ["batch.succeeded"]


@pytest.mark.parametrize("end", ["without success", "given up"])
def test_a_callback_that_will_not_come_is_on_record_as_cancelled(
    batch: Batch, end: str
) -> None:
    """`job wait` said of it that it had succeeded."""
    on_success, on_end = batch.database.row(
        "select on_success, on_end from redrive.batches"
    )
    if end == "given up":
        batch.database.rows(
            "update redrive.batches set close_by = now() - interval '1 s'"
        )
    else:
        batch.database.rows("select redrive.cancel_v1(%s, 'ada', 'why')", batch.jobs)
        close_batch(batch.conn, batch.id)
    fold(batch.conn)

    over = [on_success, on_end] if end == "given up" else [on_success]
    assert {job: outcome(batch.conn, job) for job in over} == dict.fromkeys(
        over, "cancelled"
    )
    assert wait(batch.conn, on_success, 0) == Ended("cancelled")


def test_nobody_wakes_a_callback_before_its_time(batch: Batch) -> None:
    """Neither `job now` nor the chore that unparks."""
    batch.database.rows(
        "select redrive.run_now_v1(array(select id from redrive.jobs), 'ada', 'why')"
    )
    store.unpark(batch.conn)
    complete(batch.conn, batch.worker, *batch.claimed())

    assert batch.callbacks() == []


def test_a_batch_whose_callback_somebody_holds_comes_later_and_others_come_now(
    batch: Batch,
) -> None:
    """Nobody waits for it; and it ignores a job that is not one of its callbacks."""
    unrelated = enqueue(batch.conn, "unrelated", delay=3600)
    complete(batch.conn, batch.worker, *batch.claimed())
    close_batch(batch.conn, batch.id)
    callbacks = [
        id_
        for row in batch.database.rows("select on_success, on_end from redrive.batches")
        for id_ in row
    ]
    hasty = batch.database.session(lock_timeout="1ms")
    other = batch.database.transaction(
        "select from redrive.jobs where id = %s for update", callbacks[0]
    )
    fold(hasty.conn)
    assert batch.database.column("select over_at from redrive.batches") == [None]
    other.rows("rollback")

    other.rows("begin")
    other.rows("select from redrive.jobs where id = %s for update", unrelated)
    fold(hasty.conn)
    other.rows("rollback")
    assert len(batch.callbacks()) == 2


@pytest.mark.parametrize(
    "field",
    ["run_at", "delay", "expires_in", "idempotency_key", "ordering_key", "unique_for"],
)
def test_what_a_callback_cannot_have_is_named(database: Database, field: str) -> None:
    job: Any = {"kind": "a"} | ({"delay": 1} if field == "delay" else {})
    with pytest.raises(
        psycopg.DatabaseError, match=f"on_end.{field}: a callback of a batch"
    ):
        database.rows(
            "select redrive.open_batch_v1(null, %s::jsonb)",
            json.dumps(job | {field: "1"}),
        )
    with pytest.raises(InvalidJob, match=r"on_end\.delay"):
        open_batch(database.conn, on_end={"kind": "a", "delay": 1})


def test_bulk_belongs_to_a_batch_too(database: Database) -> None:
    batch = Batch(database, jobs=0)
    enqueue_many(batch.conn, ({"kind": "page", "batch": batch.id} for _ in range(50)))
    close_batch(batch.conn, batch.id)
    complete(batch.conn, batch.worker, *batch.claimed())

    assert {counts for _, counts in batch.callbacks()} == {
        Counts(total=50, succeeded=50)
    }


def test_only_one_row_of_counters_is_left_of_a_batch(batch: Batch) -> None:
    complete(batch.conn, batch.worker, *batch.claimed())
    fold(batch.conn)

    assert batch.database.value("select count(*) from redrive.batch_deltas") == 1


def test_what_has_been_over_for_long_is_forgotten(batch: Batch) -> None:
    close_batch(batch.conn, batch.id)
    complete(batch.conn, batch.worker, *batch.claimed())
    batch.callbacks()
    batch.database.rows(
        "update redrive.batches set over_at = now() - interval '401 days'"
    )
    store.forget(batch.conn)

    assert batch.database.value("select count(*) from redrive.batches") == 0
    assert batch.database.value("select count(*) from redrive.batch_deltas") == 0


def test_nothing_is_kept_of_what_ends_after_its_batch_was_forgotten(
    batch: Batch,
) -> None:
    """A row of counters stayed of each batch that had been given up."""
    batch.database.rows("update redrive.batches set close_by = now()")
    fold(batch.conn)
    assert batch.state()[0] == "abandoned"
    batch.database.rows("select redrive.forget_batches_v1('0', 10)")
    complete(batch.conn, batch.worker, *batch.claimed())
    fold(batch.conn)

    assert batch.database.rows("select * from redrive.batch_deltas") == []


def test_one_that_is_pending_keeps_a_worker_that_stops_when_all_is_done(
    batch: Batch,
) -> None:
    kinds = ["page", "batch.succeeded", "batch.ended"]
    close_batch(batch.conn, batch.id)
    complete(batch.conn, batch.worker, *batch.claimed())

    assert store.is_pending(batch.conn, None, kinds, 0)
    assert store.is_pending(batch.conn, ["default"], kinds, 0)
    assert not store.is_pending(batch.conn, ["other"], kinds, 0)
    assert not store.is_pending(batch.conn, None, ["page"], 0)
    batch.callbacks()
    assert not store.is_pending(batch.conn, None, kinds, 0)
    still_open = Batch(batch.database, jobs=1)
    complete(batch.conn, still_open.worker, *still_open.claimed())
    assert not store.is_pending(batch.conn, None, kinds, 0), (
        "an open one ends when it is closed"
    )


@pytest.mark.parametrize(
    "change",
    [
        "update redrive.batch_deltas set is_folded = true",
        "update redrive.batches set over_at = now()",
    ],
)
def test_one_whose_counters_were_looked_at_is_pending_no_more(
    batch: Batch, change: LiteralString
) -> None:
    """Nor one that is over: its callback waits as any job does, here for its queue."""
    close_batch(batch.conn, batch.id)
    complete(batch.conn, batch.worker, *batch.claimed())
    batch.database.rows(change)

    assert not store.is_pending(batch.conn, None, ["batch.ended"], 0)


def test_closing_takes_the_time_that_was_given(database: Database) -> None:
    open_batch(database.conn, on_end=END, close_within=timedelta(minutes=5))

    assert database.value(
        "select close_by - created_at between interval '299 s' and interval '301 s'"
        " from redrive.batches"
    )
    with pytest.raises(InvalidJob, match="close_within"):
        open_batch(database.conn, close_within=0)


def test_with_closes_a_batch_unless_an_exception_ends_it(database: Database) -> None:
    """Jobs may be missing then: it waits for them, or is given up."""
    with open_batch(database.conn) as whole:
        enqueue_many(
            database.conn,
            [{"kind": "page", "payload": {"batch": whole}, "batch": whole}],
        )
    with contextlib.suppress(LookupError), open_batch(database.conn) as half:
        raise LookupError
    with pytest.raises(errors.DivisionByZero), open_batch(database.conn):
        database.conn.execute("select 1 / 0")

    assert not close_batch(database.conn, whole)
    assert close_batch(database.conn, half)
    assert database.rows("select payload, batch from redrive.jobs") == [
        ({"batch": int(whole)}, int(whole))
    ]


def test_every_driver_opens_fills_and_closes_one(database: Database) -> None:
    """SQLAlchemy and asyncpg, besides psycopg; a unique job on the way."""
    options: Any = {
        "unique_for": 60,
        "unique_by": ["n"],
        "on_conflict": "skip",
        "delay": 5,
    }

    async def by_asyncpg() -> None:
        asyncpg = pytest.importorskip("asyncpg")
        conn = await asyncpg.connect(**of_asyncpg(database.url))
        async with open_batch(conn, on_end=END) as batch:
            for _ in range(2):
                await enqueue(conn, "page", {"n": 1}, batch=batch, **options)
        assert not await close_batch(conn, batch)
        await conn.close()

    def by_sqlalchemy() -> None:
        sqlalchemy = pytest.importorskip("sqlalchemy")
        engine = sqlalchemy.create_engine(
            "postgresql+psycopg://", creator=lambda: psycopg.connect(database.url)
        )
        with engine.begin() as conn:
            batch = open_batch(conn, on_end=END)
            for _ in range(2):
                enqueue(conn, "page", {"n": 2}, batch=batch, **options)
            assert close_batch(conn, batch)
        engine.dispose()

    asyncio.run(by_asyncpg())
    by_sqlalchemy()

    assert database.column(
        "select sum(total)::int from redrive.batch_deltas group by batch"
    ) == [1, 1]
    assert database.value("select bool_and(closed_at is not null) from redrive.batches")


def test_batches_that_transactions_hold_open_do_not_keep_others_waiting(
    database: Database,
) -> None:
    """A producer adds to each of the oldest batches, and does not commit for hours."""
    held = [open_batch(database.conn) for _ in range(store.BATCHES_AT_A_TIME)]
    with contextlib.ExitStack() as undo:
        adding = database.session().conn
        undo.enter_context(adding.transaction(force_rollback=True))
        for batch_id in held:
            close_batch(database.conn, batch_id)
            enqueue(adding, "page", batch=batch_id)

        newer = open_batch(database.conn, on_end=END)
        close_batch(database.conn, newer)
        for _ in range(2):
            store.fold_batches(database.conn)

        ended = "select id from redrive.batches where ended_at is not null"
        assert database.column(ended) == [newer]

    for _ in range(2):
        store.fold_batches(database.conn)
    assert len(database.column(ended)) == len(held) + 1


def test_a_step_adds_up_a_limited_number_of_rows_and_says_that_there_is_more(
    batch: Batch,
) -> None:
    """Each job that was enqueued or completed by itself has left a row."""
    rows, step = 50_000, store.BATCHES_AT_A_TIME
    batch.database.rows(
        "insert into redrive.batch_deltas (batch, total, succeeded)"
        " select %s, 1, 1 from generate_series(1, %s)",
        batch.id,
        rows,
    )
    folds: list[int] = []
    while not folds or folds[-1] == step:
        before = batch.database.value("select count(*) from redrive.batch_deltas")
        folds.append(batch.database.value("select redrive.fold_batches_v1(%s)", step))
        after = batch.database.value("select count(*) from redrive.batch_deltas")
        assert before - after <= 20_000

    assert len(folds) == 3
    sums = "select total, succeeded, is_folded from redrive.batch_deltas"
    assert batch.database.rows(sums) == [(rows + 2, rows, True)]


def test_a_batch_ends_when_its_outcomes_in_all_blocks_of_the_table_are_counted(
    batch: Batch,
) -> None:
    """A job was added to it, and the rows of other batches are between."""
    close_batch(batch.conn, batch.id)
    complete(batch.conn, batch.worker, *batch.claimed())
    batch.database.rows(
        "insert into redrive.batch_deltas (batch, is_folded)"
        " select -n, true from generate_series(1, 20000) n"
    )
    batch.database.rows(
        "insert into redrive.batch_deltas (batch, total)"
        " select max(id), 1 from redrive.batches"
    )
    step = "select redrive.fold_batches_v1(20)"
    assert batch.database.value(step) == 20, "there is more"
    assert not batch.state()[1]
    fold(batch.conn)
    assert not batch.state()[1]

    batch.database.rows(
        "insert into redrive.batch_deltas (batch, succeeded)"
        " select max(id), 1 from redrive.batches"
    )
    fold(batch.conn)
    assert batch.state() == ("succeeded", True, True)


def test_a_step_looks_at_a_few_batches_in_a_few_blocks_and_the_next_one_goes_on(
    database: Database,
) -> None:
    new = "insert into redrive.batch_deltas (batch, total) select n, 1 from generate_series(1, %s) n"
    database.rows(new, 30)
    database.rows(
        "insert into redrive.batch_deltas (batch, is_folded)"
        " select -n, true from generate_series(1, 20000) n"
    )
    database.rows(new, 1)
    steps = [database.value("select redrive.fold_batches_v1(20)") for _ in range(4)]

    assert steps == [20, 20, 1, 20]
    sums = (
        "select batch, total from redrive.batch_deltas where batch > 0 order by batch"
    )
    assert database.rows(sums) == [(n, 2 if n == 1 else 1) for n in range(1, 31)]
