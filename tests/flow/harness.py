"""Real workers in processes of their own, a ledger outside the database, and ways to wait for what
can be observed.
"""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from redrive.database.embedded import free_port
from tests.flow.forks import Fork, can_fork, fork
from tests.postgres import Database

ROOT = Path(__file__).parents[2]
HANDLERS = "tests.flow.handlers:jobs"
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.15
"""Seconds between polls."""


class Entry(NamedTuple):
    """One line of the ledger."""

    phase: str
    job: int
    delivery: int
    attempt: int
    pid: int
    at: float


def wait_for(
    condition: Callable[[], Any],
    seconds: float = 180,
    *,
    every: float | None = None,
    what: str = "",
) -> Any:
    """Poll until `condition` is truthy. Returns what it returned.

    `every` is in seconds. Without it, polls become rarer while they find nothing: on a
    busy machine they would take the time of what is waited for.
    """
    deadline = time.monotonic() + seconds
    pause = FIRST_PAUSE if every is None else every
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(
                what or f"{condition} never came true in {seconds} s; last: {found!r}"
            )
        time.sleep(pause)
        if every is None:
            pause = min(pause * 1.25, LONGEST_PAUSE)


def children(pid: int) -> list[int]:
    """The processes a process has started and that still live."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in text.split()]


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and is not reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[
            0
        ] not in {"Z", "X"}
    except OSError:
        return False


def cpu_seconds(pid: int) -> float:
    """Processor time a process has used, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_kib(pid: int, field: str = "Pss") -> int:
    """Memory of a process by /proc/<pid>/smaps_rollup."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    return 0


class Worker:
    """One `redrive worker`, or another command that works, and what is known of it.

    `under` is a command to run it under. `forked` starts it from a process that has
    imported it already, if nothing tells Python otherwise. `root` is the checkout of the
    program.
    """

    def __init__(
        self,
        url: str,
        home: Path,
        *arguments: str,
        handlers: str = HANDLERS,
        under: Sequence[str] = (),
        forked: bool = False,
        root: Path = ROOT,
        command: str = "worker",
        **env: object,
    ) -> None:
        self.home = home
        self.port = free_port()
        self.log = Path(tempfile.mkstemp(prefix="worker-", suffix=".log", dir=home)[1])
        environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith("REDRIVE_")
            },
            "REDRIVE_DATABASE_URL": url,
            "REDRIVE_HANDLERS": handlers,
            "REDRIVE_HTTP_PORT": str(self.port),
            "REDRIVE_SLOTS": "4",
            "REDRIVE_LOG_FORMAT": "json",
            "REDRIVE_LOG_LEVEL": "info",
            "REDRIVE_TEST_HOME": str(home),
            "REDRIVE_TEST_URL": url,
            "PYTHONWARNINGS": "default",
            **{name.upper(): str(value) for name, value in env.items()},
        }
        typed = (command, *arguments)
        self.process: subprocess.Popen[bytes] | Fork
        if forked and not under and can_fork(environment):
            self.process = fork(typed, environment, self.log)
        else:
            self.process = _start(under, typed, environment, self.log, root)

    @property
    def pid(self) -> int:
        """Its supervisor."""
        return self.process.pid

    @property
    def runners(self) -> list[int]:
        """Its runner processes."""
        return children(self.pid)

    def events(self) -> list[dict[str, Any]]:
        """Its log; a line that is no JSON is an event too."""
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                found.append({"event": line, "level": "text"})
        return found

    def get(self, path: str) -> tuple[int, str]:
        """GET from its HTTP port: status and body; 0 while nobody does to the end."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}{path}", timeout=30
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except (OSError, http.client.HTTPException):  # it ends while it answers, too
            return 0, ""

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that carry these labels."""
        total = 0.0
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith((name + "{", name + " ")) and all(
                f'{k}="{v}"' in line for k, v in labels.items()
            ):
                total += float(line.rpartition(" ")[2])
        return total

    def wait_ready(self, seconds: float = 180) -> "Worker":
        """Wait until /readyz says so."""

        def ready() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return self.get("/readyz")[0] == 200

        wait_for(ready, seconds, what=f"not ready in {seconds} s")
        return self

    def signal(self, number: int) -> None:
        """Send the supervisor a signal."""
        self.process.send_signal(number)

    def wait(self, seconds: float = 240) -> int:
        """Wait for its end. Returns the exit status."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"the worker did not end in {seconds} s:\n{self.log.read_text()[-4000:]}"
            ) from None

    def stop(self, seconds: float = 240) -> tuple[int, float]:
        """SIGTERM. Returns the exit status and how long it took."""
        began = time.monotonic()
        self.signal(signal.SIGTERM)
        return self.wait(seconds), time.monotonic() - began

    def end(self) -> None:
        """Kill what is left of it."""
        for pid in (*self.runners, self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        for pid in self.runners:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def _start(
    under: Sequence[str],
    command: Sequence[str],
    environment: dict[str, str],
    log: Path,
    root: Path,
) -> subprocess.Popen[bytes]:
    """Start Python and `redrive` in it."""
    with log.open("ab") as written:
        return subprocess.Popen(
            [*under, sys.executable, "-m", "redrive", *command],
            env=environment,
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=written,
            start_new_session=True,
        )


class Workers:
    """Starts workers on one database; all of them end with the test."""

    def __init__(self, url: str, home: Path) -> None:
        self.url = url
        self.home = home
        self.started: list[Worker] = []

    def __call__(
        self, *arguments: str, url: str | None = None, **options: Any
    ) -> Worker:
        chosen = {"forked": True} | options
        worker = Worker(url or self.url, self.home, *arguments, **chosen)
        self.started.append(worker)
        return worker

    def run(self, *arguments: str, seconds: float = 300, **options: Any) -> Worker:
        """Run a worker until there is nothing left to do."""
        worker = self("--until-empty", *arguments, **options)
        status = worker.wait(seconds)
        assert status == 0, worker.log.read_text()[-4000:]
        return worker

    def ledger(self) -> list[Entry]:
        """What the handlers wrote down, oldest first."""
        return read_ledger(self.home)

    def starts(self, job: int) -> list[Entry]:
        """The starts of one job."""
        return [
            entry
            for entry in self.ledger()
            if entry.job == job and entry.phase == "start"
        ]

    def end(self) -> None:
        """End them all."""
        for worker in self.started:
            worker.end()


def read_ledger(home: Path) -> list[Entry]:
    """Every line of every process; a line cut short by a kill is left out."""
    entries = []
    for path in home.glob("ledger-*"):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                phase, job, delivery, attempt, pid, at = line.split()
                entries.append(
                    Entry(
                        phase,
                        int(job),
                        int(delivery),
                        int(attempt),
                        int(pid),
                        float(at),
                    )
                )
    return sorted(entries, key=lambda entry: entry.at)


def kill(database: Database, worker: Worker) -> None:
    """Kill a worker with its runners, and declare it lost."""
    for pid in (worker.pid, *worker.runners):
        with contextlib.suppress(ProcessLookupError):  # it ends with its supervisor
            os.kill(pid, signal.SIGKILL)
    worker.process.wait()
    declare_lost(database, worker)


def declare_lost(database: Database, worker: Worker) -> None:
    """Declare a worker lost that was killed; the next rescue takes its jobs back.

    A test must not shorten the ttl for that: a busy machine can stop any worker for
    seconds, and then the living ones would be lost, too.
    """
    database.rows(
        "update redrive.workers set lost_at = clock_timestamp() where name = %s",
        f"{socket.gethostname()}/{worker.pid}",
    )


@contextlib.contextmanager
def workers_on(url: str, home: Path) -> Iterator[Workers]:
    """Workers that end with the block."""
    workers = Workers(url, home)
    try:
        yield workers
    finally:
        workers.end()
