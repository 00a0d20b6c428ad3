"""One system on one fresh database: start its workers and producers, hear their events, ask what is
left.
"""

import contextlib
import json
import os
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, LiteralString

from bench import usage
from bench.install import Peers
from bench.server import Connection, Server
from bench.systems import System

Event = dict[str, Any]


class SystemFailed(Exception):
    """A driver ended with an error, or nothing happened for too long."""


class Session:
    """A system at work."""

    def __init__(
        self, server: Server, system: System, command: list[str], scratch: Path
    ) -> None:
        self.server, self.system = server, system
        self.database = "bench_" + system.name.replace("-", "_")
        self._command = command
        self._progress = scratch / "progress"
        self._errors: IO[str] = (scratch / "errors").open("a+")
        self._events: queue.Queue[tuple[int, Event]] = queue.Queue()
        self.workers: list[subprocess.Popen[str]] = []
        self.producers: list[subprocess.Popen[str]] = []
        self.handled: dict[int, int] = {}
        self.monitor: Connection

    def open(self) -> None:
        """Make its schema in a fresh database."""
        self.server.fresh(self.database)
        self.run("setup")
        self.monitor = self.server.connect(self.database)

    # ------------------------------------------------------------------ processes

    def _environment(self, **more: str) -> dict[str, str]:
        url = self.server.url_of(self.database)
        own = {"BENCH_URL": url, "BENCH_PROGRESS": str(self._progress)}
        return (
            os.environ
            | own
            | {"NODE_NO_WARNINGS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
            | more
        )

    def run(self, *arguments: object, payload: int = 0) -> Event:
        """Run a command of the driver to its end. Returns its last event."""
        done = subprocess.run(
            [*self._command, *map(str, arguments)],
            env=self._environment(BENCH_PAYLOAD=str(payload)),
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemFailed(
                f"{self.system.name} {arguments[0]} ended with {done.returncode}:"
                f" {self._last_words()}"
            )
        events = [line for line in done.stdout.splitlines() if line.startswith('{"ev"')]
        return json.loads(events[-1]) if events else {}

    def _spawn(self, *arguments: object, payload: int = 0) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*self._command, *map(str, arguments)],
            env=self._environment(BENCH_PAYLOAD=str(payload)),
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()
        return process

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith('{"ev"'):
                with contextlib.suppress(ValueError):
                    self._events.put((process.pid, json.loads(line)))

    def start_workers(self, count: int, config: dict[str, Any]) -> None:
        """Start worker processes."""
        self.workers += [
            self._spawn("worker", json.dumps(config)) for _ in range(count)
        ]

    def start_producer(self, *command: object, payload: int = 0) -> None:
        """Start a producer: produce, load or probe."""
        self.producers.append(self._spawn(*command, payload=payload))

    @property
    def pids(self) -> list[int]:
        """The processes started as workers."""
        return [process.pid for process in self.workers]

    def close(self) -> None:
        """End everything that was started, with what it started."""
        for process in (*self.workers, *self.producers):
            descendants = usage.children(process.pid)
            process.kill()
            process.wait()
            for pid in descendants:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
        self._errors.close()

    # ------------------------------------------------------------------ what happens

    def events(self, until: float) -> Iterator[Event]:
        """Events as they come, until a monotonic instant; counts what is handled on the way.

        Raises:
            SystemFailed: a worker has ended.
        """
        while (left := until - time.monotonic()) > 0:
            try:
                pid, event = self._events.get(timeout=min(left, 0.25))
            except queue.Empty:
                if any(process.poll() is not None for process in self.workers):
                    raise SystemFailed(
                        f"a worker of {self.system.name} ended: {self._last_words()}"
                    ) from None
                continue
            if event["ev"] == "n":
                self.handled[event.get("pid", pid)] = event["n"]
                self._progress.write_text(str(sum(self.handled.values())))
            yield event

    def wait_for(self, name: str, seconds: float) -> Event:
        """The next event of a name."""
        for event in self.events(time.monotonic() + seconds):
            if event["ev"] == name:
                return event
        raise SystemFailed(
            f"{self.system.name}: no {name!r} in {seconds:g} s; {self._last_words()}"
        )

    def left(self) -> int:
        """What its database says is not settled."""
        return self._count(self.system.left)

    def dead(self) -> int:
        """How many dead letters it keeps."""
        return self._count(self.system.dead) if self.system.dead else 0

    def registered(self) -> int:
        """How many workers of ours its database knows."""
        return self._count("select count(*) from redrive.workers")

    def _count(self, query: LiteralString) -> int:
        row = self.monitor.execute(query).fetchone()
        return int(row[0]) if row else 0

    def cpu(self) -> usage.Cpu:
        """CPU used so far."""
        return usage.cpu(self.server.pid, self.pids)

    def _last_words(self) -> str:
        self._errors.flush()
        self._errors.seek(0)
        return self._errors.read()[-1500:]


@contextlib.contextmanager
def session(server: Server, peers: Peers, system: System) -> Iterator[Session]:
    """A system on a database of its own; everything it started ends with the block."""
    with tempfile.TemporaryDirectory(prefix="redrive-bench-run-") as scratch:
        opened = Session(server, system, peers.command(system), Path(scratch))
        try:
            opened.open()
            yield opened
        finally:
            opened.close()
            if hasattr(opened, "monitor"):
                opened.monitor.close()
