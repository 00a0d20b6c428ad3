"""What runners say while the database works on an exchange goes with the next one."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any, LiteralString
from weakref import WeakSet

import psycopg
import pytest
from psycopg.errors import LockNotAvailable

from redrive.database.connections.connect import OwnConnection, connect
from redrive.database.connections.link import Link
from redrive.database.connections.trouble import refusal
from redrive.observability.metrics import Metrics
from redrive.rules.attempts.settlement import Outcome
from redrive.rules.pace import Pace
from redrive.worker.claim.identity import Identity
from redrive.worker.claim.lanes import LaneBook
from redrive.worker.held import Batch, ClaimedJob, held_from
from redrive.worker.polling import Polling
from redrive.worker.protocol import Checkpoint, CheckpointKept, Report, SideEffect
from redrive.worker.round_trip import START, ClaimRequest, LaneClaim, Settlements
from redrive.worker.round_trip import exchange as exchange_of_worker
from redrive.worker.settle import apart
from redrive.worker.settle.exchange import Exchange
from redrive.worker.settle.settlements import SettlementBatch
from redrive.worker.store import Registration, retire
from redrive.worker.telemetry import Telemetry
from tests.factories import (
    Claimed,
    claim,
    claim_one,
    failure,
    holders,
    make_jobs,
    make_worker,
)
from tests.postgres import Database, Session
from tests.sql.test_claim import LANE

JOBS = "select id from redrive.jobs order by id"


@pytest.fixture
def link(database: Database) -> Iterator[Link]:
    link = Link(database.url, "worker", lock_timeout="2s")
    yield link
    link.close()


@pytest.fixture
def identity(database: Database) -> Identity:
    nobody: Any = SimpleNamespace(heard=lambda *_: None, forget=lambda _: None)
    identity = Identity(
        lambda: Registration("worker-2", "test", 30.0, ["*"], None), nobody
    )
    identity.me = make_worker(database.conn)
    return identity


@pytest.fixture
def exchange(link: Link, identity: Identity) -> Exchange:
    telemetry = Telemetry(Metrics(), None)

    def on_refused(held: ClaimedJob, error: psycopg.Error) -> None:
        failed = failure(message=refusal(error))
        reason = "not_retryable"
        exchange.ended(
            held,
            Report(
                held.id,
                held.deliveries,
                Outcome.DEAD_LETTER,
                failure=failed,
                reason=reason,
            ),
        )

    exchange = Exchange(
        link, identity, LaneBook(None), Polling(0.0), telemetry, on_refused, Pace()
    )
    return exchange


def server_process(link: Link) -> Any:
    with link.use() as conn:
        return SimpleNamespace(pid=conn.info.backend_pid)


def answers(link: Link) -> WeakSet[Any]:
    """What holds the rows that a server sent, while it is in memory."""
    with link.use() as conn:
        found: list[Any] = [
            one for one in gc.get_objects() if issubclass(type(one), psycopg.Cursor)
        ]
        return WeakSet(
            one for one in found if one.connection is conn and one.rownumber == 0
        )


def once(do: Callable[[], None]) -> Callable[[], None]:
    """It is called before each wait for the server."""
    left = [do]
    return lambda: left.pop()() if left else None


def test_a_job_that_ends_meanwhile_is_settled_by_the_next_one(
    database: Database, link: Link, exchange: Exchange
) -> None:
    ids = make_jobs(database.conn, 3)
    one, two = exchange.run(time.monotonic(), free_slots=2, linger=0.0)
    exchange.completed([(one, 0.1)])
    ours = server_process(link)
    other = database.transaction(
        "select from redrive.jobs where id = %s for update", one.id
    )

    def meanwhile() -> None:
        database.wait_until_blocked(ours)
        exchange.completed([(two, 0.1)])
        other.rows("rollback")

    (three,) = exchange.run(
        time.monotonic(), free_slots=1, linger=0.0, meanwhile=once(meanwhile)
    )

    assert exchange.is_settling
    assert database.column(JOBS) == ids[1:]
    assert exchange.run(time.monotonic(), free_slots=0, linger=0.0) == []
    assert not exchange.is_settling
    assert database.column(JOBS) == [three.id]
    assert database.column("select id from redrive.claims") == [three.claim.id]


def test_a_checkpoint_that_comes_meanwhile_is_not_blamed_for_a_report_that_is_refused(
    database: Database, link: Link, exchange: Exchange
) -> None:
    make_jobs(database.conn, 3)
    one, two, three = exchange.run(time.monotonic(), free_slots=3, linger=0.0)
    exchange.completed([(one, 0.1)])
    unstorable = failure(message="\0")
    exchange.ended(
        two, Report(two.id, two.deliveries, Outcome.RETRY, failure=unstorable)
    )
    ours = server_process(link)
    other = database.transaction(
        "select from redrive.jobs where id = %s for update", one.id
    )
    said: list[bool] = []

    def answer(message: CheckpointKept) -> None:
        said.append(message.is_kept)

    def meanwhile() -> None:
        database.wait_until_blocked(ours)
        exchange.keep(three, Checkpoint(three.id, three.deliveries, 1, "{}"), answer)
        other.rows("rollback")

    exchange.run(time.monotonic(), free_slots=0, linger=0.0, meanwhile=once(meanwhile))

    assert said == []
    exchange.run(time.monotonic(), free_slots=0, linger=0.0)
    assert said == [True]


@pytest.fixture(params=["a session of our own", "a pooler's"])
def impatient(
    request: pytest.FixtureRequest, database: Database
) -> Iterator[OwnConnection]:
    """A connection that waits for no lock for long, with any settings."""
    link = Link(database.url, "worker", lock_timeout="100ms")
    shared = connect(database.url, lock_timeout="100ms")
    with link.use() as own, closing(own), closing(shared):
        yield own if request.param.endswith("own") else shared


def held_back(database: Database, table: str, row: int) -> Session:
    """Somebody who keeps a row, until they roll back."""
    return database.transaction(
        f"select from redrive.{table} where id = %s for update", row
    )


def test_nothing_is_claimed_after_settlements_that_fail(
    database: Database, impatient: OwnConnection
) -> None:
    make_jobs(database.conn, 2)
    worker = make_worker(database.conn)
    (job,) = claim(database.conn, worker, 1)
    completion = Settlements(
        [(job.id, job.deliveries, job.claim, worker)], ended=[job.claim]
    )
    request = ClaimRequest(worker, LANE, [START], 1, after=job.claim)
    other = held_back(database, "jobs", job.id)

    with pytest.raises(LockNotAvailable):
        exchange_of_worker(impatient, completion, request)
    assert list(holders(database.conn)) == [job.id]

    other.rows("rollback")
    answer = exchange_of_worker(impatient, completion, request)
    assert (answer.completed, len(answer.rows())) == (None, 1)


def test_what_was_settled_stays_so_when_the_claim_fails(
    database: Database, impatient: OwnConnection
) -> None:
    _, left = make_jobs(database.conn, 2)
    worker = make_worker(database.conn)
    (job,) = claim(database.conn, worker, 1)
    completion = Settlements(
        [(job.id, job.deliveries, job.claim, worker)], ended=[job.claim]
    )
    request = ClaimRequest(worker, LANE, [START], 1, after=job.claim)
    other = held_back(database, "workers", worker)

    answer = exchange_of_worker(impatient, completion, request)
    assert isinstance(answer.claim_error, LockNotAvailable)
    assert (answer.completed, answer.rows(), database.column(JOBS)) == (
        None,
        [],
        [left],
    )

    other.rows("rollback")
    (row,) = exchange_of_worker(impatient, Settlements(), request).rows()
    assert row[1] == left


def test_jobs_are_made_of_their_rows_when_somebody_looks_at_them(
    database: Database, exchange: Exchange
) -> None:
    make_jobs(database.conn, 20)
    first = exchange.run(time.monotonic(), free_slots=12, linger=0.0)
    assert len(first) == 12
    second = exchange.run(time.monotonic(), free_slots=12, linger=0.0)

    assert [job.id for job in (*first, *second)] == database.column(JOBS)
    assert [len(first), len(second)] == [12, 8]
    assert [*second[:3], second[3], *second[4:]] == list(second)


def test_who_claims_first_settles_nothing(
    database: Database, exchange: Exchange
) -> None:
    ids = make_jobs(database.conn, 2)
    (one,) = exchange.run(time.monotonic(), free_slots=1, linger=0.0)
    exchange.completed([(one, 0.1)])

    (two,) = exchange.claim(time.monotonic(), 1)
    assert exchange.is_settling
    assert database.column(JOBS) == [one.id, two.id] == ids

    exchange.run(time.monotonic(), free_slots=0, linger=0.0)
    assert database.column(JOBS) == [two.id]


@pytest.mark.parametrize("settles", [True, False], ids=["after a settlement", "alone"])
def test_a_claim_whose_jobs_cannot_be_read_is_given_back(
    database: Database,
    link: Link,
    identity: Identity,
    exchange: Exchange,
    settles: bool,
) -> None:
    """The next claim read them too, and the worker knew nothing of whose they were: KeyError."""
    ids = make_jobs(database.conn, 40)
    done = (
        list(exchange.run(time.monotonic(), free_slots=20, linger=0.0))
        if settles
        else []
    )
    exchange.completed([(held, 0.1) for held in done])
    first = identity.me
    other = database.transaction(
        "lock table redrive.checkpoints in access exclusive mode"
    )

    assert exchange.run(time.monotonic(), free_slots=20, linger=0.0) == []
    other.rows("rollback")

    assert not exchange.is_settling
    unseen = database.rows("select worker, ids from redrive.claims")
    assert unseen == [(first, ids[len(done) : len(done) + 20])]
    identity.retire(link, [])
    jobs = exchange.run(time.monotonic(), free_slots=40, linger=0.0)
    assert sorted(held.id for held in jobs) == ids[len(done) :]
    assert set(database.column("select worker from redrive.claims")) == {identity.me}


@pytest.mark.parametrize("table", ["lanes", "claims"])
@pytest.mark.parametrize("jobs", [1, 20], ids=["small", "large"])
def test_a_claim_that_the_server_refuses_keeps_the_identity(
    database: Database,
    identity: Identity,
    exchange: Exchange,
    table: LiteralString,
    jobs: int,
) -> None:
    """While a session had locked `lanes`, each try registered the worker again."""
    ids = make_jobs(database.conn, 3 * jobs)
    first = exchange.run(time.monotonic(), free_slots=jobs, linger=0.0)
    exchange.completed([(held, 0.1) for held in first])
    exchange.run(time.monotonic(), free_slots=0, linger=0.0)
    me = identity.me
    other = database.transaction(f"lock table redrive.{table} in access exclusive mode")
    assert exchange.run(time.monotonic(), free_slots=jobs, linger=0.0) == []
    exchange.look_for_lanes()
    other.rows("rollback")

    assert (identity.me, identity.left) == (me, set())
    next_ones = exchange.run(time.monotonic(), free_slots=jobs, linger=0.0)
    assert [held.id for held in next_ones] == ids[jobs : 2 * jobs]


def raise_at(database: Database, trigger: LiteralString, body: LiteralString) -> None:
    """Let a user's trigger do this for each row."""
    database.conn.execute(
        "create function public.refuse() returns trigger language plpgsql security definer"
        f" as $$begin {body} end$$"
    )
    database.conn.execute(
        f"create {trigger} for each row execute function public.refuse()"
    )


