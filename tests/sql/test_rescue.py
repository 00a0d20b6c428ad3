"""rescue_v1 and unpark_v1: what happens to the jobs of a worker that is no more."""

import json
from collections.abc import Sequence
from concurrent.futures import wait
from datetime import timedelta

import psycopg
import pytest

from redrive.worker import store
from tests.factories import (
    claim,
    claim_one,
    complete,
    failure,
    holders,
    let_next_die,
    make_full_job,
    make_job,
    make_jobs,
    make_worker,
    redrive,
    settle,
    silence,
    totals,
)
from tests.postgres import Connection, Database, Session
from tests.sql.test_hot import Cost

NOBODY = (0, 0, 0)
TTL = timedelta(minutes=1)


def rescue(conn: Connection, ttl: timedelta = TTL) -> tuple[int, int, int]:
    return store.rescue(conn, ttl.total_seconds())


def test_a_worker_that_beats_keeps_its_jobs(database: Database) -> None:
    make_jobs(database.conn, 3)
    worker = make_worker(database.conn)
    jobs = claim(database.conn, worker)
    silence(database.conn, worker)
    assert store.beat(database.conn, {worker: 3}).alive == {worker}

    assert rescue(database.conn) == NOBODY
    assert complete(database.conn, worker, *jobs) == {job.id for job in jobs}


def test_the_jobs_of_a_silent_worker_are_waiting_again(database: Database) -> None:
    make_jobs(database.conn, 3)
    lost = make_worker(database.conn, "lost")
    alive = make_worker(database.conn, "alive")
    jobs = claim(database.conn, lost, 2)
    (held,) = claim(database.conn, alive)
    silence(database.conn, lost)
    (before,) = database.row("select clock_timestamp()")

    assert rescue(database.conn) == (1, 2, 0)

    assert holders(database.conn) == {held.id: alive}
    assert database.rows(
        "select id, deliveries, attempt, losses, streak, fingerprint, failed_at >= %s,"
        " run_at >= %s"
        " from redrive.jobs where id <> %s order by id",
        before,
        before,
        held.id,
    ) == [(job.id, 1, 0, 1, 1, "worker-lost", True, True) for job in jobs]
    assert database.rows(
        "select job, deliveries, worker, error_class, category from redrive.failures order by job"
    ) == [(job.id, 1, "lost", "WorkerLost", "lost") for job in jobs]
    assert database.column("select id from redrive.workers") == [alive]
    assert totals(database.conn) == {"enqueued": 3, "claimed": 3, "rescued": 2}
    assert complete(database.conn, lost, *jobs) == set()
    assert complete(database.conn, alive, held) == {held.id}


def test_a_worker_is_lost_only_after_its_ttl(database: Database) -> None:
    silence(database.conn, make_worker(database.conn), 29)
    database.conn.execute("select set_config('redrive.any', '', false)")

    assert rescue(database.conn, timedelta(seconds=30)) == NOBODY
    assert database.column("select lost_at from redrive.workers") == [None]


def test_a_worker_is_judged_by_its_own_ttl_and_not_by_its_rescuers(
    database: Database,
) -> None:
    """A worker with a ttl of 5 s took running jobs from a healthy one with a ttl of 60 s."""
    make_jobs(database.conn, 2)
    patient = make_worker(database.conn, "patient", ttl=60)
    hasty = make_worker(database.conn, "hasty", ttl=0.1)
    (job,), _ = claim(database.conn, patient, 1), claim(database.conn, hasty, 1)
    silence(database.conn, patient, 10)
    silence(database.conn, hasty, 10)

    assert rescue(database.conn) == (1, 1, 0)
    assert rescue(database.conn, timedelta(hours=1)) == NOBODY
    assert complete(database.conn, patient, job) == {job.id}


def test_a_lost_worker_is_told_at_its_next_beat(database: Database) -> None:
    make_job(database.conn)
    worker, other = make_worker(database.conn), make_worker(database.conn, "other")
    claim_one(database.conn, worker)
    silence(database.conn, worker)
    rescue(database.conn)

    assert store.beat(database.conn, {worker: 1, other: 0}).alive == {other}


