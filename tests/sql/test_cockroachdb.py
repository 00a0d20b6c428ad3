"""redrive migrate refuses CockroachDB, which speaks the protocol of Postgres, by its name."""

import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from redrive.database.connections.connect import connect
from redrive.database.schema.migrate import migrate
from redrive.errors import SchemaError

VERSION = b"v24.3.1"
AUTHENTICATED = b"R\0\0\0\x08\0\0\0\0"
READY = b"Z\0\0\0\x05I"
TERMINATE = b"X\0\0\0\x04"


def _status(name: bytes, value: bytes) -> bytes:
    """Return the message that a server sends to report a parameter."""
    body = name + b"\0" + value + b"\0"
    return b"S" + (len(body) + 4).to_bytes(4, "big") + body


def _greet(listener: socket.socket) -> bytes:
    """Greet one client as CockroachDB does; return all that it sends after that."""
    client, _ = listener.accept()
    with client:
        client.recv(4096)
        statuses = (
            _status(b"server_version", b"13.0.0"),
            _status(b"server_encoding", b"UTF8"),
            _status(b"client_encoding", b"UTF8"),
            _status(b"crdb_version", VERSION),
        )
        client.sendall(AUTHENTICATED + b"".join(statuses) + READY)
        return client.recv(4096)


@pytest.fixture
def sent_to() -> Iterator[tuple[str, Future[bytes]]]:
    """The URL of such a server, and what its client sends."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        ThreadPoolExecutor() as one,
    ):
        port = listener.getsockname()[1]
        url = f"postgresql://root@127.0.0.1:{port}/defaultdb?sslmode=disable&gssencmode=disable"
        yield url, one.submit(_greet, listener)


def test_migrate_refuses_cockroachdb_by_name_and_sends_it_no_statement(
    sent_to: tuple[str, Future[bytes]],
) -> None:
    url, sent = sent_to

    with (
        connect(url) as conn,
        pytest.raises(SchemaError, match=r"is CockroachDB \(v24"),
    ):
        migrate(conn)

    assert sent.result() == TERMINATE
