"""The monkey as a program: `python -m tests.chaos --tier headline --seed 7`.

It prints the schedule with --plan, progress while it runs, and its verdict as JSON, which --output
keeps. It ends with 1 when something was lost, stuck, doubled without a reason, or accepted stale.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from tests.chaos.monkey import run
from tests.chaos.schedule import TIERS, as_text, plan


def main() -> int:
    """Return the exit status."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--tier", choices=TIERS, default="short")
    options.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options.add_argument(
        "--plan", action="store_true", help="print the schedule, and do nothing"
    )
    options.add_argument(
        "--keep", action="store_true", help="keep the ledger and the logs"
    )
    options.add_argument("--output", type=Path)
    chosen = options.parse_args()
    tier = TIERS[chosen.tier]
    if chosen.plan:
        print(as_text(plan(tier, chosen.seed)))
        return 0
    print(
        f"seed {chosen.seed}; its schedule: python -m tests.chaos"
        f" --tier {tier.name} --seed {chosen.seed} --plan",
        flush=True,
    )
    outcome = run(
        tier, chosen.seed, lambda line: print(line, flush=True), keep=chosen.keep
    )
    text = json.dumps(outcome.as_json(), indent=2)
    print(text)
    if chosen.output:
        chosen.output.write_text(text + "\n")
    print(outcome.told(), file=sys.stderr)
    return int(any(outcome.failures.values()))


if __name__ == "__main__":
    sys.exit(main())
