"""The shop's API. It is served by: uvicorn --factory shop.api:create."""

from decimal import Decimal
from typing import Annotated

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, ConfigDict, Field

from shop.jobs import Charge, charge
from shop.tables import Account, Order, begin, make_tables

api = FastAPI(title="shop")

Money = Annotated[Decimal, Field(gt=0, max_digits=12, decimal_places=2)]


class NewOrder(BaseModel):
    """What a customer sends."""

    customer: Annotated[str, Field(min_length=1, max_length=100)]
    amount: Money


class ShownOrder(NewOrder):
    """What a customer sees."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    state: str


class Limit(BaseModel):
    """What the bank lets a customer spend at once."""

    limit: Money


def create() -> FastAPI:
    """Return the API; its tables are there."""
    make_tables()
    return api


@api.post("/orders", status_code=201)
def place(wanted: NewOrder) -> ShownOrder:
    """Place an order. Order and job are there once this has committed, or neither is."""
    with begin() as session:
        order = Order(customer=wanted.customer, amount=wanted.amount)
        session.add(order)
        session.flush()  # gives it an id
        charge.enqueue(
            session, Charge(order=order.id), idempotency_key=f"order-{order.id}"
        )
        return ShownOrder.model_validate(order)


@api.get("/orders/{number}")
def show(number: int) -> ShownOrder:
    """Show an order."""
    with begin() as session:
        order = session.get(Order, number)
        if order is None:
            raise HTTPException(404, "there is no such order")
        return ShownOrder.model_validate(order)


@api.put("/customers/{customer}/limit")
def set_limit(customer: str, wanted: Limit) -> Limit:
    """Let the bank allow a customer more, or less."""
    with begin() as session:
        session.merge(Account(customer=customer, limit=wanted.limit))
    return wanted
