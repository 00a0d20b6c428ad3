"""Ports for servers that are about to start."""

import socket
import sys

import pytest

from redrive.database.embedded import free_port


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing reserves it")
def test_a_port_is_left_to_whoever_asks_for_this_very_one() -> None:
    port = free_port()

    with socket.socket() as another, pytest.raises(OSError, match="in use"):
        another.bind(("127.0.0.1", port))
    socket.create_server(("127.0.0.1", port)).close()
