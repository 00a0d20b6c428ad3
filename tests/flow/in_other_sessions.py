"""Handlers of a worker whose sessions have the settings of others."""

import os
from pathlib import Path
from typing import Any

from redrive import Handlers, Job, Policy, Schedule

jobs = Handlers()
QUICK = Policy(max_attempts=2, backoff=0.01, backoff_cap=0.02)


@jobs.handle("fine")
def fine(payload: dict[str, Any]) -> dict[str, Any]:
    return payload


@jobs.handle("broken", policy=QUICK)
def broken(payload: dict[str, Any], job: Job) -> None:
    job.side_effect("tried", n=1)
    if not (Path(os.environ["REDRIVE_TEST_HOME"]) / "fixed").exists():
        raise ConnectionError(payload["text"])


@jobs.handle("tick", schedule=Schedule("@every 1s", payload={"n": 1}))
def tick(payload: dict[str, Any]) -> None: ...
