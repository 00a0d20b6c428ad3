"""Handlers: one kind needs a dependency. It is down while a file says so."""

import os
import time
from pathlib import Path
from typing import Any

from redrive import Handlers, Job, Policy
from tests.flow.handlers import note

DOWN = Path(os.environ.get("REDRIVE_TEST_HOME", "/nonexistent")) / "mail-is-down"

jobs = Handlers()
jobs.breaker("mail", threshold=5, window=10, cooldown=5)


@jobs.handle("mail.send", depends_on=["mail"], policy=Policy(max_attempts=5, backoff=2))
def send(payload: dict[str, Any], job: Job) -> None:
    if DOWN.exists():
        note("down", job)
        raise ConnectionError("mail is down")
    note("up", job)
    time.sleep(0.002)


@jobs.handle("other.work")
def work(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    time.sleep(0.002)
