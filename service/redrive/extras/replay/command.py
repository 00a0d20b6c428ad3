"""redrive job replay: run the failed attempt of a dead letter again."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from redrive.cli.support.options import (
    Id,
    Reveal,
    json_option,
    reveal_options,
    settings_options,
)
from redrive.cli.support.output import wants_json

if TYPE_CHECKING:
    from redrive.settings import Settings

DEFAULT_FILE = "-"
"""Value of --pytest without a file."""


@click.command()
@click.argument("job", metavar="[ID]", required=False, type=Id())
@click.option(
    "--handlers",
    metavar="MODULE:ATTRIBUTE",
    help="Registry of the handlers. [env: REDRIVE_HANDLERS]",
)
@click.option(
    "--pdb", "debug", is_flag=True, help="Stop in the debugger where it fails."
)
@click.option(
    "--pytest",
    "test",
    is_flag=False,
    flag_value=DEFAULT_FILE,
    metavar="[FILE]",
    help="Write a test that fails until the cause is fixed."
    " [default file: test_job_ID.py]",
)
@click.option(
    "--payload",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Use the payload in this file, a JSON object.",
)
@click.option(
    "--bundle",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Replay what redrive dlq export printed. This needs no database.",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="HOST:PORT",
    help="Let the handler connect there, such as to a database of development. What it"
    " writes there stays. Repeatable.",
)
@click.option(
    "--no-sandbox",
    is_flag=True,
    help="Run the handler with all its effects, at your own risk.",
)
@reveal_options
@settings_options("actor", "handlers")
@json_option
def replay(
    job: int | None,
    debug: bool,
    test: str | None,
    payload: Path | None,
    file: Path | None,
    allow: tuple[str, ...],
    no_sandbox: bool,
    reveal: Reveal | None,
    settings: "Settings",
) -> int:
    """Run the failed attempt of a dead letter again, as it was.

    \b
    redrive job replay 17 --handlers app.jobs:jobs --pdb
    redrive job replay 17 --handlers app.jobs:jobs --pytest tests/test_job_17.py
    redrive job replay --bundle letter.json --handlers app.jobs:jobs

    The handler gets the payload, headers, checkpoint, attempt number, time and random
    seed of that attempt, and the command says whether it fails at the same line. It
    runs in a sandbox without network and without changes to files; --allow opens one
    address. Nothing is settled, and the job stays as it is. Secrets are redacted,
    unless you give --reveal and --why. Exit code: 0 if the handler returned or a test
    was written, else 1.
    """
    from redrive.extras.replay import shell  # noqa: PLC0415 # slow
    from redrive.extras.replay.calls import addresses_of  # noqa: PLC0415 # slow
    from redrive.extras.replay.scene import Request  # noqa: PLC0415 # slow

    if allow and no_sandbox:
        raise click.UsageError(
            "--allow is for the sandbox, and goes without --no-sandbox"
        )
    if debug and (wants_json() or test):
        raise click.UsageError("--pdb goes without --json and --pytest")
    if test is not None and reveal is not None:
        raise click.UsageError(
            "a test must not hold secrets: give made-up values by --payload, not --reveal"
        )
    if settings.handlers is None:
        raise click.UsageError("--handlers MODULE:ATTRIBUTE is missing")

    allowed = addresses_of(allow)
    bundle = shell.bundle(job, file, payload, reveal, settings)
    test_file = None
    if test is not None:
        test_file = shell.test_file(None if test == DEFAULT_FILE else test, bundle)

    request = Request(
        settings.handlers,
        bundle,
        debug=debug,
        test=test is not None,
        is_harmless=not (no_sandbox or allowed),
        allowed=allowed,
    )
    return shell.replay(request, test_file, is_confined=not no_sandbox)
