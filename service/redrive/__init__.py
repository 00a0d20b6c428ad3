"""Redrive runs background jobs from Postgres, and gets the failed ones back to work safely."""

from redrive.batches import close_batch, open_batch
from redrive.enqueue import enqueue, enqueue_many
from redrive.errors import InvalidJob, RedriveError, StaleClaim
from redrive.handlers import Handlers
from redrive.idempotency import idempotent
from redrive.job import Job
from redrive.job_function import JobFunction
from redrive.results import Ended, wait
from redrive.rules.categories import Rule
from redrive.rules.heal import Heal
from redrive.rules.job_fields import JobFields, JobOptions
from redrive.rules.model import Category
from redrive.rules.policy import Policy
from redrive.rules.slots import Schedule
from redrive.signals import Cancel, GiveUp, Retry, Snooze

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
    "close_batch",
    "enqueue",
    "enqueue_many",
    "idempotent",
    "open_batch",
    "wait",
]
