"""Progress and checkpoints that handlers report."""

import threading
from collections.abc import Callable
from concurrent.futures import Future

from redrive.worker.protocol import Checkpoint, CheckpointKept, Progress
from redrive.worker.run.sealing import Key

PROGRESS_SECONDS = 1.0
"""Time between two messages with the newest progress of each job."""


ProgressRow = tuple[int, int, float, str]
"""Row of `Progress`."""


class NoteBook:
    """Notes of one runner's jobs. `send` sends a message, from any thread."""

    def __init__(self, send: Callable[[Checkpoint | Progress], None]) -> None:
        self._send = send
        # Progress that was not sent yet.
        self._progress: dict[Key, Callable[[], ProgressRow]] = {}

        # Checkpoints that are not answered yet, by their numbers.
        self._waiting: dict[Key, list[tuple[int, Future[bool]]]] = {}
        self._last = 0

        self._lock = threading.Lock()

    def progress(self, key: Key, row: Callable[[], ProgressRow]) -> None:
        """Note how far an attempt is. Any thread may call it.

        `row` is called only if nothing newer replaces it before it is sent.
        """
        with self._lock:
            self._progress[key] = row

    def checkpoint(self, key: Key, data: str) -> "Future[bool]":
        """Send a checkpoint; the future says if it was kept. Any thread may call it."""
        kept: Future[bool] = Future()
        with self._lock:
            self._last += 1
            self._waiting.setdefault(key, []).append((self._last, kept))
            # within the lock: in the order of their numbers
            self._send(Checkpoint(*key, self._last, data))

        return kept

    def answered(self, answer: CheckpointKept) -> None:
        """Resolve a checkpoint, and all earlier checkpoints of the same attempt."""
        key = answer.id, answer.deliveries
        with self._lock:
            waiting = self._waiting.pop(key, [])
            later = [(n, kept) for n, kept in waiting if n > answer.n]
            if later:
                self._waiting[key] = later

        for n, kept in waiting:
            if n > answer.n:
                continue

            # a handler that was cancelled waits no longer
            if kept.set_running_or_notify_cancel():
                kept.set_result(answer.is_kept)

    def forget(self, key: Key) -> None:
        """Drop the notes of an attempt that has ended."""
        with self._lock:
            self._progress.pop(key, None)
            self._waiting.pop(key, None)

    def send_progress(self) -> None:
        """Send the progress since the last call."""
        if not self._progress:
            return

        with self._lock:
            noted, self._progress = self._progress, {}

        self._send(Progress([row() for row in noted.values()]))
