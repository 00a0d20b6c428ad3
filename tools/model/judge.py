"""Ask TLC whether the model allows what a database did.

python -m tools.model.judge FILE...     records, as trials/model/recorder.py keeps them

Exit status 1 means that the model does not allow one of them.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.model import tlc, trace

CONFIG = """SPECIFICATION Spec
CONSTANTS
  Removed = {{{removed}}}
  Explains = {explains}
"""
PROMISES = "INVARIANTS Promise1 Promise3 Promise8 InOrder\n"
UNSEEN = '"claim: oldest", "claim: held"'
"""Guards of the model that hold for what a transaction could see, and not for what committed meanwhile.

A claim does not see an older job of the key whose transaction is still open. The order of a record is
that of its transactions, so it shows such a job before the claim.
"""


@dataclass(frozen=True)
class Verdict:
    """What TLC said of a record: the runs of jobs in it that differ, their steps, and those refused."""

    runs: int
    steps: int
    refused: tuple[str, ...]


def judge(
    records: Mapping[str, Sequence[trace.Note]], *, is_serial: bool = False
) -> dict[str, Verdict]:
    """Compare records with the model, by their names.

    `is_serial`: no transactions overlapped, so that all guards are compared.
    """
    of_record = {name: list(trace.runs(notes)) for name, notes in records.items()}
    different = list(dict.fromkeys(run for runs in of_record.values() for run in runs))
    removed = "" if is_serial else UNSEEN
    config = CONFIG.format(removed=removed, explains="FALSE")
    said = tlc.run(
        "Trace", config, {"Record.tla": trace.module(different)}, is_short=True
    )
    if said.broken is not None:
        raise ValueError(said.text)
    allowed = {
        different[int(n) - 1] for n in re.findall(r'<<"allowed", (\d+)>>', said.text)
    }
    return {
        name: Verdict(
            len(runs),
            sum(run.count("[op") for run in runs),
            tuple(run for run in runs if run not in allowed),
        )
        for name, runs in of_record.items()
    }


def explain(run: str, *, is_serial: bool = False) -> str:
    """Return which step of a refused run the model does not allow, or which promise it breaks."""
    removed = "" if is_serial else UNSEEN
    config = CONFIG.format(removed=removed, explains="TRUE") + PROMISES
    said = tlc.run(
        "Trace", config, {"Record.tla": trace.module([run])}, stops=True, is_short=True
    )
    at = said.value("at")
    lines = enumerate(run.split("\n"), 1)
    return f"{said.broken}:\n" + "\n".join(
        f"{'>' if n == at else ' '} {line}" for n, line in lines
    )


def judge_files(*paths: Path) -> int:
    """Judge kept records, and print what was found. Returns how many the model does not allow."""
    records = {
        str(path): [json.loads(line) for line in path.read_text().splitlines()]
        for path in paths
    }
    verdicts = judge(records)
    for name, found in verdicts.items():
        said = f"refused {len(found.refused)}" if found.refused else "allowed"
        print(
            f"{name}: {len(records[name]):,} notes, {found.runs:,} different runs of jobs,"
            f" {found.steps:,} steps: {said}",
            flush=True,
        )
        print(*map(explain, found.refused[:1]), sep="\n")
    return sum(bool(found.refused) for found in verdicts.values())


if __name__ == "__main__":
    sys.exit(judge_files(*map(Path, sys.argv[1:])) > 0)
