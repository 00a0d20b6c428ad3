"""Parts that the demo and `redrive dev` share: Postgres, ports, the end, a shell's file."""

import contextlib
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType

from redrive.database.embedded import EmbeddedPostgres, free_port
from redrive.errors import RedriveError
from redrive.settings import Settings

TRIES = 3
"""Number of tries to start a server, because another process may take its port first."""


def on_end(stop: Callable[[], None]) -> None:
    """Call `stop` on Ctrl-C, SIGTERM or a closed terminal."""

    def heard(_number: int, _frame: FrameType | None) -> None:
        stop()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, heard)


def write_shell_file(file: Path, unset: str, variables: Mapping[str, str]) -> None:
    """Write the file that a shell sources to get the programs and these variables.

    Args:
        unset: names of variables that would contradict them.
    """
    programs = shlex.quote(str(Path(sys.executable).parent))
    lines = [f'export PATH={programs}:"$PATH"', f"unset {unset}"]

    for name, value in variables.items():
        lines.append(f"export {name}={shlex.quote(value)}")

    # The variables may hold a password.
    file.touch(mode=0o600)
    file.write_text("\n".join(lines) + "\n")


def start_postgres(server: EmbeddedPostgres) -> None:
    """Start a server, if need be at another port.

    Raises:
        RedriveError: it does not start; the message has the end of its log.
    """
    for left in reversed(range(TRIES)):
        try:
            server.start()
        except subprocess.SubprocessError as error:
            if not left:
                msg = f"Postgres does not start: {_why(server, error)}"
                raise RedriveError(msg) from None

            server.port = free_port()
        else:
            return


def stop_postgres(server: EmbeddedPostgres) -> None:
    """Stop a server, if it runs."""
    with contextlib.suppress(subprocess.SubprocessError):
        if server.is_running():
            server.stop("fast")


def _why(server: EmbeddedPostgres, error: subprocess.SubprocessError) -> str:
    """Return the end of the server's log, of what its program said, or the error."""
    lines = last_lines(server.data / "log", 3)

    for name in ("stderr", "stdout"):
        of_program = str(getattr(error, name, None) or "").splitlines()
        lines += of_program[-3:]

    return " / ".join(lines) or str(error)


def last_lines(log: Path, count: int) -> list[str]:
    """Return the end of a log; empty if it does not exist."""
    if log.exists():
        return log.read_text(errors="replace").splitlines()[-count:]
    return []


def is_free(port: int) -> bool:
    """Return True if a port is free on all addresses."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False

    return True


_CLAIMS: list[socket.socket] = []


def claim(port: int) -> bool:
    """Return True if a port is free and no other program of ours has claimed it.

    A server that is started for it needs some seconds to listen. The claim lasts until
    this process ends. Only Linux has the names that it uses.
    """
    if not is_free(port):
        return False

    if sys.platform == "linux":
        claimed = socket.socket(socket.AF_UNIX)
        try:
            claimed.bind(f"\0redrive-port-{port}")
        except OSError:
            claimed.close()
            return False

        _CLAIMS.append(claimed)

    return True


def usual_console_port() -> int:
    """Return the console's usual port, or a free one if another program uses it."""
    usual: int = Settings.model_fields["console_port"].default
    if claim(usual):
        return usual
    return free_port()
