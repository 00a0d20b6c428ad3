"""Dead letters of a real RabbitMQ become dead letters here."""

import base64
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, LiteralString

import pytest

from redrive.database.connections.address import Address
from redrive.database.embedded import free_port
from redrive.extras.gateway import intake
from redrive.extras.gateway.file import RabbitMQ
from tests.cli.conftest import Redrive
from tests.flow.harness import wait_for
from tests.gateway.broker import Broker
from tests.gateway.conftest import Gateway
from tests.postgres import Database

Sources = Callable[..., Path]
WHY = ("--yes", "--why", "the rates are there")
ALL = """
    select id, kind, queue, state, reason, category, error_class, message, attempts, payload,
           headers from redrive.dead_letters order by id"""


@pytest.fixture
def file(sources: Sources, broker: Broker, queue: str) -> Path:
    """A file of one source, `orders`."""
    return sources(rabbitmq={"orders": {"url": broker.url, "queue": f"{queue}.dead"}})


def open_letters(database: Database) -> list[dict[str, Any]]:
    names = [
        "id",
        "kind",
        "queue",
        "state",
        "reason",
        "category",
        "error_class",
        "message",
        "attempts",
        "payload",
        "headers",
    ]
    return [dict(zip(names, row, strict=True)) for row in database.rows(ALL)]


def test_a_message_becomes_a_dead_letter_and_is_acknowledged(
    broker: Broker, queue: str, file: Path, gateway: Gateway, database: Database
) -> None:
    body = {"order": 17, "currency": "XAU"}
    broker.die(
        queue,
        json.dumps(body).encode(),
        content_type="application/json",
        message_id="m-17",
        headers={"tenant": "shop", "tries": 3, "raw": b"\x00\xff"},
    )
    running = gateway(file).wait_ready()
    [letter] = wait_for(lambda: open_letters(database))
    assert letter["kind"] == "rabbitmq.orders"
    assert letter["queue"] == "gateway"
    assert letter["payload"] == body
    assert letter["reason"] == "attempts_exhausted"
    assert letter["message"] == f"rejected in the queue {queue}"
    kept = letter["headers"]["gateway"]
    assert kept["headers"] == {
        "tenant": "shop",
        "tries": 3,
        "raw": {"$bytes": base64.b64encode(b"\x00\xff").decode()},
    }
    assert kept["origin"]["queue"] == queue
    assert kept["origin"]["properties"]["message_id"] == "m-17"
    wait_for(lambda: running.metric("redrive_gateway_taken_total") == 1)
    assert running.stop()[0] == 0
    assert broker.waiting(f"{queue}.dead") == 0


