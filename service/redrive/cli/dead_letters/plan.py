"""redrive campaign plan: freeze the dead letters of a campaign, and check them."""

from collections.abc import Iterator
from dataclasses import asdict, replace

import click

from redrive.cli.support.lazy import part
from redrive.cli.support.output import printable, shown_id
from redrive.cli.support.terminal import progress
from redrive.cli.support.verbs import Asked, verb_options
from redrive.database.rows import Connection
from redrive.dead_letters.campaigns.tried import Tried
from redrive.rules.rows import Row
from redrive.verbs.redrives import REDRIVE
from redrive.verbs.verb import Done


@click.command("plan")
@verb_options(REDRIVE["campaign-plan"], everything=True)
@click.option(
    "--try",
    "tries",
    type=click.IntRange(1, 100),
    metavar="N",
    help="Run the handlers on N dead letters, in a process that can send nothing.",
)
def plan_campaign(asked: Asked, tries: int | None) -> int:
    """Freeze the dead letters that a campaign would redrive.

    \b
    redrive campaign plan --kind invoice.charge --where payload.currency=XAU --rate 5
    redrive campaign plan --group 5f2c --handlers app.jobs:jobs --try 5

    Nothing else changes. With --handlers, the handlers read and check the payloads, and
    payloads that they refuse are left out. With --try, the handlers also run on some of
    the dead letters, in a process that cannot open a connection or change a file. A
    plan is deleted after one day if nobody starts it.
    """
    if tries and not asked.orders[0].handlers:
        raise click.UsageError("--try needs --handlers MODULE:ATTRIBUTE")

    def then(conn: Connection, done: Done) -> Done:
        lines = [done.text]
        report = dict(done.report)
        if tries:
            found = _try(conn, asked, report, tries)
            lines += _tried_remarks(found)
            report["tried"] = asdict(found)

        shown = shown_id(report["plan"])
        lines.append(f"start it with: redrive campaign start {shown}")
        return replace(done, text="\n".join(lines), report=report)

    return asked.perform(then=then)


def _try(conn: Connection, asked: Asked, report: Row, count: int) -> Tried:
    """Run the handlers on some dead letters of a plan."""
    handlers = asked.orders[0].handlers
    with progress("tried", min(count, report["matched"])) as advance:
        return part("tries")(
            *(conn, report["plan"], report["kinds"], handlers),
            *(asked.target, count, advance),
        )


def _tried_remarks(tried: Tried) -> Iterator[str]:
    """Yield remarks on a trial.

    How far a handler gets in it does not predict the outcome.
    """
    failed = sum(tried.failed.values())
    yield (
        f"tried in isolation: {tried.returned} returned, {failed} failed,"
        f" {tried.stopped_at_call} reached an outgoing call, {tried.timed_out} timed out"
    )

    for cause, count in sorted(tried.failed.items()):
        yield f"{count} failed when tried: {printable(cause)}"

    if tried.again:
        yield f"{tried.again} failed with the same error as before"
    if tried.stopped_at_call:
        yield "a trial ends at an outgoing call; the canaries show what happens after it"
