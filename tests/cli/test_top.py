"""redrive top: one screen of what is wrong and what runs."""

import pytest

from redrive.cli.operations import top
from redrive.worker import store
from tests.cli.conftest import Redrive
from tests.factories import (
    claim_one,
    failure,
    make_dead_letter,
    make_job,
    make_jobs,
    make_worker,
    settle,
)
from tests.postgres import Database
from tests.sql.test_series import let_pass, record


@pytest.fixture
def busy(database: Database) -> Database:
    """A database with jobs, a worker, a dead letter, and two recorded minutes."""
    conn = database.conn
    make_jobs(conn, 3, queue="mail")
    measured = store.Measured("mail", "invoice.charge", [0, 9, *[0] * 15], [0] * 18)
    store.count_times(conn, [measured])
    make_dead_letter(conn, queue="bills")
    make_worker(conn, "pod-7")
    record(conn)
    let_pass(conn)
    record(conn)
    return database


def test_it_shows_what_is_wrong_queues_workers_and_groups(
    redrive: Redrive, busy: Database
) -> None:
    out = redrive("top", COLUMNS="130").out

    assert "3 ready,  0 running,  0 retrying,  1 dead,  1 worker" in out
    assert "9.75 ms" in out
    assert "pod-7" in out
    assert "no such invoice" in out
    found = redrive("top", "--json").json
    assert [one["name"] for one in found["workers"]] == ["pod-7"]


def test_a_cause_is_shown_before_any_of_its_jobs_is_dead(
    redrive: Redrive, busy: Database
) -> None:
    worker = make_worker(busy.conn)
    make_job(busy.conn, "hook.deliver", queue="hooks", priority=-1)
    job = claim_one(busy.conn, worker)
    fault = failure(fingerprint="f503", category="transient")
    settle(busy.conn, worker, job, "retry", delay=3600, failure=fault)

    out = redrive("top", COLUMNS="80").out

    (cause,) = [line for line in out.splitlines() if "f503" in line]
    assert cause.split()[:3] == ["1", "0", "f503"]


def test_the_queue_in_trouble_comes_first(busy: Database) -> None:
    make_jobs(busy.conn, 9, queue="also")
    busy.rows("select redrive.pause_v1('zeta', 'ada', 'the bank is down')")
    make_jobs(busy.conn, 1, queue="zeta")
    make_dead_letter(busy.conn, queue="yard")
    shown = [queue["queue"] for queue in top.read(busy.conn)["queues"]]

    assert shown.index("zeta") < shown.index("yard") < shown.index("also")


def test_an_empty_database_is_no_error(redrive: Redrive) -> None:
    out = redrive("top").out

    assert "0 workers" in out
    for text in ("no queue", "no worker", "no group"):
        assert text in out.splitlines()


def test_a_login_that_may_not_read_groups_sees_the_rest(busy: Database) -> None:
    busy.rows("set role redrive_viewer")
    found = top.read(busy.conn)

    assert found["groups"] is None
    assert {worker["name"] for worker in found["workers"]} == {"pod-7"}
    assert {queue["queue"] for queue in found["queues"]} == {"bills", "mail"}
