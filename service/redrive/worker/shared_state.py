"""Shared memory that shows the supervisor what a runner does, at any time.

A runner that hangs or is dead cannot answer. Its shared state still says which jobs it
had started and when, and which it had completed but not yet reported. So a job that
kills its process takes no neighbour's success with it.

| field | content |
|---|---|
| taken | how many of the jobs sent to this runner it has taken off its list |
| done | how many it has completed |
| beats | counts up several times a second while its event loop works |
| halt | not 0 = it must start no more jobs |
| slots | job id (0 = idle), deliveries, start in monotonic nanoseconds, for each |
| ring | id and deliveries of the last completed jobs |
"""

import mmap
import os
from typing import NamedTuple

WORD = 8
TAKEN, DONE, BEATS, HALT, SLOTS = range(5)
"""Offsets in words. A word is written whole: a reader sees the old or the new one."""

RING = 4_096
"""Completed jobs that are kept: more than can wait for one report."""


class Running(NamedTuple):
    """Job that has started. `since_ns`: monotonic nanoseconds."""

    id: int
    deliveries: int
    since_ns: int


class SharedState:
    """State of one runner in shared memory.

    The supervisor makes it, and the runner opens its descriptor.

    Args:
        slots: how many jobs the runner runs at once.
        fd: the descriptor of memory that exists; None = make new memory.
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

    def start(self, slot: int, job: int, deliveries: int, now_ns: int) -> bool:
        """Runner: start the next job of the list in a slot. Returns False if halted.

        Its id is written last. Otherwise, a runner that is stopped between the id and
        the start would show a job that started with the one before it.
        """
        words = self._words
        at = SLOTS + 3 * slot
        self._starts += 1
        words[TAKEN] = self._starts
        # Look only now. The supervisor reads `taken` after it has written `halt`, so
        # one of both sees what the other has written.
        if words[HALT]:
            self._starts -= 1
            words[TAKEN] = self._starts
            return False

        words[at + 1] = deliveries
        words[at + 2] = now_ns
        words[at] = job
        return True

    def complete(self, slot: int, job: int, deliveries: int) -> None:
        """Runner: note that a slot's job is completed, and that the slot is idle.

        In this order: between the two, the job is shown as both completed and running,
        but never as neither.
        """
        words = self._words
        at = self._ring_at + 2 * (self._completions % RING)
        words[at] = job
        words[at + 1] = deliveries
        self._completions += 1
        words[DONE] = self._completions
        words[SLOTS + 3 * slot] = 0

    def clear(self, slot: int) -> None:
        """Runner: note that a slot is idle, and that its job was not completed."""
        self._words[SLOTS + 3 * slot] = 0

    def beat(self) -> None:
        """Runner: show that the event loop works."""
        self._words[BEATS] += 1

    @property
    def beats(self) -> int:
        """Supervisor: a number that changes while the event loop works."""
        return self._words[BEATS]

    def halt(self) -> None:
        """Either: let no more jobs start."""
        self._words[HALT] = 1

    @property
    def taken(self) -> int:
        """Supervisor: how many jobs may have started, in the order of their sending."""
        return self._words[TAKEN]

    def running(self) -> list[Running]:
        """Supervisor: return the running jobs.

        A start may be that of the slot's next job, but never that of an earlier one.
        """
        words = self._words[SLOTS : self._ring_at].tolist()
        running: list[Running] = []

        for at in range(0, len(words), 3):
            slot = Running(*words[at : at + 3])
            if slot.id:
                running.append(slot)

        return running

    def completed(self) -> set[tuple[int, int]]:
        """Supervisor: return the last completed jobs, as (id, deliveries)."""
        last = min(self._words[DONE], RING)
        words = self._words[self._ring_at :].tolist()[: 2 * last]
        ids = words[0::2]
        return set(zip(ids, words[1::2], strict=True))

    def close(self) -> None:
        """Give the memory back."""
        self._words.release()
        self._memory.close()
        os.close(self.fd)


def _unnamed_file(size: int) -> int:
    """Return a descriptor of a new file without a name."""
    if hasattr(os, "memfd_create"):  # Linux; it needs no writable directory
        fd = os.memfd_create("redrive")
        os.ftruncate(fd, size)
        return fd

    import tempfile  # noqa: PLC0415 # a runner makes none

    with tempfile.TemporaryFile() as file:
        file.truncate(size)
        # The file is closed here. Its duplicate keeps it.
        return os.dup(file.fileno())
