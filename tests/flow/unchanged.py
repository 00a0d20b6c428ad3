"""Handlers whose failures rest on more than one record tells; for `policy simulate`."""

from typing import Any

from pydantic import BaseModel

from redrive import Handlers, Policy
from redrive.rules.attempts.categories import Rule
from tests.flow.handlers import AT_ONCE

YEAR = 365 * 86_400

jobs = Handlers()


class Order(BaseModel):
    """A payload."""

    number: int


@jobs.handle("alike", policy=Policy(max_attempts=50, same_failure_limit=3, **AT_ONCE))
def alike(payload: dict[str, Any]) -> None:
    raise RuntimeError("the order is in an odd state")


@jobs.handle("typed", policy=Policy(rules=[Rule(message="number", then="retry")]))
def typed(payload: Order) -> None:
    print(payload)


@jobs.handle("expiring", policy=Policy(backoff=YEAR, backoff_cap=YEAR))
def expiring(payload: dict[str, Any]) -> None:
    raise ConnectionError("no answer")
