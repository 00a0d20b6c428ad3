"""The page about tests: what it shows is a test suite that passes."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()

APP = """
import contextlib
import types
from datetime import UTC, datetime, timedelta

import app
import pytest
from redrive import GiveUp, Handlers

jobs = Handlers()


@jobs.handle("invoice.charge", queue="payments")
def charge(payload):
    if "amount" in payload:
        raise GiveUp("declined")


@jobs.handle("payment.book")
def book(payload, job):
    with app.database.connection() as conn, conn.transaction():
        conn.execute("insert into ledger values (%s)", [payload["order"]])
        job.complete(conn)


@jobs.handle("order.remind")
def remind(payload): ...


def place_order(conn, number):
    charge.enqueue(conn, {"number": number}, idempotency_key=f"order-{number}")
    remind.enqueue(conn, {"number": number}, run_at=datetime.now(UTC) + timedelta(days=2))


@pytest.fixture(autouse=True)
def ledger(conn):
    conn.execute("create table ledger (n int)")
"""


def test_what_the_page_shows_passes(tmp_path: Path):
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (conftest,) = (text for text in blocks if text.startswith("# conftest.py"))
    tests = [text for text in blocks if text != conftest]
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "app.py").write_text(
        "import types\ndatabase = types.SimpleNamespace(connection=0)\n"
    )
    (tmp_path / "test_page.py").write_text(APP + "".join(tests))

    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:randomly",
            "-p",
            "no:cacheprovider",
        ],
        check=False,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )

    assert f"{len(tests)} passed" in done.stdout, done.stdout
    assert len(tests) == PAGE.count("\ndef test_")
