"""Local development: Postgres, a worker that reloads, and the console."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import LiteralString
from urllib.request import urlopen

from psycopg.conninfo import conninfo_to_dict

from redrive.cli.support.output import wrapped
from redrive.database.connections import connect
from redrive.database.embedded import EmbeddedPostgres, free_port
from redrive.database.schema.migrate import migrate
from redrive.errors import RedriveError, SettingsError
from redrive.extras.demo.home import keep_password
from redrive.extras.demo.servers import (
    claim,
    on_end,
    start_postgres,
    stop_postgres,
    usual_console_port,
    write_shell_file,
)

HOME = Path(".redrive")
LOOK_SECONDS = 0.1
SLOW_SECONDS = 30.0
"""After this time without an answer, the output says so. There is no limit."""
DRAIN_SECONDS = "2"
STOP_SECONDS = 6.0
LAST_LINES = 15
HISTORY_DAYS = 7
_KEEP: LiteralString = """
    select redrive.set_history_v1(q, %s, 'redrive dev', 'for development')
    from unnest(%s::text[]) q
    where not exists (select from redrive.history_queues h where h.queue = q)"""
OURS = (
    "DATABASE_URL_FILE",
    "DATABASES",
    "CELL",
    "HTTP_PORT",
    "CONSOLE_PORT",
    "HANDLERS",
)
"""Settings that the parts do not inherit."""
OF_HANDLERS = "DATABASE_URL"
"""Names the database of the handlers, who do not get REDRIVE_DATABASE_URL."""


Say = Callable[[str, str], None]
"""Function that prints a line after the name of its part."""


class Ended(RedriveError):
    """A part ended by itself; the message has its last lines."""


class Part:
    """A process whose output is printed line by line, after its name."""

    def __init__(self, name: str, arguments: Sequence[str], url: str, say: Say) -> None:
        """Start `redrive` with these arguments."""
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-m", "redrive", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=_environment(url),
            start_new_session=True,  # Ctrl-C must not stop it; `stop` does
        )
        self._say = say
        self._last = deque[str](maxlen=LAST_LINES)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        """Print what the process writes."""
        assert self.process.stdout  # noqa: S101 # it is a pipe
        for line in self.process.stdout:
            text = line.rstrip("\n")
            self._last.append(text)
            self._say(text, self.name)

    def require(self) -> None:
        """Raise Ended if the process has ended."""
        status = self.process.poll()
        if status is None:
            return

        self.hear_out()
        how = f"by signal {-status}" if status < 0 else f"with status {status}"

        lines = "\n".join(f"  {line}" for line in self._last)
        msg = f"the {self.name} ended {how}" + (
            f"; its last lines:\n{lines}" if lines else ""
        )
        raise Ended(msg)

    def hear_out(self) -> None:
        """Print the last lines of a process that has ended; they may be in the pipe."""
        self._reader.join(1.0)


class Development:
    """The parts of `redrive dev`. `url` is the user's own database; None = embedded."""

    def __init__(self, home: Path, handlers: str, url: str | None) -> None:
        self.home = home
        self.handlers = handlers
        self.stopping = threading.Event()

        self._postgres: EmbeddedPostgres | None = None
        if url is None:
            self._postgres = EmbeddedPostgres(home, password=keep_password(home))

        self._url = url
        self._parts: list[Part] = []
        self._printing = threading.Lock()
        self._presses = 0

    @property
    def url(self) -> str:
        """Return the address of the database."""
        if self._postgres is not None:
            return self._postgres.url()
        assert self._url is not None  # noqa: S101 # one of both
        return self._url

    def listen_for_the_end(self) -> None:
        """End on Ctrl-C, SIGTERM or a closed terminal.

        A second signal kills the parts at once.
        """
        on_end(self._press)

    def _press(self) -> None:
        self._presses += 1
        self.stopping.set()

    def say(self, line: str, name: str = "dev") -> None:
        """Print a line after the name of its part."""
        text = wrapped(f"{name:<8} {line}", indent=" " * 11)
        with self._printing, contextlib.suppress(OSError, ValueError):  # no terminal
            print(text, flush=True)  # noqa: T201 # the merged output

    # ------------------------------------------------------------------ up

    def start_database(self, queues: Sequence[str]) -> None:
        """Start the embedded Postgres, and bring the schema up to date.

        It keeps the jobs of these queues that end.
        """
        if self._postgres is not None:
            if self._postgres.is_running():  # its guard was killed, too
                self._postgres.stop("immediate")

            self.say("starting Postgres")
            start_postgres(self._postgres)
        else:
            self.say(f"using the database {_place(self.url)}")

        if self.stopping.is_set():
            return

        with connect.connect(self.url, name="redrive dev") as conn:
            migrate(conn)
            if self._postgres is not None:
                conn.execute(_KEEP, (HISTORY_DAYS, list(queues)))

        self._write_environment()

    def _write_environment(self) -> None:
        """Write the file that a second terminal sources."""
        unset = "REDRIVE_DATABASE_URL_FILE REDRIVE_DATABASES REDRIVE_CELL"
        variables = {
            "REDRIVE_DATABASE_URL": self.url,
            "REDRIVE_HANDLERS": self.handlers,
            OF_HANDLERS: os.environ.get(OF_HANDLERS, self.url),
        }
        write_shell_file(self.home / "env", unset, variables)

    def start_worker(self) -> Callable[[], object]:
        """Start the worker; return the check that it is ready."""
        port = free_port()
        options = ("--handlers", self.handlers, "--http-port", str(port), "--reload")
        self._start("worker", "worker", *options)

        return lambda: _ask(port)

    def start_console(self, port: int) -> Callable[[], object]:
        """Start the console; return the check that it is ready."""
        self._start("console", "console", "--demo", "--port", str(port))
        return lambda: _ask(port)

    def _start(self, name: str, *arguments: str) -> None:
        part = Part(name, arguments, self.url, self.say)
        # The guard of the home kills what this names, if we are killed.
        (self.home / f"{name}.pid").write_text(str(part.process.pid))
        self._parts.append(part)

    def wait_until(self, what: str, ask: Callable[[], object]) -> bool:
        """Wait until a part answers; return False if the end was asked for.

        Raises:
            Ended: a part has ended.
        """
        slow_at = time.monotonic() + SLOW_SECONDS
        while not self.stopping.is_set():
            for part in self._parts:
                part.require()

            with contextlib.suppress(OSError):
                ask()
                return True

            if time.monotonic() > slow_at:
                slow_at += SLOW_SECONDS
                self.say(f"still waiting for the {what}")

            self.stopping.wait(LOOK_SECONDS)

        return False

    def stay(self) -> None:
        """Wait for the end.

        Raises:
            Ended: a part has ended.
        """
        while not self.stopping.wait(LOOK_SECONDS):
            for part in self._parts:
                part.require()

    # ------------------------------------------------------------------ down

    def stop(self) -> None:
        """End all parts at once, then Postgres; kill what takes too long."""
        for part in self._parts:
            part.process.terminate()

        for part in self._parts:
            self._wait_for_end(part)
            part.hear_out()
            (self.home / f"{part.name}.pid").unlink(missing_ok=True)

        if self._postgres is not None:
            stop_postgres(self._postgres)

    def _wait_for_end(self, part: Part) -> None:
        until = time.monotonic() + STOP_SECONDS
        while part.process.poll() is None:
            if time.monotonic() > until or self._presses > 1:
                part.process.kill()
                part.process.wait()
                return

            time.sleep(LOOK_SECONDS / 2)


