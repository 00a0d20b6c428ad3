"""redrive job replay of handlers that talk to Postgres.

A replay writes nothing, so the tests share one shop and its dead jobs.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from redrive.enqueue import enqueue
from tests.cli.conftest import Ran, Redrive
from tests.postgres import Database, Server

pytestmark = pytest.mark.xdist_group("shop of replays")  # one for all

SHOP = '''"""A shop."""
import os

import psycopg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from redrive import Handlers, Policy

jobs = Handlers()
once = Policy(max_attempts=1)
URL = os.environ["SHOP_URL"]


@jobs.handle("by.asyncpg", policy=once)
async def by_asyncpg(payload):
    engine = create_async_engine(URL.replace("postgresql:", "postgresql+asyncpg:"))
    async with engine.connect() as conn:
        n = (await conn.execute(text("select 7"))).scalar_one()
    return payload["prices"][n]


@jobs.handle("by.psycopg", policy=once)
def by_psycopg(payload):
    with psycopg.connect(URL) as conn:
        n = conn.execute("select 7").fetchone()[0]
    return payload["prices"][n]


@jobs.handle("by.asyncpg.query", policy=once)
async def by_asyncpg_query(payload):
    engine = create_async_engine(URL.replace("postgresql:", "postgresql+asyncpg:"))
    async with engine.connect() as conn:
        await conn.execute(text("select * from no_such_table"))
'''
FUNCTIONS = {
    "by.asyncpg": "by_asyncpg",
    "by.psycopg": "by_psycopg",
    "by.asyncpg.query": "by_asyncpg_query",
}
KINDS = pytest.mark.parametrize("kind", FUNCTIONS)


class Shop:
    """A shop whose jobs, one of each kind, have died."""

    def __init__(self, database: Database, home: Path) -> None:
        known = conninfo_to_dict(database.url)
        self.port = str(known["port"])
        self.url = (
            f"postgresql://{known['user']}:{known.get('password') or ''}"
            f"@127.0.0.1:{self.port}/{known['dbname']}"
        )
        self.home = home
        (home / "shop.py").write_text(SHOP)
        self.jobs = {
            kind: enqueue(database.conn, kind, {"prices": []}) for kind in FUNCTIONS
        }
        options = ("--handlers", "shop:jobs", "--http-port", "0", "--until-empty")
        subprocess.run(
            [sys.executable, "-m", "redrive", "worker", *options],
            check=True,
            cwd=home,
            env=self.environment | {"REDRIVE_DATABASE_URL": database.url},
            stderr=subprocess.DEVNULL,
            timeout=120,
        )
        died = database.column("select id from redrive.dead_letters")
        assert set(died) == set(self.jobs.values())

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"SHOP_URL": self.url, "PYTHONPATH": str(self.home)}

    def replay(
        self, redrive: Redrive, kind: str, *options: str, **environment: str
    ) -> Ran:
        job = str(self.jobs[kind])
        return redrive(
            *("job", "replay", job, "--handlers", "shop:jobs", *options),
            **{"SHOP_URL": self.url, "PYTHONPATH": str(self.home), **environment},
        )


@pytest.fixture(scope="module")
def database(server: Server) -> Iterator[Database]:
    with server.database() as database:
        yield database


@pytest.fixture(scope="module")
def shop(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(database, tmp_path_factory.mktemp("shop"))


@KINDS
def test_a_refused_query_is_one_sentence_with_the_line_of_the_handler(
    redrive: Redrive, shop: Shop, kind: str
) -> None:
    found = shop.replay(redrive, kind)

    at = rf"\S*shop\.py:\d+ in {FUNCTIONS[kind]}"
    target = f"localhost:{shop.port}"
    sentence = (
        rf"{at} tried to connect to {target}; replay refuses connections;"
        rf" allow it with --allow {target}"
    )
    assert re.search(f"^{sentence}$", found.out, re.MULTILINE), found
    assert "site-packages" not in found.out
    assert found.out.count("\n") < 6


@KINDS
def test_an_allowed_database_shows_the_same_failure(
    redrive: Redrive, shop: Shop, kind: str
) -> None:
    target = f"127.0.0.1:{shop.port}"

    shown = shop.replay(redrive, kind, "--allow", target)
    allow = ("--allow", "localhost:1", "--allow", target)
    as_json = shop.replay(redrive, kind, "--json", *allow)

    assert "the same failure at the same line" in shown.out, shown
    assert f"in {FUNCTIONS[kind]}" in shown.out
    assert f"may connect to {target}; what it writes there stays" in shown.err
    assert as_json.json["verdict"] == "same"
    assert f"localhost:{shop.port}" not in as_json.json["refused_targets"]

    refused = shop.replay(redrive, kind, "--allow", "localhost:9", "--json")
    elsewhere = refused.json
    assert elsewhere["refused_targets"] == [f"localhost:{shop.port}"]
    assert elsewhere["verdict"] != "same"


def test_the_test_of_a_moved_handler_is_written_and_fails(
    redrive: Redrive, shop: Shop, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text("\n\n\n" + SHOP)
    moved = {"PYTHONPATH": str(tmp_path)}
    file = tmp_path / "test_it.py"
    options = ("--allow", f"localhost:{shop.port}", "--pytest", str(file))

    found = shop.replay(redrive, "by.asyncpg", *options, **moved)

    assert (found.code, file.exists()) == (0, True), found
    assert f"It connects to localhost:{shop.port}." in file.read_text()
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)],
        check=False,
        cwd=tmp_path,
        env=shop.environment | moved,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ran.returncode, "1 failed" in ran.stdout) == (1, True), ran.stdout


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("localhost", "it must be HOST:PORT, such as localhost:5432"),
        ("localhost:0", "it must be HOST:PORT"),
        ("localhost:99999", "it must be HOST:PORT"),
        ("*:5432", "it must be HOST:PORT"),
        ("no-such-host.invalid:5432", "the host is not known"),
    ],
)
def test_what_is_no_address_is_refused(
    redrive: Redrive, target: str, message: str
) -> None:
    replay = ("job", "replay", "1", "--handlers", "tests.replay.apps:jobs")

    refused = redrive(*replay, "--allow", target)

    assert (refused.code, message in refused.err) == (64, True), refused
    assert "--allow is" in refused.err