def lose(
    database: Database, *, name: str = "lost", progress: str | None = None
) -> tuple[int, int, int]:
    """Let a worker claim all there is, say how far it is, and be lost. Returns what rescue did."""
    worker = make_worker(database.conn, name)
    claim(database.conn, worker, 1000)
    said = {worker: progress} if progress else None
    store.beat(database.conn, {worker: 1}, said)
    silence(database.conn, worker)
    return rescue(database.conn)


def running(
    seconds: float, *jobs: int, waiting: Sequence[int] = (), slots: int = 1
) -> str:
    """The progress of a worker."""
    begun = {str(job): seconds for job in jobs}
    return json.dumps({"slots": slots, "running": begun, "waiting": [list(waiting)]})


def run_alone(database: Database, worker: int) -> None:
    """Note that the one job that is claimed has its worker to itself."""
    (job,) = holders(database.conn)
    store.run_alone(database.conn, worker, job)


def test_a_job_is_dead_only_if_its_worker_was_lost_while_it_ran_alone(
    database: Database,
) -> None:
    """No number of lost workers makes a job die that did not run alone in them."""
    job_id = make_job(database.conn, payload={"n": 1}, queue="q", idempotency_key="k")
    for losses in range(1, 6):
        assert lose(database, name=f"w{losses}") == (1, 1, 0)
        assert database.row("select losses, attempt from redrive.jobs") == (losses, 0)
    worker = make_worker(database.conn, "alone")
    other = make_worker(database.conn, "other")
    (job,) = claim(database.conn, worker)
    assert store.run_alone(database.conn, worker, job.id) == 30, (
        "the ttl: nobody saw it run"
    )
    silence(database.conn, worker)
    assert rescue(database.conn) == (1, 0, 1)

    assert database.rows(
        "select id, reason, category, error_class, fingerprint, attempts, deliveries, losses,"
        " state, payload, queue,"
        " idempotency_key, first_failed_at = (select min(at) from redrive.failures)"
        " from redrive.dead_letters"
    ) == [
        (
            job_id,
            "killed_worker",
            "lost",
            "WorkerLost",
            "worker-lost",
            1,
            6,
            6,
            "open",
            {"n": 1},
            "q",
            "k",
            True,
        )
    ]
    assert database.rows(
        "select deliveries, worker from redrive.failures order by deliveries"
    ) == [*((n, f"w{n}") for n in range(1, 6)), (6, "alone")]
    assert database.value("select count(*) from redrive.jobs") == 0
    assert totals(database.conn) == {
        "enqueued": 1,
        "claimed": 6,
        "rescued": 5,
        "dead": 1,
    }
    assert database.column("select id from redrive.workers") == [other]


def test_a_worker_that_is_back_takes_back_what_its_jobs_were_charged(
    database: Database,
) -> None:
    """Three pauses past the ttl made a job run alone, and buried it at the next one."""
    job = make_job(database.conn)
    lose(database)
    lose(database)

    assert store.forgive(database.conn, [(job, 2), (job, 9), (job + 1, 1)]) == [job]
    assert store.forgive(database.conn, [(job, 2)]) == [], "each loss once"
    assert database.row("select losses, attempt from redrive.jobs") == (1, 0)
    recorded = "select deliveries, category from redrive.failures order by deliveries"
    assert database.rows(recorded) == [(1, "lost"), (2, "transient")]
    assert store.run_alone(database.conn, make_worker(database.conn), job) == 30, (
        "the first one's"
    )


def test_a_job_that_is_silent_with_its_worker_again_and_again_is_charged_in_the_end(
    database: Database,
) -> None:
    job = make_job(database.conn)
    seen = []
    for delivery in range(1, 12):
        lose(database)
        store.forgive(database.conn, [(job, delivery)])
        seen.append(database.value("select losses from redrive.jobs"))

    assert seen == [0] * 10 + [1]


