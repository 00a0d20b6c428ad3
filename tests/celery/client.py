"""The side of the application that only sends tasks."""

import functools
import itertools
import socket

from celery import Celery

_databases = itertools.count()


@functools.cache
def app(broker: str) -> Celery:
    return Celery("client", broker=broker)


def next_database() -> int:
    return next(_databases)


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
