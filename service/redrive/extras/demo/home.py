"""The directory of a demo, which is deleted however the demo ends."""

import contextlib
import fcntl
import os
import secrets
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Literal

from redrive.errors import Busy

NAME = "redrive-demo"

# The guard's standard input ends with the demo, even by kill -9. Then the guard
# deletes everything, the lock last.
GUARD = """
PATH="$PATH:/usr/bin:/bin"
cat > /dev/null
cd /
for file in "$1"/*.pid; do
    [ -e "$file" ] && kill -KILL "$(cat "$file")" 2> /dev/null
done
for file in "$1"/postgres-*/postmaster.pid; do
    [ -e "$file" ] && kill -QUIT "$(head -n 1 "$file")" 2> /dev/null
    n=0; while [ -e "$file" ] && [ $n -lt 100 ]; do sleep 0.1; n=$((n + 1)); done
done
[ "$2" = remove ] || exit 0
n=0
others="-mindepth 1 -maxdepth 1 ! -name lock"
while [ -n "$(find "$1" $others 2> /dev/null)" ] && [ $n -lt 50 ]; do
    find "$1" $others -exec rm -rf {} + 2> /dev/null || sleep 0.1
    n=$((n + 1))
done
# From here on, the next demo may have the directory.
rm -f "$1/lock"
rmdir "$1" 2> /dev/null
"""


@contextlib.contextmanager
def open_home(chosen: Path | None, what: str = "demo") -> Iterator[Path]:
    """Yield a directory for one demo; delete it afterwards unless it was `chosen`.

    Raises:
        Busy: another one runs in the chosen directory; `what` is its name.
    """
    path, lock = _take(chosen, what)
    guard = subprocess.Popen(
        _guard(path, "keep" if chosen else "remove"),
        stdin=subprocess.PIPE,
        pass_fds=[lock],  # the directory stays locked until the guard ends
        start_new_session=True,  # Ctrl-C must not stop it
    )

    try:
        yield path
    finally:
        # This closes the guard's input, which starts it, and waits until it has ended.
        guard.communicate()
        os.close(lock)


def _guard(path: Path, then: Literal["keep", "remove"]) -> list[str]:
    return ["/bin/sh", "-c", GUARD, "redrive-demo-guard", str(path), then]


def keep_password(home: Path) -> str:
    """Return a password that only this user can read.

    Without it, all users of this machine could connect through loopback.
    """
    file = home / "secret"
    with contextlib.suppress(FileExistsError):
        handle: IO[str]
        # Other users must not be able to read the file at any moment.
        with open(
            file, "x", opener=lambda path, flags: os.open(path, flags, 0o600)
        ) as handle:
            handle.write(secrets.token_urlsafe(18))

    return file.read_text()


def _take(chosen: Path | None, what: str) -> tuple[Path, int]:
    """Return a directory together with our lock on it."""
    if chosen is None:
        return _take_usual() or _take_another()

    chosen.mkdir(parents=True, exist_ok=True)
    lock = _lock(chosen)
    if lock is None:
        msg = f"another {what} runs in {chosen}"
        raise Busy(msg)

    return chosen, lock


def _take_usual() -> tuple[Path, int] | None:
    """Return a demo's default directory; None if another demo or user has it."""
    usual = Path(tempfile.gettempdir()) / NAME
    with contextlib.suppress(FileExistsError):
        usual.mkdir(mode=0o700)

    if not _is_ours(usual) or (lock := _lock(usual)) is None:
        return None
    if len(list(usual.iterdir())) <= 1:  # the lock alone
        return usual, lock

    # A demo and its guard were killed: do the guard's work.
    subprocess.run(_guard(usual, "remove"), stdin=subprocess.DEVNULL, check=False)
    os.close(lock)

    return _take_usual()


def _take_another() -> tuple[Path, int]:
    path = Path(tempfile.mkdtemp(prefix=f"{NAME}-"))
    lock = _lock(path)
    assert lock is not None  # noqa: S101 # no other process knows its name

    return path, lock


def _is_ours(path: Path) -> bool:
    """Return True if this user owns the directory; its parent is open to everybody."""
    found = path.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _lock(path: Path) -> int | None:
    """Return a file descriptor with the lock of a directory.

    None if the lock is taken or the directory does not exist.
    """
    try:
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except FileNotFoundError:
        return None

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None

    # The holder before us has deleted the file, so this lock protects nothing.
    if os.fstat(lock).st_nlink == 0:
        os.close(lock)
        return None

    return lock
