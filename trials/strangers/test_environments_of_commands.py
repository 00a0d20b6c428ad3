"""immich-app/static-pages #719, prisma/orm #6157.

A command runs where variables of libpq are set, where the terminal knows ASCII alone, and
on a database with an odd name. It does what it does elsewhere.
"""

import os
import subprocess
import sys
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from redrive import enqueue
from tests.postgres import Database, Server

OF_LIBPQ = {
    "PGAPPNAME": "x",
    "PGCLIENTENCODING": "LATIN1",
    "PGDATESTYLE": "German",
    "PGOPTIONS": "-c statement_timeout=900 -c search_path=x -c intervalstyle=iso_8601",
    "PGTZ": "Asia/Kathmandu",
}
OF_TERMINALS = [
    {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
    {"COLUMNS": "1", "TERM": "dumb", "TZ": "Not/AZone", "HOME": "/nonexistent"},
]
COMMANDS = ["job show {id}", "job show {id} --json", "job ls"]


def shown(url: str, command: str, **more: str) -> str:
    """Return what a command prints."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("REDRIVE_", "PG"))}
    typed = [sys.executable, "-m", "redrive", *command.split()]
    environment = own | {"REDRIVE_DATABASE_URL": url} | more
    ran = subprocess.run(
        typed, env=environment, capture_output=True, check=False, timeout=60
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    return ran.stdout.decode("latin-1")


@pytest.mark.parametrize("variables", [OF_LIBPQ, *OF_TERMINALS], ids=min)
def test_a_command_does_what_it_does_elsewhere(
    database: Database, variables: dict[str, str]
) -> None:
    job = enqueue(database.conn, "a.b", {"text": "Zoë 日本 😀"}, idempotency_key="é日")
    for command in COMMANDS:
        assert shown(database.url, command.format(id=job), **variables)


@pytest.fixture(params=["My DB-ü", "a'b\"c", "50%20 off", "-"])
def odd_name(request: pytest.FixtureRequest, server: Server) -> Iterator[str]:
    name = request.param
    server.admin("create database {} template {}", name, server.template())
    try:
        yield name
    finally:
        server.admin("drop database {} with (force)", name)


def test_a_database_may_have_any_name(server: Server, odd_name: str) -> None:
    url = make_conninfo(server.url, dbname=odd_name)
    with psycopg.connect(url) as conn:
        enqueue(conn, "a.b")
    assert "a.b" in shown(url, "job ls --json")
