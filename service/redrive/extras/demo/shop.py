"""The shop around the jobs: its releases, its order file, and the check of the books."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from importlib.resources import files
from typing import LiteralString, NamedTuple

from redrive.database.rows import Connection, first_record, records, value
from redrive.enqueue import Enqueued, enqueue_reporting

SCHEMA: LiteralString = """
create schema if not exists demo;
create table if not exists demo.switches (
    name text primary key,
    wanted text not null,
    actual text not null
);
"""

BUG = 'text.split(".")'
FIX = 'text.replace(",", ".").split(".")'


def handlers(release: str) -> str:
    """Return the text of handlers.py: the quickstart's is release 1.0, and 1.1 is mended."""
    project = files("redrive.extras.quickstart") / "project"
    text = (project / "handlers.py").read_text()
    return text if release == "1.0" else text.replace(BUG, FIX)


@dataclass(frozen=True, slots=True)
class Account:
    """Totals in one currency: the shop's books and the bank's."""

    currency: str
    booked: int
    amount: Decimal
    expected: int
    expected_amount: Decimal

    @property
    def agrees(self) -> bool:
        """Return True if both totals are equal."""
        return (self.booked, self.amount) == (self.expected, self.expected_amount)


@dataclass(frozen=True, slots=True)
class Status:
    """Status of the shop: its accounts, and its open jobs."""

    accounts: list[Account]
    dead: int
    causes: int
    waiting: int
    is_busy: bool

    @property
    def wrong(self) -> list[str]:
        """Return the currencies in which the books differ from the bank."""
        return [account.currency for account in self.accounts if not account.agrees]

    @property
    def is_well(self) -> bool:
        """Return True if the books are right and no job or dead letter is open."""
        return not (self.wrong or self.dead or self.is_busy)


class Switch(NamedTuple):
    """Switch of the stage: its wanted and its actual position."""

    wanted: str
    actual: str


class Dead(NamedTuple):
    """Open dead letter: its job, its group, and the amount that it would book."""

    job: int
    group: str
    amount: str | None


def orders() -> list[dict[str, str]]:
    """Return the lines of the order file unchanged, with all its faults of format.

    It has a byte order mark, odd spaces and decimal commas.
    """
    text = (
        (files("redrive.extras.demo") / "orders.csv").read_bytes().decode("utf-8-sig")
    )
    return list(csv.DictReader(io.StringIO(text, newline="")))


def place(conn: Connection, order: dict[str, str]) -> Enqueued:
    """Enqueue a line of the order file. Its number is the key: a copy adds no job."""
    key = f"order-{order['order'].strip()}"
    report: Enqueued = enqueue_reporting(
        conn, "payment.book", order, queue="payments", idempotency_key=key
    )
    return report


def status(conn: Connection) -> Status:
    """Read the status of the shop."""
    row = conn.execute(
        "select count(distinct fingerprint), count(*)"
        " from redrive.dead_letters where state = 'open'"
    ).fetchone()
    causes, dead = row or (0, 0)
    return Status(
        accounts=list(accounts(conn)),
        dead=dead,
        causes=causes,
        waiting=waiting(conn),
        is_busy=is_busy(conn),
    )


def accounts(conn: Connection) -> Iterator[Account]:
    """Return the ledger's totals by currency, beside the bank's control totals."""
    rows = conn.execute(
        "select currency, count(*), sum(amount) from public.ledger group by currency"
    )
    booked = {currency: (count, amount) for currency, count, amount in rows}
    totals = (files("redrive.extras.demo") / "control_totals.csv").read_text()

    nothing = (0, Decimal("0.00"))
    for line in csv.DictReader(io.StringIO(totals)):
        count, amount = booked.get(line["currency"], nothing)
        yield Account(
            currency=line["currency"],
            booked=count,
            amount=amount,
            expected=int(line["payments"]),
            expected_amount=Decimal(line["amount"]),
        )


def switch(conn: Connection, name: str) -> Switch | None:
    """Return the wanted and the actual position of a switch; None if no demo runs."""
    if not value(conn, "select to_regclass('demo.switches') is not null"):
        return None
    query = "select wanted, actual from demo.switches where name = %s"
    return first_record(conn, Switch, query, name)


def turn(conn: Connection, name: str, wanted: str) -> None:
    """Ask the stage to change a switch."""
    conn.execute("update demo.switches set wanted = %s where name = %s", (wanted, name))


def turned(conn: Connection, name: str, actual: str) -> None:
    """Record that a switch has changed."""
    conn.execute(
        "insert into demo.switches values (%s, %s, %s)"
        " on conflict (name) do update set actual = excluded.actual",
        (name, actual, actual),
    )


def is_busy(conn: Connection) -> bool:
    """Return True if any job has not ended."""
    return _exists(conn, "from redrive.jobs")


def is_held_up(conn: Connection) -> bool:
    """Return True if only receipts behind an open breaker are left."""
    is_open = _exists(
        conn,
        "from redrive.breakers where name = 'smtp' and state in ('open', 'half_open')",
    )
    return is_open and not _exists(
        conn, "from redrive.jobs where kind <> 'receipt.deliver'"
    )


def waiting(conn: Connection) -> int:
    """Count the receipts that have not been sent."""
    return int(
        value(conn, "select count(*) from redrive.jobs where kind = 'receipt.deliver'")
    )


def dead(conn: Connection, kind: str, error_class: str) -> list[Dead]:
    """Return a kind's open dead letters with this exception, oldest first.

    The exception is named without its module.
    """
    return records(
        conn,
        Dead,
        """select id as job, fingerprint as "group", payload ->> 'amount' as amount
           from redrive.dead_letters where state = 'open' and kind = %s
           and regexp_replace(error_class, '^.*[.]', '') = %s order by id""",
        kind,
        error_class,
    )


def has_healed(conn: Connection, version: str) -> bool:
    """Return True if heal has examined every dead letter older than this version."""
    return _exists(
        conn, "from redrive.heals where version = %s and ended_at is not null", version
    )


def _exists(conn: Connection, rows: LiteralString, *parameters: object) -> bool:
    return bool(value(conn, f"select exists (select {rows})", *parameters))