@pytest.mark.parametrize(
    ("trigger", "is_settled"),
    [
        ("trigger refuse before delete on redrive.jobs", False),
        (
            "constraint trigger refuse after delete on redrive.jobs deferrable initially deferred",
            False,
        ),
        ("trigger refuse before insert on redrive.claims", True),
    ],
    ids=["settlement", "commit", "claim"],
)
def test_what_is_refused_takes_nothing_with_it_that_was_committed_before(
    database: Database, exchange: Exchange, trigger: LiteralString, is_settled: bool
) -> None:
    ids = make_jobs(database.conn, 20)
    exchange.completed(
        [
            (held, 0.1)
            for held in exchange.run(time.monotonic(), free_slots=5, linger=0.0)
        ]
    )
    raise_at(database, trigger, "raise lock_not_available;")

    assert exchange.run(time.monotonic(), free_slots=5, linger=0.0) == []
    assert exchange.is_settling is not is_settled
    assert database.column(JOBS) == ids[5 * is_settled :]

    database.conn.execute("drop function public.refuse cascade")
    jobs = exchange.run(time.monotonic(), free_slots=5, linger=0.0)
    assert [held.id for held in jobs] == ids[5:10]
    while exchange.is_settling:  # what was set aside
        exchange.run(time.monotonic(), free_slots=0, linger=0.0)
    assert database.column(JOBS) == ids[5:]
    assert database.column("select ids from redrive.claims") == [ids[5:10]]


