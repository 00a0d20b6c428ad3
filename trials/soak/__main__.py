"""A soak with handlers that misbehave: `python -m trials.soak --minutes 120`; figures as JSON.

It ends with 1 if a job of a handler that behaves is lost, repeated or late because of
them, or if memory or descriptors grow.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from trials.soak.soak import Soak


def main() -> int:
    """Return the exit status."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=120)
    options.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options.add_argument(
        "--rate", type=float, default=4, help="good jobs per second and group"
    )
    options.add_argument(
        "--keep", type=Path, help="a new directory for logs and ledgers"
    )
    options.add_argument("--output", type=Path)
    chosen = options.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        home = chosen.keep or Path(temporary)
        home.mkdir(exist_ok=True)
        soak = Soak(
            home, chosen.seed, chosen.minutes, lambda line: print(line, flush=True)
        )
        verdict = soak.run(chosen.rate, bad_every=(1.0, 4.0))
    text = json.dumps(verdict.as_json(), indent=1)
    print(text)
    if chosen.output:
        chosen.output.write_text(text + "\n")
    return int(not verdict.is_good)


if __name__ == "__main__":
    sys.exit(main())
