"""Progress of handlers on its way to the database: it may be late, or lost."""

from collections import deque

from redrive.worker.held import ClaimedJob
from redrive.worker.store import Noted


class ProgressBook:
    """Progress that is not written yet. The loop adds to it; maintenance takes it."""

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

    def take(self) -> list[Noted]:
        """Take out the newest progress of each job."""
        newest: dict[int, Noted] = {}
        while self._noted:
            noted = self._noted.popleft()
            newest[noted.id] = noted

        return list(newest.values())
