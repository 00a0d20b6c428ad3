"""Checkpoints of handlers that wait until the database has them."""

from collections.abc import Callable
from dataclasses import dataclass

from redrive.worker import store
from redrive.worker.held import ClaimedJob
from redrive.worker.protocol import Checkpoint, CheckpointKept
from redrive.worker.store import Noted

Answer = Callable[[CheckpointKept], None]

AGAIN_SECONDS = 0.1
"""Delay before resending a checkpoint whose job row is locked."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Newest checkpoint of a job; it replaces all earlier ones."""

    held: ClaimedJob
    message: Checkpoint
    answer: Answer

    def say(self, *, is_kept: bool) -> None:
        message = self.message
        self.answer(CheckpointKept(message.id, message.deliveries, message.n, is_kept))


class Checkpoints:
    """Checkpoints of one worker. Each stays here until the database has answered."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, int], _Waiting] = {}
        self._again_at = 0.0
        self.is_unanswered = False
        """True if the try under way failed when it sent them."""

    def add(self, held: ClaimedJob, message: Checkpoint, answer: Answer) -> None:
        """Take a checkpoint. Its handler waits for the answer."""
        self._waiting[held.key] = _Waiting(held, message, answer)
        self._again_at = 0.0

    def is_due(self, now: float) -> bool:
        """Return True if any checkpoint must be sent."""
        return bool(self._waiting) and now >= self._again_at

    def send(self, conn: store.Connection, now: float) -> None:
        """Send the checkpoints that are due, in a transaction of their own.

        Raises psycopg.Error; then every checkpoint waits for the next try.
        """
        if not self.is_due(now):
            return

        self.is_unanswered = True
        waiting = self._waiting.values()
        noted = [
            Noted(
                worker=one.held.worker,
                claim=one.held.claim.id,
                id=one.held.id,
                deliveries=one.held.deliveries,
                data=one.message.data,
            )
            for one in waiting
        ]
        found = store.keep_checkpoints(conn, noted)
        self.is_unanswered = False

        for key, one in list(self._waiting.items()):
            # Jobs that this worker no longer holds are not in the answer.
            is_kept = found.get(key)
            if is_kept is False:
                self._again_at = now + AGAIN_SECONDS
                continue

            del self._waiting[key]
            one.say(is_kept=is_kept is True)

    def put_back(self) -> None:
        """Keep all checkpoints for the next try."""
        self.is_unanswered = False

    def refuse(self) -> None:
        """Say that no checkpoint is kept: the database does not accept one of them."""
        for one in self._waiting.values():
            one.say(is_kept=False)
        self._waiting.clear()
        self.is_unanswered = False
