"""Redrive runs background jobs from Postgres, and redrives the failed ones safely."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Imported at once, because a module has the same name.
from redrive.enqueue import enqueue, enqueue_many

if TYPE_CHECKING:
    from redrive.batches import close_batch, open_batch
    from redrive.database.schema.migrate import migrate
    from redrive.errors import InvalidJob, RedriveError, StaleClaim
    from redrive.handlers import Handlers
    from redrive.handlers.job import Job
    from redrive.handlers.job_function import JobFunction
    from redrive.idempotency import idempotent
    from redrive.results import Ended, wait
    from redrive.rules.attempts.categories import Rule
    from redrive.rules.attempts.policy import Policy
    from redrive.rules.cells import cell_of
    from redrive.rules.heal import Heal
    from redrive.rules.model import Category
    from redrive.rules.payloads.job_fields import JobFields, JobOptions
    from redrive.rules.slots import Schedule
    from redrive.signals import Cancel, GiveUp, Retry, Snooze

_MODULES = {
    "close_batch": "redrive.batches",
    "open_batch": "redrive.batches",
    "migrate": "redrive.database.schema.migrate",
    "InvalidJob": "redrive.errors",
    "RedriveError": "redrive.errors",
    "StaleClaim": "redrive.errors",
    "Handlers": "redrive.handlers",
    "idempotent": "redrive.idempotency",
    "Job": "redrive.handlers.job",
    "JobFunction": "redrive.handlers.job_function",
    "Ended": "redrive.results",
    "wait": "redrive.results",
    "Rule": "redrive.rules.attempts.categories",
    "cell_of": "redrive.rules.cells",
    "Heal": "redrive.rules.heal",
    "JobFields": "redrive.rules.payloads.job_fields",
    "JobOptions": "redrive.rules.payloads.job_fields",
    "Category": "redrive.rules.model",
    "Policy": "redrive.rules.attempts.policy",
    "Schedule": "redrive.rules.slots",
    "Cancel": "redrive.signals",
    "GiveUp": "redrive.signals",
    "Retry": "redrive.signals",
    "Snooze": "redrive.signals",
}
"""Name -> module.

Names are imported on first use, so a command loads only the modules it needs.
"""

__all__ = [
    "Cancel",
    "Category",
    "Ended",
    "GiveUp",
    "Handlers",
    "Heal",
    "InvalidJob",
    "Job",
    "JobFields",
    "JobFunction",
    "JobOptions",
    "Policy",
    "RedriveError",
    "Retry",
    "Rule",
    "Schedule",
    "Snooze",
    "StaleClaim",
    "cell_of",
    "close_batch",
    "enqueue",
    "enqueue_many",
    "idempotent",
    "migrate",
    "open_batch",
    "wait",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)

    # As a global, the name is found without this function from now on.
    found = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    return __all__