def test_completions_that_are_refused_end_otherwise_and_all_others_as_they_did(
    database: Database, exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "SEARCH_SECONDS", 60.0)
    ids = make_jobs(database.conn, 40)
    refused = [ids[1], ids[17], ids[18], ids[39]]
    database.conn.execute(
        "update redrive.jobs set idempotency_key = id::text where id = any (%s)",
        (refused,),
    )
    database.conn.execute(
        "alter table redrive.completions add constraint no_keys check (key is null)"
    )
    first, *rest = exchange.run(time.monotonic(), free_slots=40, linger=0.0)
    exchange.completed([(held, 0.1) for held in rest])
    unstorable = failure(message="\0")
    report = Report(
        first.id, first.deliveries, Outcome.RETRY, 3600.0, failure=unstorable
    )
    exchange.ended(first, report)

    exchange.run(time.monotonic(), free_slots=0, linger=0.0)
    assert database.column(JOBS) == sorted([ids[0], *refused])
    assert exchange.is_settling
    exchange.run(time.monotonic(), free_slots=0, linger=0.0)

    assert not exchange.is_settling
    assert database.column(JOBS) == ids[:1]
    assert database.rows("select count(*) from redrive.claims") == [(0,)]
    assert database.rows(
        "select id, message from redrive.dead_letters order by id"
    ) == [
        (
            job,
            "CheckViolation (23514), by constraint no_keys of table redrive.completions",
        )
        for job in refused
    ]


