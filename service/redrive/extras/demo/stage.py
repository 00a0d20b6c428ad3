"""Stage of a demo: Postgres, mail server, worker, console and switches."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from redrive.database.connections import connect
from redrive.database.embedded import EmbeddedPostgres, free_port
from redrive.database.rows import Connection
from redrive.database.schema.migrate import migrate
from redrive.errors import RedriveError
from redrive.extras.demo import shop
from redrive.extras.demo.home import keep_password
from redrive.extras.demo.processes import Processes
from redrive.extras.demo.servers import (
    TRIES,
    is_free,
    last_lines,
    on_end,
    start_postgres,
    stop_postgres,
    usual_console_port,
    write_shell_file,
)
from redrive.settings import PREFIX, Settings

PYTHON = (sys.executable, "-m")
TICK = 0.1
PROCESSES = ("console", "worker", "mail")
"""The processes besides Postgres, in the order in which they stop."""


class Stopped(Exception):
    """The demo was ended by Ctrl-C, by SIGTERM, or with its terminal."""


class Stage:
    """All processes of a demo.

    Call `tend` often: it changes switches and restarts dead processes.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.mailbox = home / "mail"
        self.shop = home / "shop"
        self.shop.mkdir()
        self.stopping = threading.Event()
        self.metrics_port = Settings.model_fields["http_port"].default
        self.mail_port = free_port()

        self._password = keep_password(home)
        self._postgres = EmbeddedPostgres(home, password=self._password)

        self.console: str | None = None
        self._conn: Connection | None = None
        self._processes = Processes(home)
        self._actual = {"release": "1.0", "mail": "up"}

    @property
    def url(self) -> str:
        """Return the address of the database."""
        return self._postgres.url()

    @property
    def conn(self) -> Connection:
        """Return the stage's own connection."""
        if self._conn is None or self._conn.closed:
            self._conn = connect.connect(self.url, name="redrive demo")
        return self._conn

    @property
    def env_file(self) -> Path:
        """Return the file that a shell sources to get short commands."""
        return self.home / "env"

    def listen_for_the_end(self) -> None:
        """End the demo between two steps on Ctrl-C, SIGTERM or a closed terminal."""
        on_end(self.stopping.set)

    def pause(self, seconds: float = 0.0) -> None:
        """Wait for some time while the stage is tended.

        Raises:
            Stopped: the demo was ended.
        """
        until = time.monotonic() + seconds
        while True:
            if self.stopping.is_set():
                raise Stopped

            self.tend()
            left = until - time.monotonic()
            if left <= 0:
                return

            self.stopping.wait(min(left, TICK))

    def wait(self, what: str, until: Callable[[], Any], seconds: float) -> None:
        """Wait until a condition holds.

        Raises:
            RedriveError: it does not hold in time; the message contains `what`.
        """
        give_up_at = time.monotonic() + seconds
        while not until():
            if time.monotonic() > give_up_at:
                waited = f"the demo waited {seconds:.0f} s in vain: {what}"
                msg = f"{waited}; see {self.home}/*.log"
                raise RedriveError(msg)
            self.pause(TICK)

    # ------------------------------------------------------------------ up and down

    def start_postgres(self) -> None:
        """Start an empty database, and create the schemas."""
        start_postgres(self._postgres)
        # It raises Stopped if the demo was ended meanwhile.
        self.pause()
        migrate(self.conn)

        with self.conn.transaction():
            self.conn.execute(shop.SCHEMA)

        variables = {
            "REDRIVE_DATABASE_URL": self.url,
            "REDRIVE_DEMO_HOME": str(self.home),
        }
        write_shell_file(self.env_file, "REDRIVE_DATABASE_URL_FILE", variables)

    def start(self) -> None:
        """Start the mail server and the worker."""
        self.mailbox.mkdir(exist_ok=True, mode=0o700)
        for name, position in self._actual.items():
            shop.turned(self.conn, name, position)

        self._start_mail()
        self._start_worker()

    def start_console(self) -> None:
        """Start the console if its packages are installed; do not wait for it."""
        if not find_spec("fastapi"):
            return

        port = usual_console_port()
        options = ("--demo", "--port", str(port))
        self._run("console", *PYTHON, "redrive", "console", *options)
        self.console = f"http://127.0.0.1:{port}"

    def stop(self) -> None:
        """Stop all processes; the home decides which files to keep."""
        if self._conn is not None:
            self._conn.close()

        for name in PROCESSES:
            self._processes.stop(name)

        stop_postgres(self._postgres)

    # ------------------------------------------------------------------ while it runs

    def turn(self, name: str, wanted: str) -> None:
        """Change a switch and wait until it is done."""
        shop.turn(self.conn, name, wanted)
        self.tend()

    def tend(self) -> None:
        """Change switches as requested, and restart processes that have died."""
        if "worker" not in self._processes:
            return

        for name in self._actual:
            found = shop.switch(self.conn, name)
            if found and found.wanted != self._actual[name]:
                self._turn(name, found.wanted)

        if self._processes.is_dead("worker"):
            self._start_worker()  # like Kubernetes

    def _turn(self, name: str, wanted: str) -> None:
        self._actual[name] = wanted
        if name == "release":
            self._processes.stop("worker")
            self._start_worker()
        elif wanted == "up":
            self._start_mail()
        else:
            self._processes.stop("mail")

        shop.turned(self.conn, name, wanted)

    # ------------------------------------------------------------------ processes

    def _start_worker(self) -> None:
        code = shop.handlers(self._actual["release"])
        (self.shop / "handlers.py").write_text(code)
        for _ in range(TRIES):
            if not is_free(self.metrics_port):
                self.metrics_port = free_port()

            options = ("--handlers", "handlers:jobs")
            port = ("--http-port", str(self.metrics_port))
            self._run("worker", *PYTHON, "redrive", "worker", *options, *port)
            if self._processes.answers("worker", self._ready):
                return

            self._processes.stop("worker")

        why = "".join(last_lines(self._processes.log("worker"), 1))
        msg = f"the worker does not start: {why}"
        raise RedriveError(msg)

    def _start_mail(self) -> None:
        for _ in range(TRIES):
            arguments = (str(self.mail_port), str(self.mailbox))
            command = (*PYTHON, "redrive.extras.demo.mail", *arguments)
            self._run("mail", *command, stdin=subprocess.PIPE)
            if self._processes.answers("mail", self._connectable):
                return

            self._processes.stop("mail")
            if "worker" not in self._processes:  # later the port is fixed
                self.mail_port = free_port()

        msg = f"the mail server does not start; see {self._processes.log('mail')}"
        raise RedriveError(msg)

    def _ready(self) -> None:
        urlopen(f"http://127.0.0.1:{self.metrics_port}/readyz", timeout=1).close()

    def _connectable(self) -> None:
        socket.create_connection(("127.0.0.1", self.mail_port), 1).close()

    def _run(self, name: str, *command: str, stdin: int = subprocess.DEVNULL) -> None:
        # The worker imports the handlers of this directory.
        self._processes.start(name, command, self.environment(), self.shop, stdin=stdin)

    def environment(self) -> dict[str, str]:
        """Return the environment of child processes, without the user's settings."""
        path = os.environ.get("PATH", os.defpath)
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(PREFIX)
        }

        return inherited | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{path}",
            "REDRIVE_DATABASE_URL": self.url,
            "REDRIVE_LOG_FORMAT": "console",
            "REDRIVE_DRAIN_TIMEOUT": "5",
            "REDRIVE_VERSION": self._actual["release"],
            "DATABASE_URL": self.url,
            "SHOP_SMTP": f"127.0.0.1:{self.mail_port}",
        }