@pytest.mark.parametrize("needs_two", [False, True])
def test_a_job_that_died_over_a_worker_that_is_back_goes_back_to_work(
    database: Database, needs_two: bool
) -> None:
    job = make_job(database.conn, kind="k")
    worker = make_worker(database.conn)
    claim_one(database.conn, worker)
    run_alone(database, worker)
    silence(database.conn, worker)
    assert rescue(database.conn) == (1, 0, 1)
    if needs_two:
        database.conn.execute("select redrive.say_approvals_v1('{k}', '{k}')")
    store.forgive(database.conn, [(job, 1)])

    assert database.column("select losses from redrive.jobs") == (
        [] if needs_two else [0]
    )
    assert database.value("select state from redrive.dead_letters") == (
        "open" if needs_two else "redriven"
    )
    assert database.rows("select actor, action, n from redrive.audit order by id") == [
        ("redrive", action, 1) for action in ("redrive", "end redrive") if not needs_two
    ]


def test_a_purge_and_a_worker_that_is_back_never_wait_in_a_circle(
    database: Database,
) -> None:
    """One had the dead letter and wanted its failures, the other had these and wanted that."""
    job = make_job(database.conn, kind="k")
    worker = make_worker(database.conn)
    claim_one(database.conn, worker)
    run_alone(database, worker)
    silence(database.conn, worker)
    rescue(database.conn)
    back, purger = database.session(), database.session()
    reader = database.transaction("select from redrive.failures for update")
    forgiven = back.start(lambda: store.forgive(back.conn, [(job, 1)]))
    database.wait_until_blocked(back)
    purged = purger.start(
        lambda: purger.value(
            "select redrive.purge_v1(null, %s, '{0}', '{open}')", [job]
        )
    )
    # where it does not leave out what the other has, it waits for the reader, too
    while not purged.done() and not database.column(
        "select 1 from pg_locks where pid = %s and not granted", purger.pid
    ):
        pass
    reader.rows("commit")

    assert forgiven.result(60) == [job]
    assert purged.result(60) == 0
    assert database.column("select state from redrive.dead_letters") == ["redriven"]


def test_a_note_that_was_taken_back_proves_nothing(database: Database) -> None:
    job_id = make_job(database.conn)
    worker = make_worker(database.conn)
    claim_one(database.conn, worker)
    store.run_alone(database.conn, worker, job_id)
    assert store.run_alone(database.conn, worker, None) is not None
    silence(database.conn, worker)

    assert rescue(database.conn) == (1, 1, 0)
    assert store.run_alone(database.conn, worker, job_id) is None, (
        "it was declared lost"
    )


def test_only_jobs_that_may_have_started_are_charged_for_a_lost_worker(
    database: Database,
) -> None:
    """Of two slots and eight jobs waiting one ended since the beat; so at most three of them
    began, and the ninth and tenth, claimed after the beat, may have.
    """
    jobs = make_jobs(database.conn, 12)
    worker = make_worker(database.conn)
    claimed = claim(database.conn, worker, 12)
    progress = running(3, *jobs[:2], waiting=jobs[2:10], slots=2)
    store.beat(database.conn, {worker: 12}, {worker: progress})
    complete(database.conn, worker, claimed[0])
    silence(database.conn, worker)
    assert rescue(database.conn) == (1, 11, 0)

    charged = "select id from redrive.jobs where losses = 1 order by id"
    assert database.column(charged) == [*jobs[1:5], *jobs[10:]]
    assert database.column("select distinct attempt from redrive.jobs") == [0]
    assert database.column("select job from redrive.failures order by job") == [
        *jobs[1:5],
        *jobs[10:],
    ]
    assert (
        database.value("select count(*) from redrive.jobs where failed_at is null") == 5
    )


def test_a_rescue_takes_no_more_workers_once_it_has_thousands_of_jobs(
    database: Database,
) -> None:
    """A rescue of thousands of jobs compared each with each, and ran into its timeout.

    Then it was rolled back, and the next one did the same. The jobs stayed with lost workers.
    """
    conn, held = database.conn, 1500
    jobs = make_jobs(conn, 3 * held)
    workers = [make_worker(conn, name) for name in ("one", "two", "three")]
    for n, worker in enumerate(workers):
        claim(conn, worker, held)
        waiting = jobs[n * held + 2 : (n + 1) * held]
        progress = running(3, *jobs[n * held : n * held + 2], waiting=waiting, slots=2)
        store.beat(conn, {worker: held}, {worker: progress})
        silence(conn, worker)

    assert rescue(conn) == (2, 2 * held, 0)
    assert rescue(conn) == (1, held, 0)
    assert rescue(conn) == NOBODY
    charged = database.column(
        "select id from redrive.jobs where losses = 1 order by id"
    )
    assert charged == [job for n in range(3) for job in jobs[n * held :][:4]]