END_SESSION = "perform pg_terminate_backend(pg_backend_pid()); return new;"
REFUSE_WORKERS = (
    "alter table redrive.workers add constraint refuse check (name = '') not valid"
)
MEND_WORKERS = "alter table redrive.workers drop constraint refuse"


def test_a_side_effect_waits_until_the_worker_can_register(
    database: Database, identity: Identity, exchange: Exchange
) -> None:
    make_jobs(database.conn, 1)
    (job,) = exchange.run(time.monotonic(), free_slots=1, linger=0.0)
    exchange.tell(job, SideEffect(job.id, job.deliveries, "card charged", "{}"))
    identity.leave()
    database.conn.execute(REFUSE_WORKERS)

    exchange.run(time.monotonic(), free_slots=0, linger=0.0)
    assert identity.me is None
    database.conn.execute(MEND_WORKERS)
    exchange.run(time.monotonic(), free_slots=0, linger=0.0)

    assert database.column("select what from redrive.side_effects") == ["card charged"]


def test_a_checkpoint_outlives_a_lost_connection_and_a_refused_registration(
    database: Database, identity: Identity, exchange: Exchange
) -> None:
    make_jobs(database.conn, 1)
    (job,) = exchange.run(time.monotonic(), free_slots=1, linger=0.0)
    said: list[bool] = []
    checkpoint = Checkpoint(job.id, job.deliveries, 1, "{}")
    exchange.keep(job, checkpoint, lambda message: said.append(message.is_kept))
    raise_at(
        database, "trigger refuse before insert on redrive.checkpoints", END_SESSION
    )

    exchange.run(time.monotonic(), free_slots=0, linger=0.0)
    assert identity.me is None  # the connection was lost
    database.conn.execute("drop function public.refuse cascade")
    database.conn.execute(REFUSE_WORKERS)
    exchange.run(time.monotonic(), free_slots=0, linger=0.0)
    assert said == []

    database.conn.execute(MEND_WORKERS)
    exchange.run(time.monotonic(), free_slots=0, linger=0.0)
    assert said == [True]


