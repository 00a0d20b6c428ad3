"""Handlers whose work is long, or returns something."""

import asyncio
import os
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from redrive import Cancel, GiveUp, Handlers, Job, Policy, Retry, StaleClaim
from tests.flow.handlers import AT_ONCE, note, wait_for_file

jobs = Handlers()


class Total(BaseModel):
    """A model that a handler returns."""

    lines: int
    token: str


@jobs.handle("long.sync", policy=Policy(**AT_ONCE))
def long_sync(payload: dict[str, Any], job: Job) -> None:
    """Three pages; page by page it waits for a file of the test, and fails where it is told to."""
    begin = (job.last_checkpoint or {"page": 0})["page"]
    note(f"from-{begin}", job)
    for page in range(begin + 1, 4):
        job.progress(
            page / 3, f"page {page} of 3 of {payload.get('secret_text', 'it')}"
        )
        job.checkpoint({"page": page, "password": "hunter2hunter2"})
        note(f"page-{page}", job)
        if payload.get("fail_at") == page and job.attempt == 1 and not job.redrives:
            raise GiveUp("boom") if payload.get("dies") else Retry("boom")
        if page == payload.get("wait_at"):
            wait_for_file("go")


@jobs.handle("long.async", policy=Policy(**AT_ONCE))
async def long_async(payload: dict[str, Any], job: Job) -> dict[str, Any]:
    begin = (job.last_checkpoint or {"page": 0})["page"]
    note(f"from-{begin}", job)
    for page in range(begin + 1, 4):
        await job.checkpoint({"page": page})
        if page == payload.get("die_at") and job.attempt == 1:
            os.kill(os.getpid(), 9)
    return {"pages": 3, "from": begin}


@jobs.handle("long.stale")
def long_stale(_: dict[str, Any], job: Job) -> None:
    note("start", job)
    wait_for_file(f"go-{job.deliveries}")
    try:
        job.checkpoint({"delivery": job.deliveries})
    except StaleClaim:
        note("stale", job)
        raise
    note("kept", job)


@jobs.handle("long.fast")
def long_fast(payload: dict[str, Any], job: Job) -> None:
    for n in range(payload["times"]):
        job.progress(n / payload["times"], str(n))
    job.progress(1.0, "last")
    note("told", job)
    wait_for_file("go")


@jobs.handle("returns.value", keep_result=timedelta(hours=1))
def returns_value(payload: dict[str, Any]) -> Any:
    return payload["value"]


@jobs.handle("returns.model")
async def returns_model(_: dict[str, Any]) -> Total:
    await asyncio.sleep(0)
    return Total(lines=3, token="not for your eyes")


@jobs.handle("returns.object")
def returns_object(_: dict[str, Any]) -> object:
    return object()


@jobs.handle("returns.large")
def returns_large(_: dict[str, Any]) -> str:
    return "the canary of a result" * 1000


@jobs.handle("returns.nothing-kept", keep_result=0)
def returns_nothing_kept(_: dict[str, Any]) -> str:
    return "for nobody"


@jobs.handle("cancels.itself")
def cancels_itself(_: dict[str, Any], job: Job) -> None:
    job.checkpoint({"a": 1})
    raise Cancel
