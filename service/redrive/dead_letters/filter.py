"""Which dead letters are meant: the one list of filters, for SQL, options and environment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, LiteralString, get_type_hints

STATES = ("open", "redriven", "resolved", "dismissed")


@dataclass(frozen=True, slots=True)
class Criterion:
    """What a field of the filter means.

    Attributes:
        condition: over `dead_letters d`, with the value as its parameter; None = not a condition.
        help: for the option of that name.
    """

    condition: LiteralString | None
    help: str


@dataclass(frozen=True, slots=True)
class Filter:
    """Which dead letters: those that match every field that is set.

    Each field is an option of the command line and, for redrive and purge, a variable of the
    environment (`redrive.cli.filters`). One that holds a sequence matches any of its values.
    """

    ids: Annotated[Sequence[int], Criterion("d.id = any (%s::bigint[])", "Job id.")] = ()
    kind: Annotated[Sequence[str], Criterion("d.kind = any (%s::text[])", "Kind of job.")] = ()
    queue: Annotated[Sequence[str], Criterion("d.queue = any (%s::text[])", "Queue.")] = ()
    reason: Annotated[
        Sequence[str],
        Criterion(
            "d.reason = any (%s::text[])", "Why it died: attempts_exhausted, not_retryable, ..."
        ),
    ] = ()
    category: Annotated[
        Sequence[str],
        Criterion(
            "d.category = any (%s::text[])", "Category of its last failure: transient, bug, ..."
        ),
    ] = ()
    error_class: Annotated[
        Sequence[str],
        Criterion("d.error_class = any (%s::text[])", "Exception class of its last failure."),
    ] = ()
    group: Annotated[
        str | None,
        Criterion("starts_with(d.fingerprint, %s)", "Group: the beginning of its name is enough."),
    ] = None
    state: Annotated[Sequence[str], Criterion("d.state = any (%s::text[])", "Its state.")] = ()
    tenant: Annotated[Sequence[str], Criterion("d.tenant = any (%s::text[])", "Tenant.")] = ()
    environment: Annotated[
        Sequence[str],
        Criterion("d.environment = any (%s::text[])", "Environment of the worker it failed on."),
    ] = ()
    since: Annotated[
        datetime | None,
        Criterion("d.died_at >= %s", "Died at or after: an instant, or 2h for two hours ago."),
    ] = None
    until: Annotated[
        datetime | None,
        Criterion("d.died_at < %s", "Died before: an instant, or 2h for two hours ago."),
    ] = None
    limit: Annotated[int | None, Criterion(None, "At most this many.")] = None

    def where(self) -> tuple[LiteralString, list[Any]]:
        """The conditions over `dead_letters d` as SQL, and their parameters; without the limit."""
        conditions: list[LiteralString] = ["true"]
        parameters: list[Any] = []
        for name, value in self._given().items():
            condition = CRITERIA[name].condition
            if condition is not None:
                conditions.append(condition)
                parameters.append(value)
        return " and ".join(conditions), parameters

    def narrows(self) -> bool:
        """Whether anything but state and limit is set."""
        return bool(self._given().keys() - {"state", "limit"})

    def described(self) -> dict[str, Any]:
        """Field -> value of what is set, ready for JSON: what the audit log keeps."""
        return {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in self._given().items()
        }

    def _given(self) -> dict[str, Any]:
        values = ((name, getattr(self, name)) for name in CRITERIA)
        return {
            name: value if isinstance(value, str | int | datetime) else list(value)
            for name, value in values
            if value
        }


CRITERIA: Mapping[str, Criterion] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(Filter, include_extras=True).items()
}
"""Field of the filter -> what it means, in the order in which `--help` shows them."""
