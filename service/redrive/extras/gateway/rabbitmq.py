"""RabbitMQ: read a dead letter queue, and publish to the queue where a message died.

The broker gives messages no id. A message is known by its content, its `message_id` and
the record of its death. Without a `message_id`, two equal messages cannot be told
apart; see `redrive.extras.gateway.intake`.
"""

import base64
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple, cast

import pika
import pika.exceptions
from msgspec.json import encode

from redrive.errors import SettingsError
from redrive.extras.gateway import tables
from redrive.extras.gateway.file import RabbitMQ
from redrive.extras.gateway.marks import MARK, mark_of
from redrive.extras.gateway.message import Death, Message, NotSent, Outgoing, instant
from redrive.rules.payloads.limits import MAX_ATTEMPTS

# The library logs each failed connection in ten lines; the intake logs it in one.
logging.getLogger("pika").setLevel(logging.CRITICAL)

tables.tolerate()

LOST = (pika.exceptions.AMQPError, OSError)
"""Errors after which a connection is opened again."""

REFUSALS = (
    pika.exceptions.UnroutableError,
    pika.exceptions.NackError,
    pika.exceptions.ChannelClosedByBroker,
)
"""Errors that say that the broker does not have a message."""

FAULTS_OF_FRAMES = frozenset({501, 502})
"""Codes of a broker that cannot read what a connection has sent.

The headers may be too large for a frame, for example. The same message would end the
next connection, too.
"""

PREFETCH = 500
"""Most messages that are delivered and not acknowledged, and are held in memory."""

BATCH, BATCH_BYTES = 500, 16 << 20
"""Size of a batch. It ends with the message that reaches one of the two."""

FIRST_SECONDS, NEXT_SECONDS = 1.0, 0.05
"""How long to wait for the first message of a batch, and for each further one."""

CONNECT_SECONDS = 10
CONFIRM_SECONDS = 30

KEPT = (
    "content_type",
    "content_encoding",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "message_id",
    "type",
    "app_id",
)
"""Properties that a message keeps. The broker checks a user_id against the login."""

FAULTS = (
    ("x-exception-message", "x-exception-stacktrace", None),  # Spring
    (
        "MT-Fault-Message",
        "MT-Fault-StackTrace",
        "MT-Fault-ExceptionType",
    ),  # MassTransit
)
"""Headers in which frameworks keep an error: message, stack, class."""

_DEATHS = ("x-death", "x-first-death-", "x-last-death-", "x-delivery-count")
_ERRORS = frozenset(name for names in FAULTS for name in names if name)

COPIES = frozenset({"CC", "BCC"})
"""Headers that let the broker send a message to further queues."""

MAX_NAME = 255
MAX_DEATHS = 2_000
"""Bytes of what is kept of `x-death`; a publisher may have written it."""

REASONS = {"expired": "expired"}
"""Reason of the broker -> our reason; others are attempts_exhausted."""


class Queue:
    """Connection to a broker, for one dead letter queue."""

    def __init__(self, source: RabbitMQ) -> None:
        """Connect.

        Raises:
            SettingsError: the URL cannot be read.
            ConnectionError: the broker cannot be reached.
            AMQPError, OSError: the broker refuses.
        """
        self._source = source
        self._connection = _connection(_parameters(source))
        self._channel = self._open()

    def _open(self) -> Any:
        channel: Any = self._connection.channel()
        channel.confirm_delivery()
        channel.basic_qos(prefetch_count=PREFETCH)

        return channel

    def receive(self) -> Sequence[Message]:
        """Return the next messages; none after about a second without any."""
        found: list[Message] = []
        wait = FIRST_SECONDS
        size = 0

        while len(found) < BATCH and size < BATCH_BYTES:
            method, properties, body = next(
                self._channel.consume(self._source.queue, inactivity_timeout=wait)
            )
            if method is None:
                break

            found.append(_message(method, properties, body, self._source))
            size += len(body)
            wait = NEXT_SECONDS

        return found

    def acknowledge(self, messages: Sequence[Message]) -> None:
        """Acknowledge messages."""
        for message in messages:
            self._channel.basic_ack(message.handle)

    def send(self, message: Outgoing) -> None:
        """Publish a message; return when the broker has confirmed it.

        Raises:
            NotSent: the broker refused it, or the message does not say where it died.
        """
        properties = _properties(message)
        exchange, (key, *others) = _place(message.origin, self._source)
        if others:
            properties.headers["CC"] = others

        try:
            self._channel.basic_publish(
                exchange,
                key,
                message.body,
                properties,
                # Without this, the broker drops a message that no queue takes.
                mandatory=True,
            )
        except pika.exceptions.ConnectionClosedByBroker as error:
            if error.reply_code not in FAULTS_OF_FRAMES:
                raise

            raise _refused(exchange, key, error) from None
        except REFUSALS as error:
            # Some refusals close the channel, but not the connection.
            if not self._channel.is_open:
                self._channel = self._open()

            raise _refused(exchange, key, error) from None

    def ping(self) -> None:
        """Raise an error if the broker has closed the connection."""
        self._connection.process_data_events(0)
        if not self._channel.is_open:
            raise pika.exceptions.ConnectionClosed(0, "closed")

    def waiting(self) -> int:
        """Return how many messages are ready in the queue."""
        queue = self._channel.queue_declare(self._source.queue, passive=True).method
        return int(queue.message_count)

    def close(self) -> None:
        """Close the connection. Unacknowledged messages return to their queue."""
        with suppress(*LOST):
            self._connection.close()


