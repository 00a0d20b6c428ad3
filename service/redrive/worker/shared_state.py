"""Shared memory in which a runner shows what it is doing, for the supervisor to read at
any time.

A runner that hangs or is dead cannot answer. Its shared state still says which jobs it
had started and since when, and which it had completed but not yet reported: a job that
    killed its process takes
no success of its neighbours with it.

    taken     how many of the jobs sent to this runner it has taken off its list, in the
    order sent done      how many it has completed
    slots     per slot: job id (0: idle), deliveries, start in monotonic nanoseconds, a
              clock that processes share
    ring      the last completed jobs: id, deliveries
"""

import mmap
import os
from typing import NamedTuple

WORD = 8
TAKEN, DONE, SLOTS = 0, 1, 2
"""Where things are, in words; a word is written whole, so a reader sees the old or the
new one.
"""

RING = 4_096
"""Completed jobs remembered: more than can wait for one report."""


class Running(NamedTuple):
    """A job that has started. `since_ns`: monotonic nanoseconds."""

    id: int
    deliveries: int
    since_ns: int


class SharedState:
    """State of one runner in shared memory; the supervisor makes it, the runner opens
    its descriptor.
    """

    def __init__(self, slots: int, fd: int | None = None) -> None:
        self.slots = slots
        self._ring_at = SLOTS + 3 * slots
        size = WORD * (self._ring_at + 2 * RING)
        self.fd = _unnamed_file(size) if fd is None else fd
        self._memory = mmap.mmap(self.fd, size)
        self._words = memoryview(self._memory).cast("q")
        self._starts = 0
        self._completions = 0

    def start(self, slot: int, job: int, deliveries: int, now_ns: int) -> None:
        """Runner: the next job of the list starts in a slot.

        Its id comes last: a runner stopped by the scheduler between an id and its start
            would show,
        for as long as it stands still, a job that began when the one before it did.
        """
        words, at = self._words, SLOTS + 3 * slot
        self._starts += 1
        words[TAKEN] = self._starts
        words[at + 1] = deliveries
        words[at + 2] = now_ns
        words[at] = job

    def complete(self, slot: int, job: int, deliveries: int) -> None:
        """Runner: the work of the slot's job is done, and the slot is idle.

        In this order: between the two it shows a completed job that runs, and never
            neither.
        """
        words, at = self._words, self._ring_at + 2 * (self._completions % RING)
        words[at] = job
        words[at + 1] = deliveries
        self._completions += 1
        words[DONE] = self._completions
        words[SLOTS + 3 * slot] = 0

    def clear(self, slot: int) -> None:
        """Runner: the slot is idle, its job was not completed."""
        self._words[SLOTS + 3 * slot] = 0

    @property
    def taken(self) -> int:
        """Supervisor: how many jobs may have started, in the order sent; later ones
        have not.
        """
        return self._words[TAKEN]

    def running(self) -> list[Running]:
        """Supervisor: what runs. No start is older than its job; it may be that of the
        next one.
        """
        words = self._words[SLOTS : self._ring_at].tolist()
        return [
            Running(*words[at : at + 3]) for at in range(0, len(words), 3) if words[at]
        ]

    def completed(self) -> set[tuple[int, int]]:
        """Supervisor: the last completed jobs, as (id, deliveries)."""
        last = min(self._words[DONE], RING)
        words = self._words[self._ring_at :].tolist()
        return set(zip(words[0 : 2 * last : 2], words[1 : 2 * last : 2], strict=True))

    def close(self) -> None:
        """Give the memory back."""
        self._words.release()
        self._memory.close()
        os.close(self.fd)


def _unnamed_file(size: int) -> int:
    """The descriptor of a new file that is gone when nobody has it open."""
    import tempfile  # noqa: PLC0415 # a runner makes none

    with tempfile.TemporaryFile() as file:
        file.truncate(size)
        return os.dup(file.fileno())
