"""CPU and memory of processes, from /proc."""

import os
import resource
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
_PPID, _UTIME, _CUTIME = 1, 11, 13  # fields of /proc/<pid>/stat behind the name


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


def children(pid: int) -> list[int]:
    """Its processes, at all depths."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    parents = {child: int(fields[_PPID]) for child in pids if (fields := _stat(child))}
    found, level = [], {pid}
    while level:
        level = {child for child, parent in parents.items() if parent in level}
        found += sorted(level)
    return found


def cpu_of(pid: int, *, reaped: bool = True) -> float:
    """CPU seconds of one process, and of its children that ended and were waited for."""
    fields = _stat(pid)
    if fields is None:
        return 0.0
    last = _CUTIME + 2 if reaped else _CUTIME
    return sum(map(int, fields[_UTIME:last])) / TICKS


def cpu_of_ended() -> float:
    """CPU seconds of our own children that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


@dataclass(frozen=True)
class Cpu:
    """CPU seconds: of the server, of the processes started as workers, and of what they started in
    turn.
    """

    database: float = 0.0
    workers: float = 0.0
    runners: float = 0.0

    @property
    def total(self) -> float:
        """All of them."""
        return self.database + self.workers + self.runners

    def __sub__(self, other: "Cpu") -> "Cpu":
        return Cpu(
            self.database - other.database,
            self.workers - other.workers,
            self.runners - other.runners,
        )


def cpu(postmaster: int, workers: list[int]) -> Cpu:
    """CPU used so far."""
    return Cpu(
        sum(map(cpu_of, [postmaster, *children(postmaster)])),
        sum(cpu_of(pid, reaped=False) for pid in workers),
        sum(cpu_of(child) for pid in workers for child in children(pid)),
    )


def memory(pids: list[int], field: str = "Pss") -> int:
    """Proportional set size in bytes: shared pages count once, divided by who shares them.

    `Pss_Anon` of a server's process leaves out the buffers that all of them share.
    """
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(
            int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:")
        )
    return total


def resident(pids: list[int]) -> int:
    """Resident set size in bytes: what a container's limit sees, shared pages counted for each."""
    total = 0
    for pid in pids:
        try:
            total += int(
                Path(f"/proc/{pid}/statm").read_text().split()[1]
            ) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            continue
    return total
