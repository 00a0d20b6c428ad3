"""Progress and checkpoints that handlers report."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from redrive.worker.protocol import Checkpoint, CheckpointKept, Progress

PROGRESS_SECONDS = 1.0
"""Until the next progress of any job is passed on; of each job the newest."""

Key = tuple[int, int]
"""A job's id, and the delivery."""


class Noting(Protocol):
    """An attempt, as far as its notes go."""

    @property
    def key(self) -> Key:
        """Return the key of its job."""
        ...

    def sealed_progress(self, share: float, text: str) -> tuple[int, int, float, str]:
        """A row of `Progress`."""
        ...


class NoteBook:
    """The notes of one runner's jobs; `send` takes a message to the supervisor, from
    any thread.
    """

    def __init__(self, send: Callable[[Checkpoint | Progress], None]) -> None:
        self._send = send
        self._progress: dict[Key, tuple[Noting, float, str]] = {}
        self._waiting: dict[Key, list[tuple[int, Future[bool]]]] = {}
        self._last = 0
        self._lock = threading.Lock()

    def progress(self, attempt: Noting, share: float, text: str) -> None:
        """Note how far an attempt is, in place of what it said before. Any thread
        may.
        """
        with self._lock:
            self._progress[attempt.key] = attempt, share, text

    def checkpoint(self, key: Key, data: str) -> "Future[bool]":
        """Send a checkpoint; the future has whether it was kept. Any thread may."""
        kept: Future[bool] = Future()
        with self._lock:
            self._last += 1
            self._waiting.setdefault(key, []).append((self._last, kept))
            # within the lock: in the order of their numbers
            self._send(Checkpoint(*key, self._last, data))
        return kept

    def heed(self, answer: CheckpointKept) -> None:
        """The supervisor has an answer to a checkpoint, and to those of its job before
        it.
        """
        key = answer.id, answer.deliveries
        with self._lock:
            waiting = self._waiting.pop(key, [])
            later = [(n, kept) for n, kept in waiting if n > answer.n]
            if later:
                self._waiting[key] = later
        for n, kept in waiting:
            # a handler that was cancelled waits no longer
            if n <= answer.n and kept.set_running_or_notify_cancel():
                kept.set_result(answer.is_kept)

    def forget(self, key: Key) -> None:
        """An attempt has ended."""
        with self._lock:
            self._progress.pop(key, None)
            self._waiting.pop(key, None)

    async def pass_on(self) -> None:
        """Send what there is of progress, for ever."""
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            if self._progress:
                self.send_progress()

    def send_progress(self) -> None:
        """Send what there is of progress."""
        with self._lock:
            noted, self._progress = self._progress, {}
        self._send(
            Progress([said[0].sealed_progress(*said[1:]) for said in noted.values()])
        )
