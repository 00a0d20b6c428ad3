"""Orders, their payments and their receipts."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Connection, Engine, select

from redrive.testing import (
    assert_enqueued,
    enqueued,
    run,
    run_enqueued,
    run_scheduled,
    slots,
)
from shop.jobs import Charge, Receipt, charge, jobs, send_receipt
from shop.tables import Order, Payment, sessions


def place(client: TestClient, amount: str, customer: str = "ada") -> int:
    """Place an order and return its number."""
    answer = client.post("/orders", json={"customer": customer, "amount": amount})
    assert answer.status_code == 201
    return answer.json()["id"]


def state(client: TestClient, order: int) -> str:
    """What the customer sees."""
    return client.get(f"/orders/{order}").json()["state"]


def test_an_order_is_charged_later(client: TestClient, conn: Connection) -> None:
    order = place(client, "49.90")

    job = assert_enqueued(conn, "payment.charge", {"order": order}, queue="payments")
    assert job["idempotency_key"] == f"order-{order}"
    assert state(client, order) == "placed"


def test_an_order_that_is_refused_leaves_no_job(
    client: TestClient, conn: Connection
) -> None:
    answer = client.post("/orders", json={"customer": "ada", "amount": "-1"})

    assert answer.status_code == 422
    assert enqueued(conn) == []


def test_an_order_is_paid_and_its_receipt_mailed(
    client: TestClient, conn: Connection, capfd: pytest.CaptureFixture[str]
) -> None:
    order = place(client, "49.90")

    ended = run_enqueued(jobs, conn)

    assert [outcome.outcome for outcome in ended.values()] == ["completed", "completed"]
    assert state(client, order) == "paid"
    assert f"mail to ada: order {order}, 49.90 paid" in capfd.readouterr().out


def test_payment_receipt_and_the_end_of_the_job_are_one_transaction(
    client: TestClient, conn: Connection
) -> None:
    order = place(client, "49.90")

    outcome = run(jobs, "payment.charge", {"order": order}, conn=conn)

    assert outcome.outcome == "completed"
    assert [what for what, _ in outcome.side_effects] == ["charged"]
    assert conn.scalars(select(Payment.order).where(Payment.order == order)).all() == [
        order
    ]
    receipt = assert_enqueued(conn, "receipt.send", {"order": order}, queue="mail")
    assert Receipt.model_validate(receipt["payload"]).amount == Decimal("49.90")


def test_a_payment_that_the_bank_declines_is_given_up_and_works_once_it_is_allowed(
    client: TestClient, conn: Connection
) -> None:
    order = place(client, "1500")

    first = run(jobs, "payment.charge", {"order": order}, conn=conn)
    client.put("/customers/ada/limit", json={"limit": "2000"})
    second = run(jobs, "payment.charge", {"order": order}, conn=conn)

    assert (first.outcome, first.reason) == ("dead", "gave_up")
    assert "over the limit of 1000" in first.message
    assert second.outcome == "completed"
    assert state(client, order) == "paid"


def test_a_receipt_is_mailed(capfd: pytest.CaptureFixture[str]) -> None:
    send_receipt(Receipt(order=1, customer="ada", amount=Decimal(5)))

    assert "mail to ada: order 1, 5 paid" in capfd.readouterr().out


def test_statements_come_on_the_first_of_the_month() -> None:
    first, second = slots(
        jobs, "monthly_statements", datetime(2026, 10, 15, tzinfo=UTC), 2
    )

    assert first == datetime(2026, 11, 1, 5, tzinfo=UTC)  # 06:00 in Berlin, in winter
    assert second == datetime(2026, 12, 1, 5, tzinfo=UTC)


def test_each_customer_who_paid_gets_one_statement(
    client: TestClient, conn: Connection, capfd: pytest.CaptureFixture[str]
) -> None:
    for customer, amount in (("ada", "5"), ("ada", "6"), ("bob", "7"), ("eve", "1500")):
        place(client, amount, customer)
    run_enqueued(jobs, conn)

    slot = datetime(2026, 11, 1, 5, tzinfo=UTC)
    assert (
        run_scheduled(jobs, "monthly_statements", slot, conn=conn).outcome
        == "completed"
    )

    told = {job["payload"]["customer"] for job in enqueued(conn, "statement.send")}
    assert told == {"ada", "bob"}
    run_enqueued(jobs, conn)
    said = capfd.readouterr().out
    assert "mail to ada: you have paid 11" in said
    assert "mail to bob: you have paid 7" in said


def work(url: str) -> str:
    """Let a worker run all that is there. Returns what the handlers printed."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "redrive",
            "worker",
            "--until-empty",
            "--http-port",
            "0",
        ],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ
        | {
            "REDRIVE_DATABASE_URL": url,
            "REDRIVE_HANDLERS": "shop.jobs:jobs",
            "SHOP_DATABASE_URL": url,
        },
        timeout=60,
    )
    return done.stdout


def test_a_worker_does_it_all(engine: Engine, url: str) -> None:
    """For once everything is real: committed, and run by a worker; the batch's last word, too."""
    sessions.configure(bind=engine)
    with sessions.begin() as session:
        order = Order(customer="ada", amount=Decimal(5))
        session.add(order)
        session.flush()
        number = order.id
        charge.enqueue(session, Charge(order=number))

    work(url)

    with sessions.begin() as session:
        assert session.get_one(Order, number).state == "paid"
        jobs.enqueue(session, "monthly_statements")
    assert "1 of 1 statements sent, 0 dead" in work(url)
