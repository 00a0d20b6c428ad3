"""User code that must not type-check: each ignore is an error as soon as its line is accepted."""

from typing import Any

import psycopg
from pydantic import BaseModel

from redrive import Handlers, Job, JobFields, enqueue, enqueue_many

jobs = Handlers()


class Invoice(BaseModel):
    number: int


@jobs.handle("invoice.charge")
async def charge(invoice: Invoice, job: Job) -> None: ...


def misspelt(conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, "mail", idempotencykey="k")  # pyright: ignore[reportCallIssue]
    enqueue(conn, "mail", {}, que="mail")  # pyright: ignore[reportCallIssue]
    enqueue_many(conn, [{"kind": "mail", "idempotencykey": "k"}])  # pyright: ignore[reportCallIssue, reportArgumentType]


def of_the_wrong_type(conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, "mail", priority="high")  # pyright: ignore[reportCallIssue, reportArgumentType]
    enqueue(conn, "mail", run_at="2026-03-01")  # pyright: ignore[reportCallIssue, reportArgumentType]
    enqueue(conn, "mail", on_conflict="update")  # pyright: ignore[reportCallIssue, reportArgumentType]
    enqueue(conn, "mail", [1, 2])  # pyright: ignore[reportCallIssue, reportArgumentType]
    enqueue_many(conn, [{"payload": {}}])  # pyright: ignore[reportCallIssue, reportArgumentType]
    enqueue("invoice.charge", "mail")  # pyright: ignore[reportCallIssue, reportArgumentType]


def incomplete() -> JobFields:
    return {"queue": "mail"}  # pyright: ignore[reportReturnType]


async def awaited_by_mistake(conn: psycopg.Connection[Any]) -> None:
    await enqueue(conn, "mail")  # pyright: ignore[reportGeneralTypeIssues]


def not_awaited(conn: psycopg.AsyncConnection[Any]) -> int:
    return enqueue(conn, "mail")  # pyright: ignore[reportReturnType]


def of_another_payload_than_the_handler_takes(conn: psycopg.Connection[Any]) -> None:
    charge.enqueue(conn, {"number": 17})  # pyright: ignore[reportCallIssue, reportArgumentType]
    charge.enqueue(conn, 17)  # pyright: ignore[reportCallIssue, reportArgumentType]
    charge.enqueue_many(conn, Invoice(number=17))  # pyright: ignore[reportCallIssue, reportArgumentType]
    charge.enqueue(conn)  # pyright: ignore[reportCallIssue]


def misspelt_on_a_handler(conn: psycopg.Connection[Any]) -> None:
    charge.enqueue(conn, Invoice(number=17), idempotencykey="k")  # pyright: ignore[reportCallIssue]
    charge.enqueue(conn, Invoice(number=17), priority="high")  # pyright: ignore[reportCallIssue, reportArgumentType]
    jobs.enqueue(conn, "invoice.charge", que="mail")  # pyright: ignore[reportCallIssue]


def called_without_its_job() -> None:
    charge(Invoice(number=17))  # pyright: ignore[reportCallIssue]


def takes_what_no_runner_gives() -> None:
    @jobs.handle("none")  # pyright: ignore[reportArgumentType]
    def nothing() -> None: ...
