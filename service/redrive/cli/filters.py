"""The filters on dead letters as options and environment variables, made from `Filter` itself."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import click

from redrive.cli.options import Command, Decorator, Instant, option, with_options
from redrive.dead_letters.filter import CRITERIA, STATES, Filter

ANY = "any"

_TYPES: Mapping[str, tuple[Any, str | None]] = {
    "ids": (click.INT, "ID"),
    "group": (click.STRING, "FINGERPRINT"),
    "state": (click.Choice([*STATES, ANY]), None),
    "since": (Instant(), "TIME"),
    "until": (Instant(), "TIME"),
    "limit": (click.IntRange(1), "N"),
}
"""Type and placeholder of those that are not plain text."""


def filter_options(
    prefix: str | None = None, *, states: Sequence[str] = ()
) -> Callable[[Command], Command]:
    """Add the filters; the command gets the `Filter` they make as `chosen`.

    Args:
        prefix: of the environment variables that stand for the options; None = no variables.
        states: the dead letters that are meant when no state is given; none = all.
    """
    options = [_option(f.name, prefix, multiple=f.default == ()) for f in fields(Filter)]

    def add(command: Command) -> Command:
        @functools.wraps(command)
        def choose(**given: Any) -> object:
            wanted = {name: given.pop(name) for name in CRITERIA}
            wanted["state"] = _states(wanted["state"], states)
            return command(chosen=Filter(**wanted), **given)

        return with_options(options, choose)

    return add


def _states(given: Sequence[str], default: Sequence[str]) -> Sequence[str]:
    """The states that --state means; none = all."""
    return () if ANY in given else tuple(given or default)


def _option(field: str, prefix: str | None, *, multiple: bool) -> Decorator:
    name = "id" if field == "ids" else field
    kind, metavar = _TYPES.get(field, (click.STRING, name.upper()))
    return option(
        prefix,
        f"--{name.replace('_', '-')}",
        field,
        multiple=multiple,
        type=kind,
        metavar=metavar,
        help=CRITERIA[field].help,
    )
