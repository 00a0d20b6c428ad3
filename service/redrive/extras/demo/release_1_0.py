"""Release 1.0 of the jobs; `redrive demo fix decimal-commas` repairs its bug."""

import re
from decimal import Decimal

from redrive import Handlers, Heal, Job, Policy
from redrive.extras.demo import handlers

jobs = Handlers()


@jobs.handle(
    "payment.book", policy=Policy(max_attempts=5, timeout=10, backoff=2), heal=Heal()
)
def book(payment: handlers.Payment, job: Job) -> None:
    """Book a payment."""
    handlers.record(payment, read_amount(payment.amount), job)


def read_amount(text: str) -> Decimal:
    """Read 1249.50. The bug: much of Europe writes 1249,50, which does not match."""
    whole, cents = re.fullmatch(r"(\d+)\.(\d\d)", text).groups()  # pyright: ignore[reportOptionalMemberAccess]
    return Decimal(f"{whole}.{cents}")


jobs.include(handlers.mails)