def _environment(url: str) -> dict[str, str]:
    """Return the environment of the parts: the user's, with the database of `dev`."""
    ours = {f"REDRIVE_{name}" for name in OURS}
    inherited = {name: value for name, value in os.environ.items() if name not in ours}
    usual = {
        OF_HANDLERS: url,
        "REDRIVE_LOG_FORMAT": "console",
        "REDRIVE_DRAIN_TIMEOUT": DRAIN_SECONDS,
        "PYTHONUNBUFFERED": "1",
    }

    return usual | inherited | {"REDRIVE_DATABASE_URL": url}


def _place(url: str) -> str:
    """Return host and name of a database, without user and password."""
    known = conninfo_to_dict(url)
    host = known.get("host", "localhost")
    name = known.get("dbname", "")

    return f"{name} on {host}"


def _ask(port: int) -> None:
    """Ask a part if it is ready. Raises OSError if it is not."""
    urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).close()


def console_port(chosen: int | None) -> int:
    """Return the port of the console: the usual one, or a free one if that is taken.

    Raises:
        SettingsError: a port was chosen, and another program uses it.
    """
    if chosen is None:
        return usual_console_port()
    if claim(chosen):
        return chosen

    msg = f"--port is {chosen}; another program uses this port"
    raise SettingsError(msg)
