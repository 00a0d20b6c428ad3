"""Enqueueing through a handler: `charge.enqueue(conn, Invoice(...))`, `jobs.enqueue(...)`."""

import asyncio
import inspect
import pickle
import sys
from datetime import date
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from pydantic import BaseModel, Field, SecretBytes, SecretStr, field_validator
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from redrive import Handlers, InvalidJob, Job, enqueue
from tests.postgres import Database

jobs = Handlers()


class Line(BaseModel):
    sku: str
    count: int = Field(gt=0)


class Invoice(BaseModel):
    number: int = Field(alias="invoiceNo")
    due: date = date(2026, 3, 1)
    lines: list[Line] = []
    card: SecretStr = SecretStr("")


@jobs.handle("invoice.charge", queue="payments")
async def charge(invoice: Invoice, job: Job) -> int:
    """Charge it."""
    return invoice.number + job.attempt


@jobs.handle("mail.send", queue="mail", version=3, upgrade={1: dict, 2: dict})
def send(mail: dict[str, str]) -> str:
    return mail["to"]


@pytest.fixture
def stored(database: Database) -> Any:
    def all_of() -> list[tuple[Any, ...]]:
        return database.rows(
            "select kind, queue, payload, headers from redrive.jobs order by id"
        )

    return all_of


def test_a_job_goes_to_the_queue_of_its_handler(database: Database, stored: Any):
    charge.enqueue(database.conn, Invoice(invoiceNo=17))
    charge.enqueue(database.conn, Invoice(invoiceNo=17), queue="slow")
    jobs.enqueue(database.conn, "invoice.charge", {"invoiceNo": 18})
    send.enqueue_many(database.conn, [{"to": "a"}, {"to": "b"}])
    jobs.enqueue_many(
        database.conn,
        [
            {"kind": "invoice.charge", "payload": {"invoiceNo": 19}},
            {"kind": "mail.send", "queue": "slow", "ordering_key": "k"},
        ],
    )
    # who has only the name of a kind says where its jobs go
    enqueue(database.conn, "invoice.charge", {"invoiceNo": 20})

    assert [(kind, queue) for kind, queue, *_ in stored()] == [
        ("invoice.charge", "payments"),
        ("invoice.charge", "slow"),
        ("invoice.charge", "payments"),
        ("mail.send", "mail"),
        ("mail.send", "mail"),
        ("invoice.charge", "payments"),
        ("mail.send", "slow"),
        ("invoice.charge", "default"),
    ]


def test_what_is_stored_is_what_the_handler_reads(database: Database, stored: Any):
    """Aliases and secrets: pydantic leaves out the ones and writes asterisks for the others."""
    given = Invoice(
        invoiceNo=17, lines=[Line(sku="a", count=2)], card=SecretStr("tok_4242")
    )
    charge.enqueue(database.conn, given)

    ((_, _, payload, _),) = stored()
    assert payload == {
        "invoiceNo": 17,
        "due": "2026-03-01",
        "lines": [{"sku": "a", "count": 2}],
        "card": "tok_4242",
    }


def test_a_job_has_the_version_of_the_payload_that_its_handler_takes(
    database: Database, stored: Any
):
    send.enqueue(database.conn, {"to": "a"})
    send.enqueue(database.conn, {"to": "a"}, version=1)
    charge.enqueue(database.conn, Invoice(invoiceNo=1))

    assert [headers for *_, headers in stored()] == [{"version": 3}, {"version": 1}, {}]


def test_every_connection_takes_it(database: Database, stored: Any):
    of = conninfo_to_dict(database.url)
    url = f"postgresql://{of['user']}@{of['host']}:{of['port']}/{of['dbname']}"
    alchemy = url.replace("postgresql:", "postgresql+psycopg:")

    async def on_async_ones() -> None:
        by_asyncpg = await asyncpg.connect(url)
        await charge.enqueue(by_asyncpg, Invoice(invoiceNo=1))
        await by_asyncpg.close()
        async with await psycopg.AsyncConnection.connect(url) as conn:
            await send.enqueue_many(conn, [{"to": "a"}])
        engine = create_async_engine(alchemy)
        async with engine.begin() as conn:
            await charge.enqueue(conn, Invoice(invoiceNo=2))
        await engine.dispose()

    asyncio.run(on_async_ones())
    engine = create_engine(alchemy)
    with Session(engine) as session, session.begin():
        charge.enqueue(session, Invoice(invoiceNo=3))
    engine.dispose()

    assert [queue for _, queue, *_ in stored()] == [
        "payments",
        "mail",
        "payments",
        "payments",
    ]


