"""Run a command in confinement: `python -I -S confine.py CHANNEL HOME COMMAND...`.

The kernel enforces the limits from the start, also for every child process. Connections
are refused, files outside of HOME are read-only, and memory is bounded. This needs no
privilege and only Python's standard library, so no module of an application has run
before.

    sockets   each call that would make or connect a socket, or would send to an address,
              waits for an answer from the other end of CHANNEL, a Unix socket that
              receives the listener for such calls
    signals   only to processes of its own session, which no child can leave
    end       when this process ends, so do all others of its session
    memory    no call can read or change another process, or take its sockets
    files     by Landlock, if the kernel has it; else no file can grow
    modes     and times of files stay: calls that set them succeed, and change nothing
    owners    and attributes of files stay: calls that set them are refused
"""

import ctypes
import os
import resource
import select
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Numbers(NamedTuple):
    """The kernel's numbers of calls on one architecture."""

    architecture: int
    seccomp: int
    socket: int
    socketpair: int
    connect: int
    bind: int
    listen: int
    sendto: int
    sendmsg: int
    sendmmsg: int
    other_processes: tuple[int, ...]
    """ptrace, process_vm_readv, process_vm_writev, pidfd_getfd, pidfd_send_signal"""
    sessions: tuple[int, ...]
    """setsid, setpgid"""
    signals: tuple[int, ...]
    """kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo"""
    prlimit: int
    fcntl: int
    ioctl: int
    owners: tuple[int, ...]
    """fchownat, fchown, f/l/setxattr, f/l/removexattr, and the old calls for owners, times"""
    modes: tuple[int, ...]
    """chmod, fchmod, fchmodat"""
    utimensat: int


ARCHITECTURES = {
    "x86_64": Numbers(
        *(0xC000003E, 317, 41, 53, 42, 49, 50, 44, 46, 307),
        other_processes=(101, 310, 311, 438, 424),
        sessions=(112, 109),
        signals=(62, 200, 234, 129, 297),
        prlimit=302,
        fcntl=72,
        ioctl=16,
        owners=(260, 93, 92, 94, *range(188, 191), *range(197, 200), 132, 235, 261),
        modes=(90, 91, 268),
        utimensat=280,
    ),
    "aarch64": Numbers(
        *(0xC00000B7, 277, 198, 199, 203, 200, 201, 206, 211, 269),
        other_processes=(117, 270, 271, 438, 424),
        sessions=(157, 154),
        signals=(129, 130, 131, 138, 240),
        prlimit=261,
        fcntl=25,
        ioctl=29,
        owners=(54, 55, *range(5, 8), *range(14, 17)),
        modes=(52, 53),
        utimensat=88,
    ),
}
IO_URING_SETUP = 425
FCHMODAT2 = 452
ATTRIBUTES = (463, 466, 469)
"""setxattrat, removexattrat, file_setattr"""
SIGNAL_OWNERS = (8, 15)
"""Commands of fcntl that let a file send signals to another process."""
FILE_COMMANDS = (0x8901, 0x8902, 0x40086602, 0x401C5820)
"""Commands of ioctl that do the same, or change the flags of a file."""
X32 = 0x40000000
"""First number of another interface to the same calls."""

STEP_BYTES = 8
KILL, NOTIFY, ALLOW = 0x80000000, 0x7FC00000, 0x7FFF0000
REFUSE, SKIP = 0x00050001, 0x00050000
"""Results of a filter: end the process; ask the listener; allow; EPERM; succeed without effect."""
LOAD, AND, RETURN, IF_EQUAL, IF_AT_LEAST = 0x20, 0x54, 0x06, 0x15, 0x35
IF_ANY_BIT = 0x45
NUMBER, ARCHITECTURE, ARGUMENTS, ARGUMENT_BYTES = 0, 4, 16, 8
"""Offsets at which a filter finds these values."""
FAST_OPEN = 0x20000000
"""Flag of a message that also connects its socket."""
SOCKET_TYPE = 0xF
"""Mask that removes SOCK_NONBLOCK and SOCK_CLOEXEC."""

DROP_CAPABILITY, CAPABILITIES = 24, (21, 38)
"""CAP_SYS_ADMIN, CAP_PERFMON"""
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
    _start_guard()
    _limit(resource.RLIMIT_DATA, MEMORY)
    libc = ctypes.CDLL(None, use_errno=True)

    # Root could read the environment of our parent with these. Others have none.
    for capability in CAPABILITIES:
        libc.prctl(DROP_CAPABILITY, capability, 0, 0, 0)

    # Without this, the kernel accepts a filter only from a privileged process.
    fixed = libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    _called("no_new_privs", fixed)

    are_protected = _protect_files(libc, home, *SHARED)
    # Without Landlock, no file may grow at all.
    _limit(resource.RLIMIT_FSIZE, FILE if are_protected else 0)

    listener = _refuse_calls(libc)
    _send(listener, int(channel))
    os.execv(command[0], command)  # noqa: S606 # no shell is wanted


def _start_guard() -> None:
    """Start a process that ends this session as soon as this process has ended.

    It is no child of ours, because a handler may wait for all its children.
    """
    group = os.getpid()
    leader = os.pidfd_open(group)
    child = os.fork()
    if child:
        os.close(leader)
        os.waitpid(child, 0)
        return

    if not os.fork():
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        os.closerange(0, leader)
        os.closerange(leader + 1, os.sysconf("SC_OPEN_MAX"))
        select.select([leader], [], [])
        os.killpg(group, signal.SIGKILL)
    os._exit(0)


def _send(listener: int, channel: int) -> None:
    """Send the listener through a channel, which stays open for the command."""
    with socket.socket(fileno=os.dup(channel)) as other:
        socket.send_fds(other, [b"!"], [listener])


