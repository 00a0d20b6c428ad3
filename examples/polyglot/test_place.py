"""Each program places an order and enqueues its job, or does neither.

A second program of each language enqueues a job with each option of its producer.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import dict_row

from redrive import enqueue
from redrive.batches import open_batch
from redrive.rules.payloads.job_fields import OPTIONS
from redrive.testing import assert_enqueued, enqueued, postgres

HERE = Path(__file__).parent

PROGRAMS = {
    "go": (["build/place"], ["build/every"]),
    "java": (
        ["java", "-cp", "build/java:build/postgresql.jar", "Place"],
        [
            "java",
            "-Dfile.encoding=UTF-8",
            "-cp",
            "build/java:build/postgresql.jar",
            "Every",
        ],
    ),
    "node": (["node", "node/place.js"], ["node", "node/build/every.js"]),
    "php": (["php", "php/place.php"], ["php", "php/every.php"]),
    "ruby": (["ruby", "ruby/place.rb"], ["ruby", "ruby/every.rb"]),
}
"""The program that places an order, and the one that uses each option."""

TABLES = """
create table customers (name text primary key);
create table orders (
    id serial primary key,
    customer text references customers deferrable initially deferred  -- looked at by commit
);
insert into customers values ('ada');
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres() as url:
        with psycopg.connect(url) as conn:
            conn.execute(TABLES)
        yield url


@pytest.fixture
def conn(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url, autocommit=True) as conn:
        yield conn
        conn.execute("delete from redrive.jobs")


def place(language: str, customer: str, url: str) -> subprocess.CompletedProcess[str]:
    """Run the program that places an order; make has built it."""
    return run(language, 0, customer, url)


def run(
    language: str, program: int, argument: str, url: str
) -> subprocess.CompletedProcess[str]:
    """Run a program of a language with one argument."""
    if not shutil.which(language) and os.environ.get("CI") != "true":
        pytest.skip(f"{language} is not installed")
    return subprocess.run(
        [*PROGRAMS[language][program], argument],
        check=False,
        cwd=HERE,
        env=os.environ | {"DATABASE_URL": url},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("language", PROGRAMS)
def test_order_and_job_are_there_together(
    language: str, url: str, conn: psycopg.Connection
) -> None:
    done = place(language, "ada", url)

    assert done.returncode == 0, done.stderr
    (order,) = conn.execute("select max(id) from orders").fetchone() or [0]
    job = assert_enqueued(conn, "order.confirm", {"order": order}, queue="mail")
    assert done.stdout == f"order {order}, job {job['id']}\n"


@pytest.mark.parametrize("language", PROGRAMS)
def test_where_the_commit_fails_there_is_neither(
    language: str, url: str, conn: psycopg.Connection
) -> None:
    done = place(language, "nobody", url)

    assert done.returncode != 0
    assert "orders_customer_fkey" in done.stdout + done.stderr
    assert conn.execute("select from orders where customer = 'nobody'").fetchall() == []
    assert enqueued(conn) == []


EVERY_OPTION = [
    {
        "queue": "mail",
        "run_at": datetime(2100, 1, 2, 3, 4, 5, tzinfo=UTC),
        "priority": -3,
        "max_attempts": 7,
        "idempotency_key": "key-1",
        "ordering_key": "order-1",
        "tenant": "acme",
        "expires_in": timedelta(minutes=90),
        "headers": {"lang": "fr"},
    },
    {
        "delay": 1500,
        "unique_for": timedelta(hours=1),
        "unique_by": ["text"],
        "on_conflict": "replace",
    },
    {},
]
"""The options of the jobs that each second program enqueues."""


def test_the_programs_use_each_option() -> None:
    used = {"batch"}.union(*EVERY_OPTION)

    assert used == {name for name, field in OPTIONS.items() if field.parameter}


STORED = """
select queue, priority, max_attempts, idempotency_key, ordering_key, tenant, headers, batch,
       payload, round(extract(epoch from expires_at - created_at) / 10) as expires_in,
       case when run_at > '2099-01-01' then run_at end as run_at,
       round(least(extract(epoch from run_at - created_at) / 10, 1000)) as delay
from redrive.jobs where kind = 'every.option' order by id
"""


def expected(conn: psycopg.Connection, batch: int) -> list[dict[str, object]]:
    """Return the jobs as Python's producer stores them; they are gone afterwards."""
    with conn.transaction(force_rollback=True):
        first, *others = EVERY_OPTION
        for options in ({**first, "batch": batch}, *others):
            enqueue(conn, "every.option", {"text": 'naïve "quotes"'}, **options)
        return stored(conn)


def stored(conn: psycopg.Connection) -> list[dict[str, object]]:
    return conn.cursor(row_factory=dict_row).execute(STORED).fetchall()


@pytest.mark.parametrize("language", PROGRAMS)
def test_a_producer_sends_each_option(
    language: str, url: str, conn: psycopg.Connection
) -> None:
    batch = open_batch(conn)
    wanted = expected(conn, batch)

    done = run(language, 1, str(batch), url)

    assert done.returncode == 0, done.stderr
    assert stored(conn) == wanted
    assert "RD001" in done.stdout
    assert "queue: must match" in done.stdout
