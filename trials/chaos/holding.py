"""Sessions of users that keep a transaction open, and how long other jobs wait meanwhile."""

import bisect
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, LiteralString, NamedTuple

import psycopg

from redrive import enqueue
from trials.chaos.ledger import Entry
from trials.chaos.verdict import CAUSES, Fault

Session = psycopg.Connection[Any]

FIRST = 10_000_000
"""The first number of the jobs that a held transaction adds."""

SHORTEST, LONGEST = 5.0, 30.0
RECOVERY = 6.0
"""Seconds for which a job may still wait because of another fault."""


class Hold(threading.Thread):
    """One transaction that stays open for `seconds`.

    `act` works in it. It returns the jobs that exist once the transaction has ended, by a
    commit or by a rollback.
    """

    def __init__(
        self,
        url: str,
        seconds: float,
        act: Callable[[Session], set[int]],
        *,
        commits: bool = True,
    ) -> None:
        super().__init__(name="hold", daemon=True)
        self._url, self._seconds, self._act = url, seconds, act
        self._commits = commits
        self.acknowledged: set[int] = set()
        self.since = self.until = time.monotonic()

    def run(self) -> None:
        """Hold it. A crash of the server ends it early."""
        with (
            contextlib.suppress(psycopg.Error),
            psycopg.connect(
                self._url, connect_timeout=5, application_name="monkey"
            ) as conn,
        ):
            jobs = self._act(conn)
            self.since = time.monotonic()
            time.sleep(self._seconds)
            self.until = time.monotonic()
            (conn.commit if self._commits else conn.rollback)()
            self.acknowledged |= jobs
        self.until = max(self.until, self.since)


class InHandler(Hold):
    """A handler that completes its job in a transaction and commits it late.

    `kill`: the handler waits in SQL, and its process is killed while it does.
    """

    def __init__(
        self,
        url: str,
        seconds: float,
        n: int,
        home: Path,
        kill: Callable[[int], None] | None,
    ) -> None:
        super().__init__(url, seconds, lambda _: set())
        self._n, self._home, self._kill = n, home, kill

    def run(self) -> None:
        """Add the job, wait until the handler holds it, and see it through."""
        how = "busy" if self._kill else "idle"
        payload = {"n": self._n, "seconds": self._seconds, "how": how}
        with contextlib.suppress(psycopg.Error):
            with psycopg.connect(self._url, connect_timeout=5) as conn:
                enqueue(conn, "chaos.holds", payload)
            self.acknowledged.add(self._n)
        held = self._home / f"holds-{self._n}"
        give_up_at = time.monotonic() + LONGEST
        while not held.exists() and time.monotonic() < give_up_at:
            time.sleep(0.05)
        if not held.exists():
            return
        self.since = time.monotonic()
        if self._kill:
            time.sleep(0.5)
            self._kill(int(held.read_text()))
        time.sleep(self._seconds)
        self.until = time.monotonic()


def produce(first: int) -> Callable[[Session], set[int]]:
    """Return what adds a limited, an ordered and a unique job, numbered from `first`."""

    def act(conn: Session) -> set[int]:
        jobs = [{"n": first + i, "seconds": 0.01} for i in range(3)]
        enqueue(conn, "chaos.limited", jobs[0])
        enqueue(conn, "chaos.sync", jobs[1], ordering_key=f"key-{first % 50}")
        enqueue(conn, "chaos.sync", jobs[2], unique_for=3600)
        return {job["n"] for job in jobs}

    return act


def cancel(url: str, n: int) -> Callable[[Session], set[int]]:
    """Return what adds job `n` and cancels it in the open transaction."""

    def act(conn: Session) -> set[int]:
        with psycopg.connect(url, connect_timeout=5, autocommit=True) as other:
            job = enqueue(other, "chaos.sync", {"n": n, "seconds": 0.01}, delay=1)
        conn.execute(
            "select redrive.cancel_v1(array[%s::bigint], 'monkey', 'held')", (job,)
        )
        return {n}

    return act


def hold_seconds(chance: float) -> float:
    """Return for how many seconds to hold a transaction, by a number in [0, 1)."""
    return SHORTEST + (LONGEST - SHORTEST) * (chance * 4 % 1)


def hold_row(url: str, chance: float, select: LiteralString) -> Hold:
    """Return a transaction that locks the row which `select` finds, as soon as there is one."""

    def act(conn: Session) -> set[int]:
        while conn.execute(select).fetchone() is None:
            conn.rollback()
            time.sleep(0.01)
        return set()

    return Hold(url, hold_seconds(chance), act)


def kill_noting(note: Callable[[str, int], None]) -> Callable[[int], None]:
    """Return what kills a runner, and tells the monkey."""

    def kill(pid: int) -> None:
        note("kill_runner", pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    return kill


class Waits(NamedTuple):
    """Seconds from a job's commit to its first start, each list in order.

    `calm`: while something was held and no other fault may have kept the job waiting.
    `held`: while something was held. `free`: while nothing was held.
    """

    calm: list[float]
    held: list[float]
    free: list[float]


def waits(
    holds: Iterable[Hold],
    added: Mapping[int, float],
    ledger: Mapping[int, list[Entry]],
    faults: Iterable[Fault],
) -> Waits:
    """Return how long the jobs waited that were `added`: number -> when it was committed."""
    spans = _merged(
        (hold.since, hold.until) for hold in holds if hold.until > hold.since
    )
    others = _merged(
        (fault.since, fault.until + RECOVERY)
        for fault in faults
        if fault.kind in CAUSES
    )
    found = Waits([], [], [])
    for n, at in added.items():
        starts = [entry.at for entry in ledger.get(n, ()) if entry.phase == "start"]
        if not starts:
            continue
        began = min(starts)
        seconds = max(0.0, began - at)
        if not _meets(spans, at, at):
            found.free.append(seconds)
            continue
        found.held.append(seconds)
        if not _meets(others, at, began):
            found.calm.append(seconds)
    return Waits(*map(sorted, found))


Span = tuple[float, float]


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Return spans of time in order, with no two that meet."""
    found: list[Span] = []
    for since, until in sorted(spans):
        if found and since <= found[-1][1]:
            found[-1] = found[-1][0], max(until, found[-1][1])
        else:
            found.append((since, until))
    return found


def _meets(merged: list[Span], since: float, until: float) -> bool:
    """Return whether one of these spans has a moment between `since` and `until`."""
    before = bisect.bisect_right(merged, until, key=lambda span: span[0])
    return before > 0 and merged[before - 1][1] >= since
