"""User code that must not type-check: each ignore is an error as soon as its line is accepted."""

from typing import Any

import psycopg

from redrive import JobFields, enqueue, enqueue_many


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
