"""Options of a worker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from redrive.database.connections.address import Address
from redrive.worker.processes.environment import EVERYTHING
from redrive.worker.processes.start import RunnerOptions


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Options of a worker. Durations are in seconds, `memory_limit` is in bytes.

    Attributes:
        handlers: the registry, as `module:attribute`; empty = none.
        targets: the path of the file of HTTP targets; empty = none.
        slots: of each runner.
        queues: the queues to claim from; None = all.
        where: details of this worker that are kept with every failure.
        environment: names of the variables that runners get.
        samples: True if runners sample jobs that succeed.
        source_lines: lines of source to keep of each frame of the application.
        listen: where to listen for notifications; None = at `database`.
    """

    database: Address
    handlers: str
    name: str
    targets: str = ""
    version: str = ""
    queues: tuple[str, ...] | None = None
    slots: int = 16
    runners: int = 1
    ttl: float = 30.0
    drain: float = 30.0
    until_empty: bool = False
    reload: bool = False
    memory_limit: int = 0
    where: Mapping[str, str] = field(default_factory=dict[str, str])
    environment: Sequence[str] = EVERYTHING
    samples: bool = True
    source_lines: int = 0
    listen: Address | None = None

    @property
    def all_slots(self) -> int:
        """Return the slots of all runners together."""
        return self.slots * self.runners

    def of_runners(self) -> RunnerOptions:
        """Return the options of the runners."""
        return RunnerOptions(
            handlers=self.handlers,
            targets=self.targets,
            runners=self.runners,
            slots=self.slots,
            memory_limit=self.memory_limit,
            where=self.where,
            environment=self.environment,
            reload=self.reload,
            samples=self.samples,
            source_lines=self.source_lines,
        )
