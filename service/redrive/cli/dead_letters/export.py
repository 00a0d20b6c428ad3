"""redrive dlq export: one dead letter as a JSON object."""

import click

from redrive.cli.support.connection import database
from redrive.cli.support.exits import NotFound
from redrive.cli.support.options import (
    Id,
    Reveal,
    database_option,
    reveal_options,
    settings_for,
)
from redrive.cli.support.output import emit, no_letter, shown_id
from redrive.live_jobs.export import export


@click.command("export")
@click.argument("job", metavar="ID", type=Id())
@reveal_options
@database_option
def export_dead_letter(
    job: int, reveal: Reveal | None, actor: str | None, database_url: str | None
) -> None:
    """Print a dead letter as one JSON object, to replay it elsewhere.

    \b
    redrive dlq export 17 > letter.json
    redrive job replay --bundle letter.json --handlers app.jobs:jobs --pdb

    It has everything that the last attempt had: payload, headers, checkpoint, attempt
    number, time and random seed. It also has the whole history with errors and stacks.
    Secrets are redacted, unless you give --reveal and --why.
    """
    settings = settings_for(database_url, actor=actor)
    if reveal is not None:
        reveal.agree(settings, shown_id(job))

    with database(settings) as conn:
        why = reveal and reveal.why
        bundle = export(conn, job, actor=settings.who(), why=why)

    if bundle is None:
        raise NotFound(no_letter(job))

    emit(bundle)
