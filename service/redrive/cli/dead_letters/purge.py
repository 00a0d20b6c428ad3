"""redrive purge."""

from collections.abc import Sequence
from typing import NamedTuple

import click

from redrive.cli.support.connection import database, only_one
from redrive.cli.support.filters import filter_options
from redrive.cli.support.options import Duration, Run, json_option, option, run_options
from redrive.cli.support.output import answer, wants_json
from redrive.cli.support.terminal import progress
from redrive.database.rows import Connection
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.purge import Purgeable, forget, purgeable
from redrive.dead_letters.purge import purge as delete
from redrive.dead_letters.runs import mark_done
from redrive.rules.brief import counted
from redrive.rules.instants import span

ENV = "REDRIVE_PURGE"


class Purged(NamedTuple):
    """Numbers of deleted dead letters and of deleted rows of other tables."""

    letters: int
    others: int


@click.command()
@filter_options(ENV)
@option(
    ENV,
    "--older-than",
    type=Duration(),
    default="30d",
    show_default=True,
    help="Ended (if open: died) longer ago than this.",
)
@run_options(ENV, why="retention")
@json_option
def purge(chosen: Filter, older_than: float, run: Run) -> None:
    """Delete dead letters past their retention for good.

    \b
    redrive purge --older-than 30d --dry-run
    redrive purge --kind invoice.charge --state open --older-than 90d --why 'before the migration'

    The command deletes resolved, dismissed and redriven dead letters, with their
    history. It deletes open ones only with --state open. It also deletes all other data
    past its retention, which workers do gradually. It shows the number and asks, unless
    you give --yes. Without a terminal and without --yes it only shows the number. Every
    option is also an environment variable, for CronJobs: REDRIVE_PURGE_OLDER_THAN, ...,
    REDRIVE_PURGE_YES=true.
    """
    with database(run.settings) as conn:
        selected = purgeable(conn, chosen, older_than)
        if not wants_json():
            n = counted(len(selected), "dead letter")
            age = span(older_than)
            click.echo(f"{n} ended more than {age} ago")

        purged = _purge(conn, run, chosen, selected)

    report = {"matched": len(selected), "purged": purged.letters if purged else 0}
    answer(report, _outcome(purged, run))


def _purge(
    conn: Connection, run: Run, chosen: Filter, selected: Sequence[Purgeable]
) -> Purged | None:
    """Delete the selection after confirmation. Returns None if the user declined."""
    n = len(selected)
    why = run.consent("Delete them for good?", str(n))
    if why is None:
        return None

    actor = run.settings.who()
    with only_one(run.settings, "purge"):
        with progress("purged", n) as advance:
            letters = delete(
                conn, chosen, selected, why=why, actor=actor, progress=advance
            )

        mark_done(conn, "purge", run.every)
        return Purged(letters, others=forget(conn))


def _outcome(purged: Purged | None, run: Run) -> str:
    if purged is None:
        return run.unchanged()

    others = f"{purged.others} other rows past their retention"
    return f"{purged.letters} purged, {others}"
