"""A timeout is hard: whatever a handler does with its time, its slot comes back and the heart goes
on beating.
"""

import os

import pytest

from redrive import enqueue
from tests.flow import look
from tests.flow.harness import Workers, wait_for
from tests.postgres import Database

TTL = 8
HANGING = [
    "hang.async",
    "hang.async-deaf",
    "hang.async-blocking",
    "hang.sync",
    "hang.sync-deaf",
    "hang.c",
]


def test_an_attempt_that_outlives_its_timeout_is_ended_however_it_hangs(
    database: Database, workers: Workers
):
    hanging = {kind: enqueue(database.conn, kind) for kind in HANGING}
    worker = workers("--slots", "8")
    wait_for(lambda: len(look.reasons(database)) == len(HANGING))
    after = enqueue(database.conn, "work.sync")
    wait_for(lambda: workers.starts(after))

    assert {
        kind: look.dead(database, job)[:3] for kind, job in hanging.items()
    } == dict.fromkeys(HANGING, ("attempts_exhausted", "lost", "DeadlineExceeded"))
    # Each started once: a runner killed for one that hangs gives the others back.
    assert [look.dead(database, job).attempts for job in hanging.values()] == [1] * len(
        HANGING
    )
    assert worker.process.poll() is None


def test_neighbours_of_a_hanging_job_are_not_charged_for_it(
    database: Database, workers: Workers
):
    innocent = [
        enqueue(database.conn, "work.sync", {"seconds": 2}, max_attempts=2)
        for _ in range(3)
    ]
    guilty = enqueue(database.conn, "hang.sync")
    worker = workers("--slots", "4")

    wait_for(lambda: look.live(database) == 0)

    assert look.reasons(database) == {guilty: "attempts_exhausted"}
    (death,) = [each for each in worker.events() if each["event"] == "runner died"]
    assert death["cause"] == "deadline"
    assert [death["pid"]] == [each.pid for each in workers.starts(guilty)]
    assert {e.attempt for job in innocent for e in workers.starts(job)} == {1}
    assert look.counted(database)["completed"] == 3


@pytest.mark.slow
def test_a_handler_that_holds_the_interpreter_does_not_silence_the_heart(
    database: Database, workers: Workers
):
    os.mkfifo(workers.home / "gil")
    job = enqueue(database.conn, "hang.gil")
    for _ in range(2):
        workers(redrive_heartbeat_ttl=TTL)
    wait_for(lambda: workers.starts(job))
    began = database.value("select clock_timestamp()")
    beaten = "select min(seen_at) - %s > %s * interval '1 second' from redrive.workers"
    wait_for(lambda: database.value(beaten, began, TTL))
    (workers.home / "gil").open("wb").close()

    wait_for(lambda: look.live(database) == 0)

    assert len(workers.starts(job)) == 1
    assert look.letters(database) == {}
    assert look.counted(database) == {"enqueued": 1, "claimed": 1, "completed": 1}
