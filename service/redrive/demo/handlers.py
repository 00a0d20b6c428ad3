"""The background jobs of a small shop: book each payment once, then mail its receipt.

This is the file to copy from. Run them with: redrive worker --handlers redrive.demo.handlers:jobs
"""

import os
import re
import smtplib
from datetime import date
from decimal import Decimal
from email.message import EmailMessage
from typing import Annotated

import psycopg
from pydantic import BaseModel, Field, SecretStr, StringConstraints

from redrive import GiveUp, Handlers, Heal, Job, Policy, enqueue

jobs = Handlers()
mails = Handlers()

CURRENCIES = frozenset({"EUR", "GBP", "USD"})

# the default cooldown of 5 s is long for somebody who watches
mails.breaker("smtp", threshold=3, cooldown=0.5)

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Currency = Annotated[
    str, StringConstraints(strip_whitespace=True, pattern=r"^[A-Za-z]{3}$", to_upper=True)
]
Address = Annotated[str, StringConstraints(strip_whitespace=True, pattern=r"^[^@\s]+@[^@\s]+$")]


class Payment(BaseModel):
    """A line of the order file; one that does not fit is dead at once, for no retry can help."""

    order: Text
    placed_on: date
    customer: Text
    # checked with the receipt: a bad address must not keep money out of the books
    email: str
    amount: Text
    currency: Currency
    card_token: SecretStr  # kept out of failures, logs and screens


class Receipt(BaseModel):
    """Receipt for the customer."""

    order: Text
    to: Address
    customer: Text
    amount: Decimal = Field(gt=0)
    currency: Currency


@jobs.handle("payment.book", policy=Policy(max_attempts=5, timeout=10), heal=Heal())
def book(payment: Payment, job: Job) -> None:
    """Book a payment."""
    record(payment, read_amount(payment.amount), job)


def read_amount(text: str) -> Decimal:
    """Read 1249.50, 1,249.50, 1249,50 and 1.249,50: the last separator is the decimal one."""
    found = re.fullmatch(r"(\d{1,3}(?:[.,]?\d{3})*)[.,](\d{2})", text)
    if found is None:
        msg = "the amount is written in a way we do not know"
        raise GiveUp(msg)
    return Decimal(f"{re.sub('[.,]', '', found[1])}.{found[2]}")


def record(payment: Payment, amount: Decimal, job: Job) -> None:
    """Write the ledger, enqueue the receipt and complete the job: all of it happens, or nothing."""
    if payment.currency not in CURRENCIES:
        msg = f"we have no account in {payment.currency}"
        raise GiveUp(msg)
    # where there are thousands a second, take it from a pool
    with psycopg.connect(os.environ["SHOP_DATABASE_URL"]) as conn:
        conn.execute(
            "insert into shop.ledger (order_no, placed_on, customer, amount, currency)"
            " values (%s, %s, %s, %s, %s)",
            (payment.order, payment.placed_on, payment.customer, amount, payment.currency),
        )
        receipt = {
            "order": payment.order,
            "to": payment.email,
            "customer": payment.customer,
            "amount": str(amount),
            "currency": payment.currency,
        }
        enqueue(
            conn,
            "receipt.deliver",
            receipt,
            queue="mail",
            idempotency_key=f"receipt-{payment.order}",
        )
        job.complete(conn)


@mails.handle("receipt.deliver", depends_on=["smtp"], policy=Policy(max_attempts=12, timeout=10))
def deliver(receipt: Receipt, job: Job) -> None:
    """Mail a receipt, at least once: all attempts have one Message-ID, so a copy can be dropped.

    While the mail server is down, receipts wait for it without using up their attempts.
    """
    host, _, port = os.environ["SHOP_SMTP"].rpartition(":")
    with smtplib.SMTP(host, int(port), local_hostname="shop.example", timeout=5) as server:
        server.send_message(as_mail(receipt, job.key))


def as_mail(receipt: Receipt, key: str) -> EmailMessage:
    """Write the mail of a receipt; `key` makes its Message-ID."""
    mail = EmailMessage()
    mail["Message-ID"] = f"<{key}@shop.example>"
    mail["From"] = "receipts@shop.example"
    mail["To"] = receipt.to
    mail["Subject"] = f"Your order {receipt.order}"
    mail.set_content(
        f"Dear {receipt.customer},\n\nwe received {receipt.amount} {receipt.currency}. Thank you.\n"
    )
    return mail


jobs.include(mails)
