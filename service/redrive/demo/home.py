"""The directory of a demo: its own while it runs, and gone afterwards, however the demo ends."""

import contextlib
import fcntl
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from redrive.errors import Busy

NAME = "redrive-demo"

# It waits for the end of its standard input, which comes when the demo ends, even by kill -9. It
# puts away what the demo has not put away itself.
GUARD = """
cat > /dev/null
cd /
for file in "$1"/*.pid; do [ -e "$file" ] && kill -KILL "$(cat "$file")" 2> /dev/null; done
for file in "$1"/postgres-*/postmaster.pid; do
    [ -e "$file" ] && kill -QUIT "$(head -n 1 "$file")" 2> /dev/null
    n=0; while [ -e "$file" ] && [ $n -lt 100 ]; do sleep 0.1; n=$((n + 1)); done
done
[ "$2" = remove ] || exit 0
n=0
while [ -e "$1" ] && [ $n -lt 50 ]; do rm -rf "$1" 2> /dev/null || sleep 0.1; n=$((n + 1)); done
"""


@contextlib.contextmanager
def open_home(chosen: Path | None) -> Iterator[Path]:
    """A directory nobody else uses; with `chosen` that one, and it stays.

    Raises:
        Busy: a demo runs in the chosen one.
    """
    path, lock = _take(chosen)
    guard = subprocess.Popen(
        _guard(path, "keep" if chosen else "remove"),
        stdin=subprocess.PIPE,
        pass_fds=[lock],  # nobody takes the directory before the guard is through
        start_new_session=True,  # Ctrl-C is for us, not for it
    )
    try:
        yield path
    finally:
        if chosen is None:
            shutil.rmtree(path, ignore_errors=True)
        guard.communicate()
        os.close(lock)


def _guard(path: Path, then: Literal["keep", "remove"]) -> list[str]:
    return ["/bin/sh", "-c", GUARD, "redrive-demo-guard", str(path), then]


def _take(chosen: Path | None) -> tuple[Path, int]:
    """A directory and our lock on it."""
    if chosen is None:
        return _take_usual() or _take_another()
    chosen.mkdir(parents=True, exist_ok=True)
    lock = _lock(chosen)
    if lock is None:
        msg = f"another demo runs in {chosen}"
        raise Busy(msg)
    return chosen, lock


def _take_usual() -> tuple[Path, int] | None:
    """The directory that a demo has by default; None when another one or another user has it."""
    usual = Path(tempfile.gettempdir()) / NAME
    with contextlib.suppress(FileExistsError):
        usual.mkdir(mode=0o700)
    if not _is_ours(usual) or (lock := _lock(usual)) is None:
        return None
    if not _holds_more_than_the_lock(usual):
        return usual, lock
    # a demo was killed together with its guard: do what the guard would have done
    subprocess.run(_guard(usual, "remove"), stdin=subprocess.DEVNULL, check=False)
    os.close(lock)
    return _take_usual()


def _take_another() -> tuple[Path, int]:
    path = Path(tempfile.mkdtemp(prefix=f"{NAME}-"))
    lock = _lock(path)
    assert lock is not None  # noqa: S101 # nobody else knows its name
    return path, lock


def _holds_more_than_the_lock(path: Path) -> bool:
    return len(list(path.iterdir())) > 1


def _is_ours(path: Path) -> bool:
    """Return True if the directory belongs to this user; anybody can write to the
    temporary directory.
    """
    found = path.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _lock(path: Path) -> int | None:
    """A lock on a directory as a file descriptor; None when it is taken or the directory gone."""
    try:
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    if os.fstat(lock).st_nlink == 0:
        os.close(lock)
        return None
    return lock
