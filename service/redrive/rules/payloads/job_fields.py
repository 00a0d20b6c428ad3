"""The fields of a job, listed once.

This list defines the options of `enqueue` with their types and checks. It also defines
the fields of JSON lines, the parameters of SQL's enqueue, the columns of COPY and the
flags of `redrive enqueue`. A new field is a line of `JobOptions` and a parameter of a
new version of the SQL functions.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import (
    Annotated,
    Any,
    Literal,
    Protocol,
    Required,
    TypeAlias,
    TypedDict,
    get_type_hints,
)

from redrive.errors import InvalidJob
from redrive.rules.nearest import nearest_or_all
from redrive.rules.payloads.limits import (
    check_batch,
    check_delay,
    check_duration,
    check_instant,
    check_key,
    check_max_attempts,
    check_name,
    check_names,
    check_on_conflict,
    check_priority,
    check_text,
    check_version,
    encode_headers,
    encode_payload,
)
from redrive.signals import Seconds


class Model(Protocol):
    """A pydantic model."""

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        """Return the model's fields."""
        ...


Payload: TypeAlias = Mapping[str, Any] | Model | None
FieldType: TypeAlias = Literal[
    "text", "integer", "number", "instant", "duration", "object", "names"
]
CheckedJob: TypeAlias = dict[str, Any]
"""Stored form of a job: a value for each parameter of SQL's enqueue, in order.

Objects are JSON text, durations are seconds."""


@dataclass(frozen=True, slots=True)
class Field:
    """Description of a field, besides its name and its Python type.

    Attributes:
        type: its type on the way to the database.
        check: takes the name and a value, returns the stored value; raises InvalidJob.
        help: its help text on the command line.
        default: the stored value if the producer gives none.
        flag: its name on the command line, if different.
        copied: True if COPY can add it. Other fields need a look at other jobs or at
            the clock.
        parameter: True if SQL's enqueue has a parameter of its name.
    """

    type: FieldType
    check: Callable[[str, Any], Any]
    help: str = ""
    default: Any = None
    flag: str | None = None
    copied: bool = False
    parameter: bool = True


class JobOptions(TypedDict, total=False):
    """Options of `enqueue` besides the kind and the payload."""

    queue: Annotated[
        str,
        Field(
            "text",
            check_name,
            "Queue. [default: default]",
            default="default",
            copied=True,
        ),
    ]
    run_at: Annotated[
        datetime | None,
        Field("instant", check_instant, "Do not start before this time."),
    ]
    priority: Annotated[
        int,
        Field(
            "integer",
            check_priority,
            "Lower runs first. [default: 0]",
            default=0,
            copied=True,
        ),
    ]
    max_attempts: Annotated[
        int | None,
        Field(
            "integer",
            check_max_attempts,
            "Attempts in all. [default: the handler's policy]",
            copied=True,
        ),
    ]
    idempotency_key: Annotated[
        str | None,
        Field(
            "text",
            check_key,
            "Enqueue only one job of this kind with this key.",
            flag="--key",
        ),
    ]
    ordering_key: Annotated[
        str | None,
        Field("text", check_text, "Run jobs with the same key one after another."),
    ]
    tenant: Annotated[
        str | None, Field("text", check_text, "Tenant the job belongs to.")
    ]
    expires_in: Annotated[
        Seconds | None,
        Field(
            "duration",
            check_duration,
            "Give up if not done within this time, such as 1h.",
        ),
    ]
    headers: Annotated[
        Mapping[str, Any] | None,
        Field(
            "object",
            encode_headers,
            "JSON object for the handler.",
            default="{}",
            copied=True,
        ),
    ]
    delay: Annotated[
        Seconds | None,
        Field("duration", check_delay, "Do not start for this long, such as 10m."),
    ]
    unique_for: Annotated[
        Seconds | None,
        Field(
            "duration",
            check_duration,
            "Enqueue only one such job in this time, such as 1h.",
        ),
    ]
    unique_by: Annotated[
        Sequence[str] | None,
        Field("names", check_names, "Payload fields to compare. [default: all]"),
    ]
    on_conflict: Annotated[
        Literal["skip", "replace"] | None,
        Field(
            "text",
            check_on_conflict,
            "If the unique job exists: skip or replace. [default: skip]",
        ),
    ]
    batch: Annotated[
        int | None, Field("number", check_batch, "Batch the job belongs to.")
    ]
    version: Annotated[
        int | None,
        Field(
            "integer",
            check_version,
            "Version of the payload. [default: 1]",
            parameter=False,
        ),
    ]


