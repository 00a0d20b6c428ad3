"""Messages that somebody wrote to harm the gateway: none of them stops the others."""

import hashlib
import json
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pika.data
import pytest

from redrive.errors import SettingsError
from redrive.extras.gateway.file import RabbitMQ
from redrive.extras.gateway.letters import letter_of, outgoing
from redrive.extras.gateway.message import Death, Message
from redrive.extras.gateway.rabbitmq import Queue
from tests.cli.conftest import Redrive
from tests.flow.harness import wait_for
from tests.gateway.broker import Broker
from tests.gateway.conftest import Gateway
from tests.postgres import Database

Sources = Callable[..., Path]


class Raw(bytes):
    """Bytes of a header's value as they are sent, with their type."""


@pytest.fixture(autouse=True)
def raw_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tests publish values that the client library does not write."""
    encode = pika.data.encode_value

    def encoded(pieces: list[bytes], value: Any) -> int:
        if isinstance(value, Raw):
            pieces.append(value)
            return len(value)
        return encode(pieces, value)

    monkeypatch.setattr(pika.data, "encode_value", encoded)


def nested(depth: int) -> Raw:
    """Return a table in a table in a table."""
    value = b"V"
    for _ in range(depth):
        member = b"\x01a" + value
        value = b"F" + struct.pack(">I", len(member)) + member
    return Raw(value)


def marked(text: str, body: bytes) -> str:
    """Return a mark that somebody made up."""
    return f"{text}.{hashlib.sha256(body).hexdigest()[:32]}"


HOSTILE: dict[str, dict[Any, Any]] = {
    "nul in a mark": {"redrive-job": marked("1.1.a\0b", b"nul in a mark")},
    "nul in a name": {"a\0b": 1},
    "a name that is no text": {b"\xff\xfe": 1},
    "nul in x-death": {"x-death": [{"queue": "a\0b", "reason": "x\0y", "count": 1}]},
    "tables in x-death": {
        "x-death": [{"queue": {"a": 1}, "exchange": [1], "routing-keys": [{}, b"\xff"]}]
    },
    "bytes in x-death": {"x-death": [{"queue": b"\xff", "reason": b"\xff"}]},
    "a long reason": {"x-death": [{"queue": "q" * 9_000, "reason": "r" * 9_000}]},
    "many deaths": {"x-death": [{"queue": "q", "count": 2**62}] * 500},
    "odd errors": {"x-exception-message": "", "x-exception-stacktrace": "\0:\n"},
    "a time of year 55000": {"at": Raw(b"T" + struct.pack(">Q", 1_700_000_000_000))},
    "a time without end": {"at": Raw(b"T" + struct.pack(">Q", 2**64 - 1))},
    "deep": {"deep": nested(80)},
    "very deep": {"deep": nested(8_000)},
}


OPEN = "select id from redrive.dead_letters where state = 'open'"


def bodies(database: Database) -> set[str]:
    return set(database.column("select payload ->> 'body' from redrive.dead_letters"))


def test_no_header_stops_the_intake(
    broker: Broker, sources: Sources, gateway: Gateway, database: Database
) -> None:
    broker.declare("hostile", "hostile.dead")
    for name, headers in HOSTILE.items():
        broker.publish("hostile.dead", name.encode(), headers=headers)
    broker.publish("hostile.dead", b"good")

    gateway(sources(rabbitmq={"a": {"url": broker.url, "queue": "hostile.dead"}}))

    wait_for(lambda: "good" in bodies(database))
    assert bodies(database) == {*HOSTILE, "good"}
    assert broker.waiting("hostile.dead") == 0


def test_headers_that_cannot_be_read_are_not_sent(
    broker: Broker,
    sources: Sources,
    gateway: Gateway,
    redrive: Redrive,
    database: Database,
) -> None:
    broker.declare("unread", "unread.dead")
    headers = HOSTILE["a time of year 55000"]
    broker.publish("unread.dead", b"hostile", headers=headers)
    gateway(sources(rabbitmq={"a": {"url": broker.url, "queue": "unread.dead"}}))
    wait_for(lambda: bodies(database))

    redrive("dlq", "redrive", "--all", "--yes", "--why", "a test")

    last = "select message from redrive.dead_letters where redrives = 1"
    (message,) = wait_for(lambda: database.column(last))
    assert "headers of the message could not be read" in message
    assert broker.waiting("unread") == 0


OUR_NAMES: dict[str, Any] = {
    "a time of no year": {"$time": 10**18},
    "no number": {"$decimal": "one"},
    "no base64": {"$bytes": "a"},
    "two fields": {"$bytes": "aGk=", "$text": "aGk="},
    "a value of another type": {"$time": True},
    "a table of tables": {"$table": {"$table": {"a": 1}}},
}


def test_a_table_with_our_names_goes_back_as_it_was(
    broker: Broker,
    sources: Sources,
    gateway: Gateway,
    redrive: Redrive,
    database: Database,
) -> None:
    broker.declare("named", "named.dead")
    every = [*OUR_NAMES.items(), *OUR_NAMES["no number"].items()]
    for name, value in every:
        broker.die("named", b"named", headers={name: value})
    about = {"url": broker.url, "queue": "named.dead"}
    gateway(sources(rabbitmq={"a": about}))
    wait_for(lambda: len(database.column(OPEN)) == len(every))

    redrive("dlq", "redrive", "--all", "--yes", "--why", "a test")

    wait_for(lambda: broker.waiting("named") == len(every))
    back = [properties.headers for properties, _ in broker.take("named")]
    for headers in back:
        del headers["redrive-job"]
    known = partial(json.dumps, sort_keys=True)
    assert sorted(map(known, back)) == sorted(known(dict([one])) for one in every)


@pytest.mark.long
def test_a_message_that_cannot_be_sent_keeps_no_other_from_being_sent(
    broker: Broker,
    sources: Sources,
    gateway: Gateway,
    redrive: Redrive,
    database: Database,
) -> None:
    broker.declare("unsent", "unsent.dead")
    # Numbers of one byte, for which the client library writes five.
    numbers = Raw(b"A" + struct.pack(">I", 100_000) + b"b\x01" * 50_000)
    broker.die("unsent", b"wide", headers={"numbers": numbers})
    # 400 bytes, and the name of a queue has at most 255.
    died = {"queue": "é" * 200, "reason": "rejected"}
    broker.publish("unsent.dead", b"long", headers={"x-death": [died]})
    broker.die("unsent", b"good")
    about = {"url": broker.url, "queue": "unsent.dead", "verdict_seconds": 1}
    worker = gateway(sources(rabbitmq={"a": about}), redrive_slots=1)
    wait_for(lambda: len(database.column(OPEN)) == 3)

    redrive("dlq", "redrive", "--all", "--yes", "--why", "a test")

    again = "select message from redrive.dead_letters where redrives = 1"
    found = wait_for(lambda: len(found := database.column(again)) == 2 and found)
    long, wide = sorted(found, reverse=True)
    assert "are its headers too large?" in wide
    assert "the message has no x-death header" in long
    wait_for(lambda: broker.waiting("unsent") == 1)
    assert [body for _, body in broker.take("unsent")] == [b"good"]
    assert not [event for event in worker.events() if "breaker" in event["event"]]


@pytest.mark.parametrize(
    "body",
    [
        b'{"amount": 1, "amount": 2}',
        b'[{"a": {"b": 1, "b": 1}}]',
        b'{"a": 1, "\\u0061": 2}',
        b'{"price": 0.1000000000000000000001}',
        b"1e400",
        b"1e-400",
        b"1e999999999999999999",
        b"9" * 5_000,
        b'"\\ud800"',
    ],
)
def test_a_body_that_json_would_change_is_kept_as_text(body: bytes) -> None:
    message = Message(None, body, {}, {}, Death("A", "b"))
    letter = letter_of(message, "rabbitmq.a", "1", exact=False)
    header = json.loads(letter.job["headers"])["gateway"]
    payload = json.loads(letter.job["payload"])

    assert outgoing(payload, header, 1, 1, "token").body == body


def test_copies_are_not_made_again(
    broker: Broker,
    sources: Sources,
    gateway: Gateway,
    redrive: Redrive,
    database: Database,
) -> None:
    with broker.channel() as channel:
        channel.exchange_declare("copies.dlx", "fanout", durable=True)
        channel.queue_declare("copies.dead", durable=True)
        channel.queue_bind("copies.dead", "copies.dlx")
        arguments = {"x-dead-letter-exchange": "copies.dlx"}
        channel.queue_declare("copies", durable=True, arguments=arguments)
        channel.queue_declare("copies.other", durable=True)
    broker.publish("copies", b"one", headers={"CC": ["copies.other"]})
    broker.reject("copies")
    assert len(broker.take("copies.other")) == 1
    gateway(sources(rabbitmq={"a": {"url": broker.url, "queue": "copies.dead"}}))
    wait_for(lambda: bodies(database))

    redrive("dlq", "redrive", "--all", "--yes", "--why", "a test")

    wait_for(lambda: broker.waiting("copies") == 1)
    assert broker.waiting("copies.other") == 0


@pytest.mark.parametrize(
    "rest",
    [
        ":99999/",
        ":port/",
        "/?heartbeat=often",
        "/?ssl_options={'password': 's3cret'",
        "/?ssl_options={'password': 's3cret'}",
        "/?ssl_options=5",
    ],
)
def test_a_url_that_does_not_parse_is_refused_without_its_password(rest: str) -> None:
    source = RabbitMQ(url=f"amqps://ada:s3cret@localhost{rest}", queue="orders.dead")
    with pytest.raises(SettingsError) as raised:
        Queue(source)

    assert str(raised.value).startswith("url: does not parse; write amqp://user")
    assert raised.value.__suppress_context__  # its traceback would quote the options
