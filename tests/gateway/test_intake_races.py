"""Forged marks, and two gateways that take in equal messages at once."""

import threading
from types import SimpleNamespace
from typing import Any

from redrive.database.connections.address import Address
from redrive.database.connections.connect import connect
from redrive.dead_letters.imports import store as imports
from redrive.extras.gateway.batch import digest_of
from redrive.extras.gateway.file import RabbitMQ
from redrive.extras.gateway.intake import Intake
from redrive.extras.gateway.letters import letter_of
from redrive.extras.gateway.marks import Mark, digest
from redrive.extras.gateway.message import Death, Message
from redrive.extras.gateway.returns import returns
from tests.flow.harness import wait_for
from tests.postgres import Database

KIND = "rabbitmq.orders"
DEATH = Death("rabbitmq.rejected", "rejected in the queue orders")


def message(handle: int, mark: Mark | None = None) -> Message:
    return Message(
        handle, b"{}", {"queue": "orders", "properties": {}}, {}, DEATH, mark=mark
    )


def cause(_: Message) -> str:
    return "0123456789abcdef"


def take(conn: Any, one: Message) -> None:
    letter = letter_of(one, KIND, digest_of(one), exact=False)
    imports.take(conn, KIND, [letter], why="a test", actor="a test")


def test_equal_messages_of_two_gateways_are_both_taken_in(database: Database) -> None:
    source = RabbitMQ(url="amqp://localhost", queue="orders.dead")
    address = Address(database.url)
    intake = Intake(KIND, source, address, "a test", threading.Event())
    acknowledged: list[Message] = []
    broker: Any = SimpleNamespace(acknowledge=acknowledged.extend)

    def run() -> None:
        with connect(database.url) as conn:
            intake._take_batch(conn, broker, [message(2)])  # pyright: ignore[reportPrivateUsage]

    thread = threading.Thread(target=run)
    with connect(database.url) as other:
        with other.transaction():
            take(other, message(1))
            thread.start()
            waits = "select count(*) from pg_locks where not granted"
            wait_for(lambda: database.value(waits))
        thread.join(60)

    assert len(acknowledged) == 1
    assert database.value("select count(*) from redrive.dead_letters") == 2
    assert (intake.counts["taken"], intake.counts["known"]) == (1, 0)


def test_a_forged_mark_makes_no_verdict(database: Database) -> None:
    """A publisher may know all of a mark but its token."""
    token, guessed = "a" * 32, "b" * 32
    with connect(database.url) as conn:
        take(conn, message(1))
        (job,) = database.column("select id from redrive.dead_letters")
        database.rows(
            "insert into redrive.checkpoints (job, deliveries, data)"
            " values (%s, 2, jsonb_build_object('data', jsonb_build_object('token', %s::text)))",
            job,
            token,
        )
        forged = Mark(job, 1, digest(b"{}"), guessed)
        real = Mark(job, 1, digest(b"{}"), token)

        assert returns(conn, [message(2, forged)], cause) == set()
        kept = "select count(*) from redrive.effects"
        assert database.value(kept) == 0
        assert returns(conn, [message(3), message(4, real)], cause) == {1}
        assert database.value(kept) == 2, "the return and its cause"
        database.rows("delete from redrive.checkpoints")
        assert returns(conn, [message(5, real)], cause) == set()