@pytest.mark.parametrize(
    ("payload", "fault"),
    [
        ({"invoiceNo": "x"}, "payload.invoiceNo: Input should be a valid integer"),
        ({}, "payload.invoiceNo: Field required"),
        (
            {"invoiceNo": 1, "lines": [{"sku": "a", "count": 0}]},
            r"payload.lines\[0\].count: Input should be greater than 0",
        ),
        (None, "payload.invoiceNo: Field required"),
        ([1], "payload: must be an object, not list"),
        (
            Invoice.model_construct(number="x"),
            "payload.invoiceNo: Input should be a valid integer",
        ),
    ],
)
def test_a_payload_that_the_handler_could_not_read_is_refused_before_anything_is_sent(
    database: Database, stored: Any, payload: Any, fault: str
):
    with pytest.raises(InvalidJob, match=f"^{fault}"):
        charge.enqueue(database.conn, payload)
    with pytest.raises(InvalidJob, match=f"^{fault}"):
        jobs.enqueue(database.conn, "invoice.charge", payload)
    with pytest.raises(InvalidJob, match=r"^jobs\[1\]\." + fault):
        charge.enqueue_many(database.conn, [Invoice(invoiceNo=1), payload])

    assert stored() == []


def test_no_secret_of_a_payload_is_in_the_text_of_its_fault(database: Database):
    checked = Handlers()

    class Card(BaseModel):
        pin: SecretStr

        @field_validator("pin")
        @classmethod
        def _digits(cls, pin: SecretStr) -> SecretStr:
            msg = f"{pin.get_secret_value()} is no pin"
            raise ValueError(msg)

    @checked.handle("card.check")
    def check(card: Card) -> None: ...

    with pytest.raises(InvalidJob, match=r"^payload\.pin: Value error") as caught:
        check.enqueue(database.conn, {"pin": "hunter2-hunter2"})

    assert "hunter2" not in str(caught.value)


def test_a_newer_payload_than_this_code_knows_is_left_to_those_who_know_it(
    database: Database, stored: Any
):
    charge.enqueue(database.conn, {"number": "of version 2"}, version=2)  # type: ignore[arg-type]

    assert [payload for _, _, payload, _ in stored()] == [{"number": "of version 2"}]


def test_a_misspelt_option_or_kind_is_named_with_what_was_meant(database: Database):
    meant = r"enqueue\(\) got an unknown option 'idempotencykey'; did you mean 'idempotency_key'\?"
    with pytest.raises(TypeError, match=meant):
        charge.enqueue(database.conn, Invoice(invoiceNo=1), idempotencykey="k")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=meant):
        jobs.enqueue(database.conn, "invoice.charge", {}, idempotencykey="k")  # type: ignore[call-arg]
    with pytest.raises(
        TypeError, match=r"enqueue_many\(\) got an unknown option 'que'"
    ):
        charge.enqueue_many(database.conn, [], que="a")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="the same idempotency_key; use"):
        charge.enqueue_many(database.conn, [], idempotency_key="k")
    with pytest.raises(
        LookupError, match=r"'invoice\.charg'; did you mean 'invoice\.charge'"
    ):
        jobs.enqueue(database.conn, "invoice.charg")
    with pytest.raises(InvalidJob, match=r"jobs\[0\]\.kind: is missing"):
        jobs.enqueue_many(database.conn, [{"payload": {}}])  # type: ignore[typeddict-item]


def test_a_decorated_function_is_still_the_function(database: Database):
    assert send({"to": "a"}) == "a"
    assert charge.__doc__ == "Charge it."
    assert charge.__name__ == "charge"
    assert list(inspect.signature(charge).parameters) == ["invoice", "job"]
    assert "invoice.charge" in repr(charge)
    assert inspect.iscoroutinefunction(charge) is (sys.version_info >= (3, 12))
    known = jobs.get("invoice.charge")
    assert known is not None
    assert inspect.iscoroutinefunction(known.function)


def test_a_decorated_function_can_be_pickled(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, send.__module__, sys.modules[__name__])

    assert pickle.loads(pickle.dumps(send)) is send


def test_one_function_may_have_two_kinds_and_be_a_hook(database: Database, stored: Any):
    twice = Handlers()
    again = twice.handle("mail.again", queue="again")(send)
    twice.handle("mail.other", on_expired=charge, on_cancelled=charge)(lambda _: None)
    again.enqueue(database.conn, {"to": "a"})
    send.enqueue(database.conn, {"to": "a"})

    known, other = twice.get("mail.again"), twice.get("mail.other")
    assert [(kind, queue) for kind, queue, *_ in stored()] == [
        ("mail.again", "again"),
        ("mail.send", "mail"),
    ]
    assert known is not None
    assert known.function is send.__wrapped__
    assert other is not None
    assert inspect.iscoroutinefunction(other.on_expired)
    assert inspect.iscoroutinefunction(other.on_cancelled)


def test_a_model_with_a_serializer_of_its_own_is_stored_as_that_says(
    database: Database, stored: Any
):
    kept = Handlers()

    class Secrets(BaseModel):
        keys: dict[str, SecretStr]
        raw: tuple[SecretBytes, ...]

    @kept.handle("secrets.keep")
    def keep(_: Secrets) -> None: ...

    keep.enqueue(
        database.conn, Secrets(keys={"a": SecretStr("one")}, raw=(SecretBytes(b"two"),))
    )

    assert stored()[0][2] == {"keys": {"a": "one"}, "raw": ["two"]}
