"""The shop's background jobs: take the money and mail the receipt; once a month, statements.

A worker runs them: redrive worker --handlers shop.jobs:jobs
"""

from decimal import Decimal

from pydantic import BaseModel
from sqlalchemy import func, select

from redrive import GiveUp, Handlers, Job, Policy, open_batch
from shop import bank
from shop.tables import Order, Payment, begin

jobs = Handlers()


class Charge(BaseModel):
    """Which order is to be paid."""

    order: int


class Receipt(BaseModel):
    """What the customer is told."""

    order: int
    customer: str
    amount: Decimal


class Statement(BaseModel):
    """Whom to tell what they have paid."""

    customer: str


@jobs.handle("receipt.send", queue="mail", policy=Policy(max_attempts=12, timeout=10))
def send_receipt(receipt: Receipt) -> None:
    """Mail a receipt."""
    print(
        f"mail to {receipt.customer}: order {receipt.order}, {receipt.amount} paid, thank you"
    )


@jobs.handle(
    "payment.charge",
    queue="payments",
    depends_on=["bank"],
    limits=["bank"],
    policy=Policy(max_attempts=5, timeout=10),
)
def charge(wanted: Charge, job: Job) -> None:
    """Take the money for an order, once.

    The payment, the order's new state, the job of the receipt and the end of this job commit
    together or not at all. Should the worker die in between, the bank is asked again with the same
    key, and knows it.
    """
    with begin() as session:
        order = session.get_one(Order, wanted.order)
        try:
            reference = bank.charge(session, order.customer, order.amount, job.key)
        except bank.Declined as declined:
            msg = f"the bank declined: {declined}"
            raise GiveUp(msg) from declined
        job.side_effect("charged", reference=reference)
        session.add(Payment(order=order.id, reference=reference))
        order.state = "paid"
        send_receipt.enqueue(
            session,
            Receipt(order=order.id, customer=order.customer, amount=order.amount),
        )
        job.complete(session)


@jobs.every("0 6 1 * *", tz="Europe/Berlin", queue="mail")
def monthly_statements(job: Job) -> None:
    """On the first of the month: a statement for each customer, and one job when all are out.

    The jobs of all customers and the end of this one commit together, so that nobody gets two.
    """
    with begin() as session:
        paid = select(Order.customer).where(Order.state == "paid").distinct()
        statements = [
            Statement(customer=customer) for customer in session.scalars(paid)
        ]
        with open_batch(
            session, on_end={"kind": "statements.sent", "queue": "mail"}
        ) as batch:
            send_statement.enqueue_many(session, statements, batch=batch)
        job.complete(session)


@jobs.handle("statement.send", queue="mail")
def send_statement(wanted: Statement) -> None:
    """Mail a customer what they have paid."""
    with begin() as session:
        paid = select(func.sum(Order.amount)).where(
            Order.customer == wanted.customer, Order.state == "paid"
        )
        print(f"mail to {wanted.customer}: you have paid {session.scalar(paid)} by now")


@jobs.handle("statements.sent", queue="mail")
def note_statements(_: dict[str, object], job: Job) -> None:
    """Say how many statements went out, and how many did not."""
    counts = job.headers["batch"]
    print(
        f"{counts['succeeded']} of {counts['total']} statements sent, {counts['dead']} dead"
    )
