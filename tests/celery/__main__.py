"""Kills at size: `python -m tests.celery`, some minutes.

It ends with an error if a task that failed for good is not exactly one dead letter.
"""

import argparse
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from redrive.database.embedded import NEWEST
from tests.celery.harness import Shop, redis_server
from tests.celery.kills import run
from tests.postgres import embedded


def main() -> None:
    """Run it, and print the figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--tasks", type=int, default=50_000)
    options.add_argument("--seconds-between-kills", type=float, default=2.0)
    chosen = options.parse_args()
    began = time.monotonic()
    with ExitStack() as undo:
        home = Path(undo.enter_context(tempfile.TemporaryDirectory()))
        server = undo.enter_context(embedded(NEWEST))
        database = undo.enter_context(server.database())
        broker = undo.enter_context(redis_server(home))
        shop = Shop(home, database.url, f"{broker}/0", undo)
        done = run(shop, database, chosen.tasks, chosen.seconds_between_kills)
    print(f"{done.figures}; {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
