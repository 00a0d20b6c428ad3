"""The registry that the worker of drive_redrive.py loads."""

import json
import os
from typing import Any

import line

from redrive import Handlers, Policy

CONFIG = json.loads(os.environ["BENCH_CONFIG"])

jobs = Handlers()
_work = line.work_of(CONFIG)

if _work is None:

    @jobs.handle("noop")
    async def noop(payload: dict[str, Any]) -> None:
        """Only be counted."""
        line.hit(payload)

else:
    _perform = _work

    @jobs.handle(
        "noop", policy=Policy(max_attempts=1 if CONFIG["work"] == "fail" else 5)
    )
    async def perform(payload: dict[str, Any]) -> None:
        """Be counted, then do what was asked."""
        line.hit(payload)
        await _perform()


line.start(CONFIG)
