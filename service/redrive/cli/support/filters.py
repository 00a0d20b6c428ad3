"""Options and environment variables made from the filter classes."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import chain
from typing import Any

import click

from redrive.cli.support.completion import Known
from redrive.cli.support.options import (
    Command,
    Decorator,
    Id,
    Instant,
    option,
    with_options,
)
from redrive.database.criteria import Criteria, Criterion
from redrive.dead_letters.filter import CONDITION, Filter
from redrive.rules.rows import Fields, Row
from redrive.verbs.query import ANY, NAMES, choices_of


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
    "ids": (Id(), "ID"),
    "kind": (Known("kind"), "KIND"),
    "queue": (Known("queue"), "QUEUE"),
    "group": (Known("group"), "FINGERPRINT"),
    "owner": (click.STRING, "NAME"),
    "holds": (_Condition(), "PATH=VALUE"),
    "since": (Instant(), "TIME"),
    "until": (Instant(), "TIME"),
    "limit": (click.IntRange(1), "N"),
}
"""Type and placeholder of each field that is not plain text."""


class _OneOf(click.Choice[str]):
    """Values of a closed set, separated by commas."""

    def convert(  # pyright: ignore[reportIncompatibleMethodOverride] # several where it takes one
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        convert = super().convert
        return tuple(convert(word.strip(), param, ctx) for word in value.split(","))


_ids_argument = click.argument("arguments", metavar="[ID]...", nargs=-1, type=Id())


def filter_options(
    prefix: str | None = None,
    *,
    states: Sequence[str] = (),
    of: type[Criteria] = Filter,
    takes_ids: bool = False,
) -> Decorator:
    """Add the filters; the command gets the resulting object as `chosen`.

    Args:
        prefix: prefix of the environment variables for the options; None = no
            variables.
        states: states selected by default; none = all.
        of: class whose fields become options.
        takes_ids: the command takes ids as arguments, too.
    """
    criteria = of.criteria()
    repeatable = {f.name for f in fields(of) if f.default == ()}  # type: ignore[arg-type] # each is a dataclass
    options = [
        _option(name, criterion, prefix, multiple=name in repeatable)
        for name, criterion in criteria.items()
    ]

    if takes_ids:
        options.append(_ids_argument)

    def add(command: Command) -> Command:
        @functools.wraps(command)
        def choose(**given: Any) -> object:
            wanted = {name: given.pop(name) for name in criteria}
            if takes_ids:
                wanted["ids"] = (*given.pop("arguments"), *wanted["ids"])

            return command(chosen=of(**_values(wanted, criteria, states)), **given)

        return with_options(options, choose)

    return add


def _values(
    given: Fields, criteria: Mapping[str, Criterion], states: Sequence[str]
) -> Row:
    """Return the values of the filter's fields, with the default states."""
    values = dict(given)
    for name, value in given.items():
        # An option with choices takes several values, so each use of it gives a tuple.
        if criteria[name].choices:
            values[name] = tuple(chain.from_iterable(value))

    if "state" in values:
        values["state"] = _states(values["state"], states)

    return values


def _states(given: Sequence[str], default: Sequence[str]) -> Sequence[str]:
    """Return the states that --state selects; none = all."""
    if ANY in given:
        return ()

    return tuple(given or default)


def _option(
    field: str, criterion: Criterion, prefix: str | None, *, multiple: bool
) -> Decorator:
    name = NAMES.get(field, field)
    kind, metavar = _TYPES.get(field, (click.STRING, name.upper()))

    if criterion.choices:
        kind = _OneOf(choices_of(field, criterion))
        metavar = None  # help lists the choices

    return option(
        prefix,
        f"--{name.replace('_', '-')}",
        field,
        multiple=multiple,
        type=kind,
        metavar=metavar,
        help=criterion.help,
    )
