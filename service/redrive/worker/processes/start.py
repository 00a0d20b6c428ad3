"""Start of a runner process."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from redrive.worker.channel import Channel
from redrive.worker.processes.environment import EVERYTHING, handed_over
from redrive.worker.processes.os_process import OsProcess
from redrive.worker.processes.runner_process import RunnerProcess
from redrive.worker.shared_state import SharedState

RUNNER = "import sys; from redrive.worker.run.process import main; sys.exit(main(sys.argv[1:]))"


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """Options of runners, and their number.

    Attributes:
        handlers: the registry, as `module:attribute`; empty = none.
        targets: the path of the file of HTTP targets; empty = none.
        slots: of each runner.
        memory_limit: in bytes, 0 = none.
        where: details of this worker that are kept with every failure.
        environment: names of the variables that they get, as `handed_over` takes them.
        samples: True if runners sample jobs that succeed.
        source_lines: lines of source to keep of each frame of the application.
        reload: the code may change while they run, and may be broken for a while.
    """

    handlers: str
    targets: str = ""
    runners: int = 1
    slots: int = 16
    memory_limit: int = 0
    where: Mapping[str, str] = field(default_factory=dict[str, str])
    environment: Sequence[str] = EVERYTHING
    reload: bool = False
    samples: bool = True
    source_lines: int = 0


def start_runner(options: RunnerOptions, *, alone: bool = False) -> RunnerProcess:
    """Start a runner.

    Only the main thread may call it: on Linux a runner dies with the thread that
    started it. Raises OSError if the system refuses to.
    """
    ours, theirs = socket.socketpair()
    shared = SharedState(1 if alone else options.slots)
    try:
        process = _start_process(options, theirs.fileno(), shared)
    except OSError:
        ours.close()
        shared.close()
        raise
    finally:
        # Only the runner may hold its end. Then the channel closes when it dies.
        theirs.close()

    return RunnerProcess(
        process=OsProcess(process),
        channel=Channel(ours),
        shared=shared,
        alone=alone,
        started_at=time.monotonic(),
    )


def _start_process(
    options: RunnerOptions, fd: int, shared: SharedState
) -> subprocess.Popen[bytes]:
    """Start a process with the arguments of `runner.process.main`."""
    arguments = (
        *map(str, (fd, shared.fd, shared.slots, os.getpid())),
        options.handlers,
        options.targets,
        msgspec.json.encode(dict(options.where)).decode(),
        "samples" if options.samples else "",
        str(options.source_lines),
    )
    return subprocess.Popen(
        [sys.executable, "-c", RUNNER, *arguments],
        pass_fds=(fd, shared.fd),
        env=handed_over(os.environ, options.environment),
        # Its own process group: a kill reaches all that its handlers have started.
        start_new_session=True,
    )
