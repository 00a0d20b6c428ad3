"""Options and environment variables made from the filter classes."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from itertools import chain
from typing import Any

import click

from redrive.cli.support.options import (
    Command,
    Decorator,
    Instant,
    option,
    with_options,
)
from redrive.database.criteria import Criteria, Criterion
from redrive.dead_letters.filter import CONDITION, Filter

ANY = "any"


class _Condition(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] # older versions take none
    """Condition on a field of a job: payload.currency=XAU."""

    name = "condition"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        if not CONDITION.match(str(value)):
            hint = "write payload.currency=XAU, or headers.source=import"
            self.fail(f"{value!r} is not a path and its value; {hint}", param, ctx)
        return str(value)


_TYPES: Mapping[str, tuple[Any, str | None]] = {
    "ids": (click.INT, "ID"),
    "group": (click.STRING, "FINGERPRINT"),
    "holds": (_Condition(), "PATH=VALUE"),
    "since": (Instant(), "TIME"),
    "until": (Instant(), "TIME"),
    "limit": (click.IntRange(1), "N"),
}
"""Type and placeholder of each field that is not plain text."""

_NAMES = {"ids": "id", "holds": "where"}
"""Name of a field's option, if it differs."""


class _OneOf(click.Choice[str]):
    """Values of a closed set, separated by commas."""

    def convert(  # pyright: ignore[reportIncompatibleMethodOverride] # several where it takes one
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        return tuple(
            super(_OneOf, self).convert(v.strip(), param, ctx) for v in value.split(",")
        )


def filter_options(
    prefix: str | None = None,
    *,
    states: Sequence[str] = (),
    of: type[Criteria] = Filter,
) -> Callable[[Command], Command]:
    """Add the filters; the command gets the resulting object as `chosen`.

    Args:
        prefix: prefix of the environment variables for the options; None = no
            variables.
        states: states selected by default; none = all.
        of: class whose fields become options.
    """
    criteria = of.criteria()
    options = [
        _option(f.name, criteria[f.name], prefix, multiple=f.default == ())
        for f in fields(of)  # type: ignore[arg-type] # each is a dataclass
    ]

    def add(command: Command) -> Command:
        @functools.wraps(command)
        def choose(**given: Any) -> object:
            wanted = {name: given.pop(name) for name in criteria}
            for name, criterion in criteria.items():
                if criterion.choices:
                    wanted[name] = tuple(chain.from_iterable(wanted[name]))
            wanted["state"] = _states(wanted["state"], states)
            return command(chosen=of(**wanted), **given)

        return with_options(options, choose)

    return add


def _states(given: Sequence[str], default: Sequence[str]) -> Sequence[str]:
    """Return the states that --state selects; none = all."""
    return () if ANY in given else tuple(given or default)


def _option(
    field: str, criterion: Criterion, prefix: str | None, *, multiple: bool
) -> Decorator:
    name = _NAMES.get(field, field)
    kind, metavar = _TYPES.get(field, (click.STRING, name.upper()))
    if criterion.choices:
        among = (*criterion.choices, ANY) if field == "state" else criterion.choices
        kind, metavar = _OneOf(among), None
    return option(
        prefix,
        f"--{name.replace('_', '-')}",
        field,
        multiple=multiple,
        type=kind,
        metavar=metavar,
        help=criterion.help,
    )
