"""Bogdanp/dramatiq #253, #336.

A module of handlers adds a job as it is imported, before any worker is ready, also of a kind
that only a later release knows. The worker starts, and does the work that it knows.
"""

import os
from pathlib import Path
from typing import Any

import psycopg

from redrive import Handlers, Job, enqueue
from tests.flow.handlers import note
from tests.flow.harness import wait_for, workers_on
from tests.postgres import Database

HANDLERS = "trials.strangers.test_jobs_added_at_import:jobs"
jobs = Handlers()


@jobs.handle("a.b")
def work(payload: dict[str, Any], job: Job) -> None:
    note("end", job)


if "REDRIVE_TEST_ADDS" in os.environ:
    with psycopg.connect(os.environ["REDRIVE_TEST_URL"]) as conn:
        work.enqueue(conn, {})
        enqueue(conn, "a.later")


def test_a_worker_starts_and_does_what_its_module_added(
    database: Database, tmp_path: Path
) -> None:
    with workers_on(database.url, tmp_path) as workers:
        worker = workers(handlers=HANDLERS, redrive_test_adds=1, forked=False)
        worker.wait_ready()
        wait_for(workers.ledger)
        left = "select distinct kind from redrive.jobs"
        wait_for(lambda: database.column(left) == ["a.later"])
        assert worker.metric("redrive_runner_deaths_total") == 0
