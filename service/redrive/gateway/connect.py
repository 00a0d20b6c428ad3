"""Connections to the sources of the file; each system's client is loaded when used."""

from redrive.errors import SettingsError
from redrive.gateway.file import VARIABLE, RabbitMQ
from redrive.gateway.message import Source


def connect(source: RabbitMQ) -> Source:
    """Connect to a source.

    Raises:
        SettingsError: its client library is not installed, or its URL cannot be read.
        Exception: the source cannot be reached, or refuses.
    """
    try:
        from redrive.gateway.rabbitmq import Queue  # noqa: PLC0415 # it brings pika
    except ModuleNotFoundError as error:
        how = "pip install 'redrive[rabbitmq]'"
        msg = f"{VARIABLE} needs {error.name}; install it with: {how}"
        raise SettingsError(msg) from None
    return Queue(source)
