"""Which job runs when: ordering keys, priorities, paused queues, idempotency."""

import contextlib
import os
import signal

from redrive import enqueue
from redrive.enqueue import enqueue_many, enqueue_reporting
from tests.factories import redrive
from tests.flow import look
from tests.flow.harness import Workers, kill, wait_for
from tests.postgres import Database


def test_jobs_of_one_ordering_key_run_one_after_another_in_order(
    database: Database, workers: Workers
):
    keys = ["a", "b", "c"]
    ids = {key: [] for key in keys}
    for n in range(8):
        for key in keys:
            kind, payload = (
                ("fail.until", {"attempt": 2})
                if n % 3 == 1
                else ("work.sync", {"seconds": 0.02})
            )
            ids[key].append(enqueue(database.conn, kind, payload, ordering_key=key))
    for _ in range(2):
        workers("--slots", "8", "--runners", "1")
    wait_for(lambda: look.live(database) == 0)
    ledger = workers.ledger()

    for key in keys:
        mine = [entry for entry in ledger if entry.job in ids[key]]
        ends = [entry.job for entry in mine if entry.phase == "end"]

        assert ends == ids[key]
        # between the first start of a job and its end nothing else of its key starts
        for job in ids[key]:
            first = next(i for i, e in enumerate(mine) if e.job == job)
            last = next(
                i for i, e in enumerate(mine) if e.job == job and e.phase == "end"
            )
            assert {e.job for e in mine[first : last + 1]} == {job}
    assert look.reasons(database) == {}


def test_a_worker_with_no_job_waits_for_its_turn_in_a_lane(
    database: Database, workers: Workers
):
    """The server knows whom it waits for, and lets it go on."""
    enqueue(database.conn, "work.sync")
    workers("--slots", "2", "--runners", "1")
    wait_for(lambda: look.live(database) == 0)
    claimer = database.session()
    claimer.rows("begin")
    claimer.rows("select from redrive.lanes for update")
    job = enqueue(database.conn, "work.sync")
    wait_for(
        lambda: database.rows(
            "select from pg_stat_activity where application_name = 'redrive worker'"
            " and %s = any (pg_blocking_pids(pid))",
            claimer.pid,
        )
    )
    assert not [entry for entry in workers.ledger() if entry.job == job]
    claimer.rows("commit")
    wait_for(lambda: look.live(database) == 0)


def test_an_ordering_key_keeps_its_order_when_its_runner_is_killed(
    database: Database, workers: Workers
):
    ids = [
        enqueue(database.conn, "work.sync", {"seconds": 0.15}, ordering_key="k")
        for _ in range(12)
    ]
    worker = workers("--slots", "4", "--runners", "2").wait_ready()
    for n in (1, 4, 7):
        wait_for(lambda n=n: len({e.job for e in workers.ledger()}) > n)
        for runner in worker.runners:
            with contextlib.suppress(ProcessLookupError):  # one of the last time
                os.kill(runner, signal.SIGKILL)
    wait_for(lambda: look.live(database) == 0)
    ends = [entry.job for entry in workers.ledger() if entry.phase == "end"]
    last_ends = list(dict.fromkeys(reversed(ends)))[::-1]

    assert last_ends == ids
    assert look.reasons(database) == {}


def test_a_key_whose_head_died_goes_on_with_the_next(
    database: Database, workers: Workers
):
    first = enqueue(database.conn, "fail.bug", ordering_key="k")
    second = enqueue(database.conn, "work.sync", ordering_key="k")
    workers.run()

    assert (list(look.reasons(database)), len(workers.starts(second))) == ([first], 1)