def test_a_rescue_reads_as_much_for_each_job_of_2000_as_of_500(
    database: Database,
) -> None:
    """Also to judge them: most had not started, by the last beat of their worker."""
    conn, session, blocks = database.conn, database.session(), list[float]()
    for held in (10, 500, 2000):  # the first one reads the catalog, too
        worker = make_worker(conn, f"holds {held}")
        jobs = make_jobs(conn, held)
        assert len(claim(conn, worker, held)) == held
        progress = running(3, jobs[0], waiting=jobs[1:])
        store.beat(conn, {worker: held}, {worker: progress})
        silence(conn, worker)
        with Cost(session) as cost:
            assert rescue(session.conn) == (1, held, 0)
        store.retire(conn, worker)
        conn.execute("update redrive.jobs set run_at = run_at + interval '1 day'")
        blocks.append(cost.blocks / held)

    assert blocks[2] < 1.1 * blocks[1], blocks


def test_losses_begin_anew_with_a_run_that_outlasted_them(database: Database) -> None:
    """`losses` was for life."""
    job = make_job(database.conn)
    seen = []
    for seconds in (5, 20, 30, 36, 36, 67):
        assert lose(database, progress=running(seconds, job)) == (1, 1, 0)
        seen.append(database.value("select losses from redrive.jobs"))

    assert seen == [1, 2, 3, 4, 5, 1], (
        "never lost after more than 66 s before: 36, and the ttl"
    )


def test_losses_of_more_than_a_day_ago_count_no_more(database: Database) -> None:
    """A job that snoozes for weeks died at its third lost node."""
    make_job(database.conn)
    lose(database)
    lose(database)
    database.conn.execute(
        "update redrive.jobs set failed_at = now() - interval '25 hours'"
    )
    worker = make_worker(database.conn)

    assert claim_one(database.conn, worker).more["losses"] == 0
    silence(database.conn, worker)
    rescue(database.conn)
    assert database.value("select losses from redrive.jobs") == 1


def test_a_rescued_dead_letter_has_every_field_of_its_job(database: Database) -> None:
    make_full_job(database.conn)
    worker = make_worker(database.conn)
    claim_one(database.conn, worker)
    row = database.value("select to_jsonb(j) from redrive.jobs j")
    run_alone(database, worker)
    silence(database.conn, worker)
    assert rescue(database.conn) == (1, 0, 1)
    letter = database.value("select to_jsonb(d) from redrive.dead_letters d")

    left_behind = {
        "worker",
        "run_at",
        "streak",
        "refunds",
        "failed_at",
        "noted",
        "limits",
        "losses",
        "fingerprint",
    }
    for column in row.keys() - left_behind:
        raised = column in {"attempt", "deliveries"}
        now = letter[{"attempt": "attempts"}.get(column, column)]
        assert now == (row[column] + 1 if raised else row[column]), column


def test_a_redriven_job_that_kills_its_worker_died_again(database: Database) -> None:
    make_job(database.conn)
    worker = make_worker(database.conn)
    job = claim_one(database.conn, worker)
    settle(
        database.conn, worker, job, "dead", reason="not_retryable", failure=failure()
    )
    redrive(database.conn, [job.id])
    claim_one(database.conn, worker)
    run_alone(database, worker)
    silence(database.conn, worker)
    assert rescue(database.conn) == (1, 0, 1)

    assert database.rows(
        "select redrives, state, outcome from redrive.dead_letters order by redrives"
    ) == [(0, "redriven", "dead_again"), (1, "open", None)]


