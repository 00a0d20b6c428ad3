"""The background jobs of a small shop: book each payment once, then mail its receipt.

Copy from this file. Run the jobs with: redrive worker --handlers
redrive.extras.demo.handlers:jobs
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

# the default cooldown of 5 s is too long for viewers
mails.breaker("smtp", threshold=3, cooldown=0.5)

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Currency = Annotated[
    str,
    StringConstraints(strip_whitespace=True, pattern=r"^[A-Za-z]{3}$", to_upper=True),
]
Address = Annotated[
    str, StringConstraints(strip_whitespace=True, pattern=r"^[^@\s]+@[^@\s]+$")
]


class Payment(BaseModel):
    """Line of the order file; an invalid line is dead at once, as no retry can help."""

    order: Text
    placed_on: date
    customer: Text
    # The receipt checks it, so that a bad address does not block the payment.
    email: str
    amount: Text
    currency: Currency
    card_token: SecretStr  # hidden in failures, logs and screens


class Receipt(BaseModel):
    """Receipt for the customer."""

    order: Text
    to: Address
    customer: Text
    amount: Decimal = Field(gt=0)
    currency: Currency


@jobs.handle(
    "payment.book", policy=Policy(max_attempts=5, timeout=10, backoff=2), heal=Heal()
)
def book(payment: Payment, job: Job) -> None:
    """Book a payment."""
    record(payment, read_amount(payment.amount), job)


def read_amount(text: str) -> Decimal:
    """Read 1249.50, 1,249.50, 1249,50 and 1.249,50; the last separator is decimal."""
    found = re.fullmatch(r"(\d{1,3}(?:[.,]?\d{3})*)[.,](\d{2})", text)
    if found is None:
        msg = "the amount is written in a way we do not know"
        raise GiveUp(msg)
    return Decimal(f"{re.sub('[.,]', '', found[1])}.{found[2]}")


def record(payment: Payment, amount: Decimal, job: Job) -> None:
    """Write the ledger, enqueue the receipt and complete the job in one transaction."""
    if payment.currency not in CURRENCIES:
        msg = f"we have no account in {payment.currency}"
        raise GiveUp(msg)

    # with thousands of jobs per second, use a pool
    with psycopg.connect(os.environ["SHOP_DATABASE_URL"]) as conn:
        conn.execute(
            "insert into shop.ledger (order_no, placed_on, customer, amount, currency)"
            " values (%s, %s, %s, %s, %s)",
            (
                payment.order,
                payment.placed_on,
                payment.customer,
                amount,
                payment.currency,
            ),
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


@mails.handle(
    "receipt.deliver",
    depends_on=["smtp"],
    policy=Policy(max_attempts=12, timeout=10, backoff=2),
)
def deliver(receipt: Receipt, job: Job) -> None:
    """Mail a receipt at least once; all attempts have one Message-ID.

    The customer's mail program can drop the copies. While the mail server is down,
    receipts wait without using up their attempts.
    """
    host, _, port = os.environ["SHOP_SMTP"].rpartition(":")
    with smtplib.SMTP(
        host, int(port), local_hostname="shop.example", timeout=5
    ) as server:
        server.send_message(as_mail(receipt, job.key))


def as_mail(receipt: Receipt, key: str) -> EmailMessage:
    """Return the mail of a receipt; its Message-ID comes from `key`."""
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
