"""Processes of a demo: start them with a log file each, and stop them."""

import contextlib
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

LOOK_SECONDS = 0.05
START_SECONDS = 60.0
"""Longest time until a process answers."""


class Processes:
    """Processes by name, with their logs and process ids in the demo's directory."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._processes

    def start(
        self,
        name: str,
        command: tuple[str, ...],
        environment: Mapping[str, str],
        cwd: Path,
        *,
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        """Start a process."""
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=log,
                stderr=log,
                cwd=cwd,
                env=environment,
                start_new_session=True,  # Ctrl-C must not stop it; `stop` does
            )

        self._processes[name] = process
        self._pid_file(name).write_text(str(process.pid))

    def log(self, name: str) -> Path:
        """Return the file with the output of a process."""
        return self._home / f"{name}.log"

    def _pid_file(self, name: str) -> Path:
        return self._home / f"{name}.pid"

    def is_dead(self, name: str) -> bool:
        """Return True if a process has ended by itself."""
        return self._processes[name].poll() is not None

    def answers(self, name: str, ask: Callable[[], object]) -> bool:
        """Wait until a process answers; return False if it ends or the time is up."""
        deadline = time.monotonic() + START_SECONDS
        while not self.is_dead(name) and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                ask()
                return True
            time.sleep(LOOK_SECONDS)

        return False

    def stop(self, name: str) -> None:
        """End a process: ask twice, then kill it."""
        process = self._processes.pop(name, None)
        if process is None:
            return

        steps = (process.terminate, 6), (process.terminate, 3), (process.kill, None)
        for ask, seconds in steps:
            ask()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
                break

        if process.stdin:
            process.stdin.close()

        self._pid_file(name).unlink(missing_ok=True)
