"""Handlers of the test of open transactions: `free.*` must start, `held.*` are what is held."""

from typing import Any

from redrive import Handlers, Job, Policy, Retry, Schedule
from tests.flow.handlers import AT_ONCE, note

jobs = Handlers()


@jobs.handle("free.plain")
@jobs.handle("free.callback")
@jobs.handle("held.plain")
def plain(payload: dict[str, Any], job: Job) -> None:
    note("start", job)


@jobs.handle("free.limited", limits=["free:{key}"])
@jobs.handle("held.limited", limits=["held:{key}"])
def limited(payload: dict[str, Any], job: Job) -> None:
    note("start", job)


@jobs.handle("held.dependent", depends_on=["held"], policy=Policy(**AT_ONCE))
def dependent(payload: dict[str, Any], job: Job) -> None:
    """Fail for the service whose breaker is held."""
    note("start", job)
    raise ConnectionError


@jobs.handle("free.retried", policy=Policy(**AT_ONCE))
def retried(payload: dict[str, Any], job: Job) -> None:
    """Succeed at the second attempt."""
    note("start", job)
    if job.attempt == 1:
        raise Retry(after=0)


@jobs.handle("free.tick", schedule=Schedule("@every 1s", catch_up="one"))
def tick(payload: dict[str, Any], job: Job) -> None:
    note("tick", job)
