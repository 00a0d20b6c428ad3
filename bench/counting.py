"""What processes spend, in two units: instructions, where the machine counts them, and CPU seconds.

Instructions hardly depend on what else the machine does; CPU seconds do, by a quarter and more.
"""

import ctypes
import os
import struct
from pathlib import Path
from typing import NamedTuple, Protocol

from bench.usage import children

_SYSCALLS = {"x86_64": 298, "aarch64": 241}
_SIZE = 128
_INSTRUCTIONS = 1
"""PERF_COUNT_HW_INSTRUCTIONS, of PERF_TYPE_HARDWARE (0)."""

_WITH_TIMES = 1 << 0 | 1 << 1
_INHERIT, _WITHOUT_KERNEL, _WITHOUT_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6
_WHOLE = 0.99


class Reading(NamedTuple):
    """A counter at one moment, and of how much time it counts how much."""

    value: float
    time: float
    counted: float

    def since(self, before: "Reading") -> float | None:
        """What was spent; None when the counter was taken away meanwhile, by somebody's perf."""
        time, counted = self.time - before.time, self.counted - before.counted
        is_whole = counted and counted >= _WHOLE * time
        return self.value - before.value if is_whole else None


class Counter(Protocol):
    """Counts what a process and those it started have spent."""

    def read(self) -> Reading:
        """How much until now."""
        ...


class Instructions:
    """Those of a process from now on (0 = the calling thread), and of what it starts."""

    def __init__(self, pid: int) -> None:
        """Raises OSError where none are counted: in many virtual machines and containers."""
        asked = bytearray(_SIZE)
        struct.pack_into("IIQ", asked, 0, 0, _SIZE, _INSTRUCTIONS)
        flags = _INHERIT | _WITHOUT_KERNEL | _WITHOUT_HYPERVISOR
        struct.pack_into("QQ", asked, 32, _WITH_TIMES, flags)
        libc = ctypes.CDLL(None, use_errno=True)
        number = _SYSCALLS.get(os.uname().machine, -1)
        described = (ctypes.c_char * _SIZE).from_buffer(asked)
        self._fd = libc.syscall(number, described, pid, -1, -1, 0)
        if self._fd < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))

    def read(self) -> Reading:
        """How many until now."""
        return Reading(*struct.unpack("QQQ", os.read(self._fd, 24)))


class Seconds:
    """CPU seconds of a process (0 = our own), and of what it started that still runs."""

    def __init__(self, pid: int) -> None:
        self._pid = pid or os.getpid()

    def read(self) -> Reading:
        """How many until now."""
        seconds = sum(map(_seconds_of, [self._pid, *children(self._pid)]))
        return Reading(seconds, seconds, seconds)


def _seconds_of(pid: int) -> float:
    """Of all its threads: /proc/<pid>/stat counts in hundredths."""
    total = 0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(task.read_text().split()[0])
        except OSError:
            continue  # it has ended
    return total / 1e9


def counters(pid: int) -> dict[str, Counter]:
    """A process in every unit that the machine has."""
    found: dict[str, Counter] = {"seconds": Seconds(pid)}
    try:
        found["instructions"] = Instructions(pid)
    except OSError as error:
        print(f"instructions are not counted here: {error.strerror}")
    return found
