"""What handlers do to their process, and the processes that they start, change nothing of ours."""

import ctypes
import json
import sys
from pathlib import Path

import pytest

from redrive import enqueue
from tests.flow import look
from tests.flow.harness import ROOT, Workers, alive, children, wait_for
from tests.flow.parents import CHILDREN, SPOILS
from tests.postgres import Database

HANDLERS = "tests.flow.parents:jobs"
STATUS = {"popen": "-15", "process": "-15", "interrupt": "-2", "pool": "left"}


@pytest.mark.parametrize("how", sorted(CHILDREN))
def test_a_process_that_a_handler_starts_can_be_ended(
    database: Database, workers: Workers, how: str
):
    enqueue(database.conn, "start", {"how": how})
    worker = workers.run(handlers=HANDLERS)

    assert look.letters(database) == {}
    assert (worker.home / "status").read_text() in {STATUS[how], "1"}


@pytest.mark.parametrize("kind", ["sync", "raises", "async", "waits"])
def test_a_child_that_returns_from_its_handler_ends_and_its_parent_goes_on(
    database: Database, workers: Workers, kind: str
):
    job = enqueue(database.conn, f"fork.{kind}")
    worker = workers("--slots", "2", handlers=HANDLERS)
    wait_for(lambda: look.live(database) == 0)
    after = [enqueue(database.conn, "plain.async") for _ in range(5)]
    wait_for(lambda: look.live(database) == 0)

    child = int((worker.home / f"child-{job}").read_text())
    wait_for(lambda: not alive(child), 20, what="the child lives on")
    assert look.letters(database) == {}
    assert [e.phase for e in workers.ledger() if e.job == job] == ["end"]
    assert [len(workers.starts(each)) for each in after] == [1] * 5
    assert worker.metric("redrive_runner_deaths_total") == 0


@pytest.mark.parametrize("kind", ["sync", "raises", "async", "waits"])
def test_a_child_ends_although_a_handler_has_replaced_functions(
    database: Database, workers: Workers, kind: str
):
    workers("--slots", "2", handlers=HANDLERS)
    enqueue(database.conn, "spoil.sync", {"what": "functions of modules"})
    wait_for(lambda: look.live(database) == 0)
    beside = enqueue(database.conn, "plain.long")
    wait_for(lambda: workers.starts(beside))
    job = enqueue(database.conn, f"fork.{kind}")
    wait_for(lambda: look.live(database) == 0)

    child = int((workers.home / f"child-{job}").read_text())
    wait_for(lambda: not alive(child), 20, what="the child lives on")
    ended = [entry for entry in workers.ledger() if entry.phase == "end"]
    assert [entry.job for entry in ended].count(beside) == 1


def test_programs_inherit_no_descriptor_of_the_runner(
    database: Database, workers: Workers
):
    enqueue(database.conn, "inherit")
    worker = workers.run(handlers=HANDLERS)

    found, channel, shared = json.loads((worker.home / "inherited").read_text())
    assert f"'{channel}'" not in found
    assert f"'{shared}'" not in found


@pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper")
def test_a_worker_that_adopts_orphans_collects_them(
    database: Database, workers: Workers
):
    """As process 1 of a container does: each one would use up a process id."""
    become = "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1); os.execv(sys.argv[1], sys.argv[1:])"
    assert ctypes.CDLL(None).prctl(36, 0) == 0
    worker = workers(
        handlers=HANDLERS, under=[sys.executable, "-c", become], forked=False
    )
    for _ in range(10):
        enqueue(database.conn, "orphan")
    wait_for(lambda: look.live(database) == 0)

    wait_for(lambda: len(children(worker.pid)) == 1, 30, what="zombies are left")
    assert look.letters(database) == {}
    assert worker.metric("redrive_runner_deaths_total") == 0


@pytest.mark.parametrize("kind", ["spoil.sync", "spoil.async"])
@pytest.mark.parametrize("what", SPOILS)
def test_what_a_handler_does_to_its_process_changes_nothing_of_ours(
    database: Database, workers: Workers, what: str, kind: str
):
    worker = workers("--slots", "2", handlers=HANDLERS)
    enqueue(database.conn, kind, {"what": what})
    wait_for(lambda: look.live(database) == 0)
    ids = [
        enqueue(database.conn, kind)
        for kind in ("plain.sync", "plain.async", "plain.sync", "plain.async")
    ]
    hangs = enqueue(database.conn, "plain.hangs")
    fails = enqueue(database.conn, "plain.fails")
    wait_for(lambda: look.live(database) == 0, 60)

    assert [len(workers.starts(job)) for job in ids] == [1] * 4
    assert set(look.letters(database)) == {hangs, fails}
    assert look.dead(database, hangs)[2] == "DeadlineExceeded"
    assert look.dead(database, fails)[2] == "LookupError"
    assert "/nowhere" in look.dead(database, fails).message
    assert worker.metric("redrive_runner_deaths_total") == 0
    assert worker.stop()[0] == 0


def test_jobs_whose_handlers_seed_the_same_numbers_come_back_at_different_times(
    database: Database, workers: Workers
):
    for _ in range(8):
        enqueue(database.conn, "plain.retried")
    workers("--slots", "2", handlers=HANDLERS)

    def delays() -> list[float]:
        rows = database.rows(
            "select extract(epoch from run_at - clock_timestamp())::float8"
            " from redrive.jobs where attempt > 0 and run_at > clock_timestamp()"
        )
        return [delay for (delay,) in rows]

    wait_for(lambda: len(delays()) == 8)
    found = sorted(delays())
    assert found[-1] - found[0] > 200


def test_the_table_of_the_state_that_the_runner_reads_names_what_is_tested():
    page = (Path(ROOT) / "docs" / "handlers.md").read_text()
    section = page.partition("## What a handler may do to its process")[2]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]

    assert [row.split("|")[1].strip() for row in rows] == list(SPOILS)
