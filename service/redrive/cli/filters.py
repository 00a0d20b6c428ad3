"""The filters on dead letters as options and environment variables, made from `Filter` itself."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import click

from redrive.cli.options import Command, Decorator, Instant, with_options
from redrive.dead_letters.filter import CRITERIA, STATES, Filter

_TYPES: Mapping[str, tuple[Any, str | None]] = {
    "ids": (click.INT, "ID"),
    "group": (click.STRING, "FINGERPRINT"),
    "state": (click.Choice([*STATES, "any"]), None),
    "since": (Instant(), "TIME"),
    "until": (Instant(), "TIME"),
    "limit": (click.IntRange(1), "N"),
}
"""Type and placeholder of those that are not plain text."""


def filter_options(prefix: str | None = None) -> Callable[[Command], Command]:
    """Add the filters; with a prefix each is also an environment variable, for CronJobs."""
    options = [_option(f.name, prefix, multiple=f.default == ()) for f in fields(Filter)]
    return lambda command: with_options(options, command)


def _option(field: str, prefix: str | None, *, multiple: bool) -> Decorator:
    name = "id" if field == "ids" else field
    kind, metavar = _TYPES.get(field, (click.STRING, name.upper()))
    return click.option(
        f"--{name.replace('_', '-')}",
        field,
        multiple=multiple,
        type=kind,
        metavar=metavar,
        help=CRITERIA[field].help,
        envvar=prefix and f"{prefix}_{name.upper()}",
    )


def filter_from(options: Mapping[str, Any], *, states: Sequence[str] = ()) -> Filter:
    """The filter that the options describe; `states` when they name none."""
    given = {name: options[name] for name in CRITERIA}
    if "any" in given["state"]:
        given["state"] = ()
    elif not given["state"]:
        given["state"] = tuple(states)
    return Filter(**given)
