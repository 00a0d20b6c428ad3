"""The monkey as a program: `python -m trials.chaos --tier headline --seed 7`.

It prints the schedule with --plan, progress while it runs, and its verdict as JSON, which --output
keeps. It ends with 1 when something was lost, stuck, doubled without a reason, or accepted stale.
--record keeps what the database did, and asks the model of docs/model whether it allows that.
--ledger adds the run to trials/chaos/results/ledger.jsonl, which docs/faults.md adds up.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from tools.model.judge import judge_files
from trials.chaos.monkey import Outcome, run
from trials.chaos.schedule import TIERS, as_text, plan

LEDGER = Path(__file__).parent / "results" / "ledger.jsonl"


def main() -> int:
    """Return the exit status."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--tier", choices=TIERS, default="short")
    options.add_argument(
        "--share", type=float, default=1.0, help="a part of the tier, such as 0.2"
    )
    options.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options.add_argument(
        "--plan", action="store_true", help="print the schedule, and do nothing"
    )
    options.add_argument(
        "--keep", action="store_true", help="keep the ledger and the logs"
    )
    options.add_argument("--record", type=Path, help="a file for what the database did")
    options.add_argument(
        "--ledger", action="store_true", help="add the run to the ledger"
    )
    options.add_argument("--output", type=Path)
    chosen = options.parse_args()
    tier = TIERS[chosen.tier]
    if chosen.share != 1:
        tier = tier.part(chosen.share)
    if chosen.plan:
        print(as_text(plan(tier, chosen.seed)))
        return 0
    share = f" --share {chosen.share:g}" if chosen.share != 1 else ""
    print(
        f"seed {chosen.seed}; its schedule: python -m trials.chaos"
        f" --tier {chosen.tier}{share} --seed {chosen.seed} --plan",
        flush=True,
    )
    outcome = run(
        tier,
        chosen.seed,
        lambda line: print(line, flush=True),
        keep=chosen.keep,
        record=chosen.record,
    )
    text = json.dumps(outcome.as_json(), indent=2)
    print(text)
    if chosen.output:
        chosen.output.write_text(text + "\n")
    print(outcome.told(), file=sys.stderr)
    refused = judge_files(chosen.record) if chosen.record else None
    if refused:
        chosen.record.rename(chosen.record.with_name(f"refused-{chosen.seed}.jsonl"))
    if chosen.ledger:
        add(outcome, None if chosen.record is None else refused == 0)
    return int(any(outcome.failures.values()) or bool(refused))


def add(outcome: Outcome, is_allowed: bool | None) -> None:
    """Add a line to the ledger. `is_allowed`: what the model said, if it was asked."""
    found = outcome.as_json()
    line = {"commit": _commit(), "at": time.strftime("%Y-%m-%d", time.gmtime())}
    line |= {name: found[name] for name in ("tier", "seed", "jobs", "faults")}
    line |= {"failures": {name: len(of) for name, of in outcome.failures.items() if of}}
    line |= {"allowed": is_allowed}
    with LEDGER.open("a") as file:
        file.write(json.dumps(line) + "\n")


def _commit() -> str:
    """Return the commit that was run; `+` if other files than the results differ from it."""
    changed = _git("status", "--porcelain", "--", ".", f":(exclude){LEDGER.parent}")
    return _git("rev-parse", "--short=8", "HEAD") + "+" * bool(changed)


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    return said.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
