"""The shop around the jobs: its tables, the order file it is sent, and whether the books are right."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from importlib.resources import files
from typing import Any, LiteralString

import psycopg

from redrive.enqueue import Enqueued, enqueue_reporting

Connection = psycopg.Connection[Any]

SCHEMA: LiteralString = """
create schema if not exists shop;
create table if not exists shop.ledger (
    order_no  text primary key,
    placed_on date not null,
    customer  text not null,
    amount    numeric(12, 2) not null check (amount > 0),
    currency  text not null,
    booked_at timestamptz not null default clock_timestamp()
);
create schema if not exists demo;
create table if not exists demo.switches (name text primary key, wanted text not null, actual text not null);
"""


@dataclass(frozen=True, slots=True)
class Account:
    """The books in one currency beside what the bank says."""

    currency: str
    booked: int
    amount: Decimal
    expected: int
    expected_amount: Decimal

    @property
    def agrees(self) -> bool:
        """Whether the two are the same."""
        return (self.booked, self.amount) == (self.expected, self.expected_amount)


def orders() -> list[dict[str, str]]:
    """The lines of the order file as they came: a byte order mark, odd spaces, commas and all."""
    text = (files("redrive.demo") / "orders.csv").read_bytes().decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def place(conn: Connection, order: dict[str, str]) -> Enqueued:
    """Enqueue a line of the order file. Its number is the key, so a line that comes twice is one
    job.
    """
    key = f"order-{order['order'].strip()}"
    report: Enqueued = enqueue_reporting(
        conn, "payment.book", order, queue="payments", idempotency_key=key
    )
    return report


def accounts(conn: Connection) -> Iterator[Account]:
    """The ledger by currency, beside the control totals that the bank sent with the file."""
    rows = conn.execute(
        "select currency, count(*), sum(amount) from shop.ledger group by currency"
    ).fetchall()
    booked = {currency: (count, amount) for currency, count, amount in rows}
    totals = (files("redrive.demo") / "control_totals.csv").read_text()
    for line in csv.DictReader(io.StringIO(totals)):
        count, amount = booked.get(line["currency"], (0, Decimal("0.00")))
        yield Account(
            line["currency"], count, amount, int(line["payments"]), Decimal(line["amount"])
        )


def switch(conn: Connection, name: str) -> tuple[str, str] | None:
    """What a switch of the stage should be and is; None where no demo runs."""
    found = conn.execute("select to_regclass('demo.switches') is not null").fetchone()
    if not (found and found[0]):
        return None
    return conn.execute(
        "select wanted, actual from demo.switches where name = %s", (name,)
    ).fetchone()


def turn(conn: Connection, name: str, wanted: str) -> None:
    """Ask the stage to turn a switch."""
    conn.execute("update demo.switches set wanted = %s where name = %s", (wanted, name))


def turned(conn: Connection, name: str, actual: str) -> None:
    """Note that a switch is turned."""
    conn.execute(
        "insert into demo.switches values (%s, %s, %s) on conflict (name) do update set actual = excluded.actual",
        (name, actual, actual),
    )


def is_placed(conn: Connection) -> bool:
    """Whether orders have arrived here before."""
    return bool(
        conn.execute(
            "select from redrive.jobs union all select from redrive.completions limit 1"
        ).fetchall()
    )


def is_busy(conn: Connection) -> bool:
    """Whether any job is left that has not ended."""
    return bool(conn.execute("select from redrive.jobs limit 1").fetchall())


def is_held_up(conn: Connection) -> bool:
    """Whether nothing is left but receipts behind an open breaker."""
    row = conn.execute(
        "select (select state from redrive.breakers where name = 'smtp') in ('open', 'half_open')"
        " and not exists (select from redrive.jobs where kind <> 'receipt.deliver')"
    ).fetchone()
    return bool(row and row[0])


def waiting(conn: Connection) -> int:
    """How many receipts are not out yet."""
    row = conn.execute(
        "select count(*) from redrive.jobs where kind = 'receipt.deliver'"
    ).fetchone()
    return row[0] if row else 0


def dead(conn: Connection, kind: str, *error_classes: str) -> list[int]:
    """Ids of the open dead letters of a kind that died of one of these exceptions, named without
    their modules.
    """
    rows = conn.execute(
        "select id from redrive.dead_letters where state = 'open' and kind = %s"
        " and regexp_replace(error_class, '^.*[.]', '') = any (%s) order by id",
        (kind, list(error_classes)),
    )
    return [job for (job,) in rows]


def causes(conn: Connection) -> tuple[int, int]:
    """How many causes the open dead letters have, and how many those are."""
    row = conn.execute(
        "select count(distinct fingerprint), count(*) from redrive.dead_letters where state = 'open'"
    ).fetchone()
    return row or (0, 0)
