"""Names of hosts in a confined process, which cannot use DNS."""

import socket
from collections.abc import Mapping, Sequence
from typing import Any

from redrive.extras.replay.calls import Address


def resolve_only(allowed: Mapping[str, Sequence[Address]]) -> Sequence[str]:
    """Resolve the allowed names, for the rest of the life of this process.

    Returns a list that gets HOST:PORT of each name that was looked up in vain.
    """
    known = {target.rpartition(":")[0]: found for target, found in allowed.items()}
    unknown: list[str] = []
    resolve = socket.getaddrinfo

    def resolve_allowed(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name in known:
            addresses = [address for address, _ in known[name]]
            return [one for at in addresses for one in resolve(at, port, *rest, **more)]

        try:
            return resolve(host, port, *rest, **more)
        except socket.gaierror:
            target = f"{name}:{port}"
            if target not in unknown:
                unknown.append(target)
            raise

    socket.getaddrinfo = resolve_allowed
    return unknown