def test_a_job_locked_by_its_handler_stays_and_comes_back_with_the_next_sweep(
    database: Database,
) -> None:
    first, second = make_jobs(database.conn, 2)
    worker = make_worker(database.conn)
    claim(database.conn, worker)
    handler = database.transaction(
        "select from redrive.jobs where id = %s for update", first
    )
    silence(database.conn, worker)
    sweeper = database.session(lock_timeout="1ms")

    assert rescue(sweeper.conn) == (1, 1, 0)
    assert holders(database.conn) == {first: worker}
    assert database.rows("select id from redrive.jobs where losses = 1") == [(second,)]
    assert database.value("select lost_at is not null from redrive.workers"), (
        "and claims nothing more"
    )
    assert rescue(sweeper.conn) == (1, 0, 0)
    handler.rows("rollback")
    assert rescue(sweeper.conn) == (1, 1, 0)
    assert database.rows("select id from redrive.workers") == []
    assert rescue(sweeper.conn) == NOBODY


def test_a_handler_that_completes_in_its_transaction_while_its_worker_is_rescued_wins(
    database: Database,
) -> None:
    make_job(database.conn)
    worker = make_worker(database.conn)
    job = claim_one(database.conn, worker)
    handler = database.transaction()
    complete(handler.conn, worker, job)
    silence(database.conn, worker)
    assert rescue(database.conn) == (1, 0, 0)
    handler.rows("commit")

    assert rescue(database.conn) == (1, 0, 0)
    assert database.value("select count(*) from redrive.jobs") == 0
    assert database.value("select count(*) from redrive.workers") == 0
    assert totals(database.conn) == {"enqueued": 1, "claimed": 1, "completed": 1}


def test_a_worker_in_the_middle_of_a_claim_is_not_lost_yet(database: Database) -> None:
    make_job(database.conn)
    worker = make_worker(database.conn)
    silence(database.conn, worker)
    claiming, sweeper = database.transaction(), database.session(lock_timeout="1ms")
    claim_one(claiming.conn, worker)

    assert rescue(sweeper.conn) == NOBODY
    assert database.column("select lost_at from redrive.workers") == [None], (
        "nor is it told so"
    )
    claiming.rows("commit")
    assert rescue(sweeper.conn) == (1, 1, 0)


def test_a_claim_that_waits_for_a_rescue_of_its_worker_gets_nothing(
    database: Database,
) -> None:
    make_jobs(database.conn, 2)
    worker = make_worker(database.conn)
    claim_one(database.conn, worker)
    silence(database.conn, worker)
    sweeper, claiming = database.transaction(), database.session()
    assert rescue(sweeper.conn) == (1, 1, 0)

    waiting = database.start_blocked(
        claiming, lambda: claim(claiming.conn, worker), by=sweeper
    )
    sweeper.rows("commit")

    assert waiting.result(60) == []
    assert holders(database.conn) == {}


def test_eight_sweepers_rescue_each_job_once(database: Database) -> None:
    make_jobs(database.conn, 300)
    for n in range(30):
        worker = make_worker(database.conn, f"w{n}")
        assert len(claim(database.conn, worker, 10)) == 10
        silence(database.conn, worker)
    sessions = [database.session() for _ in range(8)]
    found: list[tuple[int, int, int]] = []

    def sweep(session: Session) -> None:
        while (rescued := rescue(session.conn))[1]:
            found.append(rescued)

    wait([s.start(lambda s=s: sweep(s)) for s in sessions])
    while rescue(database.conn)[0]:
        pass

    assert database.value("select count(*) from redrive.jobs where losses = 1") == 300
    assert totals(database.conn)["rescued"] == 300
    assert sum(rescued for _, rescued, _ in found) <= 300


