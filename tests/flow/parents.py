"""Handlers that start processes, and handlers that spoil the state of their own."""

import asyncio
import builtins
import gc
import json
import locale
import logging
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from redrive import Handlers, Job, Policy
from tests.flow.handlers import note, write

jobs = Handlers()
ONCE = Policy(max_attempts=1, timeout=60)


# ---------------------------------------------------------------------- children


def _sleep() -> None:
    time.sleep(60)


def _fds(_: object = None) -> None:
    """Write down what sockets a program inherits."""
    found = subprocess.run(
        [sys.executable, "-c", "import os; print(os.listdir('/proc/self/fd'))"],
        capture_output=True,
        text=True,
        check=True,
        close_fds=False,
    ).stdout
    write("inherited", json.dumps([found, sys.argv[1], sys.argv[2]]))


def _popen() -> None:
    program = subprocess.Popen(["sleep", "60"])
    program.terminate()
    write("status", str(program.wait(20)))


def _process() -> None:
    """End several at once, because a child may be too early or too late to ignore it."""
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=_sleep) for _ in range(8)]
    for process in processes:
        process.start()
        process.terminate()
    for process in processes:
        process.join(5)
    write("status", " ".join({str(process.exitcode) for process in processes}))


def _interrupt() -> None:
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    time.sleep(1)
    program.send_signal(signal.SIGINT)
    write("status", str(program.wait(20)))


def _pool() -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.apply_async(_sleep)
        time.sleep(0.2)
    write("status", "left")


CHILDREN: dict[str, Callable[[], None]] = {
    "popen": _popen,
    "process": _process,
    "interrupt": _interrupt,
    "pool": _pool,
}


@jobs.handle("start", policy=ONCE)
def start(payload: dict[str, Any], job: Job) -> None:
    CHILDREN[payload["how"]]()


@jobs.handle("inherit", policy=ONCE)
def inherit(payload: dict[str, Any]) -> None:
    _fds()


@jobs.handle("orphan", policy=ONCE)
def orphan(payload: dict[str, Any]) -> None:
    """Leave a process behind that ends a little later, with its parent gone."""
    subprocess.run(["sh", "-c", "sleep 0.3 &"], check=True)


def _fork(job: Job) -> bool:
    """Return True in the child."""
    child = os.fork()
    if child:
        write(f"child-{job.id}", str(child))
    return not child


@jobs.handle("fork.sync", policy=ONCE)
def fork_sync(payload: dict[str, Any], job: Job) -> None:
    if not _fork(job):
        note("end", job)


@jobs.handle("fork.raises", policy=ONCE)
def fork_raises(payload: dict[str, Any], job: Job) -> None:
    if _fork(job):
        raise ValueError
    note("end", job)


@jobs.handle("fork.async", policy=ONCE)
async def fork_async(payload: dict[str, Any], job: Job) -> None:
    if not _fork(job):
        note("end", job)


class _Turn:
    def __await__(self) -> Any:
        yield


@jobs.handle("fork.waits", policy=ONCE)
async def fork_waits(payload: dict[str, Any], job: Job) -> None:
    _fork(job)
    await _Turn()
    note("end", job)


# ---------------------------------------------------------------------- state


def _refuse(*_: object, **__: object) -> Any:
    raise RuntimeError("spoiled")


def _clocks() -> None:
    time.time = time.monotonic = lambda: 0.0
    time.time_ns = time.monotonic_ns = lambda: 0
    time.sleep = _refuse


def _logging() -> None:
    class Broken(logging.Handler, logging.Filter):
        emit = filter = _refuse  # type: ignore[assignment]

    logging.raiseExceptions = True
    root = logging.getLogger()
    root.handlers[:] = [Broken()]
    root.setLevel(1)
    logging.getLogger("redrive.runner").addFilter(Broken())


def _environment() -> None:
    kept = os.environ["REDRIVE_TEST_HOME"]
    os.environ.clear()
    os.environ["REDRIVE_TEST_HOME"] = kept  # where the test looks
    sys.path.clear()


def _streams() -> None:
    sys.stdout.close()
    sys.stderr = sys.stdin = None  # type: ignore[assignment]


def _modules() -> None:
    json.dumps = json.loads = _refuse
    random.random = random.uniform = _refuse
    os._exit = _refuse  # type: ignore[assignment]
    os.getppid = _refuse
    builtins.print = _refuse


def _sockets() -> None:
    socket.setdefaulttimeout(0.001)
    socket.socket = socket.create_connection = _refuse  # type: ignore[assignment, misc]


def _loop() -> None:
    """Change the hooks of asyncio, from whatever thread this is."""
    asyncio.set_event_loop_policy(None)
    asyncio.sleep = asyncio.wait = asyncio.create_task = _refuse
    threading.excepthook = sys.excepthook = _refuse


def _warnings() -> None:
    warnings.simplefilter("error")


SPOILS: dict[str, Callable[[], object]] = {
    "randomness": lambda: random.seed(42),
    "clocks": _clocks,
    "locale": lambda: locale.setlocale(locale.LC_ALL, "C"),
    "warnings": _warnings,
    "working directory": lambda: os.chdir("/"),
    "umask": lambda: os.umask(0o777),
    "environment": _environment,
    "standard streams": _streams,
    "logging": _logging,
    "garbage collection": lambda: (gc.disable(), gc.set_threshold(1)),
    "recursion limit": lambda: sys.setrecursionlimit(60),
    "functions of modules": _modules,
    "sockets": _sockets,
    "asyncio": _loop,
}


@jobs.handle("spoil.sync", policy=ONCE)
def spoil_sync(payload: dict[str, Any]) -> None:
    SPOILS[payload["what"]]()


@jobs.handle("spoil.async", policy=ONCE)
async def spoil_async(payload: dict[str, Any]) -> None:
    SPOILS[payload["what"]]()


@jobs.handle("plain.sync", policy=ONCE)
def plain_sync(payload: dict[str, Any], job: Job) -> None:
    note("start", job)


@jobs.handle("plain.async", policy=ONCE)
async def plain_async(payload: dict[str, Any], job: Job) -> None:
    note("start", job)


@jobs.handle("plain.long", policy=ONCE)
async def plain_long(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    await asyncio.sleep(2)
    note("end", job)


@jobs.handle("plain.fails", policy=ONCE)
async def plain_fails(payload: dict[str, Any], job: Job) -> None:
    raise LookupError(Path("/nowhere"))


@jobs.handle("plain.hangs", policy=Policy(max_attempts=1, timeout=0.5))
async def plain_hangs(payload: dict[str, Any], job: Job) -> None:
    loop = asyncio.get_running_loop()
    await loop.create_future()


@jobs.handle("plain.retried", policy=Policy(max_attempts=5, backoff=10_000))
async def plain_retried(payload: dict[str, Any], job: Job) -> None:
    random.seed(42)
    raise ConnectionError
