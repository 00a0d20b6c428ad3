"""Connections to Redrive's database, whose address is read when it is needed."""

from collections.abc import Callable
from typing import Any

from redrive.database.connections.address import Address
from redrive.database.connections.connect import OwnConnection

Connect = Callable[[], OwnConnection]


def connects_to(url: str | None) -> Connect:
    """Return a function that opens a connection.

    Args:
        url: the address; None: REDRIVE_DATABASE_URL, as for Redrive's commands.
    """

    def connect() -> OwnConnection:
        return _address(url).connect("redrive celery")

    return connect


def _address(url: str | None) -> Address:
    if url is not None:
        return Address(url, variable="database_url")

    from redrive.settings import Settings  # noqa: PLC0415 # a program that only enqueues tasks never needs it

    given: dict[str, Any] = {}  # all of them have defaults
    return Settings(**given).address()
