"""Edited payloads, with real workers: what runs is what was edited, encrypted or not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from redrive import enqueue
from redrive.cli import main
from tests.flow import look
from tests.flow.harness import Workers
from tests.flow.typed_work import HANDLERS
from tests.postgres import Database

Keys = Callable[..., Path]
CANARY = "Zx9-canary-77"
TABLES = ("jobs", "dead_letters", "edits", "audit")
ACT = ("--why", "a typo", "--yes", "--json")


@pytest.fixture
def run(database: Database, capsys: Any) -> Callable[..., Any]:
    """Run a command in this process. Returns its JSON."""

    def act(*arguments: str, code: int = 0) -> Any:
        capsys.readouterr()
        assert main([*arguments, "--database-url", database.url]) == code
        return json.loads(capsys.readouterr().out)

    return act


def stored(database: Database) -> str:
    """All that could hold something of a payload."""
    return "".join(
        str(database.rows(f"select to_jsonb(t) from redrive.{table} t"))
        for table in TABLES
    )  # type: ignore[arg-type]


def test_a_payload_that_its_handler_could_not_read_is_edited_and_works(
    database: Database, workers: Workers, run: Callable[..., Any]
) -> None:
    """A payload that is wrong is corrected, checked, and its job completes under its key."""
    job = enqueue(database.conn, "work.typed", {"number": "seven"}, idempotency_key="k")
    workers.run(handlers=HANDLERS)
    assert look.reasons(database) == {job: "invalid_payload"}

    edit = ("dlq", "edit", str(job), "--handlers", HANDLERS)
    wrong = '[{"op": "replace", "path": "/number", "value": "eight"}]'
    right = '[{"op": "replace", "path": "/number", "value": 8}]'
    assert run(*edit, "--patch", wrong, *ACT, code=1)["invalid"] == 1
    assert run(*edit, "--patch", right, *ACT)["edited"] == 1
    assert run("dlq", "redrive", str(job), *ACT)["redriven"] == 1
    workers.run(handlers=HANDLERS)

    assert workers.starts(job)
    assert database.column("select state from redrive.dead_letters") == ["resolved"]
    assert database.rows("select job, key from redrive.completions") == [(job, "k")]


def test_what_is_encrypted_stays_encrypted_and_runs(
    database: Database, workers: Workers, keys: Keys, run: Callable[..., Any]
) -> None:
    path = keys("old")
    job = enqueue(database.conn, "work.report", {"fail": CANARY, "n": 0.1}, tenant="t")
    database.rows("update redrive.jobs set kind = 'fail.bug'")
    workers.run(redrive_encryption_keys_file=path)
    # bound to its kind: no worker could read it, and nor can an editor
    patch = f'[{{"op": "add", "path": "/said", "value": "{CANARY}-edited"}}]'
    edit = ("dlq", "edit", str(job), "--patch", patch, *ACT)
    assert run(*edit, code=1)["refused"] == {"unreadable": 1}
    database.rows("update redrive.dead_letters set kind = 'work.report'")

    assert run(*edit)["edited"] == 1
    assert CANARY not in stored(database)
    assert database.value("select patch from redrive.edits") == [
        {"op": "add", "path": "/said"}
    ]
    original = run("dlq", "show", str(job), "--original", "--json")
    assert original["payload"] == {"fail": CANARY, "n": 0.1}
    assert (
        run("dlq", "show", str(job), "--json")["payload"]["said"] == f"{CANARY}-edited"
    )

    keys("new", "old")
    left = {row.pop("key"): row for row in run("reencrypt", "--json")["left"]}
    assert "old" not in left or not any(left["old"].values())
    assert (left["new"]["edits"], left["new"]["dead_letters"]) == (1, 1)
    path = keys("new")
    assert (
        run("dlq", "show", str(job), "--original", "--json")["payload"]
        == original["payload"]
    )

    run("dlq", "redrive", str(job), *ACT)
    worker = workers.run(redrive_encryption_keys_file=path)
    report = json.loads((workers.home / f"report-{job}").read_text())
    assert report["payload"] == {"fail": CANARY, "n": 0.1, "said": f"{CANARY}-edited"}
    assert CANARY not in worker.log.read_text()


def test_what_was_in_the_clear_is_encrypted_when_it_is_edited(
    database: Database, workers: Workers, keys: Keys, run: Callable[..., Any]
) -> None:
    job = enqueue(database.conn, "work.typed", {"number": CANARY})
    other = enqueue(database.conn, "work.typed", {"number": CANARY})
    workers.run(handlers=HANDLERS)
    patch = '[{"op": "replace", "path": "/number", "value": 7}]'
    assert run("dlq", "edit", str(other), "--patch", patch, *ACT)["edited"] == 1
    path = keys("new")
    assert run("dlq", "edit", str(job), "--patch", patch, *ACT)["edited"] == 1
    assert database.value(
        "select payload ? '$redrive' and headers ? '$redrive' from redrive.dead_letters"
        " where id = %s",
        job,
    )

    run("reencrypt", "--json")
    assert CANARY not in stored(database)
    assert database.column("select patch #> '{0,value}' from redrive.edits") == [
        None,
        None,
    ]
    for one in (job, other):
        shown = run("dlq", "show", str(one), "--original", "--json")["payload"]
        assert shown == {"number": CANARY}
    run("dlq", "redrive", str(job), str(other), *ACT)
    workers.run(handlers=HANDLERS, redrive_encryption_keys_file=path)
    assert workers.starts(job)
    assert workers.starts(other)
