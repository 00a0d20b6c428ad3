"""An API that takes orders and confirms each in a background job, all of it async.

    uvicorn orders:api
    redrive worker --handlers orders:jobs

Both find the database by DATABASE_URL, the worker its jobs by REDRIVE_DATABASE_URL.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel

from redrive import Handlers

MOST = 1
"""Orders of a customer."""

jobs = Handlers()


class NewOrder(BaseModel):
    """What a customer sends."""

    customer: str


class Confirmation(BaseModel):
    """Which order is to be confirmed."""

    order: int


@jobs.handle("order.confirm", queue="mail")
async def confirm(wanted: Confirmation) -> None:
    """Tell the customer."""
    print(f"mail: we have your order {wanted.order}")


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    """Keep a pool of connections while the API runs."""
    async with AsyncConnectionPool(
        os.environ["DATABASE_URL"], open=False
    ) as api.state.pool:
        async with api.state.pool.connection() as conn:
            await conn.execute(
                "create table if not exists orders (id serial primary key, customer text)"
            )
        yield


api = FastAPI(lifespan=lifespan)


async def transaction() -> AsyncIterator[AsyncConnection[Any]]:
    """The transaction of a request. It commits before the answer is sent, unless that fails."""
    async with api.state.pool.connection() as conn:
        yield conn


Transaction = Annotated[AsyncConnection[Any], Depends(transaction, scope="function")]


@api.post("/orders", status_code=201)
async def place(wanted: NewOrder, conn: Transaction) -> dict[str, int]:
    """Place an order. Order and job are there once this has committed, or neither is."""
    placed = await conn.execute(
        "insert into orders (customer) values (%s) returning id,"
        " (select count(*) from orders where customer = %s)",
        (wanted.customer, wanted.customer),
    )
    order, before = await anext(placed)
    await confirm.enqueue(conn, Confirmation(order=order))
    if before == MOST:
        raise HTTPException(
            409, f"there are {MOST} orders of yours"
        )  # and no job of this one
    return {"id": order}
