"""Filter of live jobs, for SQL and options."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from redrive.database.criteria import Criteria, Criterion
from redrive.dead_letters.filter import CATEGORIES, REASONS

LIVE = frozenset({"ready", "scheduled", "retrying", "running", "blocked"})
ENDED = frozenset({"completed", "cancelled"})
"""States that only queues with a history keep."""

STATES = (
    "ready",
    "scheduled",
    "retrying",
    "running",
    "blocked",
    "completed",
    "cancelled",
)


@dataclass(frozen=True, slots=True)
class JobFilter(Criteria):
    """Selection of live jobs. A job must match every field that is set.

    Conditions refer to `jobs j`, `f`, the job's last failure, and `w`, the row that the
    walk over the jobs returned.
    """

    ids: Annotated[Sequence[int], Criterion(None, "Job id.")] = ()
    kind: Annotated[
        Sequence[str], Criterion("j.kind = any (%s::text[])", "Kind of job.")
    ] = ()
    queue: Annotated[
        Sequence[str], Criterion("j.queue = any (%s::text[])", "Queue.")
    ] = ()
    state: Annotated[
        Sequence[str], Criterion("w.state = any (%s::text[])", "State.", STATES)
    ] = ()
    reason: Annotated[
        Sequence[str],
        Criterion(
            "exists (select from redrive.dead_letters d where d.id = j.id"
            " and d.redrives = j.redrives - 1 and d.reason = any (%s::text[]))",
            "Reason of its last death, if it was redriven.",
            REASONS,
        ),
    ] = ()
    category: Annotated[
        Sequence[str],
        Criterion(
            "f.category = any (%s::text[])", "Category of its last failure.", CATEGORIES
        ),
    ] = ()
    error_class: Annotated[
        Sequence[str],
        Criterion(
            "f.error_class = any (%s::text[])", "Exception class of its last failure."
        ),
    ] = ()
    group: Annotated[
        str | None,
        Criterion(
            "starts_with(j.fingerprint, %s)", "Group, or the beginning of its name."
        ),
    ] = None
    tenant: Annotated[
        Sequence[str], Criterion("j.tenant = any (%s::text[])", "Tenant.")
    ] = ()
    ordering_key: Annotated[
        Sequence[str], Criterion("j.ordering_key = any (%s::text[])", "Ordering key.")
    ] = ()
    key: Annotated[
        Sequence[str],
        Criterion("j.idempotency_key = any (%s::text[])", "Idempotency key."),
    ] = ()
    since: Annotated[
        datetime | None,
        Criterion("j.created_at >= %s", "Enqueued at or after: an instant, or 2h ago."),
    ] = None
    until: Annotated[
        datetime | None,
        Criterion("j.created_at < %s", "Enqueued before: an instant, or 2h ago."),
    ] = None
    limit: Annotated[int | None, Criterion(None, "At most this many.")] = None

    def narrows(self) -> bool:
        """Return True if any field besides the limit is set."""
        return bool(self.state) or Criteria.narrows(self)
