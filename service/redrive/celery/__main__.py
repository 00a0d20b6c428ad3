"""python -m redrive.celery flush: send the records of a spool to Postgres."""

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psycopg

from redrive.celery.database import connects_to
from redrive.celery.flush import flush, trouble
from redrive.celery.install import LIMIT
from redrive.celery.spool import Spool
from redrive.errors import RedriveError

PAUSE = 1.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code."""
    given = _parser().parse_args(arguments)
    logging.basicConfig(level="INFO", format="%(levelname)s %(message)s")
    spool = Spool(given.spool, LIMIT)

    while True:
        code = _flush(spool)
        if not given.follow:
            return code

        time.sleep(PAUSE)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m redrive.celery")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser(
        "flush",
        help="send what waits in a spool to REDRIVE_DATABASE_URL",
        description="Send the dead letters that wait in a spool to REDRIVE_DATABASE_URL."
        " A dead letter that was sent before is left out.",
    )

    command.add_argument("spool", type=Path, help="directory of the spool")
    command.add_argument("--follow", action="store_true", help="do so until stopped")

    return parser


def _flush(spool: Spool) -> int:
    try:
        sent = flush(spool, connects_to(None))
    except (psycopg.Error, RedriveError, OSError) as error:
        print(f"redrive.celery: {trouble(error)}", file=sys.stderr)  # noqa: T201 # a command
        return 1

    if sent:
        print(f"{sent} sent")  # noqa: T201 # a command

    return 0


if __name__ == "__main__":
    sys.exit(main())