class JobFields(JobOptions, total=False):
    """A job in the form that `enqueue_many` takes."""

    kind: Required[str]
    payload: Payload


OPTIONS: dict[str, Field] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(JobOptions, include_extras=True).items()
}
FIELDS: dict[str, Field] = {
    "kind": Field("text", check_name, copied=True),
    "payload": Field("object", encode_payload, default="{}", copied=True),
    **OPTIONS,
}
PARAMETERS = {name: field for name, field in FIELDS.items() if field.parameter}
"""Fields that SQL's enqueue takes, in order."""

_DEFAULTS = {name: field.default for name, field in PARAMETERS.items()}


def fields_of_call(
    function: str, kind: str, payload: object, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a job as an unchecked mapping, from the arguments of a call.

    Args:
        function: the name of the called function, for the error message.

    Raises:
        TypeError: an option has an unknown name.
    """
    check_options(function, options)
    return {"kind": kind, "payload": payload, **options}


def check_options(function: str, options: Mapping[str, Any]) -> None:
    """Raise TypeError for the first unknown option in a call of `function`."""
    for name in options:
        if name not in OPTIONS:
            msg = f"{function}() got an unknown option {name!r}; {nearest_or_all(name, OPTIONS)}"
            raise TypeError(msg)


def check_job(fields: Mapping[str, Any]) -> CheckedJob:
    """Check a job and return its stored form.

    Raises:
        InvalidJob: a field is unknown, missing or out of range; `path` and `rule` say
            which.
    """
    if "version" in fields:
        fields = _with_version_in_headers(fields)

    job = _DEFAULTS.copy()
    for name, value in fields.items():
        field = FIELDS.get(name)
        if field is None:
            raise InvalidJob(name, f"unknown field; {nearest_or_all(name, FIELDS)}")

        job[name] = field.check(name, value)

    if job["kind"] is None:
        path = "kind"
        rule = "is missing"
        raise InvalidJob(path, rule)

    if len(fields) > FEW or "payload" not in fields:
        _check_together(job, fields)

    return job


FEW = 2
"""Fields of most jobs: a kind and a payload, which cannot contradict each other."""

_NEEDING_OTHERS = frozenset({"delay", "unique_for", "unique_by", "on_conflict"})


def _check_together(job: CheckedJob, fields: Mapping[str, Any]) -> None:
    """Raise InvalidJob for fields that exclude each other, like SQL's unique_fault."""
    if _NEEDING_OTHERS.isdisjoint(fields):
        return

    given = {name for name, value in job.items() if value is not None}
    exclusive = (("delay", "run_at"), ("unique_for", "idempotency_key"))
    for first, second in exclusive:
        if {first, second} <= given:
            raise InvalidJob(first, f"give it or {second}, not both")

    _check_unique(given)
    if job["on_conflict"] == "replace" and "batch" in given:
        path = "on_conflict"
        raise InvalidJob(path, "a job of a batch cannot be replaced; leave it out")


def _check_unique(given: Collection[str]) -> None:
    for name in ("unique_by", "on_conflict"):
        if name in given and "unique_for" not in given:
            raise InvalidJob(name, "needs unique_for, how long the job is unique")


def _with_version_in_headers(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Move the payload's version to the headers, where the runner reads it."""
    others = dict(fields)
    version = others.pop("version")
    if version is None:
        return others

    version = check_version("version", version)
    headers: Any = others.get("headers") or {}
    if isinstance(headers, Mapping):  # other types are rejected by their check
        others["headers"] = {**headers, "version": version}

    return others
