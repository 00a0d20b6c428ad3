"""Handlers of a second application on the same queue; it learns a kind when it is rolled out."""

import os
from pathlib import Path
from typing import Any

from redrive import Cancel, Handlers, Job
from tests.flow.handlers import note

jobs = Handlers()
retired = Handlers()


@jobs.handle("other.work")
def other_work(payload: dict[str, Any], job: Job) -> None:
    note("start", job)


if (Path(os.environ["REDRIVE_TEST_HOME"]) / "rolled-out").exists():

    @jobs.handle("new.work")
    def new_work(payload: dict[str, Any], job: Job) -> None:
        note("start", job)


@retired.handle("report.legacy")
def cancel(payload: dict[str, Any]) -> None:
    raise Cancel("reports are made elsewhere now")
