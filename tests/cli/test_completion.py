"""What a shell completes, with names from the database."""

import os
import subprocess
import sys
import time

import pytest
from click.shell_completion import ShellComplete

from redrive.cli.main import cli
from tests.factories import failure, let_next_die, make_job, make_worker
from tests.postgres import Database

KNOWN = ShellComplete(cli, {}, "redrive", "_REDRIVE_COMPLETE")


def completed(typed: str) -> list[str]:
    """Return what the last word of a line may be."""
    *words, incomplete = typed.split(" ")
    return [item.value for item in KNOWN.get_completions(words, incomplete)]


@pytest.fixture
def shop(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A database with names of every sort."""
    monkeypatch.setenv("REDRIVE_DATABASE_URL", database.url)
    conn = database.conn
    worker = make_worker(conn)
    make_job(conn, "app.tasks.SendMail", queue="Mail")
    let_next_die(conn, worker, failure=failure(fingerprint="3f9a" * 4))
    make_job(conn, "invoice.charge", queue="billing")
    database.rows("update redrive.workers set version = '1.4.2'")
    database.rows(
        "with d as (insert into redrive.schedule_declarations (schedule, kind, queue, cron,"
        " tz, catch_up, payload, digest) values ('report.daily', 'report', 'default',"
        " '0 7 * * *', 'UTC', 'one', '{}', '') returning id)"
        " insert into redrive.schedules (name, declaration) select 'report.daily', id from d"
    )
    return database


def test_names_are_completed_from_the_database(shop: Database) -> None:
    names = {
        "dlq ls --kind app": ["app.tasks.SendMail"],
        "job ls --kind in": ["invoice.charge"],
        "enqueue inv": ["invoice.charge"],
        "queue pause M": ["Mail"],
        "dlq show 3f": ["3f9a3f9a3f9a3f9a"],
        "dlq ack 3f": ["3f9a3f9a3f9a3f9a"],
        "dlq redrive --group 3": ["3f9a3f9a3f9a3f9a"],
        "dlq groups --new-since 1": ["1.4.2"],
        "dlq resolve 3f9a --in 1": ["1.4.2"],
        "schedule now r": ["report.daily"],
        "dlq ls --kind nope": [],
    }

    assert {typed: completed(typed) for typed in names} == names


@pytest.mark.parametrize(
    "url",
    ["", "no url", "postgresql://nobody@127.0.0.1:1/x", "postgresql://10.255.255.1/x"],
)
def test_without_a_database_nothing_is_completed_and_nothing_is_said(url: str) -> None:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "redrive"],
        env={
            "PATH": os.environ["PATH"],
            "REDRIVE_DATABASE_URL": url,
            "_REDRIVE_COMPLETE": "bash_complete",
            "COMP_WORDS": "redrive dlq ls --kind a",
            "COMP_CWORD": "4",
        },
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
    assert time.monotonic() - began < 60
