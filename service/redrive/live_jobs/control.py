"""Stop live jobs, push them, wait for one. Each change is kept in the audit log."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import scalar_row

Connection = psycopg.Connection[Any]

CHUNK = 1000
"""Jobs that one transaction changes; for its length nobody claims from their lanes."""

POLL_SECONDS = 0.2
LIVE = "live"


class Cancelled(NamedTuple):
    """How many jobs were cancelled at once, and how many that run were asked to end."""

    cancelled: int
    asked: int


def cancel(
    conn: Connection,
    ids: Sequence[int],
    *,
    why: str,
    actor: str,
    progress: Callable[[int], None] = lambda _: None,
) -> Cancelled:
    """Cancel live jobs: those that wait at once; those that run are told by their workers.

    Args:
        progress: told after each chunk how many it handled.
    """
    outcomes: list[str] = []
    for start in range(0, len(ids), CHUNK):
        chunk = list(ids[start : start + CHUNK])
        with conn.cursor(row_factory=scalar_row) as cursor:
            outcomes += cursor.execute(
                "select outcome from redrive.cancel_v1(%s::bigint[], %s, %s)", (chunk, actor, why)
            )
        progress(len(chunk))
    return Cancelled(outcomes.count("cancelled"), outcomes.count("asked"))


def run_now(
    conn: Connection,
    ids: Sequence[int],
    *,
    why: str,
    actor: str,
    progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Let jobs that wait for their time run at once. Returns how many there were.

    Args:
        progress: told after each chunk how many it handled.
    """
    due = 0
    for start in range(0, len(ids), CHUNK):
        chunk = list(ids[start : start + CHUNK])
        due += conn.execute(
            "select redrive.run_now_v1(%s::bigint[], %s, %s)", (chunk, actor, why)
        ).rowcount
        progress(len(chunk))
    return due


def wait(conn: Connection, job: int, timeout: float) -> str | None:
    """Wait for a job's end, at most `timeout` seconds; returns its outcome, or "live".

    None where there is no such job.
    """
    give_up_at = time.monotonic() + timeout
    while True:
        with conn.cursor(row_factory=scalar_row) as cursor:
            outcome = cursor.execute("select redrive.outcome_v1(%s)", (job,)).fetchone()
        left = give_up_at - time.monotonic()
        if outcome != LIVE or left <= 0:
            return outcome
        time.sleep(min(POLL_SECONDS, left))
