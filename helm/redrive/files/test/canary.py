"""What `helm test` runs, and its handlers: enqueue a job, run it in a worker of its own, look at
the exporter.
"""

import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from redrive import Handlers

KIND = "helm-test.canary"
QUEUE = "helm-test"
DONE = Path("/tmp/canary")  # noqa: S108 # this container's own emptyDir

jobs = Handlers()


@jobs.handle(KIND)
def canary(payload: dict[str, str]) -> None:
    """Leave a sign that the handler ran."""
    (DONE / payload["run"]).touch()


def redrive(*arguments: str) -> str:
    """Run the command; what it prints belongs to this test's log."""
    print("$ redrive", *arguments, flush=True)
    return subprocess.run(
        ("redrive", *arguments),  # noqa: S607
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def main() -> int:
    """Return 0 when the job has run and the exporter can read the database."""
    DONE.mkdir(exist_ok=True)
    run = str(time.time_ns())
    print(
        "enqueued job",
        redrive("enqueue", KIND, f'{{"run": "{run}"}}', "--queue", QUEUE).strip(),
    )
    # A worker of yours that serves all queues may take it first; it knows no such kind and gives it
    # back after a while.
    deadline = time.monotonic() + 120
    while not (DONE / run).exists():
        if time.monotonic() > deadline:
            print("the job was enqueued and did not run within 120 s")
            return 1
        redrive("worker", "--until-empty")
        time.sleep(1)
    print("the job ran")
    url = os.environ["EXPORTER"] + "/metrics"
    with urllib.request.urlopen(url, timeout=10) as response:  # noqa: S310
        figures = response.read().decode()
    if "redrive_stats_up 1.0" not in figures:
        print("the exporter cannot read the database: redrive_stats_up is not 1")
        return 1
    print("the exporter reads the database")
    return 0


if __name__ == "__main__":
    sys.exit(main())
