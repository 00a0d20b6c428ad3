"""redrive dlq: list, dismiss, reopen, assign and note.

Its other commands have files of their own.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

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
from redrive.cli.support.connection import database
from redrive.cli.support.exits import Exit, NotFound
from redrive.cli.support.filters import filter_options
from redrive.cli.support.names import say_unknown
from redrive.cli.support.options import (
    Change,
    Id,
    InOrder,
    Run,
    acting_options,
    actor_option,
    conn_options,
    json_option,
    pager_option,
    require_why,
    run_options,
    settings_options,
)
from redrive.cli.support.output import (
    answer,
    counted,
    listing,
    no_letter,
    not_found,
    printable,
    wants_json,
)
from redrive.database.rows import Connection
from redrive.dead_letters import triage
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.find import COLUMNS, NUMBERS, find
from redrive.rules.rows import Row
from redrive.rules.scheduling.instants import duration

if TYPE_CHECKING:
    from redrive.settings import Settings

NARROW = tuple(column.name for column in COLUMNS if not column.is_wide)
WIDE = (*(column.name for column in COLUMNS if column.is_wide), "time_to_dlq")
"""Columns that `dlq ls --wide` adds."""
NAME_LENGTH = 255
NOTE_LENGTH = 2000


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


for _command in (
    groups.list_groups,
    show,
    export_dead_letter,
    explain,
    report,
    edit,
    redrive_dead_letters,
):
    dlq.add_command(_command)


def _for_people(letter: Row) -> Row:
    shown = letter | {"time_to_dlq": time_to_dlq(letter)}
    if letter["quarantined"]:
        shown["message"] = f"quarantined, {letter['message']}"
    return shown


def _columns(chosen: Filter, *, wide: bool) -> list[str]:
    """Return the columns of the list; the state is one if there may be several."""
    columns = [*NARROW, *(WIDE if wide else ())]
    if chosen.state == ("open",):
        columns.remove("state")
    return columns


@dlq.command()
@click.argument(
    "jobs",
    metavar="[ID]...",
    nargs=-1,
    type=Id(),
)
@filter_options(states=("open",))
@run_options()
@json_option
def dismiss(jobs: tuple[int, ...], chosen: Filter, run: Run) -> int:
    """Close dead letters that will not be fixed, by id or by filters.

    \b
    redrive dlq dismiss 19 --why 'the order was withdrawn'
    redrive dlq dismiss --group 3f9a --until 30d --why 'too late to matter'

    If you give only ids, they are dismissed at once. With filters, the command shows how many match
    and asks, unless you give --yes. Without a terminal and without --yes it only shows the number.
    To open them again: redrive dlq reopen.
    """
    if not (jobs or chosen.narrows()):
        raise click.UsageError("give ids or a filter")

    dismissed: list[int] = []
    with database(run.settings) as conn:
        why, matched = _agreed(conn, jobs, chosen, run)
        if why:
            dismissed = triage.dismiss(conn, matched, **run.signed(why))

    report = {"matched": len(matched), "dismissed": dismissed}
    text = f"{len(dismissed)} dismissed" if why or not matched else run.unchanged()
    answer(report, text)

    named = (*jobs, *chosen.ids)
    if not named:
        return Exit.DONE

    # If nothing was dismissed, name only the ids that do not match.
    return _name_missed(named, dismissed if why else matched)


def _agreed(
    conn: Connection,
    jobs: Sequence[int],
    chosen: Filter,
    run: Run,
) -> tuple[str | None, Sequence[int]]:
    """Return the reason for the dismissal after confirmation, and the dead letters."""
    if not chosen.narrows():
        return None if run.dry_run else require_why(run.why), jobs

    found = find(conn, replace(chosen, ids=(*jobs, *chosen.ids)))
    matched = [row["id"] for row in found]

    count = counted(len(matched), "open dead letter")
    if not wants_json():
        click.echo(count)

    if not matched:
        return None, matched

    return run.consent(f"Dismiss {count}?", str(len(matched))), matched


@dlq.command()
@click.argument(
    "jobs",
    metavar="ID...",
    nargs=-1,
    required=True,
    type=Id(),
)
@acting_options
@json_option
def reopen(jobs: tuple[int, ...], change: Change) -> int:
    """Reopen dismissed dead letters.

    \b
    redrive dlq reopen 19 --why 'the customer wants it after all'
    """
    change.agree(f"Reopen {counted(len(jobs), 'dead letter')}")
    with database(change.settings) as conn:
        reopened = triage.reopen(conn, jobs, **change.signed)

    answer({"reopened": reopened}, f"{len(reopened)} reopened")
    return _name_missed(jobs, reopened, "no dismissed dead letter")


@dlq.command()
@click.argument(
    "jobs",
    metavar="ID...",
    nargs=-1,
    required=True,
    type=Id(),
)
@click.option(
    "--owner",
    metavar="NAME",
    required=True,
    help="Name of the owner; '' = nobody.",
)
@acting_options
@json_option
def assign(jobs: tuple[int, ...], owner: str, change: Change) -> int:
    """Set the owner of dead letters.

    \b
    redrive dlq assign 17 18 --owner ada --why 'she knows the bank'

    It also acknowledges their groups, unless somebody has already done so.
    """
    owner = owner.strip()
    if len(owner) > NAME_LENGTH:
        raise click.UsageError(f"--owner: at most {NAME_LENGTH} characters")

    name = printable(owner) or "nobody"
    change.agree(f"Assign {counted(len(jobs), 'dead letter')} to {name}")

    with database(change.settings) as conn:
        assigned = triage.assign(conn, jobs, owner, **change.signed)

    report = {"assigned": assigned, "owner": owner or None}
    answer(report, f"{len(assigned)} assigned to {owner or 'nobody'}")

    return _name_missed(jobs, assigned)


def _name_missed(
    asked: Sequence[int], done: Sequence[int], what: str = "no open dead letter"
) -> Exit:
    """Name the jobs that had no such dead letter; return the exit code."""
    for job in sorted(set(asked) - set(done)):
        not_found(no_letter(job, what))

    if not done:
        return Exit.NOTHING_MATCHED
    return Exit.DONE


@dlq.command()
@click.argument("job", metavar="ID", type=Id())
@click.argument("text")
@actor_option
@settings_options("actor")
def note(job: int, text: str, settings: "Settings") -> None:
    """Add a note to a dead letter.

    \b
    redrive dlq note 17 'the bank confirms an outage from 14:00 to 14:20'
    """
    text = text.strip()[:NOTE_LENGTH]
    if not text:
        raise click.UsageError("the note is empty")

    with database(settings) as conn:
        is_noted = triage.note(conn, job, text, actor=settings.who())

    if not is_noted:
        raise NotFound(no_letter(job))

    click.echo("noted")


dlq.add_command(groups.resolve)
dlq.add_command(groups.unresolve)
dlq.add_command(ack)
dlq.add_command(unack)
dlq.add_command(groups.mute)
dlq.add_command(import_dead_letters)
