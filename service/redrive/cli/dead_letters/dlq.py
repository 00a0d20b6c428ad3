"""redrive dlq: its list, and the group of its commands.

Commands that need more than the declaration of their verb have files of their own.
"""

import click

from redrive.cli.dead_letters import groups
from redrive.cli.dead_letters.acknowledge import ack, unack
from redrive.cli.dead_letters.edit import edit
from redrive.cli.dead_letters.explain import explain
from redrive.cli.dead_letters.export import export_dead_letter
from redrive.cli.dead_letters.imports import import_dead_letters
from redrive.cli.dead_letters.redrive import redrive_dead_letters
from redrive.cli.dead_letters.report import report
from redrive.cli.dead_letters.show import show
from redrive.cli.support.filters import filter_options
from redrive.cli.support.names import say_unknown
from redrive.cli.support.options import InOrder, conn_options, json_option, pager_option
from redrive.cli.support.output import listing
from redrive.cli.support.verbs import add_verbs
from redrive.database.rows import Connection
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.find import NAMES, NARROW, NUMBERS, find
from redrive.rules.instants import duration
from redrive.rules.rows import Row
from redrive.verbs.failing import FAILING
from redrive.verbs.groups import GROUPS
from redrive.verbs.letters import LETTERS

WIDE = (*(name for name in NAMES if name not in NARROW), "time_to_dlq")
"""Columns that `dlq ls --wide` adds."""


@click.group(cls=InOrder)
def dlq() -> None:
    """Dead letters: list, explain, edit, redrive, dismiss."""


@dlq.command("ls")
@filter_options(states=("open",))
@click.option("--wide", is_flag=True, help=f"Add columns: {', '.join(WIDE)}.")
@conn_options
@json_option
@pager_option
def list_dead_letters(chosen: Filter, wide: bool, conn: Connection) -> None:
    """List dead letters, the latest first.

    \b
    redrive dlq ls --kind invoice.charge --since 2h
    redrive dlq ls --state any --limit 1000

    The list has open dead letters, unless you give --state.
    """
    found = find(conn, chosen)
    listing(
        found,
        _columns(chosen, wide=wide),
        for_people=_for_people,
        right=("id", "time_to_dlq", *NUMBERS),
        empty="no dead letters",
    )

    if not found:
        say_unknown(conn, kind=chosen.kind, queue=chosen.queue)


def time_to_dlq(letter: Row) -> str:
    """Return how long after its enqueueing the job died; empty after a redrive."""
    seconds = letter["time_to_dlq_seconds"]
    return "" if seconds is None else duration(seconds)


def _for_people(letter: Row) -> Row:
    shown = dict(letter)
    shown["time_to_dlq"] = time_to_dlq(letter)
    if letter["quarantined"]:
        shown["message"] = f"quarantined, {letter['message']}"

    return shown


def _columns(chosen: Filter, *, wide: bool) -> list[str]:
    """Return the columns of the list; the state is one if there may be several."""
    columns = list(NARROW)
    if wide:
        columns.extend(WIDE)
    if chosen.state == ("open",):
        columns.remove("state")

    return columns


for _command in (
    groups.list_groups,
    show,
    export_dead_letter,
    explain,
    report,
    edit,
    redrive_dead_letters,
    ack,
    unack,
    groups.mute,
):
    dlq.add_command(_command)
for _verbs in (LETTERS, GROUPS, FAILING):
    add_verbs(dlq, _verbs)
dlq.add_command(import_dead_letters)
