"""Options of a handler, checked when it is declared."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict, Unpack, cast

from redrive.handlers.arguments import check_declared, check_type, every_upgrade
from redrive.handlers.function import (
    check_runs,
    is_async,
    reader,
    secret_fields,
    takes_job,
)
from redrive.handlers.handler import Approval, Handler, Upgrade
from redrive.handlers.job_function import plain
from redrive.rules.attempts.policy import OnDeath, Policy
from redrive.rules.concurrency import check_templates
from redrive.rules.heal import Heal
from redrive.rules.rows import Fields
from redrive.rules.slots import Schedule
from redrive.signals import Seconds, seconds


class Options(TypedDict):
    """Arguments of `Handlers.handle`."""

    kind: str
    queue: str
    policy: Policy | None
    depends_on: Sequence[str]
    secret: Collection[str]
    version: int
    upgrade: Mapping[int, Upgrade] | None
    on_expired: Callable[..., Any] | None
    on_cancelled: Callable[..., Any] | None
    on_death: OnDeath
    schedule: Schedule | Sequence[Schedule]
    limits: Sequence[str]
    keep_result: Seconds
    approval: Approval | None
    sample: bool
    heal: Heal | None
    validate: Callable[[Any], object] | None
    redrive_rate: float | None
    repeatable: bool


class Declared(NamedTuple):
    """Checked options of a handler. The function is still missing."""

    fields: Fields
    secret: frozenset[str]
    schedules: Sequence[Schedule]

    def handler(self, function: Callable[..., Any]) -> Handler:
        """Return the handler with this function.

        Raises:
            ValueError: the function takes other arguments than a handler, or a call
                would run nothing of it.
        """
        check_runs(f"the handler of {self.fields['kind']!r}", function)
        with_job = takes_job(self.fields["kind"], function)
        payload_type, read = reader(function)
        return Handler(
            **self.fields,
            function=function,
            is_async=is_async(function),
            takes_job=with_job,
            read=read,
            secret=self.secret | secret_fields(payload_type),
        )


def declare(**options: Unpack[Options]) -> Declared:
    """Check the options of a handler.

    Raises:
        InvalidJob, ValueError: as for `Handlers.handle`.
    """
    values = cast("dict[str, Any]", options)
    kind = values["kind"]

    for name, value in values.items():
        check_type(kind, name, value)

    for name in ("on_expired", "on_cancelled", "validate"):
        check_runs(f"{kind}: {name}", values[name])

    schedule = values["schedule"]
    schedules = [schedule] if isinstance(schedule, Schedule) else schedule
    fields = _fields(options)
    check_declared(fields)

    return Declared(
        fields=fields, secret=frozenset(values["secret"]), schedules=schedules
    )


def _fields(options: Options) -> dict[str, Any]:
    """Return the fields of a Handler that follow from the options alone."""
    fields = cast("dict[str, Any]", options) | {
        "policy": options["policy"] or Policy(),
        "depends_on": tuple(options["depends_on"]),
        "upgrade": every_upgrade(
            options["kind"], options["version"], options["upgrade"] or {}
        ),
        "on_expired": plain(options["on_expired"]),
        "on_cancelled": plain(options["on_cancelled"]),
        "limits": check_templates(options["limits"]),
        "keep_result": seconds(options["keep_result"]),
    }
    # `Declared` keeps these two apart from the fields of a handler.
    del fields["secret"], fields["schedule"]

    return fields
