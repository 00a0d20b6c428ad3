"""Load of a worker: what its next call to the database does first."""

from enum import Enum, auto


class Load(Enum):
    """Situation of a worker just before it calls the database."""

    IDLE = auto()
    """Nothing runs and nothing has ended: the claim may wait for its turn."""

    STEADY = auto()
    """Settle and claim in one call."""

    CLAIM_FIRST = auto()
    """Claim, then settle: new jobs do not wait until ended ones are on the disk."""

    BACKLOG = auto()
    """Hand out the jobs of the last claim while the database works on the next one."""


def load_of(
    *,
    has_jobs: bool,
    has_unclaimed_rest: bool,
    has_undelivered: bool,
    is_settling: bool,
    has_free_slots: bool,
) -> Load:
    """Return the load of a worker.

    Args:
        has_jobs: this worker has claimed jobs that have not ended.
        has_unclaimed_rest: the last claim probably left jobs behind.
        has_undelivered: some of the last claim's jobs are in no runner yet.
        is_settling: the database does not know yet of every attempt that has ended.
        has_free_slots: a claim is due, and there is room for its jobs.
    """
    if not (has_jobs or is_settling):
        return Load.IDLE
    if has_unclaimed_rest:
        return Load.BACKLOG
    if is_settling and has_free_slots and not has_undelivered:
        return Load.CLAIM_FIRST

    return Load.STEADY
