"""Check the model of docs/model, and which of its guards matter.

python -m tools.model small       the configurations of make model-test
python -m tools.model large       larger ones, too
python -m tools.model guards      remove each guard of the model in turn: some promise must break

Exit status 1 means that a promise broke, or that a guard can go and no promise notices.
"""

import argparse
import sys
import time

from tools.model import tlc
from tools.model.settings import LARGE, SMALL, Setting, without

GUARDS = {
    "fence: claim": "crash",
    "fence: worker": "fence",
    "fence: delivery": "fence",
    "claim: once": "fence",
    "claim: live worker": "fence",
    "claim: one of a key": "order",
    "claim: held": "order",
    "claim: oldest": "order",
    "claim: new id": "crash",
    "retire: delivery": "retire",
    "retire: unanswered": "retire",
    "end claim: no live job": "fence",
    "leave: no claim": "fence",
    "settle: delivery": "fence",
    "settle: unlist": "fence",
    "rescue: lost worker": "fence",
    "enqueue: one live job": "keys",
    "enqueue: success": "keys",
    "complete: key": "keys",
    "bury: delete": "keys",
    "bury: insert": "keys",
    "redrive: success": "keys",
    "redrive: conflict": "keys",
    "redrive: mark": "keys",
    "redrive: delivery": "keys",
    "forget: dead letter": "keys",
    "cancel: not claimed": "order",
    "purge: redriven": "purge",
    "epoch": "crash",
}
"""The guards of Database.tla and System.tla, each with a setting in which it should matter."""
BEHIND = {
    "claim: new id": "epoch",
    "epoch": "claim: new id",
    "retire: delivery": "retire: unanswered",
    "retire: unanswered": "retire: delivery",
}
"""Guards of which one is enough: without both, a promise must break."""


def check(setting: Setting, seconds: float | None, workers: int) -> bool:
    """Check a setting, and print what was found. Returns whether every promise held."""
    began = time.monotonic()
    found = tlc.run(
        "Check",
        setting.config,
        {"Check.tla": setting.module},
        seconds=seconds,
        workers=workers,
    )
    name = ", ".join((setting.name, *(f"without {guard}" for guard in setting.removed)))
    print(
        f"{name:40} {found.broken or 'holds':28} {found.states:>12,} states,"
        f" {found.distinct:>11,} distinct, {time.monotonic() - began:5.0f} s",
        flush=True,
    )
    if found.broken and not setting.removed:
        print(found.text)
    # A run that did not come to its end has shown neither that promises hold nor that one breaks.
    is_open = found.broken == tlc.UNFINISHED
    return found.broken is None or (is_open and bool(setting.removed))


def can_go(guard: str, seconds: float | None, workers: int) -> bool:
    """Return whether no promise breaks without a guard, nor without the one behind it, too."""
    setting = without(guard, {one.name: one for one in LARGE}[GUARDS[guard]])
    settings = [setting]
    if guard in BEHIND:
        settings.append(without(BEHIND[guard], setting))
    return all(check(one, seconds, workers) for one in settings)


def main() -> int:
    """Return the exit status."""
    options = argparse.ArgumentParser(prog="python -m tools.model", description=__doc__)
    options.add_argument("what", choices=("small", "large", "guards"))
    options.add_argument("--workers", type=int, default=1, help="threads of TLC")
    options.add_argument("--seconds", type=float, help="for each configuration")
    options.add_argument("--only", help="the name of one configuration, or guard")
    asked = options.parse_args()
    if not tlc.is_there():
        print("TLC is not here: run tools/tlc", file=sys.stderr)
        return 1
    if asked.what == "guards":
        kept = [
            guard
            for guard in GUARDS
            if asked.only in {None, guard}
            and can_go(guard, asked.seconds, asked.workers)
        ]
        print(f"{len(kept)} guards can go and no promise breaks:", *kept, sep="\n  ")
        return int(bool(kept))
    settings = SMALL if asked.what == "small" else LARGE
    held = [
        check(setting, asked.seconds, asked.workers)
        for setting in settings
        if asked.only in {None, setting.name}
    ]
    return int(not all(held))


if __name__ == "__main__":
    sys.exit(main())
