"""Options of a worker."""

from dataclasses import dataclass

from redrive.database.connections.address import Address
from redrive.worker.processes.start import RunnerOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions(RunnerOptions):
    """Options of a worker, and of its runners. Durations are in seconds.

    Attributes:
        queues: the queues to claim from; None = all.
        listen: where to listen for notifications; None = at `database`.
    """

    database: Address
    name: str
    version: str = ""
    queues: tuple[str, ...] | None = None
    ttl: float = 30.0
    drain: float = 30.0
    until_empty: bool = False
    listen: Address | None = None

    @property
    def all_slots(self) -> int:
        """Return the slots of all runners together."""
        return self.slots * self.runners
