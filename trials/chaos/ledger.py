"""What handlers write down of each run, in a file of their process, and no database knows.

No part of Redrive is imported: handlers of other queues use this file, too.
"""

import os
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

HOME = "CHAOS_LEDGER"
_files: dict[int, int] = {}


class Entry(NamedTuple):
    """One line of the ledger: what a process did with job `n`, and when.

    `token` rises from run to run, if the queue gives one (0: it does not); `at` is monotonic, so no
    step of a clock is seen in it.
    """

    phase: str
    n: int
    token: int
    pid: int
    parent: int
    at: float


def note(phase: str, n: int, token: int = 0) -> None:
    """One line in one write, before anything else can happen."""
    pid = os.getpid()
    if pid not in _files:
        path = Path(os.environ[HOME]) / f"ledger-{pid}"
        _files[pid] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    line = f"{phase} {n} {token} {pid} {os.getppid()} {time.monotonic():.6f}\n"
    os.write(_files[pid], line.encode())


def read(home: Path) -> dict[int, list[Entry]]:
    """Every whole line of every process, by job and then by time."""
    found: defaultdict[int, list[Entry]] = defaultdict(list)
    for path in home.glob("ledger-*"):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                phase, *numbers, at = line.split()
                entry = Entry(phase, *map(int, numbers), float(at))
                found[entry.n].append(entry)
    for entries in found.values():
        entries.sort(key=lambda entry: entry.at)
    return dict(found)
