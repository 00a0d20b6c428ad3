"""redrive dlq export: one dead letter as a JSON object."""

from typing import TYPE_CHECKING

import click

from redrive.cli.support.bundle import read_bundle_of
from redrive.cli.support.options import Id, Reveal, reveal_options, settings_options
from redrive.cli.support.output import emit

if TYPE_CHECKING:
    from redrive.settings import Settings


@click.command("export")
@click.argument("job", metavar="ID", type=Id())
@reveal_options
@settings_options("actor")
def export_dead_letter(job: int, reveal: Reveal | None, settings: "Settings") -> None:
    """Print a dead letter as one JSON object, to replay it elsewhere.

    \b
    redrive dlq export 17 > letter.json
    redrive job replay --bundle letter.json --handlers app.jobs:jobs --pdb

    It has everything that the last attempt had: payload, headers, checkpoint, attempt
    number, time and random seed. It also has the whole history with errors and stacks.
    Secrets are redacted, unless you give --reveal and --why.
    """
    emit(read_bundle_of(job, reveal, settings))
