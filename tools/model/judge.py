"""Ask TLC whether the model allows what a database did.

python -m tools.model.judge FILE...     records, as tests/model/recorder.py keeps them

Exit status 1 means that the model does not allow one of them.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.model import tlc, trace

PROMISES = ("Promise1", "Promise3", "Promise8", "InOrder")
CONFIG = """SPECIFICATION Spec
CONSTANT Removed = {{{removed}}}
INVARIANTS {promises}
"""
UNSEEN = ("claim: oldest", "claim: held")
"""Guards of the model that hold for what a transaction could see, and not for what committed meanwhile.

A claim does not see an older job of the key whose transaction is still open. The order of a record is
that of its transactions, so it shows such a job before the claim.
"""


@dataclass(frozen=True)
class Verdict:
    """What TLC said. `refused` is what is wrong, with the jobs it is about; None: nothing is."""

    refused: str | None
    runs: int
    steps: int


def judge(
    *records: Sequence[trace.Note],
    is_serial: bool = False,
    seconds: float | None = None,
) -> Verdict:
    """Compare records with the model. `is_serial`: their transactions came one after the other."""
    found: dict[str, list[int]] = {}
    for notes in records:
        found = trace.runs(notes) | found
    removed = "" if is_serial else ", ".join(f'"{name}"' for name in UNSEEN)
    config = CONFIG.format(removed=removed, promises=" ".join(PROMISES))
    if not found:
        return Verdict("nothing was recorded", 0, 0)
    said = tlc.run(
        "Trace",
        config,
        {"Record.tla": trace.module(found)},
        stops=True,
        seconds=seconds,
    )
    steps = sum(run.count("[op") for run in found)
    if said.broken is None:
        return Verdict(None, len(found), steps)
    which, at = said.value("run"), said.value("at")
    text, jobs = list(found.items())[which - 1]
    lines = text.split("\n")
    about = "\n".join(
        f"{'>' if n == at else ' '} {line}" for n, line in enumerate(lines, 1)
    )
    return Verdict(f"{said.broken}: jobs {jobs}\n{about}", len(found), steps)


def judge_files(*paths: Path) -> int:
    """Judge kept records, and print what was found. Returns how many the model does not allow."""
    refused = 0
    for path in paths:
        notes = [json.loads(line) for line in path.read_text().splitlines()]
        verdict = judge(notes)
        print(
            f"{path}: {len(notes):,} notes, {verdict.runs:,} different runs of jobs,"
            f" {verdict.steps:,} steps: {verdict.refused or 'allowed'}",
            flush=True,
        )
        refused += verdict.refused is not None
    return refused


if __name__ == "__main__":
    sys.exit(judge_files(*map(Path, sys.argv[1:])) > 0)
