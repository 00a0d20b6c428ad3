"""The shop's background jobs: take the money, then mail the receipt.

A worker runs them: redrive worker --handlers shop.jobs:jobs
"""

from decimal import Decimal

from pydantic import BaseModel

from redrive import GiveUp, Handlers, Job, Policy
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


@jobs.handle("receipt.send", queue="mail", policy=Policy(max_attempts=12, timeout=10))
def send_receipt(receipt: Receipt) -> None:
    """Mail a receipt."""
    print(f"mail to {receipt.customer}: order {receipt.order}, {receipt.amount} paid, thank you")


@jobs.handle(
    "payment.charge",
    queue="payments",
    depends_on=["bank"],
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
            session, Receipt(order=order.id, customer=order.customer, amount=order.amount)
        )
        job.complete(session)
