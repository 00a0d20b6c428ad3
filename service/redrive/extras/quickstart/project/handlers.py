"""The jobs of a small shop: book each payment once, then mail its receipt.

DATABASE_URL names the shop's database. SHOP_SMTP names its mail server, as HOST:PORT; without
one, receipts are printed.
"""

import os
import smtplib
from decimal import Decimal
from email.message import EmailMessage
from functools import cache
from typing import Annotated

import psycopg
from pydantic import BaseModel, Field, StringConstraints

from redrive import GiveUp, Handlers, Heal, Job, Policy, enqueue

jobs = Handlers()

# The usual cooldown of 5 s is too long for somebody who watches.
jobs.breaker("smtp", threshold=3, cooldown=0.5)

ACCOUNTS = {"EUR", "GBP", "USD"}
LEDGER = """
    create table if not exists ledger (
        order_no text primary key,
        customer text not null,
        amount numeric(12, 2) not null check (amount > 0),
        currency text not null
    )"""
BOOK = "insert into ledger values (%(order)s, %(customer)s, %(amount)s, %(currency)s)"

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Currency = Annotated[
    str,
    StringConstraints(strip_whitespace=True, pattern="^[A-Za-z]{3}$", to_upper=True),
]
Address = Annotated[
    str, StringConstraints(strip_whitespace=True, pattern=r"^[^@\s]+@[^@\s]+$")
]


class Payment(BaseModel):
    """Payment of an order. If it is invalid, its job dies at once: no retry can help."""

    order: Text
    customer: Text
    # Its receipt checks the address, so that a bad one does not block the payment.
    email: str
    amount: Text
    currency: Currency


class Receipt(BaseModel):
    """Receipt for the customer."""

    order: Text
    customer: Text
    email: Address
    amount: Decimal = Field(gt=0)
    currency: Currency


@cache
def database() -> str:
    """Return the address of the shop's database, where the ledger exists from now on."""
    url = os.environ["DATABASE_URL"]
    with psycopg.connect(url) as conn:
        # Several processes may start at once.
        conn.execute("select pg_advisory_xact_lock(1)")
        conn.execute(LEDGER)

    return url


def connect() -> psycopg.Connection:
    """Begin a transaction. With thousands of jobs per second, use a pool."""
    return psycopg.connect(database())


def read_amount(text: str) -> Decimal:
    """Read an amount, such as 49.90."""
    parts = text.split(".")
    return Decimal(f"{parts[0]}.{parts[1]}")


@jobs.handle(
    "payment.book",
    queue="payments",
    policy=Policy(max_attempts=5, timeout=10, backoff=2),
    heal=Heal(),
)
def book(payment: Payment, job: Job) -> None:
    """Write the ledger, enqueue the receipt and complete the job in one transaction."""
    amount = read_amount(payment.amount)
    if payment.currency not in ACCOUNTS:
        msg = f"we have no account in {payment.currency}"
        raise GiveUp(msg)

    paid = payment.model_dump() | {"amount": str(amount)}
    key = f"receipt-{payment.order}"
    with connect() as conn:
        conn.execute(BOOK, paid)
        enqueue(conn, "receipt.deliver", paid, queue="mail", idempotency_key=key)
        job.complete(conn)


@jobs.handle(
    "receipt.deliver",
    queue="mail",
    depends_on=["smtp"],
    policy=Policy(max_attempts=12, timeout=10, backoff=2),
)
def deliver(receipt: Receipt, job: Job) -> None:
    """Mail a receipt at least once. All attempts have one Message-ID, so copies are known.

    While the mail server is down, receipts wait without using up their attempts.
    """
    mail = EmailMessage()
    mail["Message-ID"] = f"<{job.key}@shop.example>"
    mail["From"] = "receipts@shop.example"
    mail["To"] = receipt.email
    mail["Subject"] = f"Order {receipt.order}: {receipt.amount} {receipt.currency} paid"
    mail.set_content(f"Dear {receipt.customer},\n\nthank you.\n")

    host, _, port = os.environ.get("SHOP_SMTP", "").rpartition(":")
    if not port:
        print(f"to {receipt.email}: {mail['Subject']}\n", end="")  # many threads print
        return

    with smtplib.SMTP(host, int(port), "shop.example", timeout=5) as server:
        server.send_message(mail)