def test_nothing_waits_as_soon_as_all_messages_are_taken(
    broker: Broker, queue: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metric said 40 for seconds after all 40 were taken."""
    monkeypatch.setattr(intake, "LOOK_SECONDS", 3600.0)
    broker.die(queue, *(b"%d" % n for n in range(40)))
    source = RabbitMQ(url=broker.url, queue=f"{queue}.dead")
    stop = threading.Event()
    taking = intake.Intake(
        "rabbitmq.orders", source, Address(database.url), "a test", stop
    )
    taking.start()
    try:
        wait_for(lambda: taking.counts["taken"] == 40)
        wait_for(lambda: taking.state.waiting == 0)
    finally:
        stop.set()
        taking.join(60)


def test_nobody_knows_how_many_wait_where_the_source_does_not_answer(
    broker: Broker, queue: str, database: Database
) -> None:
    """The metric went on to say 0 after the broker had died."""
    broker.die(queue)
    source = RabbitMQ(url=broker.url, queue=f"{queue}.dead")
    stop = threading.Event()
    taking = intake.Intake(
        "rabbitmq.orders", source, Address(database.url), "a test", stop
    )
    taking.start()
    try:
        wait_for(lambda: taking.state.waiting == 0)
        with broker.channel() as channel:
            channel.queue_delete(f"{queue}.dead")
        wait_for(lambda: taking.state.waiting is None)
    finally:
        stop.set()
        taking.join(60)


def test_bodies_of_all_forms_are_kept(
    broker: Broker, queue: str, file: Path, gateway: Gateway, database: Database
) -> None:
    bodies = [
        b'{"a": 1}',
        b"[1, 2]",
        b"not json",
        b"\xff\x00binary",
        b'{"nul": "\\u0000"}',
        b"",
        b"[" * 500,
    ]
    broker.die(queue, *bodies)
    gateway(file)
    found = wait_for(
        lambda: len(found := open_letters(database)) == len(bodies) and found
    )
    forms = {
        (letter["headers"]["gateway"]["form"], json.dumps(letter["payload"]))
        for letter in found
    }
    assert forms == {
        ("object", '{"a": 1}'),
        ("value", '{"body": [1, 2]}'),
        ("text", '{"body": "not json"}'),
        ("base64", json.dumps({"body": base64.b64encode(bodies[3]).decode()})),
        ("base64", json.dumps({"body": base64.b64encode(bodies[4]).decode()})),
        ("text", '{"body": ""}'),
        ("text", json.dumps({"body": "[" * 500})),
    }


def test_a_message_that_is_too_large_stays(
    broker: Broker, queue: str, file: Path, gateway: Gateway, database: Database
) -> None:
    broker.die(queue, b"x" * 300_000, b"{}")
    running = gateway(file).wait_ready()
    wait_for(lambda: open_letters(database))
    wait_for(lambda: running.metric("redrive_gateway_refused_total") == 1)
    running.stop()
    assert len(open_letters(database)) == 1
    [(_, body)] = broker.take(f"{queue}.dead")
    assert len(body) == 300_000


def test_headers_that_are_too_large_are_kept_in_the_payload(
    broker: Broker, queue: str, file: Path, gateway: Gateway, database: Database
) -> None:
    broker.die(queue, b'{"a": 1}', headers={"long": "x" * 20_000})
    gateway(file)
    [letter] = wait_for(lambda: open_letters(database))
    assert letter["payload"] == {"body": {"a": 1}, "headers": {"long": "x" * 20_000}}


REFUSE: tuple[LiteralString, ...] = (
    # Neither the text nor its base64, but the form with all in base64.
    """alter table redrive.dead_letters add check (
        payload ->> 'body' not in ('odd', 'b2Rk') or headers #>> '{gateway,form}' = 'bytes')""",
    "alter table redrive.dead_letters add check (payload ->> 'body' not in ('bad', 'YmFk'))",
)


def test_messages_that_the_database_refuses_stop_no_other(
    broker: Broker,
    queue: str,
    file: Path,
    gateway: Gateway,
    redrive: Redrive,
    database: Database,
) -> None:
    for constraint in REFUSE:
        database.conn.execute(constraint)
    bodies = (b"good", b"bad", b"odd", b"good, too")
    broker.die(queue, *bodies, headers={"of": "shop"})
    running = gateway(file)
    wait_for(lambda: len(open_letters(database)) == 3)
    wait_for(lambda: running.metric("redrive_gateway_refused_total") == 1)
    forms = {
        letter["payload"]["body"]: letter["headers"]["gateway"]["form"]
        for letter in open_letters(database)
    }
    assert forms == {"good": "text", "b2Rk": "bytes", "good, too": "text"}
    [refused] = [e for e in running.events() if "cannot be stored" in e["event"]]
    assert refused["sqlstate"] == "23514"
    redrive("dlq", "redrive", "--where", "headers.gateway.form=bytes", *WHY)
    [(properties, body)] = wait_for(
        lambda: broker.waiting(queue) and broker.take(queue)
    )
    assert (body, properties.headers["of"]) == (b"odd", "shop")
    running.stop()
    assert [body for _, body in broker.take(f"{queue}.dead")] == [b"bad"]


def test_headers_that_postgres_writes_with_more_bytes_go_to_the_payload(
    broker: Broker, queue: str, file: Path, gateway: Gateway, database: Database
) -> None:
    headers = {f"h{n:03}": n for n in range(640)}
    assert len(json.dumps(headers, separators=(",", ":"))) < 8_000
    assert len(json.dumps(headers)) > 8_192
    broker.die(queue, b"many", headers=headers)
    broker.die(queue, b"few")
    gateway(file)
    wait_for(lambda: len(open_letters(database)) == 2)
    found = {letter["payload"]["body"]: letter for letter in open_letters(database)}
    assert found["many"]["payload"]["headers"] == headers


def test_headers_that_nobody_expects_stop_nothing(
    broker: Broker, queue: str, file: Path, gateway: Gateway, database: Database
) -> None:
    odd = [
        {"nul": "a\0b"},
        {"x-death": "no list"},
        {"x-death": [{"count": "many", "reason": 7, "routing-keys": 3, "time": "now"}]},
        {"redrive-job": "1.1.x." + "0" * 32},
    ]
    for n, headers in enumerate(odd):
        broker.publish(f"{queue}.dead", b"%d" % n, headers=headers, message_id="a\0b")
    gateway(file)
    wait_for(lambda: len(open_letters(database)) == len(odd))


def test_the_error_of_a_framework_makes_the_group(
    broker: Broker, queue: str, file: Path, gateway: Gateway, database: Database
) -> None:
    stack = (
        "com.shop.NoRate: no rate for XAU\n"
        "\tat com.shop.Orders.charge(Orders.java:17)\n"
    )
    broker.publish(
        f"{queue}.dead",
        b"{}",
        headers={
            "x-exception-message": "no rate for XAU",
            "x-exception-stacktrace": stack,
        },
    )
    gateway(file)
    [letter] = wait_for(lambda: open_letters(database))
    assert letter["error_class"] == "com.shop.NoRate"
    assert letter["message"] == "no rate for XAU"
    assert "headers" in letter["headers"]["gateway"]


def test_a_dry_run_changes_nothing(
    broker: Broker, queue: str, file: Path, redrive: Redrive, database: Database
) -> None:
    broker.die(queue, b'{"n": 0}', b'{"n": 1}', b'{"n": 2}', b"x" * 300_000)
    ran = redrive("gateway", "--sources", str(file), "--dry-run")
    assert ran.code == 0, ran.err
    assert "the first 3 messages" in ran.out
    assert "rabbitmq.rejected" in ran.out
    assert "1 message too large" in ran.out
    assert "nothing was changed" in ran.out
    assert open_letters(database) == []
    wait_for(lambda: broker.waiting(f"{queue}.dead") == 4)


def test_equal_messages_are_all_taken_in(
    broker: Broker, queue: str, file: Path, gateway: Gateway, database: Database
) -> None:
    broker.die(queue, *[b'{"same": true}'] * 5)
    running = gateway(file)
    wait_for(lambda: len(open_letters(database)) == 5)
    assert running.metric("redrive_gateway_possible_duplicates_total") == 0


def test_check_says_what_waits_and_what_is_wrong(
    broker: Broker, queue: str, sources: Sources, redrive: Redrive
) -> None:
    good = {"url": broker.url, "queue": f"{queue}.dead"}
    ran = redrive("gateway", "check", "--sources", str(sources(rabbitmq={"a": good})))
    assert (ran.code, ran.out) == (0, "database: ok\nrabbitmq.a: 0 messages waiting\n")
    bad = good | {"queue": "nowhere"}
    ran = redrive("gateway", "check", "--sources", str(sources(rabbitmq={"a": bad})))
    assert ran.code == 1
    assert "NOT_FOUND" in ran.out


def test_check_and_dry_run_name_a_broker_that_is_away(
    sources: Sources, redrive: Redrive
) -> None:
    away = {"url": f"amqp://127.0.0.1:{free_port()}", "queue": "orders.dead"}
    file = str(sources(rabbitmq={"a": away}))
    for command in (("gateway", "check"), ("gateway", "--dry-run")):
        ran = redrive(*command, "--sources", file)
        address = away["url"].removeprefix("amqp://")
        fault = f"the broker at {address} cannot be reached"
        assert (ran.code, f"rabbitmq.a: ConnectionError: {fault}" in ran.out) == (
            1,
            True,
        )


@pytest.mark.parametrize(
    ("systems", "fault"),
    [
        ({}, "it names no source"),
        ({"rabbitmq": {"a": {"url": "amqp://h"}}}, "rabbitmq.a.queue: Field required"),
        ({"rabbitmq": {"a": {"queue": "q"}}}, "url: give it or url_file"),
        (
            {"rabbitmq": {"a": {"queue": "q", "url": "amqp://u:secret@h"}}},
            "url: holds a password",
        ),
        (
            {"rabbitmq": {"a b": {"queue": "q", "url": "amqp://h"}}},
            "rabbitmq.a b.name: must match",
        ),
        ({"kafka": {}}, "kafka: Extra inputs are not permitted"),
    ],
)
def test_a_wrong_file_is_refused_by_field(
    systems: dict[str, Any], fault: str, sources: Sources, redrive: Redrive
) -> None:
    ran = redrive("gateway", "--sources", str(sources(**systems)))
    assert ran.code == 64
    assert fault in ran.err
    assert "secret" not in ran.err


def test_a_gateway_whose_port_is_taken_says_so(
    sources: Sources, redrive: Redrive
) -> None:
    """Its intakes have not begun, so it does not wait for their end."""
    file = str(sources(rabbitmq={"a": {"queue": "q", "url": "amqp://h"}}))
    with socket.create_server(("", 0)) as taken:
        port = str(taken.getsockname()[1])
        ran = redrive("gateway", "--sources", file, REDRIVE_HTTP_PORT=port)

    assert ran.code == 64
    assert ran.err.startswith(f"redrive: REDRIVE_HTTP_PORT is {port}; it cannot be ")
