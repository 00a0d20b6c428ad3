"""Payments die, are understood and come back, on a throw-away Postgres: make demo."""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg
from redrive.testing import postgres

from handlers import Payment, book

HANDLERS = Path(__file__).with_name("handlers.py").read_text()
BUG = '    parts = text.split(".")\n'
FIX = '    parts = text.replace(",", ".").split(".")\n'
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if "REDRIVE" not in name
} | {
    "REDRIVE_HANDLERS": "handlers:jobs",
    "REDRIVE_HTTP_PORT": "0",
    "REDRIVE_LOG_LEVEL": "error",
}


def payment(number: int) -> Payment:
    """Return a payment; the amount of every fifth has a decimal comma."""
    return Payment(
        order=str(number),
        customer="Ada Lovelace",
        email="ada@example.com",
        amount=f"{number}.90" if number % 5 else f"{number},90",
        currency="EUR",
    )


def redrive(*arguments: str, where: str = ".") -> None:
    """Type a command."""
    print(f"\n$ redrive {shlex.join(arguments)}", flush=True)
    command = [sys.executable, "-m", "redrive", *arguments]
    subprocess.run(command, check=True, cwd=where, env=ENVIRONMENT)


def main() -> None:
    """Play it once."""
    if BUG not in HANDLERS:
        sys.exit("handlers.py has been mended: nothing would die")

    with postgres() as url, tempfile.TemporaryDirectory() as release:
        ENVIRONMENT.update(REDRIVE_DATABASE_URL=url, DATABASE_URL=url)
        print("Ten payments come in. Two have a decimal comma.")

        with psycopg.connect(url) as conn:
            book.enqueue_many(conn, [payment(number) for number in range(1, 11)])

        redrive("worker", "--until-empty")
        redrive("dlq", "groups")
        redrive("dlq", "show", "5")

        print(f"\nThe fix, in a copy of handlers.py:\n-{BUG}+{FIX}", end="")
        Path(release, "handlers.py").write_text(HANDLERS.replace(BUG, FIX))

        why = ("--why", "the new handlers read decimal commas", "--yes")
        redrive("dlq", "redrive", "--category", "bug", *why)
        # This worker starts in the folder of the copy, so it imports the fix.
        redrive("worker", "--until-empty", where=release)
        redrive("dlq", "groups")


if __name__ == "__main__":
    main()
