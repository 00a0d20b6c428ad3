"""redrive migrate beside a session that blocks it: it names it, gives way, and gives up in time."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, LiteralString

import pytest

from redrive.database.connections.connect import OwnConnection
from redrive.database.schema.blockers import statement
from redrive.database.schema.migrate import latest, migrate, require
from redrive.errors import SchemaError
from tests.flow.harness import wait_for
from tests.postgres import Server, embedded
from tests.sql.upgrades import INDEX, release_next

SECRET = "hunter2"


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    with server.empty() as url:
        yield url


def connect(url: str, **options: Any) -> OwnConnection:
    return OwnConnection.connect(url, autocommit=True, **options)


def wants_the_jobs(conn: OwnConnection) -> None:
    """Leave a schema whose next migrate has to lock redrive.jobs."""
    migrate(conn)
    conn.execute("drop trigger jobs_parked on redrive.jobs")
    conn.execute("update redrive.migrations set functions = 'of an older program'")


@pytest.mark.waits
def test_who_blocks_is_named_after_ten_seconds_and_at_the_end(url: str) -> None:
    """Whoever waits for the migration sees which session it waits for."""
    with connect(url) as conn, connect(url, application_name="checkout") as holder:
        wants_the_jobs(conn)
        with holder.transaction():
            holder.execute(
                "insert into redrive.jobs (kind, payload) values"
                f" ('a', '{{\"card\": \"{SECRET}\"}}')"
            )
            done = subprocess.run(
                [sys.executable, "-m", "redrive", "migrate", "--patience", "15s"],
                env={"PATH": os.environ["PATH"], "REDRIVE_DATABASE_URL": url},
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
        *lines, last = done.stderr.splitlines()
        told = json.loads(lines[0])

        assert done.returncode == 78, done.stderr
        assert told["event"] == "waiting for a lock"
        assert told["pid"] == holder.info.backend_pid
        assert (told["application"], told["state"]) == (
            "checkout",
            "idle in transaction",
        )
        assert told["statement"] == "insert into redrive.jobs"
        assert told["transaction_seconds"] >= 10
        assert last.startswith(
            f"redrive: gave up after 15 s: pid {told['pid']} (application"
        )
        assert "'checkout', idle in transaction" in last
        assert last.endswith("then run: redrive migrate")
        assert SECRET not in done.stderr
        assert migrate(conn).after == latest()
        require(conn)


def test_a_build_of_an_index_that_waits_is_given_up_too(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for every older transaction, and no patience bounded that."""
    with connect(url) as conn, connect(url, application_name="report") as holder:
        release_next(monkeypatch)
        migrate(conn)
        conn.execute(
            "delete from redrive.migrations where version = %s", (INDEX.version,)
        )
        with holder.transaction():
            holder.execute("select count(*) from redrive.jobs")
            with pytest.raises(SchemaError, match=r"gave up after 1 s: pid .*'report'"):
                migrate(conn, patience=1)

        assert migrate(conn).applied == [INDEX.name]
        invalid = "select count(*) from pg_index where not indisvalid"
        assert conn.execute(invalid).fetchone() == (0,)


def test_autovacuum_gives_way_to_a_migration() -> None:
    """Also while it waits for longer than a migration waits for its tables."""
    slow: LiteralString = (
        "alter table redrive.jobs set (autovacuum_vacuum_cost_delay = 100,"
        " autovacuum_vacuum_cost_limit = 1, autovacuum_vacuum_threshold = 0,"
        " autovacuum_vacuum_scale_factor = 0)"
    )
    running = "select relid::regclass::text from pg_stat_progress_vacuum"
    with (
        embedded(18, autovacuum="on", autovacuum_naptime="1s") as server,
        server.empty() as url,
        connect(url) as conn,
    ):
        wants_the_jobs(conn)
        conn.execute(slow)
        conn.execute(
            "insert into redrive.jobs (kind) select 'a' from generate_series(1, 20000)"
        )
        conn.execute("delete from redrive.jobs where id % 2 = 0")
        wait_for(lambda: ("redrive.jobs",) in conn.execute(running).fetchall())

        assert migrate(conn, patience=60).after == latest()
        require(conn)


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        (
            f"insert into redrive.jobs (kind) values ('{SECRET}')",
            "insert into redrive.jobs",
        ),
        (f"UPDATE  only orders SET card = '{SECRET}'", "update orders"),
        (f"delete from orders where card = '{SECRET}'", "delete from orders"),
        (f"select redrive.enqueue('{SECRET}')", "select redrive.enqueue"),
        (f"select * from redrive.claim_v1('{SECRET}')", "select redrive.claim_v1"),
        (f"select {SECRET} from orders", "select"),
        (f"alter role app password '{SECRET}'", "alter"),
        (f"set app.token = '{SECRET}'", "set"),
        (f"copy orders from program '{SECRET}'", "copy orders"),
        ("vacuum redrive.jobs", "vacuum redrive.jobs"),
        ("COMMIT", "commit"),
        (f"/* {SECRET} */ select 1", "unknown"),
        (SECRET, "unknown"),
        ("<insufficient privilege>", "unknown"),
        ("", "unknown"),
        (None, "unknown"),
    ],
)
def test_a_statement_is_shown_without_its_values(query: str | None, shown: str) -> None:
    assert statement(query) == shown
