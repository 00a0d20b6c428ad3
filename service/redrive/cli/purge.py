"""redrive purge."""

from collections.abc import Sequence
from typing import Any

import click
import psycopg

from redrive.cli.connection import database, only_one
from redrive.cli.filters import filter_options
from redrive.cli.options import Decorator, Duration, Run, json_option, option, run_options
from redrive.cli.output import emit
from redrive.cli.terminal import progress
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.purge import Purgeable, forget_keys, purgeable
from redrive.dead_letters.purge import purge as delete
from redrive.dead_letters.runs import mark_done

ENV = "REDRIVE_PURGE"
DAY_SECONDS = 86_400


def _age_option(flag: str, text: str) -> Decorator:
    return option(ENV, flag, type=Duration(), default="30d", show_default=True, help=text)


@click.command()
@filter_options(ENV)
@_age_option("--older-than", "Ended (open ones: died) longer ago than this.")
@_age_option("--keys-older-than", "Also forget keys of jobs that succeeded longer ago than this.")
@run_options(ENV, why="retention")
@json_option
def purge(
    chosen: Filter, older_than: float, keys_older_than: float, run: Run, as_json: bool
) -> None:
    """Delete dead letters past their retention for good.

    \b
    redrive purge --older-than 30d --dry-run
    redrive purge --kind invoice.charge --state open --older-than 90d --why 'before the migration'

    Their history goes, too. Resolved, dismissed and redriven ones; open ones only with --state
    open. Shows the count first; then asks, unless --yes. Without a terminal and without --yes it
    only counts. Every option is also an environment variable, for CronJobs:
    REDRIVE_PURGE_OLDER_THAN, ..., REDRIVE_PURGE_YES=true.
    """
    with database(run.settings) as conn:
        selected = purgeable(conn, chosen, older_than)
        if not as_json:
            days = f"{older_than / DAY_SECONDS:g} days"
            click.echo(f"{len(selected)} dead letters ended more than {days} ago")
        purged = 0
        said = "nothing was changed" + ("" if run.dry_run else "; add --yes to do it")
        why = run.consent("Delete them for good?", str(len(selected)))
        if why is not None:
            with only_one(run.settings, "purge"):
                purged = _purge(conn, run, chosen, selected, why)
                forgotten = forget_keys(conn, keys_older_than)
            said = f"{purged} purged, {forgotten} idempotency keys forgotten"
    if as_json:
        emit({"matched": len(selected), "purged": purged})
    else:
        click.echo(said)


def _purge(
    conn: psycopg.Connection[Any],
    run: Run,
    chosen: Filter,
    selected: Sequence[Purgeable],
    why: str,
) -> int:
    with progress("purged", len(selected)) as advance:
        actor = run.settings.who()
        purged = delete(conn, chosen, selected, why=why, actor=actor, progress=advance)
    mark_done(conn, "purge", run.every)
    return purged
