"""Runners that a worker of the tests forks, instead of starting Python for each.

A runner is a process with the files, the environment and the arguments that its worker
gives it. It has its own tests of a start: in tests/cli/test_start.py, and where a worker
is started with `forked=False`.
"""

import gc
import importlib
import logging
import os
import signal
import sys
import time
import types
import warnings
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NoReturn

from redrive.encryption import configured
from redrive.worker.runner.process import main
from redrive.worker.supervisor.runners import start


class Runner:
    """A process that was forked, with what a worker uses of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit status if the worker has collected it."""
        return self.returncode

    def kill(self) -> None:
        """Kill it, unless the worker has collected it."""
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)


def fork_runners(environment: Mapping[str, str]) -> None:
    """Let this process fork its runners once it is a worker with this environment."""
    # The worker has set up tracing for itself, which can be done once.
    if not any(name.startswith("OTEL_") for name in environment):
        start.subprocess = types.SimpleNamespace(Popen=_start)


def _start(
    command: Sequence[str],
    *,
    pass_fds: Sequence[int],
    env: Mapping[str, str],
    start_new_session: bool,  # always
) -> Runner:
    """Do what `subprocess.Popen` does for a worker."""
    sys.stdout.flush()
    sys.stderr.flush()
    leads, is_leader = os.pipe()
    with warnings.catch_warnings(action="ignore"):  # a worker has other threads
        child = os.fork()
    if not child:
        os.setsid()
        _become(command[3:], pass_fds, env)
    os.close(is_leader)
    os.read(leads, 1)  # ends once the child has closed it, as a leader
    os.close(leads)
    return Runner(child)


def _become(
    arguments: Sequence[str], files: Iterable[int], environment: Mapping[str, str]
) -> NoReturn:
    """Be a runner, and end."""
    code = 1
    try:
        gc.freeze()  # an object of the worker would close a file that is ours
        _forget(files)
        os.environ.clear()
        os.environ.update(environment)
        time.tzset()
        sys.argv = ["-c", *arguments]
        sys.modules["__main__"] = types.ModuleType("__main__")
        code = main(list(arguments))
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException as error:  # noqa: BLE001 # it is what the interpreter would say
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _forget(files: Iterable[int]) -> None:
    """Drop what a start would not have kept: files, signals, log, keys."""
    for before, after in pairwise([2, *sorted(files), os.sysconf("SC_OPEN_MAX")]):
        os.closerange(before + 1, after)
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    log = logging.getLogger("redrive")
    log.handlers.clear()
    log.setLevel(logging.NOTSET)
    log.propagate = True
    configured.cache_clear()
    importlib.invalidate_caches()
