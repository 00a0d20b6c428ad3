"""What becomes of a batch becomes of no other: see bystanders."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from redrive.batches import close_batch, open_batch
from redrive.enqueue import enqueue
from tests.factories import claim, complete, let_die, make_job, make_worker, redrive
from tests.postgres import Database
from tests.sql.bystanders import changed, touched
from tests.sql.test_bystanders_limits import hasty, holding

SUCCESS: Any = {"kind": "succeeded", "queue": "a"}
END: Any = {"kind": "ended", "queue": "b"}
FOLD = "select redrive.fold_batches_v1(%s)"
DELTAS = "select batch, total, succeeded, dead from redrive.batch_deltas order by batch"


def make_batches(database: Database, count: int, jobs: int = 1) -> list[int]:
    """Open batches that have jobs and both callbacks. Returns their numbers."""
    batches = [
        open_batch(database.conn, on_success=SUCCESS, on_end=END) for _ in range(count)
    ]
    for batch in batches:
        for _ in range(jobs):
            enqueue(database.conn, "page", batch=batch)
    return batches


def fold(database: Database, batches: int = 9) -> int:
    return database.value(FOLD, batches)


def of_batches(database: Database, act: Callable[[], Any]) -> set[int]:
    """Which of them were changed, or a callback of theirs."""
    rows = changed(database, act)
    return {
        row["headers"]["batch"]["id"] if table == "jobs" else row["id"]
        for table, row in rows
        if table == "batches" or (table == "jobs" and "batch" in row["headers"])
    }


def test_a_batch_is_opened_and_closed_alone(database: Database) -> None:
    make_job(database.conn)
    one, _ = make_batches(database, 2)
    opened = touched(
        database,
        lambda: open_batch(
            database.conn, on_success=SUCCESS, on_end=END, close_within=9
        ),
    )

    assert opened == set()
    assert touched(database, lambda: close_batch(database.conn, one)) == {
        ("batches", one, None)
    }
    assert not close_batch(database.conn, one)


def test_what_a_batch_cannot_be_is_named(database: Database) -> None:
    for field, value in (
        ("on_success", "[]"),
        ("on_end", "[]"),
        ("close_within", "0"),
        ("close_within", None),
    ):
        given = {
            "on_success": None,
            "on_end": None,
            "close_within": "1 h",
            field: value,
        }
        with pytest.raises(psycopg.Error, match=f"^{field}: "):
            database.rows(
                "select redrive.open_batch_v1(%s, %s, %s::interval)", *given.values()
            )


def test_a_number_is_that_of_a_batch_which_takes_jobs(database: Database) -> None:
    """Others do, or are given up; and what is redriven of one that is over is no new job."""
    given_up, other = make_batches(database, 2)
    worker = make_worker(database.conn)
    dead, *_ = claim(database.conn, worker, 1)
    let_die(database.conn, worker, dead)
    database.rows(
        "update redrive.batches set over_at = now(), outcome = 'abandoned' where id = %s",
        given_up,
    )

    for batch in (given_up, other + 1):
        with pytest.raises(psycopg.Error, match="batch: "):
            enqueue(database.conn, "page", batch=batch)
        with pytest.raises(psycopg.Error, match="batch: "):
            close_batch(database.conn, batch)
    assert not database.rows("select from redrive.batches where closed_at is not null")
    assert close_batch(database.conn, other)
    assert not close_batch(database.conn, other), (
        "as before, beside one that was given up"
    )
    assert redrive(database.conn, [dead.id]) == {dead.id: None}


def test_a_batch_ends_alone_and_is_told_of_once(database: Database) -> None:
    """Beside one that ends in the next step, one that lives on, and one that is open; and jobs that
    are parked for other reasons.
    """
    batches = make_batches(database, 4)
    for key in "kk":
        make_job(database.conn, ordering_key=key)
    for batch in batches[:3]:
        close_batch(database.conn, batch)
    worker, listening = make_worker(database.conn), database.session()
    jobs = [job for job in claim(database.conn, worker) if job.kind == "page"]
    complete(database.conn, worker, *jobs[:2])
    listening.rows("listen redrive")
    step = of_batches(database, lambda: fold(database, 1))

    assert step == {batches[0]}
    told = [
        int(notice.payload)
        for notice in listening.conn.notifies(timeout=60, stop_after=2)
    ]
    slots = database.column("select redrive.wake_slot_v1(unnest('{a,b}'::text[]))")
    assert sorted(told) == sorted(slots)
    assert list(listening.conn.notifies(timeout=0)) == []
    assert of_batches(database, lambda: fold(database)) == {batches[1]}
    assert database.rows(DELTAS) == [
        *((batch, 1, 1, 0) for batch in batches[:2]),
        *((batch, 1, 0, 0) for batch in batches[2:]),
    ]


def test_a_callback_that_has_a_time_of_its_own_keeps_it(database: Database) -> None:
    (batch,) = make_batches(database, 1, jobs=0)
    database.rows("update redrive.jobs set run_at = now() + '1 h'")
    close_batch(database.conn, batch)

    assert of_batches(database, lambda: fold(database)) == {batch}
    assert not database.rows("select from redrive.jobs where run_at < now() + '50 min'")


def test_what_nobody_closes_is_given_up_alone(database: Database) -> None:
    """Not what was closed in time, has time, or was given up before: none is even looked at."""
    late, timely, closed, over = make_batches(database, 4)
    close_batch(database.conn, closed)
    fold(database)
    database.rows(
        "update redrive.batches set close_by = now() - '1 h'::interval where id <> %s",
        timely,
    )
    database.rows("update redrive.batches set over_at = now() where id = %s", over)
    looked = []
    batches = of_batches(database, lambda: looked.append(fold(database)))

    assert batches == {late}
    assert looked == [1]
    assert fold(database) == 0


def test_who_adds_to_a_batch_keeps_that_one_from_its_end(database: Database) -> None:
    """Nobody waits for them, and what is over is not looked at again and again."""
    one, other, over = make_batches(database, 3, jobs=0)
    for batch in (one, other, over):
        close_batch(database.conn, batch)
    database.rows("update redrive.batches set over_at = now() where id = %s", over)
    holding(database, "batches", id=one)
    quick = hasty(database)
    rows = of_batches(database, lambda: quick.rows(FOLD, 9))

    assert rows == {other}
    unfolded = "select batch from redrive.batch_deltas where not is_folded"
    assert database.column(unfolded) == [one]


def test_one_of_all_folds(database: Database) -> None:
    close_batch(database.conn, *make_batches(database, 1, jobs=0))
    holding(database, "chores", name="batches")
    quick = hasty(database)

    assert touched(database, lambda: quick.rows(FOLD, 9)) == set()