def _refused(exchange: str, key: str, error: Exception) -> NotSent:
    place = f"exchange {exchange!r} with routing key {key!r}"
    match error:
        case pika.exceptions.UnroutableError():
            return NotSent(f"{place}: no queue is bound; the message was not sent")

        case pika.exceptions.NackError():
            text = f"{place}: the broker refused the message; is a queue full?"
            return NotSent(text, is_final=False)

        case pika.exceptions.ConnectionClosed():
            return NotSent(
                f"{place}: the broker cannot read it; are its headers too large?"
            )

        case _:
            return NotSent(f"{place}: {getattr(error, 'reply_text', '')}")


def _connection(parameters: pika.URLParameters) -> Any:
    try:
        return pika.BlockingConnection(parameters)
    except pika.exceptions.AMQPConnectionError as error:
        if str(error):
            raise

        # The library's error has no text.
        msg = f"the broker at {parameters.host}:{parameters.port} cannot be reached"
        raise ConnectionError(msg) from error


def _parameters(source: RabbitMQ) -> pika.URLParameters:
    """Return the parameters of a connection; the file of a URL is read again."""
    try:
        parameters = pika.URLParameters(_url(source))
    except (IndexError, SyntaxError, TypeError, ValueError):
        msg = "url: does not parse; write amqp://user:password@host:5672/vhost"
        raise SettingsError(msg) from None

    parameters.socket_timeout = CONNECT_SECONDS
    parameters.stack_timeout = CONNECT_SECONDS + 5
    parameters.blocked_connection_timeout = CONFIRM_SECONDS
    parameters.client_properties = {"connection_name": "redrive gateway"}

    return parameters


def _url(source: RabbitMQ) -> str:
    if source.url_file is None:
        return str(source.url)

    try:
        return source.url_file.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        msg = f"url_file is {source.url_file}; it cannot be read: {error}"
        raise SettingsError(msg) from None


def _message(method: Any, properties: Any, body: bytes, source: RabbitMQ) -> Message:
    headers: dict[str, Any] = properties.headers or {}
    entries = _list(headers.get("x-death"))
    deaths: list[dict[str, Any]] = [one for one in entries if isinstance(one, dict)]
    mark = mark_of(headers.get(MARK), body)

    return Message(
        handle=method.delivery_tag,
        body=body,
        origin=_origin(deaths, properties),
        headers=_encoded(dict(filter(_is_own, headers.items()))),
        death=_death(headers, deaths, properties, source.queue),
        source_id=(properties.message_id or (str(mark) if mark else None)),
        may_be_known=method.redelivered,
        mark=mark,
    )


def _properties(message: Outgoing) -> Any:
    """Return the headers and properties to send a message with.

    Raises:
        NotSent: they could not be read when it was taken in, or cannot be written.
    """
    if tables.UNREADABLE in message.headers:
        msg = "the headers of the message could not be read, so it cannot be sent"
        raise NotSent(msg)

    try:
        found: dict[str, Any] = _decoded(message.headers)
        headers = {name: one for name, one in found.items() if name not in COPIES}
        headers[MARK] = str(message.mark)
        kept: dict[str, Any] = _decoded(message.origin.get("properties", {}))
        properties = pika.BasicProperties(headers=headers, **kept)
        properties.encode()
    except Exception:  # noqa: BLE001 # an import may have brought in anything
        msg = "the headers or properties of the message cannot be written"
        raise NotSent(msg) from None

    return properties


def _is_own(header: tuple[str, Any]) -> bool:
    """Return True for a header of the application."""
    name, _ = header
    return name != MARK and name not in _ERRORS and not name.startswith(_DEATHS)


def _origin(deaths: Sequence[Mapping[str, Any]], properties: Any) -> dict[str, Any]:
    """Return where the message died, and its properties."""
    died = _where(deaths)
    kept = {name: getattr(properties, name) for name in KEPT}
    keys = [
        name for name in map(_name, _list(died.get("routing-keys"))) if name is not None
    ]
    latest = list(deaths[:3])

    return {
        "queue": _name(died.get("queue")),
        "exchange": _name(died.get("exchange")),
        "routing_keys": _bounded(keys),
        "properties": {
            name: _encoded(one) for name, one in kept.items() if one is not None
        },
        "deaths": _bounded(_encoded(latest)),
    }


def _list(value: object) -> list[Any]:
    """Return a list; empty for other values, which any publisher may have sent."""
    if isinstance(value, list):
        return cast("list[Any]", value)
    return []


