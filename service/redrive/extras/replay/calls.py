"""The parent's answers to the calls of a confined process: sockets and signals.

The parent makes each TCP socket, and connects it itself. So a process cannot change the
address between the check and the connection, and has no socket that leads elsewhere.
"""

import contextlib
import errno
import fcntl
import ipaddress
import os
import re
import socket
import struct
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from redrive.errors import SettingsError
from redrive.extras.replay import confine

RECEIVE, SEND, IS_VALID, ADD_FD = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103
CALL = struct.Struct("=QIIiIQ6Q")
ANSWER = struct.Struct("=QqiI")
NEW_FD = struct.Struct("=QIIII")
"""Formats of the kernel's request and our answers: call, value, error, flags."""

CONTINUE = 1
"""Flag of an answer: the kernel makes the call. Its arguments must not be in memory."""

MAX_ADDRESS = 128
MAX_SOCKETS = 100
"""Sockets of a process that may wait for their connection."""
INTERNET = (socket.AF_INET, socket.AF_INET6)
SOMEWHERE = "a local socket, or a name server"
"""Target of a call whose address is not known."""

_TARGET = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):([0-9]{1,5})")
MAX_PORT = 65_535

Address = tuple[str, int]
"""A numeric host, and a port."""


def addresses_of(targets: Iterable[str]) -> dict[str, list[Address]]:
    """Return the addresses of each HOST:PORT that a replay may connect to.

    Raises:
        SettingsError: one of them is not HOST:PORT, or its host is not known.
    """
    return {target: _resolved(target) for target in targets}