def test_a_report_that_surely_failed_counts_as_stale_if_its_job_is_gone(
    database: Database,
    identity: Identity,
    exchange: Exchange,
    caplog: pytest.LogCaptureFixture,
) -> None:
    make_jobs(database.conn, 1)
    (job,) = exchange.run(time.monotonic(), free_slots=1, linger=0.0)
    raise_at(
        database,
        "trigger refuse before insert on redrive.failures",
        "raise lock_not_available;",
    )
    unstorable = failure(message="\0")
    report = Report(job.id, job.deliveries, Outcome.RETRY, failure=unstorable)
    exchange.ended(job, report)
    exchange.run(time.monotonic(), free_slots=0, linger=0.0)
    assert exchange.is_held_up
    assert identity.me is not None
    retire(database.conn, identity.me, [])

    while exchange.is_settling:  # what was set aside
        exchange.run(time.monotonic(), free_slots=0, linger=0.0)

    assert [
        record.message for record in caplog.records if "stale" in record.message
    ] == ["stale settlement refused"]


def test_the_identity_is_left_if_the_link_is_lost_at_a_report_in_another_form(
    database: Database, identity: Identity, exchange: Exchange
) -> None:
    make_jobs(database.conn, 1)
    (job,) = exchange.run(time.monotonic(), free_slots=1, linger=0.0)
    raise_at(database, "trigger refuse before insert on redrive.failures", END_SESSION)
    unstorable = failure(message="\0")
    report = Report(job.id, job.deliveries, Outcome.RETRY, failure=unstorable)
    exchange.ended(job, report)

    exchange.run(time.monotonic(), free_slots=0, linger=0.0)

    assert exchange.is_held_up
    assert identity.left == {job.worker}


def test_jobs_that_are_made_late_outlive_their_connection_and_are_kept_once(
    database: Database, link: Link, exchange: Exchange
) -> None:
    ids = make_jobs(database.conn, 50)
    jobs = exchange.run(time.monotonic(), free_slots=50, linger=0.0)
    held_by = answers(link)
    link.close()

    assert held_by
    assert [held.id for held in jobs] == ids
    assert not held_by, "they are in memory twice while they are handed out"


@pytest.mark.parametrize("is_reported", [False, True])
def test_a_job_is_settled_beside_one_that_had_its_id_before_a_restore(
    database: Database, is_reported: bool
) -> None:
    """The settlement was refused, because that of the earlier job counted. Its claim ended, and
    the job ran again.
    """
    conn = database.conn
    make_jobs(conn, 1)
    identity = make_worker(conn)
    job = claim_one(conn, identity)
    later = held(job, identity, job.claim)
    # the numbers of claims were higher before the restore
    earlier = held(job, identity - 1, job.claim + 100)
    jobs = [later, earlier]
    report = Report(job.id, job.deliveries, Outcome.RELEASE)
    batch = SettlementBatch(
        [] if is_reported else jobs,
        [(report, one) for one in jobs] if is_reported else [],
    )

    answer = exchange_of_worker(conn, batch.columns(batch.claims(), identity), None)

    assert set(answer.settled if is_reported else answer.completed or ()) == {job.id}
    assert database.column("select id from redrive.claims") == []
    assert database.column("select deliveries from redrive.jobs") == [1] * is_reported


def held(job: Claimed, identity: int, number: int) -> ClaimedJob:
    """The job as the supervisor knows it, in a claim of this number."""
    lane = LaneClaim(1, 1, job.run_at, job.id, number, number)
    row = (number, job.id, job.deliveries, 1, job.kind, "{}", None, job.run_at, 0.0)
    return held_from(Batch(identity, ["default"]), [lane], [row])[0]
