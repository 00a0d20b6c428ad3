"""Run every check that needs no database of yours: `make check`.

All checks run. At the end, each failed one is named with its remedy. A report on the
readability of the code closes the list. If a figure got worse than tools/measure.json,
the check fails.
"""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tools.generated import ROOT
from tools.measure import bounds, judged, measure, report, worse

BIN = Path(sys.executable).parent


class Check(NamedTuple):
    """Program that exits with 0 if it finds no fault."""

    name: str
    program: str
    arguments: tuple[str, ...] = ()
    mend: str = "see above"


class Result(NamedTuple):
    """Output of a check, and its duration."""

    check: Check
    status: int
    text: str
    seconds: float


CHECKS = (  # the slowest first, because they run side by side
    Check("types", "basedpyright"),
    Check("types of bench", "basedpyright", ("--project", "bench/pyrightconfig.json")),
    Check(
        "stale files",
        "python",
        ("-m", "tools.generate", "--check"),
        "run: make generate",
    ),
    Check("import contracts", "lint-imports", ("--no-cache",)),
    Check("spelling", "codespell"),
    Check(
        "lint",
        "ruff",
        ("check", "--quiet", "--output-format", "concise"),
        "run: make fmt, and mend what is left",
    ),
    Check("format", "ruff", ("format", "--check", "--quiet"), "run: make fmt"),
)


def run(check: Check) -> Result:
    """Run a check in the root of the repository."""
    began = time.monotonic()
    done = subprocess.run(
        [BIN / check.program, *check.arguments],
        check=False,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return Result(check, done.returncode, done.stdout, time.monotonic() - began)


def main() -> int:
    """Run all checks; return the exit status: 1 if a check failed."""
    failed: list[Check] = []
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for check, status, text, seconds in threads.map(run, CHECKS):
            print(
                f"{'FAILED' if status else 'ok':8}{check.name}, {seconds:.0f} s",
                flush=True,
            )
            if status:
                print(text.rstrip())
                failed.append(check)
    figures = measure(ROOT / "service")
    grown = worse(judged(figures), bounds())
    print(f"\nservice/, how it reads:\n{report(figures)}")
    for check in failed:
        print(f"\nFAILED: {check.name}; {check.mend}")
    for line in grown:
        print(f"\nFAILED: {line}")
    return bool(failed or grown)


if __name__ == "__main__":
    sys.exit(main())
