"""Handlers of the tests about retries: a provider is away, and jobs snooze between failures."""

import os
from pathlib import Path
from typing import Any

from redrive import Handlers, Job, Policy, Snooze
from tests.flow.handlers import note

AWAY = Path(os.environ.get("REDRIVE_TEST_HOME", "/nonexistent")) / "provider-is-away"

jobs = Handlers()


def call(job: Job) -> None:
    note("start", job)
    if AWAY.exists():
        raise ConnectionRefusedError("the provider is away")
    note("end", job)


@jobs.handle("call.before", policy=Policy(max_attempts=5, backoff=0.04))
def call_before(_: dict[str, Any], job: Job) -> None:
    """Retry as by default before, fifty times as fast."""
    call(job)


@jobs.handle("call.now", policy=Policy(backoff=0.6, backoff_cap=72))
def call_now(_: dict[str, Any], job: Job) -> None:
    """Retry as by default, fifty times as fast."""
    call(job)


@jobs.handle("call.window", policy=Policy(window=0.5, backoff=0.1, backoff_cap=0.1))
def call_in_a_window(payload: dict[str, Any], job: Job) -> None:
    """Fail at each attempt. Snooze before some of them, for longer than the window."""
    note("start", job)
    if payload.get("snoozes") and job.deliveries % 2:
        raise Snooze(0.6)
    raise ConnectionRefusedError("the provider is away")