def test_a_rescue_that_is_refused_for_one_job_takes_back_all_others(
    database: Database,
) -> None:
    """A job could not die, for its row was wanted, and no job of its worker was taken back."""
    ids = make_jobs(database.conn, 5)
    worker = make_worker(database.conn)
    claim(database.conn, worker, 5)
    database.rows("update redrive.workers set alone = %s where id = %s", ids[2], worker)
    database.conn.execute(
        "create table public.invoices (job bigint references redrive.jobs (id))"
    )
    database.rows("insert into public.invoices values (%s)", ids[2])
    silence(database.conn, worker)

    assert rescue(database.conn)[1:] == (4, 0)
    assert holders(database.conn) == {}
    assert database.column("select id from redrive.workers") == []
    assert database.rows(
        "select id, attempt, deliveries, losses, run_at > now() + interval '50 s'"
        " from redrive.jobs order by id"
    ) == [(job, 0, 1, int(job != ids[2]), job == ids[2]) for job in ids]


# Unpark


def test_unpark_wakes_the_head_of_each_key_that_waits_for_nobody(
    database: Database,
) -> None:
    heads = [make_job(database.conn, ordering_key=f"k{n}") for n in range(3)]
    seconds = [make_job(database.conn, ordering_key=f"k{n}") for n in range(3)]
    worker = make_worker(database.conn)
    claim(database.conn, worker, 1)
    database.rows("delete from redrive.jobs where id = any (%s)", heads[1:])

    assert store.unpark(database.conn) == 2
    assert database.rows(
        "select id, isfinite(run_at) from redrive.jobs order by id"
    ) == [(heads[0], True), (seconds[0], False), (seconds[1], True), (seconds[2], True)]
    assert store.unpark(database.conn) == 0


def test_unpark_leaves_a_redriven_head_parked_while_a_younger_job_of_its_key_runs(
    database: Database,
) -> None:
    first, second = (make_job(database.conn, ordering_key="k") for _ in range(2))
    worker = make_worker(database.conn)
    let_next_die(database.conn, worker)
    running = claim_one(database.conn, worker)
    redrive(database.conn, [first])

    assert store.unpark(database.conn) == 0
    assert claim(database.conn, worker) == []
    database.rows("delete from redrive.jobs where id = %s", second)
    assert running.id == second
    assert store.unpark(database.conn) == 1
    assert claim_one(database.conn, worker).id == first


def test_a_redriven_job_goes_before_a_younger_one_of_its_key_that_waits(
    database: Database,
) -> None:
    """It was parked behind it, and a parked job keeps nobody waiting."""
    first, second = (make_job(database.conn, ordering_key="k") for _ in range(2))
    worker = make_worker(database.conn)
    let_next_die(database.conn, worker)
    redrive(database.conn, [first])

    job = claim_one(database.conn, worker)
    assert job.id == first
    assert claim(database.conn, worker) == []
    complete(database.conn, worker, job)
    assert claim_one(database.conn, worker).id == second


def test_a_rescue_that_dead_letters_the_head_of_a_key_wakes_the_next(
    database: Database,
) -> None:
    """At once, without an unpark."""
    _, second = (make_job(database.conn, ordering_key="k") for _ in range(2))
    worker, next_worker = make_worker(database.conn), make_worker(database.conn, "next")
    claim_one(database.conn, worker)
    run_alone(database, worker)
    silence(database.conn, worker)
    assert rescue(database.conn) == (1, 0, 1)

    assert claim_one(database.conn, next_worker).id == second


def test_a_lost_job_keeps_its_place_in_the_key(database: Database) -> None:
    first, _ = (make_job(database.conn, ordering_key="k") for _ in range(2))
    worker, next_worker = make_worker(database.conn), make_worker(database.conn, "next")
    claim_one(database.conn, worker)
    silence(database.conn, worker)
    rescue(database.conn)

    assert [job.id for job in claim(database.conn, next_worker)] == [first]


@pytest.mark.parametrize(
    "statement",
    ["insert into redrive.workers (id, name) overriding system value values (1, 'x')"],
)
def test_a_worker_id_is_never_used_twice(database: Database, statement: str) -> None:
    """A job of a retired worker could otherwise be taken for one of the new worker's."""
    used: set[int] = set()
    for _ in range(50):
        worker = make_worker(database.conn)
        store.retire(database.conn, worker)
        used.add(worker)

    assert len(used) == 50
    assert min(used) > 0
    with pytest.raises(psycopg.Error):
        database.connect("redrive_worker").execute(statement)  # type: ignore[arg-type]
