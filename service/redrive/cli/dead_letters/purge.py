"""redrive purge."""

import click

from redrive.cli.support.verbs import Asked, verb_options
from redrive.database.rows import Connection
from redrive.dead_letters.runs import mark_done
from redrive.verbs.letters import LETTERS
from redrive.verbs.verb import Done


@click.command()
@verb_options(LETTERS["purge"], everything=True, prefix="REDRIVE_PURGE")
def purge(asked: Asked) -> int:
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

    def then(conn: Connection, done: Done) -> Done:
        mark_done(conn, "purge", asked.run.every)
        return done

    with asked.alone("purge"):
        return asked.perform(then=then)
