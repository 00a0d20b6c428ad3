"""Operating system process of a runner, with the processes that its handlers start."""

import contextlib
import ctypes
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

REAP_SECONDS = 0.002
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes in one unit of `ru_maxrss`."""

GET_CHILD_SUBREAPER = 37


@functools.cache
def adopts_orphans() -> bool:
    """Return True if processes whose parent has ended become children of this one.

    This is so for process 1 of a container.
    """
    if os.getpid() == 1:
        return True
    if sys.platform != "linux":
        return False

    is_subreaper = ctypes.c_int()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(GET_CHILD_SUBREAPER, ctypes.byref(is_subreaper))
    return bool(is_subreaper.value)


def collect_orphans(runners: Collection[int]) -> None:
    """Collect the ends of adopted processes, which handlers have left behind.

    `runners`: ids of children whose ends are collected elsewhere.
    """
    how = os.WEXITED | os.WNOHANG | os.WNOWAIT
    with contextlib.suppress(ChildProcessError):  # there are no children
        while (ended := os.waitid(os.P_ALL, 0, how)) is not None:
            if ended.si_pid in runners:
                return  # the next look finds what comes after it
            os.waitpid(ended.si_pid, os.WNOHANG)


@dataclass(slots=True, eq=False)
class OsProcess:
    """Process that leads a group of its own. `peak_memory`: in bytes, once it is dead."""

    popen: subprocess.Popen[bytes]
    peak_memory: int = 0

    @property
    def pid(self) -> int:
        """Return the id of the process and of its group."""
        return self.popen.pid

    def memory(self) -> int:
        """Return its resident memory in bytes; 0 if the system does not tell."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_bytes().split()[1])
        except (OSError, IndexError, ValueError):
            return 0

        return pages * os.sysconf("SC_PAGE_SIZE")

    def kill(self) -> None:
        """Kill the process, and all processes that its handlers started."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            self.popen.kill()

    def kill_living(self) -> None:
        """Kill the process unless it has ended: its id may be another's by then."""
        if self.popen.returncode is None:
            self.kill()

    def suspend(self) -> None:
        """Stop the group until it is resumed or killed."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the group continue."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.popen.returncode is None:
                os.killpg(self.pid, number)

    @property
    def is_dead(self) -> bool:
        """True if the process has ended. Collects its exit status."""
        self._reap()
        return self.popen.returncode is not None

    @property
    def has_ended(self) -> bool:
        """True if the process has ended. Any thread may ask: no status is collected."""
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            return False

        try:
            how = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self.pid, how) is not None
        except ChildProcessError:  # its status has been collected
            return True

    def wait(self, patience: float = float("inf")) -> int | None:
        """Wait up to `patience` seconds for its end.

        Returns its exit status, negative for a signal; None if it still runs.
        """
        give_up_at = time.monotonic() + patience
        while not self.is_dead and time.monotonic() < give_up_at:
            time.sleep(REAP_SECONDS)
        return self.popen.returncode

    def _reap(self) -> None:
        """Collect the exit status and the peak memory, which `Popen` throws away."""
        if self.popen.returncode is not None:
            return

        try:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        except ChildProcessError:
            # Its status was collected elsewhere; `poll` notes that it has ended.
            self.popen.poll()
            return

        if pid:
            self.popen.returncode = os.waitstatus_to_exitcode(status)
            self.peak_memory = usage.ru_maxrss * MAXRSS_UNIT
