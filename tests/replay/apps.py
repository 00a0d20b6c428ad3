"""Handlers that are replayed: each goes a way of its own."""

import os
import socket
from pathlib import Path
from typing import Any

from redrive import GiveUp, Handlers

jobs = Handlers()


@jobs.handle("invoice.charge")
def charge(payload: Any) -> None: ...


@jobs.handle("order.book")
def book(payload: Any) -> Any:
    print("booking")
    return payload["lines"][0]["amount"]


@jobs.handle("account.open")
def open_account(payload: Any) -> int:
    return int(payload["token"])


@jobs.handle("bank.call")
def call(payload: Any) -> None:
    Path(payload["file"]).touch()
    socket.create_connection(("127.0.0.1", payload["port"])).close()


@jobs.handle("bank.swallowed")
def swallowed(payload: Any) -> Any:
    try:
        socket.create_connection(("127.0.0.1", 9))
    except OSError:
        return payload["answer"]


@jobs.handle("bank.declined")
def declined(payload: Any) -> None:
    raise GiveUp("declined")


@jobs.handle("bank.crash")
def crash(payload: Any) -> None:
    os._exit(3)
