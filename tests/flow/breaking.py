"""Handlers that break the event loop of their runner, or what it lives on."""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from redrive import Handlers, Job, Policy
from tests.flow.handlers import note, wait_for_file

jobs = Handlers()
ONCE = Policy(max_attempts=1, timeout=120)


async def _exit() -> None:
    sys.exit(3)


async def _interrupt() -> None:
    raise KeyboardInterrupt


async def _generator_exit() -> None:
    raise GeneratorExit


def _stop_from_thread(loop: asyncio.AbstractEventLoop) -> None:
    threading.Thread(target=lambda: loop.call_soon_threadsafe(loop.stop)).start()


def _signal_handler(_loop: asyncio.AbstractEventLoop) -> None:
    signal.signal(signal.SIGUSR1, lambda *_: sys.exit(1))
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()


BREAKS: dict[str, Callable[[asyncio.AbstractEventLoop], object]] = {
    "exit": lambda loop: loop.create_task(_exit()),
    "interrupt": lambda loop: loop.create_task(_interrupt()),
    "generator-exit": lambda loop: loop.create_task(_generator_exit()),
    "callback": lambda loop: loop.call_soon(sys.exit),
    "stop": lambda loop: loop.stop(),
    "stop-from-thread": _stop_from_thread,
    "signal": _signal_handler,
}
BLOCKS: dict[str, Callable[[], object]] = {
    "sleep": lambda: time.sleep(600),
    "file": lambda: wait_for_file("go"),
}


@jobs.handle("break", policy=ONCE)
async def break_loop(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    BREAKS[payload["how"]](asyncio.get_running_loop())
    await asyncio.sleep(0.05)
    note("end", job)


@jobs.handle("block", policy=ONCE)
async def block_loop(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    BLOCKS[payload["how"]]()
    note("end", job)


@jobs.handle("close", policy=ONCE)
async def close_loop(payload: dict[str, Any], job: Job) -> None:
    """Close the loop as soon as it has stopped."""
    note("start", job)
    loop = asyncio.get_running_loop()
    close, loop.stop = loop.close, lambda: None  # type: ignore[method-assign]

    def attempt() -> None:
        while True:
            try:
                close()
            except RuntimeError:
                continue
            return

    threading.Thread(target=attempt, daemon=True).start()
    type(loop).stop(loop)


@jobs.handle("channel", policy=ONCE)
async def close_channel(payload: dict[str, Any], job: Job) -> None:
    """Close what the runner speaks through, and continue."""
    note("start", job)
    os.close(int(sys.argv[1]))


@jobs.handle("clock", policy=ONCE)
async def stop_clock(payload: dict[str, Any], job: Job) -> None:
    """Let no timer of the loop fire again."""
    note("start", job)
    loop = asyncio.get_running_loop()
    now = loop.time()
    loop.time = lambda: now  # type: ignore[method-assign]


@jobs.handle("long.async", policy=ONCE)
async def long_async(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    await asyncio.sleep(payload["seconds"])
    note("end", job)


@jobs.handle("long.sync", policy=ONCE)
def long_sync(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    time.sleep(payload["seconds"])
    note("end", job)


@jobs.handle("short", policy=ONCE)
async def short(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