def test_a_key_whose_head_died_waits_for_its_redrive(
    database: Database, workers: Workers
):
    """With `on_death="hold"`, whoever had the job when it died, and whoever was killed."""
    keys = ["a", "b", "c"]
    ids = {
        key: [
            enqueue(database.conn, "fail.in-order", {"seconds": 0.2}, ordering_key=key),
            *(enqueue(database.conn, "work.sync", ordering_key=key) for _ in range(3)),
        ]
        for key in keys
    }
    heads = [jobs[0] for jobs in ids.values()]
    loser, _ = (workers("--slots", "2").wait_ready() for _ in range(2))
    wait_for(workers.ledger)
    kill(database, loser)
    wait_for(lambda: look.reasons(database).keys() == set(heads))
    free = enqueue(database.conn, "work.sync", ordering_key="free")
    wait_for(lambda: workers.starts(free))
    assert {entry.job for entry in workers.ledger()} == {*heads, free}

    database.value("select redrive.dismiss_v1(%s, 'ada', 'not wanted')", heads[:1])
    wait_for(lambda: look.live(database) == 6)
    redrive(database.conn, heads[1:])
    wait_for(lambda: look.live(database) == 0)
    ends = [entry.job for entry in workers.ledger() if entry.phase == "end"]

    assert [job for job in ends if job in ids["a"]] == ids["a"][1:]
    for key in keys[1:]:
        assert [job for job in ends if job in ids[key]] == ids[key]


def test_what_is_urgent_runs_first(database: Database, workers: Workers):
    by_priority = [
        (p, enqueue(database.conn, "work.sync", {"seconds": 0.02}, priority=p))
        for p in (5, 0, -5) * 4
    ]
    workers.run("--slots", "1")
    order = [entry.job for entry in workers.ledger() if entry.phase == "start"]
    ranks = [{job: p for p, job in by_priority}[job] for job in order]

    assert ranks == sorted(ranks)


def test_a_queue_that_is_paused_while_it_is_full_stops(
    database: Database, workers: Workers
):
    """A worker kept each lane that still gave it jobs, and so the pause had no end."""
    enqueue_many(
        database.conn,
        [{"kind": "work.sync", "payload": {"seconds": 0.02}} for _ in range(5_000)],
    )
    workers("--slots", "4", "--runners", "1")
    wait_for(lambda: look.live(database) < 4_900)
    database.value("select redrive.pause_v1('default', 'ada', 'the provider is down')")

    wait_for(lambda: database.value("select count(*) from redrive.claims") == 0)
    left = look.live(database)

    assert left > 500


def test_a_paused_queue_is_left_alone_until_it_is_resumed(
    database: Database, workers: Workers
):
    database.value("select redrive.pause_v1('mail', 'ada', 'the provider is down')")
    paused = enqueue(database.conn, "work.sync", queue="mail")
    other = enqueue(database.conn, "work.sync")
    workers()
    wait_for(lambda: workers.starts(other))
    assert workers.starts(paused) == []

    database.value("select redrive.resume_v1('mail', 'ada', 'it is back')")
    wait_for(lambda: workers.starts(paused))


def test_a_worker_serves_only_the_queues_it_was_given(
    database: Database, workers: Workers
):
    mine = [enqueue(database.conn, "work.sync", queue=queue) for queue in ("a", "b")]
    other = enqueue(database.conn, "work.sync", queue="c")
    workers.run("--queue", "a", "--queue", "b")

    assert [len(workers.starts(job)) for job in (*mine, other)] == [1, 1, 0]


def test_a_key_runs_once_however_often_it_is_enqueued(
    database: Database, workers: Workers
):
    first = enqueue_reporting(database.conn, "work.sync", idempotency_key="k")
    while_live = enqueue_reporting(database.conn, "work.sync", idempotency_key="k")
    workers.run()
    after = enqueue_reporting(database.conn, "work.sync", idempotency_key="k")
    workers.run()

    assert (while_live.id, while_live.created, while_live.outcome) == (
        first.id,
        False,
        "live",
    )
    assert (after.id, after.created, after.outcome) == (first.id, False, "succeeded")
    assert len(workers.ledger()) == 2
