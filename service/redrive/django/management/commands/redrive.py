"""manage.py redrive: the command line of Redrive, on the project's database."""

import sys
from argparse import REMAINDER, ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from redrive.django.database import run


class Command(BaseCommand):
    """Command that takes the arguments of `redrive`."""

    help = (
        "Run a command of Redrive on this project's database: manage.py redrive worker"
    )

    def run_from_argv(self, argv: list[str]) -> None:
        """Pass all arguments, --help too, to Redrive, and exit with its exit code."""
        sys.exit(run(argv[2:]))

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the arguments for call_command."""
        parser.add_argument("arguments", nargs=REMAINDER)

    def handle(self, *_: Any, arguments: list[str], **__: Any) -> None:
        """Run the command for call_command."""
        if code := run(arguments):
            msg = f"redrive {arguments[0] if arguments else ''} ended with {code}"
            raise CommandError(msg, returncode=code)
