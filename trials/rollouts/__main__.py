"""Random rollouts: `python -m trials.rollouts`, some two minutes; figures as JSON.

It ends with an AssertionError at the first regression that is missed or false.
"""

import argparse
import json
import sys
import time

from redrive.database.embedded import NEWEST
from tests.postgres import embedded
from trials.rollouts.rollouts import simulate


def main() -> int:
    """Return the exit status."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options.add_argument("--rollouts", type=int, default=200)
    chosen = options.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    began = time.monotonic()
    with embedded(NEWEST) as server, server.database() as database:
        figures = simulate(database, rollouts=chosen.rollouts, seed=chosen.seed)
    seconds = round(time.monotonic() - began, 1)
    print(json.dumps({**figures, "seconds": seconds}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
