"""Progress of handlers on its way to the database: it may be late, or lost."""

from collections import deque

from redrive.database.connections.link import Link
from redrive.worker import store
from redrive.worker.held import ClaimedJob
from redrive.worker.store import Noted


class ProgressBook:
    """Progress since the last write. The loop adds to it; maintenance writes it."""

    def __init__(self) -> None:
        self._noted: deque[Noted] = deque()

    def note(self, held: ClaimedJob, share: float, detail: str) -> None:
        """Note the progress of a job."""
        self._noted.append(
            Noted(
                worker=held.worker,
                claim=held.claim.id,
                id=held.id,
                deliveries=held.deliveries,
                data=detail,
                share=share,
            )
        )

    def write(self, link: Link, bound: float) -> None:
        """Write the newest of each job. Raises psycopg.Error; then it is dropped."""
        newest: dict[int, Noted] = {}
        while self._noted:
            noted = self._noted.popleft()
            newest[noted.id] = noted

        if newest:
            with link.use(bound=bound) as conn:
                store.keep_progress(conn, list(newest.values()))
