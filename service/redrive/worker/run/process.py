"""Process of a runner: its start, and an end that waits for no handler."""

import asyncio
import contextlib
import ctypes
import gc
import io
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any, cast

import msgspec

from redrive.encryption import KEYS, configured
from redrive.errors import SettingsError
from redrive.handlers import Handlers, add_targets, load
from redrive.observability.tracing import is_asked_for, set_up
from redrive.worker.channel import Channel
from redrive.worker.run.children import ignore_signals
from redrive.worker.run.loop import Runner
from redrive.worker.run.own import clock, end_process
from redrive.worker.shared_state import SharedState

WITHHELD = "withheld"
END_SECONDS = 1.0
"""How long tasks and generators of the application may take to end."""

SAMPLES = "samples"
"""Argument of a runner that samples jobs that succeed."""


class OwnChannel(Channel):
    """Channel of a runner. Without it, the runner is of no use."""

    def flush(self) -> None:
        """Send what the socket takes, or end this process."""
        try:
            super().flush()
        except OSError:  # the supervisor is gone, or a handler has closed the socket
            end_process(1)


def main(arguments: list[str]) -> int:
    """Run with the arguments that `processes.start` gives.

    These are FD SHARED_FD SLOTS PARENT HANDLERS TARGETS WHERE SAMPLES SOURCE_LINES.

    Returns:
        The exit status if it cannot start. Once started, it ends the process itself.
    """
    fd, shared_fd, slots, parent = map(int, arguments[:4])
    registry, targets_file, where, samples, source_lines = arguments[4:9]

    # Do this first: the application that is loaded below may block for any time.
    end_with_parent(parent)
    ignore_signals()
    channel = _own_channel(fd, shared_fd)
    _print_lines()

    try:
        keyring = configured()
        # The application may copy its environment as soon as it is imported.
        _withhold_keys()
        handlers = _handlers(registry, targets_file, slots)
        tracing = set_up() if is_asked_for() else None
    except SettingsError as error:
        print(f"redrive: {error}", file=sys.stderr)  # noqa: T201 # before there is a log
        return 64

    gc.freeze()  # what was imported stays: no collection need look at it again
    runner = Runner(
        channel=channel,
        shared=SharedState(slots, shared_fd),
        handlers=handlers,
        where=msgspec.json.decode(where),
        tracing=tracing,
        keyring=keyring,
        samples=samples == SAMPLES,
        source_lines=int(source_lines),
    )
    _work(runner)
    if tracing is not None:
        tracing.shut_down()

    # Threads of handlers that never end must not keep the process.
    return end_process(0)


def _work(runner: Runner) -> None:
    """Run jobs to the end of the runner, then end what handlers have left."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    with contextlib.suppress(AttributeError):  # a loop in C has a clock of its own
        loop.time = clock.monotonic
    runner.run(loop)
    with contextlib.suppress(BaseException):  # the process ends in any case
        loop.run_until_complete(_end_leftovers())


async def _end_leftovers() -> None:
    """Cancel the tasks that serve the application, and give them time to end."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=END_SECONDS)

    async with asyncio.timeout(END_SECONDS):
        await asyncio.get_running_loop().shutdown_asyncgens()


def _own_channel(fd: int, shared_fd: int) -> OwnChannel:
    """Return the channel, made before the application may replace `socket.socket`."""
    # Programs that handlers start must not hold what belongs to this runner.
    for each in (fd, shared_fd):
        os.set_inheritable(each, False)  # noqa: FBT003 # takes no keyword

    return OwnChannel(socket.socket(fileno=fd))


def _print_lines() -> None:
    """Write what handlers print line by line: this process can be killed."""
    with contextlib.suppress(AttributeError):  # if it is closed, or replaced
        cast("io.TextIOWrapper[Any]", sys.stdout).reconfigure(line_buffering=True)


def _handlers(registry: str, targets_file: str, slots: int) -> Handlers:
    """Return the handlers of the application and of the HTTP targets."""
    handlers = load(registry) if registry else Handlers()
    if targets_file:
        add_targets(handlers, Path(targets_file), slots)

    if not handlers:
        msg = f"REDRIVE_HANDLERS is {registry!r}; it has no handlers: this worker would run nothing"
        raise SettingsError(msg)

    return handlers


def _withhold_keys() -> None:
    """Hide the keys from handlers, and from all that copies their environment.

    The variable stays set. Without it, a process would believe that encryption is off.
    """
    if os.environ.get(KEYS):
        os.environ[KEYS] = WITHHELD


def end_with_parent(parent: int) -> None:
    """Never outlive the supervisor, even while a handler blocks this interpreter.

    Args:
        parent: the id of the supervisor's process.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG

    get_parent = os.getppid

    def watch() -> None:
        while get_parent() == parent:
            clock.sleep(0.5)
        end_process(0)

    # `prctl` exists on Linux only, and misses a parent that is dead already.
    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
