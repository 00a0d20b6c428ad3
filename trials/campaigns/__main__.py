"""Campaigns at size: `python -m trials.campaigns`, some ten minutes; figures as JSON.

It ends with 1 at the first trial that does not come out as docs/campaigns.md says.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from redrive.database.embedded import NEWEST
from tests.postgres import Database, embedded
from trials.campaigns import trials
from trials.campaigns.trials import Figures


def main() -> int:
    """Return the exit status."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options.add_argument("--only", default="", help="names of trials, comma-separated")
    chosen = options.parse_args()
    on_a_database: dict[str, Callable[[Database], Figures]] = {
        "kills": partial(trials.kills, letters=10_000, times=200, seed=chosen.seed),
        "starters": partial(trials.starters, letters=10_000, at_once=32),
        "below": partial(trials.share_below_the_limit, letters=30_000),
        "share": partial(trials.share_that_fails, rounds=100, seed=chosen.seed),
    }
    every = [*on_a_database, "healthy"]
    wanted = [name for name in chosen.only.split(",") if name] or every
    print(f"seed {chosen.seed}", flush=True)
    with embedded(NEWEST) as server:
        for name, trial in on_a_database.items():
            if name in wanted:
                with server.database() as database:
                    _tell(name, partial(trial, database))
    if "healthy" in wanted:
        with tempfile.TemporaryDirectory() as home:
            _tell(
                "healthy", partial(trials.healthy, Path(home), rate=40.0, window=20.0)
            )
    return 0


def _tell(name: str, trial: Callable[[], Figures]) -> None:
    began = time.monotonic()
    figures = trial()
    seconds = round(time.monotonic() - began, 1)
    print(json.dumps({"trial": name, "seconds": seconds, **figures}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
