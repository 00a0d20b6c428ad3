"""Commands `redrive dlq ack` and `redrive dlq unack`."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from redrive.cli.support.completion import Known
from redrive.cli.support.connection import database
from redrive.cli.support.exits import Exit
from redrive.cli.support.filters import filter_options
from redrive.cli.support.options import Id, Run, json_option, run_options
from redrive.cli.support.output import answer, no_letter, not_found
from redrive.cli.support.verbs import Asked, orders_of
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.find import ids, open_by_group
from redrive.verbs.groups import GROUPS

_ID = re.compile(r"([^:]+:)?[0-9]+")


class _Named(Id):
    """Id of a dead letter, 17 or eu:17. Any other text is the name of a group."""

    def convert(  # pyright: ignore[reportIncompatibleMethodOverride] # a text, too
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        text = str(value)
        if _ID.fullmatch(text):
            return super().convert(value, param, ctx)

        return text


_named = click.argument(
    "named",
    metavar="[ID|GROUP]...",
    nargs=-1,
    type=_Named(),
    shell_complete=Known("group").shell_complete,
)


@click.command()
@_named
@filter_options(states=("open",))
@run_options()
@json_option
def ack(named: Sequence[int | str], chosen: Filter, run: Run) -> int:
    """Acknowledge groups: you work on them.

    \b
    redrive dlq ack 3f9a --why 'the bank is down, I am on the phone'
    redrive dlq ack 17 18 --why 'I am on it'
    redrive dlq ack --queue payments --since 2h --why 'the bank is down'

    Ids and filters select open dead letters. The command acknowledges their whole
    groups. An acknowledgement lasts until the group has no open dead letters left. If
    the name of a group has only digits, give it with --group.
    """
    return _change(named, chosen, run, "acknowledge")


@click.command()
@_named
@filter_options(states=("open",))
@run_options()
@json_option
def unack(named: Sequence[int | str], chosen: Filter, run: Run) -> int:
    """Take back the acknowledgement of groups: nobody works on them.

    \b
    redrive dlq unack 3f9a --why 'my shift is over'
    redrive dlq unack --owner payments --why 'my shift is over'

    It takes ids and filters as redrive dlq ack does.
    """
    return _change(named, chosen, run, "unacknowledge")


def _change(named: Sequence[int | str], chosen: Filter, run: Run, word: str) -> int:
    names, letters = _selected(named, chosen)
    missed: list[int] = []
    if letters.narrows():
        with database(run.settings) as conn:
            names += open_by_group(conn, letters)
            missed = sorted(set(letters.ids).difference(ids(conn, letters)))

    for job in missed:
        not_found(no_letter(job, "no open dead letter"))
    if not names:
        if not missed:
            answer({"matched": 0}, "nothing matched")
        return Exit.NOTHING_MATCHED if missed else Exit.DONE

    queries = [[("group", name)] for name in dict.fromkeys(names)]
    return Asked(GROUPS[word], orders_of(GROUPS[word], run, queries), run).perform()


def _selected(named: Sequence[int | str], chosen: Filter) -> tuple[list[str], Filter]:
    """Return the names of groups, and the filter of dead letters."""
    names: list[str] = []
    jobs: list[int] = []
    for each in named:
        if isinstance(each, str):
            names.append(each)
        else:
            jobs.append(each)

    _refuse_unclear(names, jobs, chosen)

    return names, replace(chosen, ids=(*jobs, *chosen.ids))


def _refuse_unclear(names: Sequence[str], jobs: Sequence[int], chosen: Filter) -> None:
    is_narrow = chosen.narrows()
    if not (names or jobs or is_narrow):
        raise click.UsageError("give groups, ids or a filter")

    if names and is_narrow:
        raise click.UsageError("give groups or a filter, not both; --group is a filter")

    if tuple(chosen.state) != ("open",):
        raise click.UsageError("--state: only open dead letters can be acknowledged")
