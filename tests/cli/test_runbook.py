"""Commands of the runbook, typed into a database with the incident."""

import re
import shlex
from pathlib import Path

import pytest

from redrive.worker import store
from tests.cli.conftest import Ran, Redrive
from tests.factories import claim, make_job, make_worker, silence
from tests.postgres import Database

RUNBOOK = Path(__file__).parents[2] / "alerts" / "runbook.md"


def typed(redrive: Redrive, alert: str, command: str, queue: str) -> list[Ran]:
    """Run a command as the section of an alert types it, each time it does."""
    section = RUNBOOK.read_text().split(f"## {alert}\n")[1].split("\n## ")[0]
    lines = re.findall(rf"^r redrive ({command}[^#\n]*)", section, re.MULTILINE)
    return [redrive(*shlex.split(line.replace("$Q", queue))) for line in lines]


@pytest.mark.parametrize("hangs", ["mail", "reports"])
def test_jobs_of_another_queue_are_not_taken_for_a_hang(
    redrive: Redrive, database: Database, hangs: str
) -> None:
    """All running jobs were called a hang, and the restart began long ones again."""
    make_job(database.conn, queue=hangs)
    claim(database.conn, make_worker(database.conn))
    make_job(database.conn, queue="mail")

    of_queue, of_all = typed(redrive, "RedriveQueueStalled", "job ls", "mail")

    assert ("running" in of_queue.out) == (hangs == "mail")
    assert hangs in of_all.out


def test_jobs_that_were_taken_back_from_a_lost_worker_are_named(
    redrive: Redrive, database: Database
) -> None:
    """The log names only settlements that came too late, and not the jobs that were dropped."""
    worker = make_worker(database.conn, ttl=30)
    dropped, other = make_job(database.conn), make_job(database.conn, queue="mail")
    claim(database.conn, worker, want=1)
    silence(database.conn, worker)
    store.rescue(database.conn, 30.0)

    (shown,) = typed(redrive, "RedriveJobsLost", "job ls", "default")

    assert dropped != other
    assert shown.out.count("WorkerLost") == 1
    assert f" {dropped} " in shown.out


def test_statements_for_the_owner_s_login_run_as_the_runbook_sends_them(
    database: Database,
) -> None:
    """Each goes out as one message: two vacuums in it would be in one transaction."""
    found = re.findall(
        r'^sql <secret of the owner> "(.*)"', RUNBOOK.read_text(), re.MULTILINE
    )
    filled = {"<table>": "jobs", "<sequence>": "jobs_id_seq", "<number>": "9"}
    conn = database.connect()
    conn.autocommit = True
    conn.execute("set role redrive_owner")

    assert len(found) == 5
    for statement in found:
        for placeholder, value in filled.items():
            statement = statement.replace(placeholder, value)  # noqa: PLW2901
        conn.execute(statement)  # type: ignore[arg-type]
