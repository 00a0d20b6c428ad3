"""Connections to the sources of the file; each system's client is loaded when used."""

from redrive.extras.gateway.file import SQS, AnySource
from redrive.extras.gateway.message import Source


def connect(source: AnySource) -> Source:
    """Connect to a source.

    Raises:
        SettingsError: its URL cannot be read.
        Exception: the source cannot be reached, or refuses.
    """
    if isinstance(source, SQS):
        from redrive.extras.gateway import sqs  # noqa: PLC0415 # it brings boto3

        return sqs.Queue(source)

    from redrive.extras.gateway import rabbitmq  # noqa: PLC0415 # it brings pika

    return rabbitmq.Queue(source)
