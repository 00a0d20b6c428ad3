"""Side effects that handlers reported and the database does not know of yet."""

from redrive.worker import store
from redrive.worker.held import ClaimedJob
from redrive.worker.protocol import SideEffect

AGAIN_SECONDS = 0.1
"""Delay before resending a side effect whose job row is locked."""


class SideEffects:
    """Side effects of one worker. Each stays here until the database has it."""

    def __init__(self) -> None:
        self._waiting: list[store.WorkerSideEffect] = []
        self._taken: list[store.WorkerSideEffect] = []
        self._due_at = 0.0

    @property
    def is_taken(self) -> bool:
        """True if any side effect belongs to the try under way."""
        return bool(self._taken)

    def add(self, held: ClaimedJob, side_effect: SideEffect) -> None:
        """Take a side effect that a handler has reported."""
        self._waiting.append((held.worker, side_effect))
        self._due_at = 0.0

    def is_due(self, now: float) -> bool:
        """Return True if any side effect must be sent."""
        return bool(self._waiting) and now >= self._due_at

    def take(self, now: float) -> bool:
        """Take the side effects that are due, for one try. Return True if this try has any."""
        if self.is_due(now):
            self._taken, self._waiting = self._waiting, []
        return self.is_taken

    def send(self, conn: store.Connection, now: float) -> None:
        """Send the side effects taken. Raises psycopg.Error."""
        if not self._taken:
            return

        again = store.side_effects(conn, self._taken)
        self._waiting += [each for each in self._taken if each[1].id in again]
        self._due_at = now + AGAIN_SECONDS
        self._taken = []

    def put_back(self) -> None:
        """Keep the side effects taken for the next try."""
        self._waiting = self._taken + self._waiting
        self._taken = []

    def drop(self) -> None:
        """Drop the side effects taken: the database may refuse one of them."""
        self._taken = []

    def wait_until(self, due_at: float) -> None:
        """Send nothing before this instant, unless a handler reports more."""
        self._due_at = due_at
