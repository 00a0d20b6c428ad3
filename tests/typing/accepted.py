"""User code that must type-check: `make check` reads it, nothing runs it."""

from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Any, Unpack, assert_type

import asyncpg  # pyright: ignore[reportMissingTypeStubs] # it has none
import psycopg
from django.db.backends.base.base import BaseDatabaseWrapper
from pydantic import BaseModel
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session, scoped_session

from redrive import (
    Handlers,
    Job,
    JobFields,
    JobFunction,
    JobOptions,
    close_batch,
    enqueue,
    enqueue_many,
    idempotent,
    open_batch,
)
from redrive.enqueue import Enqueued, enqueue_reporting


class Invoice(BaseModel):
    number: int


def every_sync_connection_gives_a_value(
    by_psycopg: psycopg.Connection[Any],
    by_sqlalchemy: Connection,
    by_session: Session,
    by_scope: scoped_session[Session],
    by_django: BaseDatabaseWrapper,
) -> None:
    assert_type(enqueue(by_django, "invoice.charge"), int)
    assert_type(enqueue(by_psycopg, "invoice.charge"), int)
    assert_type(enqueue(by_sqlalchemy, "invoice.charge"), int)
    assert_type(enqueue(by_session, "invoice.charge"), int)
    assert_type(enqueue(by_scope, "invoice.charge"), int)
    assert_type(enqueue_many(by_psycopg, []), int)
    assert_type(enqueue_reporting(by_session, "invoice.charge"), Enqueued)
    assert_type(idempotent(by_session, "invoice-17"), bool)
    with open_batch(by_session, on_end={"kind": "report.send"}) as batch:
        enqueue(by_session, "page.render", batch=batch)
    assert_type(close_batch(by_psycopg, 1), bool)
    enqueue(
        by_psycopg,
        "mail",
        unique_for=60,
        unique_by=["to"],
        on_conflict="replace",
        delay=5,
    )


async def every_async_connection_gives_an_awaitable(
    by_psycopg: psycopg.AsyncConnection[Any],
    by_sqlalchemy: AsyncConnection,
    by_session: AsyncSession,
    by_asyncpg: asyncpg.Connection,
    of_a_pool: asyncpg.pool.PoolConnectionProxy,
) -> None:
    assert_type(enqueue(by_psycopg, "invoice.charge"), Awaitable[int])
    assert_type(enqueue(by_sqlalchemy, "invoice.charge"), Awaitable[int])
    assert_type(enqueue(by_session, "invoice.charge"), Awaitable[int])
    assert_type(await enqueue(by_asyncpg, "invoice.charge"), int)
    assert_type(await enqueue(of_a_pool, "invoice.charge"), int)
    assert_type(await enqueue_many(by_asyncpg, []), int)
    assert_type(await enqueue_reporting(by_session, "invoice.charge"), Enqueued)
    assert_type(await idempotent(by_psycopg, "invoice-17"), bool)
    async with open_batch(by_asyncpg) as batch:
        await enqueue(by_asyncpg, "page.render", batch=batch)
    assert_type(await close_batch(by_asyncpg, await open_batch(by_asyncpg)), bool)


def payloads_and_options(
    conn: psycopg.Connection[Any], order: dict[str, object]
) -> None:
    enqueue(conn, "invoice.charge", {"number": 17, "lines": [{"sku": "a"}]})
    enqueue(conn, "invoice.charge", Invoice(number=17))
    enqueue(
        conn, "invoice.charge", order, run_at=datetime.now(UTC), idempotency_key=None
    )
    enqueue(
        conn,
        "invoice.charge",
        expires_in=timedelta(hours=1),
        headers={"source": "shop"},
    )
    enqueue_many(conn, [{"kind": "invoice.charge", "payload": order, "priority": -5}])
    enqueue_many(
        conn, ({"kind": "mail", "payload": Invoice(number=n)} for n in range(3))
    )


def charge(
    conn: psycopg.Connection[Any], number: int, **options: Unpack[JobOptions]
) -> int:
    """An application's own function that hands the options on."""
    return enqueue(conn, "invoice.charge", {"number": number}, **options)


def collected(conn: psycopg.Connection[Any]) -> int:
    jobs: list[JobFields] = []
    jobs.append({"kind": "invoice.charge", "expires_in": 60})
    return enqueue_many(conn, jobs)


jobs = Handlers()


@jobs.handle("invoice.charge", queue="payments")
async def charge_it(invoice: Invoice, job: Job) -> int:
    return invoice.number + job.attempt


@jobs.handle("mail.send")
def send(mail: dict[str, str]) -> None: ...


async def a_decorated_function_keeps_its_signature(job: Job) -> None:
    assert_type(await charge_it(Invoice(number=1), job), int)
    assert_type(send({"to": "a"}), None)
    declared: JobFunction[dict[str, str], [], None] = send
    declared({"to": "b"})


async def a_handler_enqueues_what_it_takes(
    sync: Session, by_psycopg: psycopg.AsyncConnection[Any], by_session: AsyncSession
) -> None:
    invoice = Invoice(number=17)
    assert_type(
        charge_it.enqueue(sync, invoice, run_at=datetime.now(UTC), tenant="acme"), int
    )
    assert_type(charge_it.enqueue(by_psycopg, invoice), Awaitable[int])
    assert_type(await charge_it.enqueue_many(by_session, [invoice], priority=-5), int)
    assert_type(send.enqueue(sync, {"to": "a"}, idempotency_key="k"), int)
    assert_type(jobs.enqueue(sync, "invoice.charge", {"number": 17}), int)
    assert_type(await jobs.enqueue_many(by_session, [{"kind": "mail.send"}]), int)
