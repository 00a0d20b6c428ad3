"""A proxy before a broker, which can lose a confirmation."""

import contextlib
import re
import socket
import threading

CONFIRMATION = re.compile(rb"\x01..\x00\x00\x00\x0d\x00\x3c\x00\x50", re.DOTALL)
"""Frame of the method basic.ack: its type, channel and size, then class 60, method 80."""


class Proxy:
    """Passes bytes on. While `cuts`, it cuts a connection instead of a confirmation."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cuts = threading.Event()
        self.cut = 0
        self._run(self._accept)

    @property
    def url(self) -> str:
        """The URL of the broker behind it."""
        return f"amqp://127.0.0.1:{self.port}/%2f"

    def _run(self, function: object, *args: object) -> None:
        threading.Thread(target=function, args=args, daemon=True).start()  # pyright: ignore[reportArgumentType]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._run(self._pass, client, server)
                self._run(self._pass, server, client, True)

    def _pass(
        self, source: socket.socket, target: socket.socket, is_answer: bool = False
    ) -> None:
        with contextlib.suppress(OSError), source, target:
            while content := source.recv(65_536):
                is_confirmation = is_answer and CONFIRMATION.search(content)
                if is_confirmation and self.cuts.is_set():
                    self.cuts.clear()
                    self.cut += 1
                    break
                target.sendall(content)
            for one in (source, target):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.close()
