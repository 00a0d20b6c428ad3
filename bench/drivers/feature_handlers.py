"""The registry of a worker whose jobs use a feature: bench/features.py says which."""

import json
import os
from typing import Any

import line

from redrive import Handlers, Job, Schedule

CONFIG = json.loads(os.environ["BENCH_CONFIG"])

jobs = Handlers()


@jobs.handle(
    "noop",
    limits=CONFIG["limits"],
    schedule=[
        Schedule("@every 1s", payload={"i": n}, name=f"bench.{n}", catch_up="all")
        for n in range(CONFIG["schedules"])
    ],
)
async def noop(payload: dict[str, Any], job: Job) -> Any:
    """Be counted, and do what the feature asks of a handler."""
    line.hit(payload)
    match CONFIG["does"]:
        case "checkpoint":
            await job.checkpoint({"page": 1})
        case "progress":
            job.progress(0.5, "page 1 of 2")
        case "result":
            return {"lines": 3}
    return None


line.start(CONFIG)
