"""Cancel live jobs, run them now, or wait for one.

The audit log records each change.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from redrive import results
from redrive.database.rows import Connection, column
from redrive.encryption import MARK, Undecryptable
from redrive.results import Ended
from redrive.rules.payloads.redact import redact

CHUNK = 1000
"""Jobs that one transaction changes.

During the transaction, no worker claims from their lanes.
"""

LIVE = results.LIVE


class Cancelled(NamedTuple):
    """Numbers of jobs cancelled at once, and of running jobs asked to end."""

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
    """Cancel live jobs.

    Waiting jobs are cancelled at once. Workers tell their running jobs to end.

    Args:
        progress: called after each chunk with the number it handled.
    """
    outcomes: list[str] = []
    for chunk in in_chunks(ids, progress):
        outcomes += column(
            conn,
            "select outcome from redrive.cancel_v1(%s::bigint[], %s, %s)",
            chunk,
            actor,
            why,
        )

    return Cancelled(outcomes.count("cancelled"), outcomes.count("asked"))


def run_now(
    conn: Connection,
    ids: Sequence[int],
    *,
    why: str,
    actor: str,
    progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Let jobs that wait for their time run at once; return how many there were.

    Args:
        progress: called after each chunk with the number it handled.
    """
    due = 0
    for chunk in in_chunks(ids, progress):
        due += conn.execute(
            "select redrive.run_now_v1(%s::bigint[], %s, %s)", (chunk, actor, why)
        ).rowcount

    return due


def in_chunks(
    ids: Sequence[int], progress: Callable[[int], None]
) -> Iterator[list[int]]:
    """Yield ids in chunks, and report each chunk when the caller has handled it."""
    for start in range(0, len(ids), CHUNK):
        chunk = list(ids[start : start + CHUNK])
        yield chunk
        progress(len(chunk))


def wait(conn: Connection, job: int, timeout: float) -> Ended | None:
    """Wait at most `timeout` seconds for a job's end.

    The result is for display and therefore redacted. It is None if there is no such
    job.
    """
    try:
        ended = results.wait(conn, job, timeout)
    except LookupError:
        return None
    except Undecryptable as error:
        # Only the result of a job that succeeded is opened.
        return Ended("succeeded", {MARK: str(error)})

    return Ended(ended.outcome, redact(ended.result))
