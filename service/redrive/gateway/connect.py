"""Connections to the sources of the file; each system's client is loaded when used."""

from redrive.errors import SettingsError
from redrive.gateway.file import SQS, VARIABLE, AnySource
from redrive.gateway.message import Source


def connect(source: AnySource) -> Source:
    """Connect to a source.

    Raises:
        SettingsError: its client library is not installed, or its URL cannot be read.
        Exception: the source cannot be reached, or refuses.
    """
    extra = "sqs" if isinstance(source, SQS) else "rabbitmq"
    try:
        return _connect(source)
    except ModuleNotFoundError as error:
        how = f"pip install 'redrive[{extra}]'"
        msg = f"{VARIABLE} needs {error.name}; install it with: {how}"
        raise SettingsError(msg) from None


def _connect(source: AnySource) -> Source:
    if isinstance(source, SQS):
        from redrive.gateway import sqs  # noqa: PLC0415 # it brings boto3

        return sqs.Queue(source)

    from redrive.gateway import rabbitmq  # noqa: PLC0415 # it brings pika

    return rabbitmq.Queue(source)
