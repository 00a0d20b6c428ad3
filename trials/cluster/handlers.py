"""Handlers of the cluster tests. Each start and each end is a row in a ledger, whatever the queue
says.
"""

import os
import threading
import time
from pathlib import Path
from typing import Any

import psycopg

from redrive import Handlers, Job, Policy

jobs = Handlers()
_mine = threading.local()


def database() -> psycopg.Connection:
    if not hasattr(_mine, "connection") or _mine.connection.closed:
        _mine.connection = connect()
    return _mine.connection


def connect() -> psycopg.Connection:
    """Come in, also while two releases' handlers have every connection that there may be."""
    deadline = time.monotonic() + 20
    while True:
        # read each time: a password that is rotated is in the file from some moment on
        url = Path(os.environ["REDRIVE_DATABASE_URL_FILE"]).read_text().strip()
        try:
            return psycopg.connect(url, autocommit=True)
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def note(phase: str, job: Job) -> None:
    database().execute(
        "insert into ledger (phase, job, kind, attempt, deliveries, pod)"
        " values (%s, %s, %s, %s, %s, %s)",
        (phase, job.id, job.kind, job.attempt, job.deliveries, os.environ["HOSTNAME"]),
    )


@jobs.handle("shop.work", policy=Policy(timeout=120))
def work(payload: dict[str, Any], job: Job) -> None:
    """Take some time."""
    note("start", job)
    time.sleep(payload.get("seconds", 0))
    note("end", job)


@jobs.handle("shop.held", policy=Policy(timeout=900))
def held(payload: dict[str, Any], job: Job) -> None:
    """Last until it is given back or lost, however long that takes, or somebody says so."""
    note("start", job)
    while job.deliveries == 1 and not is_fixed(job):
        time.sleep(0.2)
    note("end", job)


def is_fixed(job: Job) -> bool:
    fixed = database().execute("select 1 from fixed where kind = %s", (job.kind,))
    return fixed.fetchone() is not None


@jobs.handle("shop.poison")
def poison(payload: dict[str, Any], job: Job) -> None:
    """A bug: dead at once, until somebody fixes it."""
    note("start", job)
    if not is_fixed(job):
        raise TypeError("price is None")
    note("end", job)


@jobs.handle("shop.automatic")
def automatic(payload: dict[str, Any], job: Job) -> None:
    """Dead at once, until something redrives it."""
    note("start", job)
    if not job.redrives:
        raise TypeError("price is None")
    note("end", job)


@jobs.handle("shop.glutton", policy=Policy(timeout=60, backoff=0.1, backoff_cap=0.2))
def glutton(payload: dict[str, Any], job: Job) -> None:
    """Take memory until the kernel says no."""
    note("start", job)
    taken = []
    while True:
        taken.append(b"x" * 16_000_000)
        time.sleep(0.05)