def _name(value: object) -> str | None:
    """Return the name of a queue or an exchange; None for any other value."""
    if not isinstance(value, str) or "\0" in value:
        return None
    return value if len(value.encode()) <= MAX_NAME else None


def _bounded(values: list[Any]) -> list[Any]:
    """Return the values if they are small; else none."""
    return values if len(encode(values)) <= MAX_DEATHS else []


def _count(value: object) -> int:
    if isinstance(value, int):
        return min(max(1, value), MAX_ATTEMPTS)
    return 1


def _where(deaths: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the latest death that was no mere wait in a queue with a TTL."""
    rejected = [death for death in deaths if death.get("reason") != "expired"]
    nowhere: Mapping[str, Any] = {}
    return next(iter(rejected or deaths), nowhere)


def _death(
    headers: Mapping[str, Any],
    deaths: Sequence[Mapping[str, Any]],
    properties: Any,
    queue: str,
) -> Death:
    died = _where(deaths)
    reason = _name(died.get("reason", "published")) or "unknown"
    last_queue = _name(died.get("queue")) or queue
    fault = _fault(headers)

    at = instant(died.get("time"))
    created = instant(properties.timestamp)
    # A publisher writes the timestamp, so it may be later than the death.
    is_before = at is not None and created is not None and created <= at

    return Death(
        error_class=fault.error_class or f"rabbitmq.{reason}",
        message=fault.message or f"{reason} in the queue {last_queue}",
        reason=REASONS.get(reason, "attempts_exhausted"),
        stack=fault.stack,
        attempts=_count(died.get("count")),
        died_at=at,
        created_at=created if is_before else None,
    )


class _Fault(NamedTuple):
    """Error that a framework has kept in headers; parts of it may be missing."""

    message: str | None = None
    stack: str | None = None
    error_class: str | None = None


def _fault(headers: Mapping[str, Any]) -> _Fault:
    """Return the error that a framework has kept."""
    for names in FAULTS:
        fault = _Fault(*(_text(headers.get(name or "")) for name in names))
        if fault.message or fault.stack:
            first, _, _ = (fault.stack or "").partition("\n")
            named = fault.error_class or (first.partition(":")[0].strip()[:255] or None)
            return fault._replace(error_class=named)

    return _Fault()


def _text(value: object) -> str | None:
    if isinstance(value, str):
        return value[:200_000]
    return None


def _place(origin: Mapping[str, Any], source: RabbitMQ) -> tuple[str, Sequence[str]]:
    """Return where to publish: the exchange and the routing keys.

    Raises:
        NotSent: the message does not say where it died.
    """
    keys = origin.get("routing_keys")
    if source.to == "exchange" and keys:
        return str(origin.get("exchange") or ""), keys

    queue = origin.get("queue") or source.origin_queue
    if not queue:
        msg = "the message has no x-death header; set origin_queue of its source"
        raise NotSent(msg)

    return "", [queue]


_BYTES, _TEXT, _TIME, _DECIMAL = "$bytes", "$text", "$time", "$decimal"
"""Names of one-field objects that stand for values that JSON or Postgres does not have."""

_TABLE = "$table"
"""Name of a one-field object that stands for a table which looks like one of these."""


def _encoded(value: Any) -> Any:
    """Return a header's value as JSON."""
    match value:
        case dict():
            named = cast("dict[str, Any]", value)
            table = {name: _encoded(one) for name, one in named.items()}
            is_one = len(table) == 1
            return {_TABLE: table} if is_one and table.keys() <= _OWN.keys() else table

        case list():
            return [_encoded(one) for one in cast("list[Any]", value)]
        case bytes():
            return {_BYTES: base64.b64encode(value).decode()}
        case str() if "\0" in value:
            return {_TEXT: base64.b64encode(value.encode()).decode()}
        case datetime():
            return {_TIME: int(value.replace(tzinfo=UTC).timestamp())}
        case Decimal():
            return {_DECIMAL: str(value)}
        case int() if not isinstance(value, bool):
            return int(value)  # the library has a class for long ones
        case _:
            return value


def _decoded(value: Any) -> Any:
    """Return the value that `_encoded` has encoded."""
    if isinstance(value, list):
        return [_decoded(one) for one in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value

    named = cast("dict[str, Any]", value)
    if len(named) == 1:
        [(name, one)] = named.items()
        if name in _OWN:
            return _OWN[name](one)

    return _decoded_table(named)


def _decoded_table(table: dict[str, Any]) -> dict[str, Any]:
    return {name: _decoded(one) for name, one in table.items()}


_OWN: Mapping[str, Callable[[Any], Any]] = {
    _BYTES: base64.b64decode,
    _TEXT: lambda text: base64.b64decode(text).decode(),
    _TIME: partial(datetime.fromtimestamp, tz=UTC),
    _DECIMAL: Decimal,
    _TABLE: _decoded_table,
}
"""Name of a one-field object -> what reads its value."""
