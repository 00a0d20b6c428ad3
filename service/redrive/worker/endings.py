"""What has ended and the database does not know yet.

An ending stays here until the database has answered for it: taken for a try, put back when the try came to nothing.
"""

import time
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from redrive.telemetry import Telemetry
from redrive.worker.fleet import Held
from redrive.worker.frames import Verdict
from redrive.worker.store import Completion

BATCH = 500
"""Endings that go at once; fewer may wait for company."""


class Try(NamedTuple):
    """Endings sent together."""

    completions: list[Completion]
    verdicts: list[tuple[Verdict, int]]

    def __bool__(self) -> bool:
        return bool(self.completions or self.verdicts)


class Endings:
    """The endings of one worker's jobs. `telemetry` hears of each once, when it is known to be one."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._completions: list[Completion] = []
        self._verdicts: list[tuple[Verdict, int]] = []
        self._kind_of: dict[int, tuple[str, str]] = {}  # id -> queue, kind
        self._may_be_gone: dict[int, Held] = {}  # settled in a transaction of their handlers, if that was committed
        self._first_at = float("inf")
        self._sent_before = False  # an earlier try may have been carried out

    def __len__(self) -> int:
        return len(self._completions) + len(self._verdicts)

    def completed(self, finished: Sequence[tuple[Held, float]], example: tuple[int, str] | None = None) -> None:
        """Attempts succeeded, with the seconds each took, and the trace of one of them."""
        completions, kind_of = self._completions, self._kind_of
        for held, _ in finished:
            row = held.row
            completions.append((row[0], row[1], held.worker))
            kind_of[row[0]] = (held.queue, row[3])
        self._telemetry.completed(finished, example)
        self._note()

    def ended(self, held: Held, verdict: Verdict) -> None:
        """An attempt ended otherwise."""
        self._verdicts.append((verdict, held.worker))
        self._kind_of[held.id] = (held.queue, held.kind)
        if verdict.may_be_gone:
            self._may_be_gone[held.id] = held
        else:
            self._telemetry.ended(held, verdict)
        self._note()

    def _note(self) -> None:
        if self._first_at == float("inf"):
            self._first_at = time.monotonic()

    def due_at(self, linger: float) -> float:
        """The monotonic instant at which to send them, when the first may wait for `linger` seconds."""
        return 0.0 if len(self) >= BATCH else self._first_at + linger

    def take(self) -> Try:
        """All of them, for one try. `done` or `put_back` must follow."""
        taken = Try(self._completions, self._verdicts)
        self._completions, self._verdicts = [], []
        self._first_at = float("inf")
        return taken

    def put_back(self, taken: Try, *, may_be_done: bool = False) -> None:
        """Keep them for the next try. `may_be_done`: nobody knows whether this one was carried out."""
        self._completions = taken.completions + self._completions
        self._verdicts = taken.verdicts + self._verdicts
        self._sent_before |= may_be_done
        if self:
            self._note()

    def queues(self, taken: Try) -> Iterable[str]:
        """The queue of each of them."""
        ids = chain((c[0] for c in taken.completions), (v.id for v, _ in taken.verdicts))
        return (self._kind_of[job][0] for job in ids if job in self._kind_of)

    def kind(self, job: int) -> str:
        """The kind of one of them."""
        return self._kind_of.get(job, ("", ""))[1]

    def workers(self) -> set[int]:
        """The identities their jobs were claimed for."""
        return {c[2] for c in self._completions} | {worker for _, worker in self._verdicts}

    def done(self, taken: Try, completed: set[int] | None, settled: set[int]) -> None:
        """The database has answered: `completed` (None: all) and `settled` are the ids that were ours to end.

        The others had been fenced off; after an unknown outcome a missing one may be our own earlier success.
        """
        stale: list[int] = []
        if completed is not None:
            stale += [c[0] for c in taken.completions if c[0] not in completed]
        if len(settled) < len(taken.verdicts):
            stale += [v.id for v, _ in taken.verdicts if v.id not in settled and v.id not in self._may_be_gone]
        if stale and not self._sent_before:
            self._telemetry.stale([(job, *self._kind_of.get(job, ("", ""))) for job in stale])
        self._sent_before = False
        for job, _, _ in taken.completions:
            self._kind_of.pop(job, None)
        for verdict, _ in taken.verdicts:
            self._kind_of.pop(verdict.id, None)
            held = self._may_be_gone.pop(verdict.id, None)
            if held is not None and verdict.id in settled:
                self._telemetry.ended(held, verdict)
            elif held is not None:
                self._telemetry.completed([(held, verdict.seconds)])
