"""What a confined process sees of its own connections: names of hosts, and its frames."""

import contextlib
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from traceback import walk_stack
from typing import Any

from redrive.extras.replay.calls import Address
from redrive.extras.replay.places import Place
from redrive.rules.attempts.failure import is_library

EVENTS = {"socket.connect", "socket.getaddrinfo", "socket.sendto"}
OURS = ("redrive.", "importlib.")


@dataclass(slots=True)
class Seen:
    """What was seen of the connections.

    Attributes:
        caller: the last frame of the application that connected or looked up a host.
        lookups: HOST:PORT of each host name that is not known here.
    """

    caller: str | None = None
    lookups: list[str] = field(default_factory=list[str])


@contextlib.contextmanager
def watched(allowed: Mapping[str, Sequence[Address]]) -> Iterator[Seen]:
    """Watch connections, and resolve the allowed names, because DNS is refused here."""
    seen = Seen()
    resolve = socket.getaddrinfo

    def see(event: str, _: tuple[Any, ...]) -> None:
        if event in EVENTS:
            seen.caller = _caller() or seen.caller

    # A hook stays for the life of the process, which runs one request.
    sys.addaudithook(see)
    socket.getaddrinfo = _resolver(resolve, allowed, seen)
    try:
        yield seen
    finally:
        socket.getaddrinfo = resolve


def _resolver(
    resolve: Callable[..., Any], allowed: Mapping[str, Sequence[Address]], seen: Seen
) -> Callable[..., Any]:
    """Return a function that knows the allowed names, and notes the unknown ones."""
    known = {target.rpartition(":")[0]: found for target, found in allowed.items()}

    def resolve_allowed(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name in known:
            addresses = [address for address, _ in known[name]]
            return [one for at in addresses for one in resolve(at, port, *rest, **more)]

        try:
            return resolve(host, port, *rest, **more)
        except socket.gaierror:
            target = f"{name}:{port}"
            if target not in seen.lookups:
                seen.lookups.append(target)
            raise

    return resolve_allowed


def _caller() -> str | None:
    """Return the innermost frame of the application, or None."""
    for frame, line in walk_stack(None):
        code = frame.f_code
        module = str(frame.f_globals.get("__name__", "?"))
        path = code.co_filename
        if not (is_library(path) or path.startswith("<") or module.startswith(OURS)):
            return str(Place(path, module, code.co_name, line))

    return None
