"""Failures of a real worker have the source of the application's frames, and show it first."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from redrive import enqueue
from redrive.cli.main import cli
from tests.flow.harness import Workers
from tests.postgres import Database

SHOP = """
from redrive import Handlers, Policy

jobs = Handlers()

def find(sku):
    stock = {"A1": 5}
    return stock[sku]

@jobs.handle("order.book", policy=Policy(attempts={"other": 2}, backoff=0.01))
def book(payload):
    return find(payload["sku"]) * payload["count"]
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A directory with the module of a shop; its name begins like our package's."""
    (tmp_path / "retail.py").write_text(SHOP)
    return tmp_path


def command(database: Database, *words: str) -> str:
    url = {"REDRIVE_DATABASE_URL": database.url}
    done = CliRunner().invoke(cli, words, env=url)
    assert done.exit_code == 0, done.output
    return done.stdout


def run(shop: Path, database: Database, workers: Workers, **options: Any) -> int:
    job = enqueue(database.conn, "order.book", {"sku": "A7", "count": 2})
    workers.run(handlers="retail:jobs", pythonpath=str(shop), **options)
    return job


def test_frames_come_with_their_source_and_are_shown_first(
    shop: Path, database: Database, workers: Workers
) -> None:
    job = run(shop, database, workers)

    stack = database.value("select detail -> 'stack' from redrive.failures limit 1")
    assert [frame["function"] for frame in stack] == ["book", "find"]
    assert stack[1]["source"] == ['stock = {"A1": 5}', "return stock[sku]"]

    shown = command(database, "dlq", "show", str(job))
    places = [shown.index(text) for text in ("last failure", "in find", "payload  {")]
    assert places == sorted(places)
    assert ">    8  return stock[sku]" in shown
    earlier = shown[shown.index("attempt 1") : shown.index("attempt 2")]
    assert f"{shop}/retail.py:8 in find" in earlier

    name = database.value("select fingerprint from redrive.dead_letters")
    assert ">    8  return stock[sku]" in command(database, "dlq", "show", name)
    found = json.loads(command(database, "dlq", "show", name, "--json"))
    assert found["failure"]["detail"]["stack"] == stack


def test_the_setting_turns_it_off(
    shop: Path, database: Database, workers: Workers
) -> None:
    run(shop, database, workers, redrive_source_lines=0)

    stack = database.value("select detail -> 'stack' from redrive.failures limit 1")
    assert [frame["function"] for frame in stack] == ["book", "find"]
    assert all("source" not in frame for frame in stack)