def _resolved(target: str) -> list[Address]:
    parts = _TARGET.fullmatch(target)
    if parts is None or not 0 < int(parts[2]) <= MAX_PORT:
        msg = f"--allow is {target!r}; it must be HOST:PORT, such as localhost:5432"
        raise SettingsError(msg)

    host = parts[1].strip("[]")
    try:
        found = socket.getaddrinfo(host, int(parts[2]), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        msg = f"--allow is {target!r}; the host is not known: {error}"
        raise SettingsError(msg) from None

    return sorted({(plain(str(at[0])), int(at[1])) for *_, at in found})


def plain(host: str) -> str:
    """Return a numeric host in one form; an IPv4 address in IPv6 becomes IPv4."""
    address = ipaddress.ip_address(host.partition("%")[0])
    return str(getattr(address, "ipv4_mapped", None) or address)


def target_of(address: Address) -> str:
    """Return an address as people write it."""
    host, port = address
    if ipaddress.ip_address(host).is_loopback:
        return f"localhost:{port}"

    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Calls:
    """Answers to the calls of one process.

    Attributes:
        refused: the targets of the refused calls.
    """

    def __init__(self, listener: int, allowed: Mapping[str, Iterable[Address]]) -> None:
        self.refused: list[str] = []
        self._listener = listener
        self._allowed = {at for found in allowed.values() for at in found}
        self._numbers = confine.known_numbers()
        # A socket that is not connected yet, by the name that the process has for it.
        self._sockets: dict[str, socket.socket] = {}

    def answer(self) -> None:
        """Answer one call."""
        request = bytearray(CALL.size)
        with contextlib.suppress(FileNotFoundError):  # the caller was killed
            fcntl.ioctl(self._listener, RECEIVE, request)
            call, pid, _, number, _, _, *arguments = CALL.unpack(request)

            if number == self._numbers.socket:
                self._answer_socket(call, arguments)
            elif number in self._numbers.signals:
                self._answer_signal(call, pid, arguments)
            elif number == self._numbers.connect:
                self._answer_connect(call, pid, arguments)
            else:
                self._refuse(call, SOMEWHERE)

    def close(self) -> None:
        """Close the sockets that were not connected."""
        for found in self._sockets.values():
            found.close()

    def _refuse(self, call: int, target: str) -> None:
        self.refused.append(target)
        self._send(call, 0, errno.EPERM)

    def _send(self, call: int, value: int, error: int) -> None:
        fcntl.ioctl(self._listener, SEND, ANSWER.pack(call, value, -error, 0))

    def _answer_signal(self, call: int, pid: int, arguments: list[int]) -> None:
        """Let a process send signals within its own session."""
        (target,) = struct.unpack("=i", struct.pack("=I", arguments[0] & 0xFFFFFFFF))
        if _are_together(pid, target):
            fcntl.ioctl(self._listener, SEND, ANSWER.pack(call, 0, 0, CONTINUE))
        else:
            self._send(call, 0, errno.EPERM)

    def _answer_socket(self, call: int, arguments: list[int]) -> None:
        """Give the process a TCP socket that only we can connect; refuse all others."""
        family, flags, protocol = (argument & 0xFFFFFFFF for argument in arguments[:3])
        is_stream = flags & confine.SOCKET_TYPE == socket.SOCK_STREAM
        is_tcp = is_stream and protocol in {0, socket.IPPROTO_TCP}
        if family not in INTERNET or not is_tcp:
            self._refuse(call, SOMEWHERE)
            return

        try:
            fd = self._install(call, family, flags)
        except OSError as error:
            self._send(call, 0, error.errno or errno.EPERM)
        else:
            self._send(call, fd, 0)

    def _install(self, call: int, family: int, flags: int) -> int:
        """Make a TCP socket, and return the number that it has in the process.

        Raises:
            OSError: there can be no further socket.
        """
        if len(self._sockets) >= MAX_SOCKETS:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        with contextlib.ExitStack() as stack:
            made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            stack.enter_context(made)
            # The file's flags are shared with the process, but our timeout is not.
            os.set_blocking(made.fileno(), not flags & socket.SOCK_NONBLOCK)
            kept = flags & socket.SOCK_CLOEXEC

            # With a mutable buffer, the result is that of the kernel.
            request = bytearray(NEW_FD.pack(call, 0, made.fileno(), 0, kept))
            fd = fcntl.ioctl(self._listener, ADD_FD, request)
            self._sockets[_name_of(os.getpid(), made.fileno())] = made
            stack.pop_all()

        return fd

    def _answer_connect(self, call: int, pid: int, arguments: list[int]) -> None:
        """Connect a socket of the process to an allowed address; refuse all others."""
        fd, pointer, length = arguments[:3]
        try:
            address = _read_address(pid, pointer, length)
            name = _name_of(pid, fd & 0xFFFFFFFF)
            # It fails if no process waits for this call: the pid may be another's by now.
            fcntl.ioctl(self._listener, IS_VALID, call.to_bytes(8, sys.byteorder))
        except (OSError, ValueError, OverflowError, struct.error):
            self._refuse(call, SOMEWHERE)
            return

        found = self._sockets.pop(name, None)
        if address not in self._allowed:
            if found is not None:
                found.close()
            self._refuse(call, target_of(address))
            return

        if found is None:
            self._send(call, 0, errno.EISCONN)
            return

        # The connection may take long, and we have other calls to answer.
        connect = threading.Thread(
            target=self._connect, args=(call, found, address), daemon=True
        )
        connect.start()

    def _connect(self, call: int, found: socket.socket, address: Address) -> None:
        """Connect a socket, tell the process, and leave the socket to it."""
        with found, contextlib.suppress(OSError):  # the process may be gone
            self._send(call, 0, found.connect_ex(address))


def _are_together(pid: int, target: int) -> bool:
    """Return True if the target of a signal is in the session of its sender.

    As for `kill`: 0 is the sender's own group, and -1 is every process.
    """
    if target == 0:
        return True
    if target == -1:
        return False

    with contextlib.suppress(ProcessLookupError, OverflowError):
        return os.getsid(pid) == os.getsid(abs(target))

    return False


def _name_of(pid: int, fd: int) -> str:
    """Return the kernel's name of a socket, which is the same in all processes."""
    return str(Path(f"/proc/{pid}/fd/{fd}").readlink())


def _read_address(pid: int, pointer: int, length: int) -> Address:
    """Return the address that a process wants to connect to.

    Raises:
        OSError, ValueError, OverflowError, struct.error: it is not one of the internet.
    """
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(pointer)
        raw = memory.read(min(length & 0xFFFFFFFF, MAX_ADDRESS))

    (family,) = struct.unpack_from("=H", raw)
    (port,) = struct.unpack_from("!H", raw, 2)
    if family == socket.AF_INET:
        host = socket.inet_ntop(family, raw[4:8])
    elif family == socket.AF_INET6:
        host = socket.inet_ntop(family, raw[8:24])
    else:
        msg = f"family {family}"
        raise ValueError(msg)

    return plain(host), port
