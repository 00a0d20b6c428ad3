"""What the judge is told is dead."""

from tests.factories import claim_one, let_die, make_dead_letter, make_worker, redrive
from tests.postgres import Database
from trials.chaos.redrive_system import Redrive


def test_only_what_nobody_gave_back_is_dead(database: Database) -> None:
    """A job that dies over a paused worker goes back to work, and its dead letter stays."""
    conn = database.conn
    ids = [make_dead_letter(conn, payload={"n": n}) for n in (1, 2, 3)]
    make_dead_letter(conn, payload={"another's": 4})
    redrive(conn, ids[1:])
    worker = make_worker(conn)
    let_die(conn, worker, claim_one(conn, worker))

    assert database.column(Redrive.dead) == [1, 2]
