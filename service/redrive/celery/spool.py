"""A bounded directory of records that wait to be written to Postgres."""

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from redrive.errors import SettingsError

SUFFIX = ".json"
ASIDE = ".refused"
"""Suffix of a record that the database refused. Nobody sends it again."""

LEFT_BEHIND_SECONDS = 3_600.0
"""Age at which a file that a killed process did not finish is deleted."""


class Full(Exception):
    """The spool has reached its limit."""


class Spool:
    """Records in files. Processes may share a spool, and any of them may be killed.

    A record is written to a file of another name, synced, and renamed. So a record that
    has its name is complete, and survives a crash of the machine.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self.directory = directory
        self.limit = limit

    def prepare(self) -> None:
        """Create the directory, for this user only.

        Raises:
            SettingsError: it cannot be created, is a link, or belongs to somebody else.
        """
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.check()
        except OSError as error:
            why = f"it cannot be used: {error.strerror}"
            raise self._refused(why) from None

    def check(self) -> None:
        """Check that nobody else can write to the directory.

        Somebody else's records would be stored with the login of the worker.

        Raises:
            SettingsError: it is a link, or belongs to somebody else.
            OSError: it does not exist.
        """
        found = self.directory.lstat()
        why = None
        if not stat.S_ISDIR(found.st_mode):
            why = "it is a link; name the directory itself"
        elif found.st_uid != os.geteuid():
            why = f"it belongs to user {found.st_uid}; name another directory"

        if why is not None:
            raise self._refused(why)

        if found.st_mode & 0o077:
            self.directory.chmod(0o700)

    def _refused(self, why: str) -> SettingsError:
        return SettingsError(f"spool is {str(self.directory)!r}; {why}")

    def put(self, name: str, record: bytes) -> None:
        """Add a record, or replace the one of the same name.

        The directory is created again if a program that cleans up has deleted it.

        Raises:
            Full: there is no room.
            SettingsError: the directory is not ours.
            OSError: the disk refuses it.
        """
        self.prepare()
        path = self.directory / f"{name}{SUFFIX}"
        # A record that is replaced needs no room.
        if len(self.waiting()) >= self.limit and not path.exists():
            raise Full

        unfinished = self.directory / f".{os.getpid()}-{time.monotonic_ns()}"
        try:
            _write(unfinished, record)
            unfinished.rename(path)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise

        # The rename itself must survive a crash, too.
        self._sync_directory()

    def _sync_directory(self) -> None:
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def waiting(self) -> list[Path]:
        """Return the files of the records, without an order."""
        with (
            contextlib.suppress(FileNotFoundError),
            os.scandir(self.directory) as found,
        ):
            return [Path(one.path) for one in found if one.name.endswith(SUFFIX)]

        return []

    def remove(self, paths: Iterable[Path]) -> None:
        """Delete records that are in the database."""
        for path in paths:
            path.unlink(missing_ok=True)

    def set_aside(self, path: Path) -> None:
        """Keep a record that cannot be written, so that it does not stop the others."""
        with contextlib.suppress(FileNotFoundError):
            path.rename(path.with_suffix(ASIDE))

    def tidy(self) -> None:
        """Delete files that killed processes did not finish."""
        oldest = time.time() - LEFT_BEHIND_SECONDS
        for path in self.directory.glob(".[0-9]*"):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < oldest:
                    path.unlink()

    @contextlib.contextmanager
    def turn(self) -> Iterator[bool]:
        """Hold the right to send the records; False if another process has it.

        A process of the pool that is forked meanwhile inherits the open file. It must
        not inherit the lock, as it would with flock.

        Raises:
            SettingsError: the directory is not ours.
            OSError: it does not exist.
        """
        self.check()
        descriptor = os.open(self.directory / ".lock", os.O_RDWR | os.O_CREAT, 0o600)

        try:
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                yield False
            else:
                yield True
        finally:
            os.close(descriptor)


def _write(path: Path, record: bytes) -> None:
    """Write a new file for this user only, and wait until the disk has it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123 # an open descriptor
        file.write(record)
        file.flush()
        os.fsync(descriptor)
