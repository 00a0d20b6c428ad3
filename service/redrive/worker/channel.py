"""Frames of messages between supervisor and runner, in both directions."""

import socket
import struct
from collections import deque

from redrive.worker.protocol import Down, Up, encode_frame

_HEADER = struct.Struct(">I")
_READ_SIZE = 1 << 18


class Channel:
    """Length-prefixed frames over a non-blocking socket.

    What the socket does not take now waits, in order.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)  # noqa: FBT003 # takes no keyword
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, 1 << 21)

        self._sock = sock
        # Tools that replace methods of sockets must not reach this one.
        self._send, self._recv = sock.send, sock.recv
        self._in = bytearray()
        self._out: deque[memoryview] = deque()

    def fileno(self) -> int:
        """Return the descriptor of the socket, for selectors."""
        return self._sock.fileno()

    @property
    def is_blocked(self) -> bool:
        """True if something waits for the other side to read."""
        return bool(self._out)

    def send(self, message: Down | Up) -> None:
        """Queue a message, and send what the socket takes.

        Raises:
            OSError: the other side is gone.
        """
        body = encode_frame(message)
        self._out.append(memoryview(_HEADER.pack(len(body)) + body))
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes."""
        while self._out:
            try:
                sent = self._send(self._out[0])
            except BlockingIOError:
                return

            if sent == len(self._out[0]):
                self._out.popleft()
            else:
                self._out[0] = self._out[0][sent:]

    def receive(self) -> list[bytes] | None:
        """Return all whole frames that have arrived; None if there will be no more."""
        closed = self._read()
        frames = self._cut()
        return None if closed and not frames else frames

    def _read(self) -> bool:
        """Read what has arrived. Returns True if the other side has closed."""
        while True:
            try:
                chunk = self._recv(_READ_SIZE)
            except BlockingIOError:
                return False
            except ConnectionResetError:
                return True

            self._in += chunk
            # A short read has emptied the socket.
            if len(chunk) < _READ_SIZE:
                return not chunk

    def _cut(self) -> list[bytes]:
        """Take out the whole frames that have arrived."""
        frames: list[bytes] = []
        start = 0
        size = len(self._in)

        while (body := start + _HEADER.size) <= size:
            end = body + _HEADER.unpack_from(self._in, start)[0]
            if end > size:
                break

            frames.append(bytes(self._in[body:end]))
            start = end

        del self._in[:start]
        return frames

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()
