"""Orders die, are understood and come back, on a throw-away Postgres: make demo."""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg
from redrive.testing import postgres

from handlers import Order, book

HANDLERS = Path(__file__).with_name("handlers.py").read_text()
BUG = "    return 100 * int(parts[0]) + int(parts[1])\n"
FIX = '    return 100 * int(parts[0]) + int("".join(parts[1:]) or 0)\n'
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if "REDRIVE" not in name
} | {
    "REDRIVE_HANDLERS": "handlers:jobs",
    "REDRIVE_HTTP_PORT": "0",
    "REDRIVE_LOG_LEVEL": "error",
}


def order(number: int) -> Order:
    """Return an order; the amount of every fifth has no decimals."""
    amount = f"{number}.90" if number % 5 else str(number)
    return Order(number=number, amount=amount, currency="EUR")


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
        ENVIRONMENT["REDRIVE_DATABASE_URL"] = url
        print("Ten orders come in. Two have an amount without decimals.")

        with psycopg.connect(url) as conn:
            book.enqueue_many(conn, [order(number) for number in range(1, 11)])

        redrive("worker", "--until-empty")
        redrive("dlq", "groups")
        redrive("dlq", "show", "5")

        print(f"\nThe fix, in a copy of handlers.py:\n-{BUG}+{FIX}", end="")
        Path(release, "handlers.py").write_text(HANDLERS.replace(BUG, FIX))

        fixed = ("--category", "bug", "--why", "amounts may have no decimals", "--yes")
        redrive("dlq", "redrive", *fixed)
        # This worker starts in the folder of the copy, so it imports the fix.
        redrive("worker", "--until-empty", where=release)
        redrive("dlq", "groups")


if __name__ == "__main__":
    main()
