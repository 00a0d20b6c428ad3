"""Jobs that a dead runner leaves behind."""

from typing import NamedTuple

from redrive.worker.held import ClaimedJob
from redrive.worker.processes.runner_process import RunnerProcess


class Remains(NamedTuple):
    """Jobs of a dead runner, by how far they had come.

    Attributes:
        running: they ran when it died.
        completed: they had succeeded, and it had not reported them.
        failed: they had failed, and it had not reported them.
        waiting: they had not started.
    """

    running: list[ClaimedJob]
    completed: list[ClaimedJob]
    failed: list[ClaimedJob]
    waiting: list[ClaimedJob]


def remains_of(runner: RunnerProcess) -> Remains:
    """Sort the jobs of a dead runner by how far they had come."""
    taken = runner.shared.taken
    completed = runner.shared.completed()
    on_slots = {(each.id, each.deliveries) for each in runner.shared.running()}
    remains = Remains([], [], [], [])

    for held in runner.held:
        key = held.key
        # Do this first: a completed job may still be on its slot.
        if key in completed:
            remains.completed.append(held)
        elif key in on_slots:
            remains.running.append(held)
        elif held.position <= taken:
            remains.failed.append(held)
        else:
            remains.waiting.append(held)

    return remains
