"""Commands `redrive dlq ack` and `redrive dlq unack`."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import click

from redrive.cli.dead_letters.groups import missing
from redrive.cli.support.connection import database
from redrive.cli.support.exits import Exit
from redrive.cli.support.filters import filter_options
from redrive.cli.support.options import Change, Id, acting_options, json_option
from redrive.cli.support.output import (
    answer,
    counted,
    no_letter,
    not_found,
    printable,
)
from redrive.database.rows import Connection
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.find import ids, open_by_group
from redrive.dead_letters.grouping import acknowledgements, groups

_ID = re.compile(r"([^:]+:)?[0-9]+")


class _Act(NamedTuple):
    """Change of groups: the verb of its question, the word for its result."""

    verb: str
    done: str
    make: Callable[..., list[str]]


_ACK = _Act("Acknowledge", "acknowledged", acknowledgements.acknowledge)
_UNACK = _Act("Unacknowledge", "unacknowledged", acknowledgements.unacknowledge)


class _Named(Id):
    """Id of a dead letter, 17 or eu:17. Any other text is the name of a group."""

    def convert(  # pyright: ignore[reportIncompatibleMethodOverride] # a text, too
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        if _ID.fullmatch(str(value)):
            return super().convert(value, param, ctx)
        return str(value)


_named = click.argument(
    "named",
    metavar="[ID|GROUP]...",
    nargs=-1,
    type=_Named(),
)


@click.command()
@_named
@filter_options(states=("open",))
@acting_options
@json_option
def ack(named: Sequence[int | str], chosen: Filter, change: Change) -> int:
    """Acknowledge groups: you work on them.

    \b
    redrive dlq ack 3f9a --why 'the bank is down, I am on the phone'
    redrive dlq ack 17 18 --why 'I am on it'
    redrive dlq ack --queue payments --since 2h --why 'the bank is down'

    Ids and filters select open dead letters. The command acknowledges their whole groups.
    An acknowledgement lasts until the group has no open dead letters left. If the name of
    a group has only digits, give it with --group.
    """
    return _change(named, chosen, change, _ACK)


@click.command()
@_named
@filter_options(states=("open",))
@acting_options
@json_option
def unack(named: Sequence[int | str], chosen: Filter, change: Change) -> int:
    """Take back the acknowledgement of groups: nobody works on them.

    \b
    redrive dlq unack 3f9a --why 'my shift is over'
    redrive dlq unack --owner payments --why 'my shift is over'

    It takes ids and filters as redrive dlq ack does.
    """
    return _change(named, chosen, change, _UNACK)


def _change(
    named: Sequence[int | str],
    chosen: Filter,
    change: Change,
    act: _Act,
) -> int:
    names, letters = _selected(named, chosen)
    with database(change.settings) as conn:
        found, code = _found(conn, names, letters)
        done = _set(conn, found, change, act)

    # Somebody may have closed a group after it was found.
    closed = found.keys() - set(done)
    for group in sorted(closed):
        code = not_found(f"group {printable(group)} has no open dead letters")

    text = None
    if done or code == Exit.DONE:
        # One changed group is a success, even if others were not found.
        code = Exit.DONE
        text = _text(done, act, change)

    matched = sum(found.values())
    answer({"matched": matched, act.done: done}, text)

    return code


def _selected(named: Sequence[int | str], chosen: Filter) -> tuple[list[str], Filter]:
    """Return the names of groups, and the filter of dead letters."""
    names = [name for name in named if isinstance(name, str)]
    jobs = [job for job in named if isinstance(job, int)]
    _refuse_unclear(names, jobs, chosen)

    return names, replace(chosen, ids=(*jobs, *chosen.ids))


def _set(
    conn: Connection,
    found: dict[str, int],
    change: Change,
    act: _Act,
) -> list[str]:
    """Change the groups after confirmation; return the groups that are open."""
    if not found:
        return []

    names = list(found)
    what = _named_or_counted(names)
    letters = sum(found.values())
    count = counted(letters, "matching open dead letter")
    change.agree(f"{act.verb} {what} ({count})")

    return act.make(conn, names, **change.signed)


def _refuse_unclear(names: Sequence[str], jobs: Sequence[int], chosen: Filter) -> None:
    if not (names or jobs or chosen.narrows()):
        raise click.UsageError("give groups, ids or a filter")
    if names and chosen.narrows():
        raise click.UsageError("give groups or a filter, not both; --group is a filter")
    if tuple(chosen.state) != ("open",):
        raise click.UsageError("--state: only open dead letters can be acknowledged")


def _found(
    conn: Connection, names: Sequence[str], letters: Filter
) -> tuple[dict[str, int], Exit]:
    """Return the open dead letters of each group, and 2 if something is missing."""
    code = Exit.DONE
    found = open_by_group(conn, letters) if letters.narrows() else {}

    for job in _missed(conn, letters):
        code = not_found(no_letter(job, "no open dead letter"))

    for name in names:
        group = groups.show(conn, name)
        if group is None:
            code = not_found(missing(name))
        else:
            found[group["group"]] = group["open"]

    return found, code


def _missed(conn: Connection, letters: Filter) -> list[int]:
    if not letters.ids:
        return []
    return sorted(set(letters.ids) - set(ids(conn, letters)))


def _text(done: Sequence[str], act: _Act, change: Change) -> str:
    """Return the sentence about groups that were changed."""
    state = "not acknowledged"
    if act is _ACK:
        actor = printable(change.settings.who())
        state = f"acknowledged by {actor}"

    is_or_are = "is" if len(done) == 1 else "are"
    return f"{_named_or_counted(done)} {is_or_are} {state}"


def _named_or_counted(names: Sequence[str]) -> str:
    """Return the name of one group, or how many they are."""
    if len(names) == 1:
        return printable(names[0])
    return counted(len(names), "group")
