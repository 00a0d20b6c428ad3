"""What the judge is told is dead."""

from pathlib import Path

from redrive.worker.store import fold
from tests.factories import (
    claim_one,
    failure,
    let_die,
    make_dead_letter,
    make_job,
    make_worker,
    redrive,
    settle,
)
from tests.postgres import Database
from trials.chaos.redrive_system import Redrive
from trials.chaos.schedule import SHORT


def test_only_what_nobody_gave_back_is_dead(database: Database) -> None:
    """A job that dies over a paused worker goes back to work, and its dead letter stays."""
    conn = database.conn
    ids = [make_dead_letter(conn, payload={"n": n}) for n in (1, 2, 3)]
    make_dead_letter(conn, payload={"another's": 4})
    redrive(conn, ids[1:])
    worker = make_worker(conn)
    let_die(conn, worker, claim_one(conn, worker))

    assert database.column(Redrive.dead) == [1, 2]


def test_a_group_whose_counts_are_not_those_of_the_rows_is_a_failure(
    database: Database, tmp_path: Path
) -> None:
    conn = database.conn
    make_dead_letter(conn)
    make_job(conn)
    worker = make_worker(conn)
    said = failure(category="transient")
    settle(conn, worker, claim_one(conn, worker), "retry", delay=60, failure=said)
    conn.execute("create table effects (n bigint)")
    system = Redrive(tmp_path, SHORT)

    right = system.failures(conn)
    fold(conn)
    conn.execute("update redrive.groups set open = open + 1")
    wrong = system.failures(conn)

    assert right == {"effects_twice": [], "miscounted": []}
    assert wrong["miscounted"]
