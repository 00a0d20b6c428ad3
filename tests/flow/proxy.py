"""A TCP proxy in front of Postgres that can lose what passes through it."""

import contextlib
import re
import selectors
import socket
import threading
from collections.abc import Iterator

from psycopg.conninfo import conninfo_to_dict, make_conninfo

CHUNK = 1 << 16
SETTLING = (b"complete_v", b"settle_v", b"COMMIT", b"commit")
CLAIMING = (b"claim_v",)

_PREPARED = re.compile(rb"P.{4}(_pg3_[0-9]+)\0([^\0]*)\0", re.DOTALL)
_EXECUTED = re.compile(rb"B.{4}\0(_pg3_[0-9]+)\0", re.DOTALL)


def _address(url: str) -> tuple[str, int]:
    known = conninfo_to_dict(url)
    return str(known.get("host") or "127.0.0.1"), int(str(known.get("port") or 5432))


class Proxy:
    """Passes bytes on, one thread for all connections, until told otherwise.

    swallow: accept and read, pass nothing on, close nothing: a black hole.
    refuse: close every connection, also new ones.
    cut_after: pass the next request that contains one of these words on, and close its connection
        before the answer.
    cut_in: close the connection of this request, counted from now, whatever it is; before it is
        passed on, or after that with `cut_passes`.
    """

    def __init__(self, url: str) -> None:
        self._target = _address(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = make_conninfo(
            url, host="127.0.0.1", port=self._listener.getsockname()[1]
        )
        self.swallow = False
        self.refuse = False
        self.cut_after: tuple[bytes, ...] = ()
        self.cut_in = 0
        self.cut_passes = False
        self.cuts = 0
        self._moved = False
        self._peers: dict[socket.socket, socket.socket] = {}
        self._clients: dict[socket.socket, dict[bytes, bytes]] = {}
        """Of each what it has prepared."""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping:
            for key, _ in self._selector.select(0.05):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                if sock is self._listener:
                    self._accept()
                elif sock in self._peers:
                    self._pass_on(sock)
            if self.refuse or self._moved:
                self._moved = False
                for client in list(self._clients):
                    self._close(client)
        for sock in list(self._peers):
            sock.close()
        self._listener.close()
        self._selector.close()

    def aim(self, url: str) -> None:
        """Lead to another server from now on; connected clients must connect again."""
        self._target = _address(url)
        self._moved = True

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if self.refuse:
            client.close()
            return
        try:
            server = socket.create_connection(self._target, timeout=5)
        except OSError:
            client.close()
            return
        self._clients[client] = {}
        for sock, peer in ((client, server), (server, client)):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._peers[sock] = peer
            self._selector.register(sock, selectors.EVENT_READ)

    def _pass_on(self, sock: socket.socket) -> None:
        try:
            data = sock.recv(CHUNK)
            if not data:
                self._close(sock)
                return
            if self.swallow:
                return
            is_cut = sock in self._clients and self._is_last()
            if not is_cut or self.cut_passes:
                self._peers[sock].sendall(data)
        except OSError:
            self._close(sock)
            return
        words = self.cut_after
        said = self._statements(sock, data) if sock in self._clients else b""
        if any(word in said for word in words):
            self.cut_after = ()
            is_cut = True
        if is_cut:
            self.cuts += 1
            self._close(sock)

    def _statements(self, client: socket.socket, data: bytes) -> bytes:
        """What it asks for, in words also where it was prepared before."""
        prepared = self._clients[client]
        prepared |= dict(_PREPARED.findall(data))
        return data + b"".join(
            prepared.get(name, b"") for name in _EXECUTED.findall(data)
        )

    def _is_last(self) -> bool:
        if not self.cut_in:
            return False
        self.cut_in -= 1
        return not self.cut_in

    def _close(self, sock: socket.socket) -> None:
        peer = self._peers.pop(sock, None)
        for one in (sock, peer):
            if one is not None:
                self._peers.pop(one, None)
                self._clients.pop(one, None)
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(one)
                one.close()

    def stop(self) -> None:
        """Close everything."""
        self._stopping = True
        self._thread.join()


@contextlib.contextmanager
def proxy_for(url: str) -> Iterator[Proxy]:
    """A proxy that ends with the block."""
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.stop()
