"""docs/order-and-fairness.md: each command does what the page says, and each handler is taken."""

import re
import shlex
from pathlib import Path

from redrive import Handlers, enqueue
from redrive.worker import store
from tests.cli.conftest import Redrive
from tests.factories import let_next_die, make_job
from tests.postgres import Connection, Database

PAGE = (Path(__file__).parents[2] / "docs" / "order-and-fairness.md").read_text()
COMMANDS = re.findall(r"^\$ redrive (.*)$", PAGE, re.MULTILINE)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def hold_key(conn: Connection) -> int:
    """Job 17 died and holds the key of jobs 18 to 20. Returns whose it was."""
    conn.execute("select setval(pg_get_serial_sequence('redrive.jobs', 'id'), 16)")
    said = store.Registration("w", "1", 60.0, ["account.*"], None, holds=["account.*"])
    worker = store.register(conn, said)
    for _ in range(4):
        make_job(conn, "account.apply", ordering_key="account-7")
    let_next_die(conn, worker)
    return worker


def test_the_commands_of_the_page_run_in_their_order(
    redrive: Redrive, database: Database
) -> None:
    worker = hold_key(database.conn)
    database.rows("update redrive.workers set kinds = null")  # it handles every kind
    for queue in ("payments", "imports"):  # in use, as a reader's are
        make_job(database.conn, "other", queue=queue)
    for command in COMMANDS:
        if command.startswith("dlq dismiss"):  # the other way, of the same dead letter
            let_next_die(database.conn, worker)
        ran = redrive(*shlex.split(command))

        assert (ran.code, ran.err) == (0, ""), command
    assert database.column(
        "select state from redrive.dead_letters order by redrives"
    ) == ["redriven", "dismissed"]
    assert database.rows(
        "select queue, lanes, paused_at from redrive.queues order by 1"
    ) == [("imports", 1, None), ("payments", 16, None)]


def test_what_a_held_job_is_said_to_wait_for(
    redrive: Redrive, database: Database
) -> None:
    hold_key(database.conn)
    (told,) = blocks("text")

    assert redrive("job", "show", "20", "--json").json["why"]["text"] == told.strip()


def test_the_code_of_the_page_runs(database: Database) -> None:
    names = {
        "jobs": Handlers(),
        "enqueue": enqueue,
        "conn": database.conn,
        "note_that_it_was_too_late": print,
    }
    for block in blocks("python"):
        exec(block, names)  # what the page shows
    handlers = names["jobs"]

    assert isinstance(handlers, Handlers)
    assert {handler.kind: handler.on_death for handler in handlers} == {
        "account.apply": "hold",
        "mail.offer": "continue",
    }
    assert database.value("select count(*) from redrive.jobs") == 2
