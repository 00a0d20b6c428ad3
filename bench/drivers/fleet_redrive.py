"""Many workers in one process: each is the real supervisor, with a clock in place of its runner.

Polling, exchange, heartbeat and chores are the ones that we ship, on connections of their own. Only
the runner processes are missing. One thread answers on their channels as they would, so a driver with
hundreds of workers fits on two cores. A handler does nothing, or waits (`work`: "wait:MS").

Every five seconds, the driver reports how many statements its workers have sent.
"""

import heapq
import itertools
import json
import os
import resource
import selectors
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import line
import msgspec
import psycopg
from psycopg.connection import Connection

from redrive.database.connections.address import Address
from redrive.observability.metrics import Metrics
from redrive.worker.channel import Channel
from redrive.worker.options import WorkerOptions
from redrive.worker.processes import pool
from redrive.worker.processes.runner_process import RunnerProcess
from redrive.worker.processes.start import RunnerOptions
from redrive.worker.protocol import Done, Hello, Jobs, Kind, Stop, Work, decode_down
from redrive.worker.shared_state import SharedState
from redrive.worker.supervisor import Supervisor
from redrive.worker.telemetry import Telemetry

WATCH_SECONDS, TELL_SECONDS = 0.2, 1.0
STACK_BYTES = 512 << 10
HELLO = Hello([Kind("noop", 60.0, {})], [])


class NoProcess:
    """In place of the operating system's process: it runs until it is killed."""

    pid, peak_memory = 0, 0
    is_dead = has_ended = False

    def memory(self) -> int:
        """Return nothing: the driver has the memory."""
        return 0

    def wait(self, _patience: float = 0.0) -> int:
        """Return the exit status."""
        return 0

    def kill(self) -> None:
        """Do nothing: the driver ends as a whole."""

    kill_living = suspend = resume = kill


@dataclass(slots=True)
class StandIn:
    """The other end of a runner's channel. It runs as many jobs at once as there are slots."""

    channel: Channel
    shared: SharedState
    idle: list[int]
    waiting: deque[Work] = field(default_factory=deque[Work])


class Clock(threading.Thread):
    """Runs the jobs of all workers: each takes `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(name="clock", daemon=True)
        self._seconds = seconds
        self._selector = selectors.DefaultSelector()
        self._ends: list[tuple[float, int, StandIn, int, Work]] = []
        self._order = itertools.count()

    def start_runner(
        self, options: RunnerOptions, *, alone: bool = False
    ) -> RunnerProcess:
        """Return a runner whose handlers are this clock. It is what `start_runner` is to the pool."""
        ours, theirs = socket.socketpair()
        slots = 1 if alone else options.slots
        shared = SharedState(slots)
        one = StandIn(Channel(theirs), shared, list(range(slots)))
        one.channel.send(HELLO)
        self._selector.register(theirs.fileno(), selectors.EVENT_READ, one)
        process: Any = NoProcess()
        return RunnerProcess(process, Channel(ours), shared, alone, time.monotonic())

    def run(self) -> None:
        """Take jobs and end them, forever."""
        while True:
            left = self._ends[0][0] - time.monotonic() if self._ends else 1.0
            for key, _ in self._selector.select(max(0.0, left)):
                self._receive(key.data)
            now = time.monotonic()
            ended: dict[int, tuple[StandIn, list[tuple[int, int, float]]]] = {}
            while self._ends and self._ends[0][0] <= now:
                _, _, one, slot, work = heapq.heappop(self._ends)
                rows = ended.setdefault(id(one), (one, []))[1]
                one.shared.complete(slot, work.id, work.deliveries)
                one.idle.append(slot)
                rows.append((work.id, work.deliveries, self._seconds))
                self._begin(one)
            for one, rows in ended.values():
                one.channel.send(Done(rows))

    def _receive(self, one: StandIn) -> None:
        for frame in one.channel.receive() or ():
            match message := decode_down(frame):
                case Jobs():
                    one.waiting.extend(message.rows)
                    self._begin(one)
                case Stop() | _:
                    pass

    def _begin(self, one: StandIn) -> None:
        """Begin jobs in the slots that are idle."""
        while one.idle and one.waiting:
            work, slot = one.waiting.popleft(), one.idle.pop()
            one.shared.start(slot, work.id, work.deliveries, time.monotonic_ns())
            line.hit(msgspec.json.decode(work.payload))
            due = time.monotonic() + self._seconds if self._seconds else 0.0
            heapq.heappush(self._ends, (due, next(self._order), one, slot, work))


class Worker(Supervisor):
    """A worker among others: no signal is its own, and one thread watches for all."""

    def _start(self) -> None:
        self._watchdog = self._life.watchdog()
        self.runners.pool.replenish()
        self.database.start()

    def watch(self, now: float) -> None:
        """Do what its watchdog would."""
        self._watchdog.look(now)


class Sent:
    """Number of statements that the workers of this process have sent."""

    n = 0

    @classmethod
    def count(cls) -> None:
        """Count each statement of a cursor, and each that psycopg sends by itself."""
        execute, command = psycopg.Cursor.execute, Connection._exec_command  # noqa: SLF001

        def counted_execute(self: Any, *args: Any, **options: Any) -> Any:
            cls.n += 1
            return execute(self, *args, **options)

        def counted_command(self: Any, *args: Any) -> Any:
            cls.n += 1
            return command(self, *args)

        psycopg.Cursor.execute = counted_execute  # type: ignore[method-assign]
        Connection._exec_command = counted_command  # type: ignore[method-assign]  # noqa: SLF001


def _tell_statements() -> None:
    while True:
        line.say(ev="sent", n=Sent.n, t=time.time(), pid=os.getpid())
        time.sleep(TELL_SECONDS)


def main() -> None:
    """Run the workers of BENCH_CONFIG until killed."""
    config = json.loads(os.environ["BENCH_CONFIG"])
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    threading.stack_size(STACK_BYTES)

    name, _, ms = config.get("work", "").partition(":")
    clock = Clock(float(ms) / 1000 if name == "wait" else 0.0)
    pool.__dict__["start_runner"] = clock.start_runner
    clock.start()
    Sent.count()

    options = {"slots": config.get("slots", 16)}
    if listen := config.get("listen"):
        options["listen"] = Address(listen)
    url = config.get("url", line.URL)
    workers = [
        Worker(
            WorkerOptions("", database=Address(url), name=f"fleet/{n}", **options),
            Telemetry(Metrics(), None),
        )
        for n in range(config["fleet"])
    ]
    for worker in workers:
        threading.Thread(target=worker.run, daemon=True).start()
        time.sleep(0.01)  # not all of them ask the server for a process at once
    line.start(config)
    threading.Thread(target=_tell_statements, daemon=True).start()
    while True:
        time.sleep(WATCH_SECONDS)
        now = time.monotonic()
        for worker in workers:
            worker.watch(now)


if __name__ == "__main__":
    main()
