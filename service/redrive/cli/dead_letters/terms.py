"""Options for the terms of a campaign."""

import functools
from datetime import UTC, datetime
from typing import Any

import click

from redrive.cli.dead_letters.plan import TO_QUEUE_HELP
from redrive.cli.support.options import Command, with_options
from redrive.rules.dead_letters.campaign import ABORT_SHARE, CANARIES
from redrive.rules.dead_letters.terms import TERM_NAMES, BadTerm, Terms


def terms_options(command: Command) -> Command:
    """Add options for the terms; the command gets them as `terms`."""

    @functools.wraps(command)
    def choose(**options: Any) -> object:
        # Terms.read takes texts, because a form of the console has texts.
        given = {n: options.pop(n.replace("-", "_")) or "" for n in TERM_NAMES}
        given["when-breaker"] = ",".join(given["when-breaker"])

        try:
            terms = Terms.read(given, datetime.now(UTC))
        except BadTerm as error:
            raise click.UsageError(f"--{error}") from None

        return command(terms=terms, **options)

    options = [
        click.option(
            "--rate",
            metavar="PER_SECOND",
            help="At most this many jobs per second.",
        ),
        click.option(
            "--canaries",
            default=str(CANARIES),
            metavar="N",
            show_default=True,
            help="Run N jobs first and wait for their results;"
            " 0 = no canaries and no ramp-up.",
        ),
        click.option(
            "--abort-share",
            default=f"{ABORT_SHARE:g}",
            metavar="SHARE",
            show_default=True,
            help="Abort if more than this share die again.",
        ),
        click.option(
            "--not-before",
            metavar="TIME",
            help="Do not start before: an instant, or 2h from now.",
        ),
        click.option(
            "--when-breaker",
            metavar="NAME:STATE",
            multiple=True,
            help="Run only while the breaker has this state: smtp:closed.",
        ),
        click.option(
            "--when-version",
            metavar="VERSIONS",
            help="Run only while all workers of its kinds have such a version:"
            " '>=1.4'.",
        ),
        click.option("--to-queue", metavar="NAME", help=TO_QUEUE_HELP),
    ]
    return with_options(options, choose)
