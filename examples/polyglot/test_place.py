"""Each program places orders; with its order it enqueues a job, or does neither."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from redrive.testing import assert_enqueued, enqueued, postgres

HERE = Path(__file__).parent

PROGRAMS = {
    "go": ["build/place"],
    "java": ["java", "-cp", "build/postgresql.jar", "java/Place.java"],
    "node": ["node", "node/place.js"],
    "php": ["php", "php/place.php"],
    "ruby": ["ruby", "ruby/place.rb"],
}
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
    """Run the program of a language, which make has built."""
    if not shutil.which(language) and os.environ.get("CI") != "true":
        pytest.skip(f"{language} is not installed")
    return subprocess.run(
        [*PROGRAMS[language], customer],
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
