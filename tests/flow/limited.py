"""Handlers that are limited."""

import time
from typing import Any

from redrive import Handlers, Job
from tests.flow.handlers import note, wait_for_file

jobs = Handlers()


@jobs.handle("limited.work", limits=["flow", "key:{key}"])
def work(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    time.sleep(payload.get("seconds", 0))
    note("end", job)


@jobs.handle("limited.held", limits=["flow"])
def held(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    wait_for_file("go")
    note("end", job)


@jobs.handle("free.work")
def free(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    time.sleep(payload.get("seconds", 0))
