"""Handlers of this project's jobs. Run: redrive worker --handlers handlers:jobs."""

from pydantic import BaseModel

from redrive import Handlers, Job, Policy

jobs = Handlers()


class Order(BaseModel):
    """Payload of an order's job."""

    number: int
    amount: str
    currency: str


def cents(amount: str) -> int:
    """Read an amount: 49.90 is 4990 cents."""
    parts = amount.split(".")
    return 100 * int(parts[0]) + int(parts[1])


@jobs.handle("order.book", policy=Policy(max_attempts=5, timeout=30))
async def book(order: Order, job: Job) -> None:
    """Book an order. Another attempt has the same key, so a service can recognise it."""
    amount = cents(order.amount)
    print(f"order {order.number}: {amount} cents, {order.currency}, key {job.key}")
