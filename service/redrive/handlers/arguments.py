"""Checks of a handler's options, made when it is declared."""

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, cast, get_args

from redrive.handlers.handler import Upgrade
from redrive.rules.attempts.policy import OnDeath, Policy, is_whole
from redrive.rules.heal import Heal
from redrive.rules.payloads.limits import check_name
from redrive.rules.rows import Fields
from redrive.rules.slots import Schedule
from redrive.signals import is_duration

LEAST_RATE, MOST_RATE = 0.001, 1_000_000
"""Smallest and largest rate that a limit can have."""


def _are_names(value: Any) -> bool:
    """Return True for a collection of texts; False for a single text."""
    is_one = isinstance(value, (str, bytes)) or not isinstance(value, Collection)
    return not is_one and all(
        isinstance(name, str) for name in cast("Collection[object]", value)
    )


def _are_schedules(value: Any) -> bool:
    if not isinstance(value, (list, tuple)):
        return isinstance(value, Schedule)
    return all(isinstance(one, Schedule) for one in cast("Sequence[object]", value))


def _is_rate(value: Any) -> bool:
    """Return True for None and for a rate that the database can keep."""
    if value is None:
        return True
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and LEAST_RATE <= value <= MOST_RATE


def _is_callable(value: Any) -> bool:
    return value is None or callable(value)


_TYPES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "policy": (lambda value: value is None or isinstance(value, Policy), "a Policy"),
    "depends_on": (_are_names, "a list of names"),
    "secret": (_are_names, "a list of names"),
    "version": (is_whole, "a whole number"),
    "upgrade": (
        lambda value: value is None or isinstance(value, Mapping),
        "functions by version",
    ),
    "on_expired": (_is_callable, "a function"),
    "on_cancelled": (_is_callable, "a function"),
    "schedule": (_are_schedules, "a Schedule, or a list of them"),
    "keep_result": (is_duration, "a timedelta or a number of seconds"),
    "sample": (lambda value: isinstance(value, bool), "True or False"),
    "heal": (lambda value: value is None or isinstance(value, Heal), "a Heal"),
    "validate": (_is_callable, "a function"),
    "redrive_rate": (_is_rate, f"jobs per second, {LEAST_RATE} to {MOST_RATE:,}"),
    "repeatable": (lambda value: isinstance(value, bool), "True or False"),
}


def check_type(kind: str, name: str, value: Any) -> None:
    """Raise ValueError if an option has a wrong type.

    A wrong type would fail later, in another place.
    """
    is_right, rule = _TYPES.get(name, (lambda _value: True, ""))
    if not is_right(value):
        msg = f"{kind}: {name} must be {rule}, not {value!r}"
        raise ValueError(msg)


def check_declared(options: Fields) -> None:
    """Raise ValueError for options that no handler can have."""
    check_name("kind", options["kind"])
    check_name("queue", options["queue"])

    for name in options["depends_on"]:
        check_name("depends_on", name)

    fault = next(chain(_faults(**options), _faults_of_heal(**options)), None)
    if fault is not None:
        raise ValueError(fault)


def _faults(
    *,
    kind: str,
    on_death: str,
    approval: str | None,
    validate: Callable[[Any], object] | None,
    **_: object,
) -> Iterator[str]:
    if on_death not in get_args(OnDeath):
        choices = " or ".join(get_args(OnDeath))
        yield f"on_death: must be {choices}, not {on_death!r}"
    if approval not in {None, "two"}:
        yield f'{kind}: approval must be "two" or absent, not {approval!r}'
    if inspect.iscoroutinefunction(validate):
        yield f"{kind}: validate must be a plain function, not async"


def _faults_of_heal(
    *, kind: str, heal: Heal | None, approval: str | None, repeatable: bool, **_: object
) -> Iterator[str]:
    if heal and approval:
        yield f'{kind}: heal needs no person, but approval="two" requires two people'
    if heal and not repeatable:
        yield f"{kind}: heal redrives by itself, but repeatable=False forbids that"


def every_upgrade(
    kind: str, version: int, upgrade: Mapping[int, Upgrade]
) -> Mapping[int, Upgrade]:
    """Return the upgrades; raise ValueError unless each older version has one."""
    if version < 1 or set(upgrade) != set(range(1, version)):
        msg = (
            f"the handler of {kind!r} takes version {version}"
            f" and must upgrade each of 1 to {version - 1}"
        )
        raise ValueError(msg)

    return dict(upgrade)
