"""Shared memory in which a runner shows what it is doing, for the supervisor to read without asking.

A runner that hangs or is dead cannot answer; the board still says which jobs it had started and since when, and which
it had completed but not yet reported, so that a job that killed its process takes no success of its neighbours with it.

    taken     how many of the jobs sent to this runner it has taken off its list, in the order sent
    done      how many it has completed
    slots     per slot: job id (0 = idle), token, start in nanoseconds of the monotonic clock, which processes share
    ring      the last completed jobs: id, token
"""

import mmap
import os
import struct
import tempfile
from typing import NamedTuple

_HEADER = struct.Struct("<qq")
_COUNT = struct.Struct("<q")
_SLOT = struct.Struct("<qqq")
_START = struct.Struct("<qq")
_DONE = struct.Struct("<qq")
RING = 4_096
"""Completed jobs remembered: more than can wait for one report."""


class Running(NamedTuple):
    """A job that has started. `since_ns`: monotonic nanoseconds."""

    id: int
    token: int
    since_ns: int


class Board:
    """One runner's board; made by the supervisor, opened by the runner through the inherited descriptor."""

    def __init__(self, slots: int, fd: int | None = None) -> None:
        self.slots = slots
        self._ring_at = _HEADER.size + _SLOT.size * slots
        size = self._ring_at + _DONE.size * RING
        if fd is None:
            with tempfile.TemporaryFile() as file:
                file.truncate(size)
                self.fd = os.dup(file.fileno())
        else:
            self.fd = fd
        self._memory = mmap.mmap(self.fd, size)
        self._completions = 0

    def take(self, count: int) -> None:
        """Runner: `count` jobs have been taken off the list so far."""
        _COUNT.pack_into(self._memory, 0, count)

    def start(self, slot: int, job: int, token: int, now_ns: int) -> None:
        """Runner: the job starts.

        Its id comes last: packing zeroes what it writes, and a runner stopped by the scheduler between an id and its
        start would show, for as long as it stands still, a job that began when the machine did.
        """
        at = _HEADER.size + _SLOT.size * slot
        _START.pack_into(self._memory, at + _COUNT.size, token, now_ns)
        _COUNT.pack_into(self._memory, at, job)

    def complete(self, job: int, token: int) -> None:
        """Runner: the job's handler has returned."""
        _DONE.pack_into(self._memory, self._ring_at + _DONE.size * (self._completions % RING), job, token)
        self._completions += 1
        _COUNT.pack_into(self._memory, _COUNT.size, self._completions)

    def clear(self, slot: int) -> None:
        """Runner: the slot is idle."""
        _COUNT.pack_into(self._memory, _HEADER.size + _SLOT.size * slot, 0)

    @property
    def taken(self) -> int:
        """Supervisor: jobs up to this one in the order sent may have started; later ones have not."""
        return int(_COUNT.unpack_from(self._memory, 0)[0])

    def running(self) -> list[Running]:
        """Supervisor: what runs, as last written."""
        entries = (Running(*_SLOT.unpack_from(self._memory, _HEADER.size + _SLOT.size * n)) for n in range(self.slots))
        return [entry for entry in entries if entry.id]

    def completed(self) -> set[tuple[int, int]]:
        """Supervisor: the last completed jobs, as (id, token)."""
        count = _COUNT.unpack_from(self._memory, _COUNT.size)[0]
        return {
            _DONE.unpack_from(self._memory, self._ring_at + _DONE.size * (n % RING))
            for n in range(max(0, count - RING), count)
        }

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()
        os.close(self.fd)
