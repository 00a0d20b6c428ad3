"""redrive dlq redrive: plan and start a campaign in one command."""

from dataclasses import replace

import click

from redrive.cli.dead_letters.campaign import follow
from redrive.cli.support.connection import database
from redrive.cli.support.exits import Exit
from redrive.cli.support.options import option
from redrive.cli.support.output import shown_id, warn
from redrive.cli.support.verbs import Asked, verb_options
from redrive.database.rows import Connection
from redrive.dead_letters.campaigns import store as campaigns
from redrive.dead_letters.campaigns.pace import GOING, State
from redrive.dead_letters.runs import mark_done
from redrive.jobs.standing import alive
from redrive.rules.rows import Row
from redrive.verbs.redrives import REDRIVE
from redrive.verbs.verb import Done

ENV = "REDRIVE_REDRIVE"
_ENDS = ("state", "succeeded", "dead_again", "cancelled")
"""Fields that --json has after --wait."""
_ENDED = (
    "{state}: {succeeded} succeeded, {dead_again} died again, {cancelled} cancelled"
)
_SEE = "to see how they end: redrive campaign show {}"
_NO_WORKER = "no worker is alive: campaign {} waits until you start one: redrive worker"
_WAITS = (
    "campaign {0} waits for workers, which will drive it;"
    " to watch it: redrive campaign watch {0}"
)


@click.command("redrive")
@verb_options(REDRIVE["redrive"], prefix=ENV)
@option(
    ENV,
    "--wait",
    is_flag=True,
    help="Wait until all redriven jobs have ended, and say how.",
)
def redrive_dead_letters(asked: Asked, wait: bool) -> int:
    """Redrive dead letters, by id or by filters.

    \b
    redrive dlq redrive 17 18 --why 'customer fixed the address'
    redrive dlq redrive --kind invoice.charge --since 2h --rate 5 --why 'provider is back'

    The command plans and starts a campaign. It shows the plan and asks, unless you give
    --yes. Without a terminal and without --yes it only shows the plan. It ends when
    every dead letter is processed. If you stop it, or if no worker runs the first jobs,
    workers drive the campaign later (`redrive campaign`).

    Some dead letters stay, and the command says why and what to do: their job has
    succeeded since, they were redriven too often, their payload is invalid, or they are
    quarantined. A quarantined one is redriven if you give its id. A job whose handler
    says repeatable=False is redriven only by its id, with --repeat or after you type
    'repeat'.

    The output names the campaign: `redrive campaign show` says later how the jobs have ended. With
    --wait, the command waits until they have, and says it.

    Exit code 4: the campaign aborted, because too many died again. Every option except
    --repeat is also an environment variable, for Jobs and CronJobs:
    REDRIVE_REDRIVE_KIND, ..., REDRIVE_REDRIVE_YES=true.
    """
    run = asked.run
    aborted: list[Row] = []

    def then(conn: Connection, done: Done) -> Done:
        found = campaigns.show(conn, done.report["campaign"]) or {}
        if wait:
            found = _waited(conn, found)
        if found["state"] == State.ABORTED:
            warn(f"campaign aborted: {found['said'] or ''}")
            aborted.append(found)
        return _ended(done, found) if wait else _named(conn, done, found)

    with asked.alone("redrive"):
        code = asked.perform(then=then)

    if aborted:
        return Exit.ABORTED
    # A run that found nothing counts for the alert, too.
    if run.every is not None and run.acts and code == Exit.DONE:
        with database(run.settings) as conn:
            mark_done(conn, "redrive", run.every)
    return code


def _waited(conn: Connection, found: Row) -> Row:
    """Wait until all jobs of a campaign have ended."""
    if found["in_flight"] and not alive(conn):
        warn(_NO_WORKER.format(shown_id(found["campaign"])))
    return follow(conn, found, emits=False)


def _ended(done: Done, found: Row) -> Done:
    """Say how the jobs of a campaign have ended."""
    ends = {name: found[name] for name in _ENDS}
    text = f"{done.text}\n{_ENDED.format_map(found)}"
    return replace(done, text=text, report={**done.report, **ends})


def _named(conn: Connection, done: Done, found: Row) -> Done:
    """Name the command that shows how the jobs end, and say what it waits for."""
    shown = shown_id(found["campaign"])
    if found["waiting"] and found["state"] in GOING:
        if not alive(conn):
            warn(_NO_WORKER.format(shown))
        warn(_WAITS.format(shown))

    return replace(done, text=f"{done.text}\n{_SEE.format(shown)}")
