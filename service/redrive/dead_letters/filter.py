"""Filter of dead letters: one list of fields for SQL, options and environment."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from redrive.database.criteria import Criteria, Criterion
from redrive.rules.model import Category, Reason

CONDITION = re.compile(r"(payload|headers)(\.[^.=]+)+=")
"""Beginning of a condition on a job's content; its value follows."""

STATES = ("open", "redriven", "resolved", "dismissed")
REASONS = tuple(reason.value for reason in Reason)
CATEGORIES = tuple(category.value for category in Category)


@dataclass(frozen=True, slots=True)
class Filter(Criteria):
    """Selection of dead letters. A dead letter must match every field that is set.

    Each field is an option of the command line (`redrive.cli.support.filters`). Redrive
    and purge also read it from an environment variable. A sequence matches any of its
    values.
    """

    ids: Annotated[
        Sequence[int], Criterion("d.id = any (%s::bigint[])", "Job id.")
    ] = ()
    kind: Annotated[
        Sequence[str], Criterion("d.kind = any (%s::text[])", "Kind of job.")
    ] = ()
    queue: Annotated[
        Sequence[str], Criterion("d.queue = any (%s::text[])", "Queue.")
    ] = ()
    reason: Annotated[
        Sequence[str],
        Criterion("d.reason = any (%s::text[])", "Reason of the death.", REASONS),
    ] = ()
    category: Annotated[
        Sequence[str],
        Criterion(
            "d.category = any (%s::text[])", "Category of its last failure.", CATEGORIES
        ),
    ] = ()
    error_class: Annotated[
        Sequence[str],
        Criterion(
            "d.error_class = any (%s::text[])", "Exception class of its last failure."
        ),
    ] = ()
    group: Annotated[
        str | None,
        Criterion(
            "d.fingerprint = any (%s::text[])", "Group, or the beginning of its name."
        ),
    ] = None
    owner: Annotated[
        str | None,
        Criterion(
            "(d.queue, d.kind) in (select split_part(p, '/', 1), split_part(p, '/', 2)"
            " from unnest(%s::text[]) p)",
            "Owner of the queue and kind: redrive owner ls.",
        ),
    ] = None
    state: Annotated[
        Sequence[str], Criterion("d.state = any (%s::text[])", "State.", STATES)
    ] = ()
    tenant: Annotated[
        Sequence[str], Criterion("d.tenant = any (%s::text[])", "Tenant.")
    ] = ()
    environment: Annotated[
        Sequence[str],
        Criterion(
            "d.environment = any (%s::text[])",
            "Environment of the worker it failed on.",
        ),
    ] = ()
    version: Annotated[
        Sequence[str],
        Criterion(
            "d.version = any (%s::text[])", "Version of the worker it failed on."
        ),
    ] = ()
    holds: Annotated[
        Sequence[str],
        Criterion(
            "redrive.holds_v1(d.payload, d.headers, %s::text[])",
            "Value in the job: payload.currency=XAU, headers.source=import.",
        ),
    ] = ()
    since: Annotated[
        datetime | None,
        Criterion(
            "d.died_at >= %s", "Died at or after: an instant, or 2h for two hours ago."
        ),
    ] = None
    until: Annotated[
        datetime | None,
        Criterion(
            "d.died_at < %s", "Died before: an instant, or 2h for two hours ago."
        ),
    ] = None
    limit: Annotated[int | None, Criterion(None, "At most this many.")] = None
