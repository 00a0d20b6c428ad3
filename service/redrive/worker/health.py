"""Health of a worker, as its probes show it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Health:
    """Health of a worker. Durations are seconds since something last happened."""

    loop_seconds: float
    heartbeat_thread_seconds: float
    beat_seconds: float
    """Since the database last confirmed a heartbeat."""
    beat_in_time: bool
    database_failures: int
    """Database calls that failed in a row."""
    database_fault: str | None
    """Why the worker cannot log in to the database; None if that did not fail."""
    exchange: str | None
    """Why no exchange succeeds although jobs are due, or a Remark about slow ones."""
    has_ready_runner: bool
    runners: str | None
    """Why jobs wait in this worker and none starts; None if all is well."""
    is_draining: bool
    maintenance: str | None
    """Which chore of this worker fails; None if all is well."""
