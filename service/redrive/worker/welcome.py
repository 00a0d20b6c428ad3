"""Welcome of a runner that has loaded its handlers."""

from dataclasses import dataclass

from redrive.worker.claim.identity import Identity
from redrive.worker.claim.queues import QueueCheck
from redrive.worker.job_flow import JobFlow
from redrive.worker.kinds import KnownKinds
from redrive.worker.polling import Polling
from redrive.worker.processes.breakers import Breakers
from redrive.worker.protocol import Hello
from redrive.worker.telemetry import Telemetry
from redrive.worker.upkeep.schedules import Schedules


@dataclass(slots=True, eq=False)
class Welcome:
    """Passes on what a new runner says about its handlers."""

    kinds: KnownKinds
    schedules: Schedules
    identity: Identity
    breakers: Breakers
    job_flow: JobFlow
    polling: Polling
    queue_check: QueueCheck
    telemetry: Telemetry

    def learn(self, hello: Hello) -> None:
        """Take the kinds, schedules and dependencies of a new runner."""
        kinds = {kind.kind: kind for kind in hello.kinds}
        has_other_schedules = self.schedules.learn(hello.schedules)
        has_other_kinds = self.kinds.learn(kinds)

        if has_other_kinds or has_other_schedules:
            self.identity.leave()  # it is registered with the old ones

        depends_on = {kind.kind: kind.depends_on for kind in hello.kinds}
        self.breakers.configure(hello.dependencies, depends_on)
        self.job_flow.tell_open_breakers()

        self.telemetry.ready(kinds)
        self.queue_check.look(each.queue for each in (*hello.kinds, *hello.schedules))
        self.polling.expect_more()
