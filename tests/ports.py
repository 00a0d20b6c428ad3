"""Ports for servers that are about to start."""

import socket
import sys
from collections import deque

_RESERVED: deque[socket.socket] = deque()
MOST = 100


def free_port() -> int:
    """A port of loopback that nobody else on this machine is given before its server has it.

    What reserves it is bound and does not listen: on Linux whoever asks for this very port gets it.
    Without, one start in some thousands met another test's server there.
    """
    probe = socket.socket()
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind(("127.0.0.1", 0))
    port = int(probe.getsockname()[1])
    _RESERVED.append(probe)
    while len(_RESERVED) > (MOST if sys.platform == "linux" else 0):
        _RESERVED.popleft().close()
    return port
