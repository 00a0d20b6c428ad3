"""Handlers that come by the clock; the second application is what the first is rolled out to."""

import os
from pathlib import Path
from typing import Any

from redrive import Handlers, Job, Schedule

jobs = Handlers()
rolled_out = Handlers()


def note(job: Job) -> None:
    """Write down for which slot a job came, in one write."""
    path = Path(os.environ["REDRIVE_TEST_HOME"]) / "slots"
    with path.open("a") as file:
        file.write(f"{job.id} {job.kind} {job.scheduled_for:%Y-%m-%dT%H:%M:%S%z}\n")


@jobs.handle("tick", schedule=Schedule("@every 1s", catch_up="all", payload={"n": 1}))
def tick(payload: dict[str, Any], job: Job) -> None:
    note(job)


@jobs.every("0 7 * * 1-5", tz="Europe/Berlin", queue="reports")
def morning_report(job: Job) -> None:
    note(job)


@rolled_out.handle("tick")
def tock(payload: dict[str, Any], job: Job) -> None:
    note(job)


@rolled_out.every(
    "0 8 * * 1-5", tz="Europe/Berlin", kind="morning_report", queue="reports"
)
def later_report() -> None: ...
