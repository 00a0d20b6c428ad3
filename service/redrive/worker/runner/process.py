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
import time
from pathlib import Path
from typing import Any, cast

import msgspec

from redrive.encryption import KEYS, configured
from redrive.errors import SettingsError
from redrive.handlers import Handlers, load
from redrive.observability.tracing import is_asked_for, set_up
from redrive.worker.channel import Channel
from redrive.worker.runner.loop import Runner
from redrive.worker.shared_state import SharedState

WITHHELD = "withheld"
SAMPLES = "samples"
"""Last argument of a runner that samples jobs that succeed."""


def main(arguments: list[str]) -> int:
    """Run with the arguments FD SHARED_FD SLOTS PARENT HANDLERS TARGETS WHERE SAMPLES.

    Returns:
        The exit status if it cannot start. Once started, it ends the process itself.
    """
    fd, shared_fd, slots, parent = map(int, arguments[:4])
    registry, targets_file, where, samples = arguments[4:8]

    # Do this first: the application that is loaded below may block for any time.
    end_with_parent(parent)
    _ignore_signals()
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
        channel=Channel(socket.socket(fileno=fd)),
        shared=SharedState(slots, shared_fd),
        handlers=handlers,
        where=msgspec.json.decode(where),
        tracing=tracing,
        keyring=keyring,
        samples=samples == SAMPLES,
    )
    asyncio.run(runner.run())
    if tracing is not None:
        tracing.shut_down()

    # Threads of handlers that never end must not keep the process.
    os._exit(0)


def _ignore_signals() -> None:
    """Leave it to the supervisor to drain; a terminal sends Ctrl-C to both."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _print_lines() -> None:
    """Write what handlers print line by line: this process can be killed."""
    with contextlib.suppress(AttributeError):  # if it is closed, or replaced
        cast("io.TextIOWrapper[Any]", sys.stdout).reconfigure(line_buffering=True)


def _handlers(registry: str, targets_file: str, slots: int) -> Handlers:
    """Return the handlers of the application and of the HTTP targets."""
    handlers = load(registry) if registry else Handlers()
    if targets_file:
        from redrive.handlers.targets.file import load as load_targets  # noqa: PLC0415 # it brings pydantic

        targets = load_targets(Path(targets_file))
        from redrive.handlers.targets.caller import register  # noqa: PLC0415 # it brings the http extra

        register(handlers, targets, slots)

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

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(0)

    # `prctl` exists on Linux only, and misses a parent that is dead already.
    threading.Thread(
        target=watch,
        name="parent-watch",
        daemon=True,
    ).start()
