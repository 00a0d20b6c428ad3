"""Jobs that use limits, schedules, batches and checkpoints, and write down what they saw.

Who runs under a limit holds one of as many locks as it allows. The kernel takes a lock back when
its process has died, so that too many are seen the moment they are, whoever was killed.
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from redrive import Handlers, Job, Policy, Schedule

jobs = Handlers()
AT_MOST = 3
PAGES = 4
SOON = Policy(
    backoff=0.05,
    backoff_cap=0.5,
    max_attempts=1000,
    max_losses=1000,
    same_failure_limit=1000,
)
_files: dict[int, int] = {}


def home() -> Path:
    """Where the test looks."""
    return Path(os.environ["REDRIVE_TEST_HOME"])


def say(what: str, job: Job, **more: Any) -> None:
    """One line in one write."""
    pid = os.getpid()
    if pid not in _files:
        path = home() / f"said-{pid}"
        _files[pid] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    line = {
        "what": what,
        "job": job.id,
        "delivery": job.deliveries,
        "at": time.monotonic(),
    } | more
    os.write(_files[pid], (json.dumps(line) + "\n").encode())


@contextlib.contextmanager
def counted(job: Job, name: str, at_most: int) -> Iterator[None]:
    """Be one of those that run under a limit; say so if that is one too many."""
    with contextlib.ExitStack() as held:
        for n in range(at_most):
            file = held.enter_context((home() / f"lock-{name}-{n}").open("w"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            break
        else:
            say("exceeded", job, limit=name)
        yield


@jobs.handle("limited", limits=["three", "key:{key}"], policy=SOON)
def limited(payload: dict[str, Any], job: Job) -> None:
    """One of three at most, and of a key the only one."""
    with counted(job, "three", AT_MOST), counted(job, f"key-{payload['key']}", 1):
        time.sleep(payload["seconds"])
    say("end", job)


@jobs.handle("long", policy=SOON)
def long(payload: dict[str, Any], job: Job) -> None:
    """Page by page; says which it began with, and which it was promised are kept."""
    begin = (job.last_checkpoint or {"page": 0})["page"]
    say("from", job, page=begin)
    for page in range(begin + 1, PAGES + 1):
        time.sleep(payload["seconds"])
        job.progress(page / PAGES)
        job.checkpoint({"page": page})
        say("kept", job, page=page)
    say("end", job)


@jobs.handle("tick", schedule=Schedule("@every 1s", catch_up="all"), policy=SOON)
def tick(_: dict[str, Any], job: Job) -> None:
    """Come by the clock."""
    say("slot", job, slot=job.scheduled_for.timestamp() if job.scheduled_for else None)


@jobs.handle("callback", policy=SOON)
def callback(payload: dict[str, Any], job: Job) -> None:
    """Be told of a batch."""
    say("callback", job, of=payload["of"], counts=job.headers["batch"])