def _refuse_calls(libc: ctypes.CDLL) -> int:
    """Refuse new sockets from now on, and return the listener."""
    numbers = known_numbers()
    steps = _program(numbers)

    # `code` must live until the call, because the program has only its address.
    code = ctypes.create_string_buffer(steps)
    address = ctypes.addressof(code)
    count = len(steps) // STEP_BYTES
    program = struct.pack("HxxxxxxP", count, address)

    call = libc.syscall(numbers.seccomp, FILTER_MODE, NEW_LISTENER, program)
    return _called("seccomp", call)


def known_numbers() -> Numbers:
    """Return the kernel's numbers for this machine."""
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        sys.exit(f"no filter is known for {machine}, only for {known}")

    return ARCHITECTURES[machine]


Step = tuple[int, int, int, int]
"""Operation, steps to skip if true or false, value."""


def _program(numbers: Numbers) -> bytes:
    """Return the filter's program."""
    steps: list[Step] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (IF_EQUAL, 1, 0, numbers.architecture),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER),
        (IF_AT_LEAST, 0, 1, X32),
        (RETURN, 0, 0, KILL),
        *_processes(numbers),
        *_files(numbers),
        *_sockets(numbers),
    ]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def _processes(numbers: Numbers) -> Iterator[Step]:
    """Yield steps about other processes."""
    yield from _answer(REFUSE, *numbers.other_processes)
    # The parent ends the process by its group, which no child may leave.
    yield from _answer(REFUSE, *numbers.sessions)
    yield from _answer(NOTIFY, *numbers.signals)
    # A limit ends a process, too; 0 is the caller.
    yield from _if_argument(numbers.prlimit, 0, REFUSE, IF_ANY_BIT, 0xFFFFFFFF)
    yield from _if_argument(numbers.fcntl, 1, REFUSE, IF_EQUAL, *SIGNAL_OWNERS)


def _files(numbers: Numbers) -> Iterator[Step]:
    """Yield steps about what Landlock does not cover."""
    yield from _answer(REFUSE, *numbers.owners, *ATTRIBUTES)
    yield from _answer(SKIP, *numbers.modes, FCHMODAT2)
    yield from _unless_touched(numbers.utimensat)
    yield from _if_argument(numbers.ioctl, 1, REFUSE, IF_EQUAL, *FILE_COMMANDS)


def _sockets(numbers: Numbers) -> Iterator[Step]:
    """Yield steps about connections, and the last step."""
    # io_uring can make sockets; libraries work without it.
    yield from _answer(REFUSE, IO_URING_SETUP)
    calls = (numbers.socket, numbers.connect, numbers.bind, numbers.listen)
    yield from _answer(NOTIFY, *calls)
    yield from _if_argument(numbers.sendto, 3, NOTIFY, IF_ANY_BIT, FAST_OPEN)
    yield from _if_argument(numbers.sendmsg, 2, NOTIFY, IF_ANY_BIT, FAST_OPEN)
    yield from _if_argument(numbers.sendmmsg, 3, NOTIFY, IF_ANY_BIT, FAST_OPEN)
    yield from _unless_streams(numbers.socketpair)


def _answer(result: int, *calls: int) -> Iterator[Step]:
    """Yield steps that end with this result for these calls."""
    for call in calls:
        yield (IF_EQUAL, 0, 1, call)
        yield (RETURN, 0, 0, result)


def _if_argument(
    call: int, argument: int, result: int, test: int, *values: int
) -> Iterator[Step]:
    """Yield steps that end with this result if an argument passes one of the tests."""
    yield (IF_EQUAL, 0, 2 + 2 * len(values), call)
    yield (LOAD, 0, 0, ARGUMENTS + argument * ARGUMENT_BYTES)
    for value in values:
        yield (test, 0, 1, value)
        yield (RETURN, 0, 0, result)
    yield (RETURN, 0, 0, ALLOW)


def _unless_touched(call: int) -> Iterator[Step]:
    """Yield steps that skip a call for times, and refuse one that may be for no file.

    A program that sets the time of a path to now wants to know if there is such a file.
    If it is refused, it opens the file, which also makes it.
    """
    path, times = (ARGUMENTS + n * ARGUMENT_BYTES for n in (1, 2))
    yield (IF_EQUAL, 0, 6, call)
    yield (LOAD, 0, 0, path)
    yield (IF_EQUAL, 3, 0, 0)
    yield (LOAD, 0, 0, times)
    yield (IF_EQUAL, 0, 1, 0)
    yield (RETURN, 0, 0, REFUSE)
    yield (RETURN, 0, 0, SKIP)


def _unless_streams(call: int) -> Iterator[Step]:
    """Yield the last steps, which ask the listener about a pair that is no stream.

    A stream has only its two ends, but a datagram can be sent to any socket.
    """
    yield (IF_EQUAL, 0, 4, call)
    yield (LOAD, 0, 0, ARGUMENTS + ARGUMENT_BYTES)
    yield (AND, 0, 0, SOCKET_TYPE)
    yield (IF_EQUAL, 1, 0, socket.SOCK_STREAM)
    yield (RETURN, 0, 0, NOTIFY)
    yield (RETURN, 0, 0, ALLOW)


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
    limit = most if hard == resource.RLIM_INFINITY else min(most, hard)

    resource.setrlimit(what, (limit, limit))


def _called(what: str, result: int) -> int:
    """Return the result of a call; exit if the kernel refused it."""
    if result < 0:
        why = os.strerror(ctypes.get_errno())
        sys.exit(f"the kernel refuses {what}: {why}")

    return result


if __name__ == "__main__":
    main(sys.argv[1:])
