"""Changes of modes and times that the parent makes for a confined process.

Landlock does not cover them. The parent opens the file itself, and changes what it
opened. So the process cannot put another file in its place after the check.
"""

import contextlib
import ctypes
import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from redrive.extras.replay import confine

HERE = -100
"""AT_FDCWD: the path begins in the working directory."""
NO_FOLLOW = 0x100
MAX_PATH = 4_096
TIMES_BYTES = 32


def change_file(
    pid: int,
    number: int,
    arguments: Sequence[int],
    home: Path,
    check: Callable[[], None],
) -> None:
    """Make the change that a process asks for, if its file is in this directory.

    Args:
        check: raise OSError if the process no longer waits for its call.

    Raises:
        OSError: the change is refused, or not possible.
    """
    is_of_times = number == confine.known_numbers().utimensat
    directory, pointer, value, flags = _in_one_order(number, arguments)
    path = _read(pid, pointer, MAX_PATH).partition(b"\0")[0] if pointer else b""
    times = None
    if is_of_times and value:
        times = _read(pid, value, TIMES_BYTES)

    with contextlib.ExitStack() as stack:
        fd = _opened(pid, ctypes.c_int(directory).value, path, flags)
        stack.callback(os.close, fd)
        # Else the process may be another one by now.
        check()

        opened = f"/proc/self/fd/{fd}"
        if not Path(opened).readlink().is_relative_to(home):
            raise PermissionError(errno.EPERM, "it is outside of the sandbox")

        if is_of_times:
            _set_times(opened, times)
        else:
            os.chmod(opened, value & 0o777)  # noqa: PTH101 # a link of the kernel


def _in_one_order(number: int, arguments: Sequence[int]) -> Sequence[int]:
    """Return directory, path, value and flags."""
    numbers = confine.known_numbers()
    if number in numbers.chmod:
        return (HERE, *arguments[:2], 0)
    if number == numbers.fchmod:
        return (arguments[0], 0, arguments[1], 0)
    if number == numbers.fchmodat:
        return (*arguments[:3], 0)

    return arguments[:4]


def _opened(pid: int, directory: int, path: bytes, flags: int) -> int:
    """Open a file as the process sees it, without reading or writing it."""
    start = "cwd" if directory == HERE else f"fd/{directory}"
    base = os.open(f"/proc/{pid}/{start}", os.O_PATH | os.O_CLOEXEC)
    if not path:
        return base

    follow = os.O_NOFOLLOW if flags & NO_FOLLOW else 0
    try:
        return os.open(path, os.O_PATH | os.O_CLOEXEC | follow, dir_fd=base)
    finally:
        os.close(base)


def _set_times(path: str, times: bytes | None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.utimensat(HERE, path.encode(), times, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _read(pid: int, pointer: int, size: int) -> bytes:
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(pointer)
        return memory.read(size)
