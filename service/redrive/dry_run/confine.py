"""Run a command in confinement: `python -I -S confine.py CHANNEL HOME COMMAND...`.

The kernel enforces the limits from the start, also for every child process. Sockets are
refused, files outside of HOME are read-only, and memory is bounded. This needs no
privilege and only Python's standard library, so no module of an application has run
before.

    no sockets   each call that would make a socket waits for an answer from the other
                 end of CHANNEL, a Unix socket that receives the listener for such calls
    files        by Landlock, if the kernel has it; else no file can grow
"""

import ctypes
import os
import resource
import socket
import struct
import sys
from pathlib import Path

ARCHITECTURES = {
    "x86_64": (0xC000003E, 317, 41, 53),
    "aarch64": (0xC00000B7, 277, 198, 199),
}
"""Architecture -> its number, and its numbers of seccomp, socket and socketpair."""
IO_URING_SETUP = 425
X32 = 0x40000000
"""First number of another interface to the same calls."""

STEP_BYTES = 8
KILL, NOTIFY, REFUSE, ALLOW = 0x80000000, 0x7FC00000, 0x00050001, 0x7FFF0000
"""Results of a filter: end the process; ask the listener; EPERM; allow."""
LOAD, AND, RETURN, IF_EQUAL, IF_AT_LEAST = 0x20, 0x54, 0x06, 0x15, 0x35
NUMBER, ARCHITECTURE, SECOND_ARGUMENT = 0, 4, 24
"""Offsets at which a filter finds these values."""
SOCKET_TYPE = 0xF
"""Mask that removes SOCK_NONBLOCK and SOCK_CLOEXEC."""

NO_NEW_PRIVILEGES, FILTER_MODE, NEW_LISTENER = 38, 1, 8
CREATE_RULESET, ADD_RULE, RESTRICT_SELF, BENEATH = 444, 445, 446, 1
CHANGES = sum(1 << right for right in (1, 4, 5, 6, 7, 8, 9, 10, 11, 12))
"""Rights of Landlock: write, remove, make."""
TRUNCATE, HAS_TRUNCATE = 1 << 14, 3
OF_A_FILE = 1 << 1 | TRUNCATE

SHARED = ("/dev/shm", "/dev/null")  # noqa: S108 # shared memory, which locks use
MEMORY, FILE = 2 << 30, 64 << 20
"""Limits in bytes."""


def main(arguments: list[str]) -> None:
    """Confine this process, send the listener and become the command."""
    if sys.platform != "linux":
        sys.exit("only Linux can do that")

    channel, home, *command = arguments
    _limit(resource.RLIMIT_DATA, MEMORY)
    libc = ctypes.CDLL(None, use_errno=True)

    # Without this, the kernel accepts a filter only from a privileged process.
    fixed = libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    _called("no_new_privs", fixed)

    are_protected = _protect_files(libc, home, *SHARED)
    # Without Landlock, no file may grow at all.
    _limit(resource.RLIMIT_FSIZE, FILE if are_protected else 0)

    listener = _refuse_calls(libc)
    _send(listener, int(channel))
    os.execv(command[0], command)  # noqa: S606 # no shell is wanted


def _send(listener: int, channel: int) -> None:
    """Send the listener through a channel, which stays open for the command."""
    with socket.socket(fileno=os.dup(channel)) as other:
        socket.send_fds(other, [b"!"], [listener])


def _refuse_calls(libc: ctypes.CDLL) -> int:
    """Refuse new sockets from now on, and return the listener."""
    architecture, seccomp, new_socket, pair = _numbers()
    steps = _program(architecture, new_socket, pair)

    # `code` must live until the call, because the program has only its address.
    code = ctypes.create_string_buffer(steps)
    address = ctypes.addressof(code)
    count = len(steps) // STEP_BYTES
    program = struct.pack("HxxxxxxP", count, address)

    call = libc.syscall(seccomp, FILTER_MODE, NEW_LISTENER, program)
    return _called("seccomp", call)


def _numbers() -> tuple[int, int, int, int]:
    """Return the kernel's numbers for this machine."""
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        sys.exit(f"no filter is known for {machine}, only for {known}")

    return ARCHITECTURES[machine]


def _program(architecture: int, new_socket: int, pair: int) -> bytes:
    """Return the filter's program: operation, steps to skip if true or false, value."""
    steps = (
        (LOAD, 0, 0, ARCHITECTURE),
        (IF_EQUAL, 0, 11, architecture),
        (LOAD, 0, 0, NUMBER),
        (IF_AT_LEAST, 9, 0, X32),
        (IF_EQUAL, 6, 0, IO_URING_SETUP),  # can make sockets; libraries work without it
        (IF_EQUAL, 4, 0, new_socket),
        (IF_EQUAL, 0, 5, pair),
        # A stream has only its two ends, but a datagram can be sent to any socket.
        (LOAD, 0, 0, SECOND_ARGUMENT),
        (AND, 0, 0, SOCKET_TYPE),
        (IF_EQUAL, 2, 0, socket.SOCK_STREAM),
        (RETURN, 0, 0, NOTIFY),
        (RETURN, 0, 0, REFUSE),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, KILL),
    )
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def _protect_files(libc: ctypes.CDLL, *writable: str) -> bool:
    """Make all other files read-only. Return True if the kernel supports this."""
    # With flag 1, the call returns the version and makes no rules.
    version = libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return False

    rights = CHANGES
    if version >= HAS_TRUNCATE:
        rights |= TRUNCATE

    attributes = struct.pack("Q", rights)
    size = ctypes.c_size_t(len(attributes))
    rules = libc.syscall(CREATE_RULESET, attributes, size, 0)

    for path in filter(os.path.exists, writable):
        _allow(libc, rules, path, rights)

    restricted = libc.syscall(RESTRICT_SELF, rules, 0)
    _called("landlock", restricted)

    return True


def _allow(libc: ctypes.CDLL, rules: int, path: str, rights: int) -> None:
    """Add a rule that allows changes of a file, or of all files in a directory."""
    if not Path(path).is_dir():
        rights &= OF_A_FILE

    # It is closed when the command is executed.
    flags = os.O_PATH | os.O_CLOEXEC
    place = os.open(path, flags)
    rule = struct.pack("=Qi", rights, place)
    added = libc.syscall(ADD_RULE, rules, BENEATH, rule, 0)
    _called("landlock", added)


def _limit(what: int, most: int) -> None:
    """Lower a limit; keep a limit that is lower already."""
    _, hard = resource.getrlimit(what)
    if hard == resource.RLIM_INFINITY:
        limit = most
    else:
        limit = min(most, hard)

    resource.setrlimit(what, (limit, limit))


def _called(what: str, result: int) -> int:
    """Return the result of a call; exit if the kernel refused it."""
    if result < 0:
        why = os.strerror(ctypes.get_errno())
        sys.exit(f"the kernel refuses {what}: {why}")

    return result


if __name__ == "__main__":
    main(sys.argv[1:])
