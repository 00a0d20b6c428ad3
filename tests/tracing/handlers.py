"""Handlers that look at the trace they run in."""

from typing import Any

import psycopg
from opentelemetry import trace

from redrive import Handlers, Job, Policy, enqueue

jobs = Handlers()
AT_ONCE = {"backoff": 0.01, "backoff_cap": 0.02}


def _note(payload: dict[str, Any]) -> None:
    with trace.get_tracer("app").start_as_current_span(payload["note"]):
        pass


@jobs.handle("note.sync", queue="mail")
def note_sync(payload: dict[str, Any]) -> None:
    _note(payload)


@jobs.handle("note.async", queue="mail")
async def note_async(payload: dict[str, Any]) -> None:
    _note(payload)


@jobs.handle("fail.twice", queue="mail", policy=Policy(max_attempts=2, **AT_ONCE))
def fail_twice(payload: dict[str, Any], job: Job) -> None:
    if job.redrives == 0:
        raise ConnectionError(f"no route to {payload['secret']}")


@jobs.handle("chain", queue="mail")
def chain(payload: dict[str, Any]) -> None:
    with psycopg.connect(payload["url"]) as conn:
        enqueue(conn, "note.sync", {"note": "from a handler"}, queue="mail")


@jobs.handle("quick", queue="mail")
async def quick(_payload: dict[str, Any]) -> None:
    pass
