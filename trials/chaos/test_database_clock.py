"""The clock of the database is set, an hour ahead and an hour back: nobody was at fault."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from redrive import enqueue
from redrive.database.connections.connect import connect
from redrive.database.embedded import NEWEST, EmbeddedPostgres
from redrive.database.schema.migrate import migrate
from redrive.worker import store
from tests.flow.harness import wait_for, workers_on
from tests.postgres import Connection, guarded
from trials.chaos.clock import COMPILER, Clock

TTL = 60
HOUR = 3600
LONG, QUICK = 6, 10

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler here")


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory that the server's user can read."""
    with tempfile.TemporaryDirectory(prefix="redrive-chaos-") as path:
        Path(path).chmod(0o755)
        yield Path(path)


@pytest.fixture
def clock(home: Path) -> Clock:
    return Clock(home)


@pytest.fixture
def url(home: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A migrated database on a server whose clock can be set."""
    files = home / "server"
    files.mkdir()
    server = EmbeddedPostgres(files, NEWEST, settings={"fsync": "off"})
    with guarded(files, NEWEST):
        with monkeypatch.context() as only_now:
            for name, value in clock.environment.items():
                only_now.setenv(name, value)
            server.start()
        with psycopg.connect(server.url(), autocommit=True) as conn:
            conn.execute("create database chaos")
        with connect(server.url("chaos")) as conn:
            migrate(conn)
        yield server.url("chaos")


def seconds_off(conn: Connection) -> float:
    (now,) = conn.execute(
        "select extract(epoch from clock_timestamp())::float8"
    ).fetchone() or (0.0,)
    return now - time.time()


def test_no_worker_is_lost_and_no_job_runs_twice(
    url: str, clock: Clock, tmp_path: Path
) -> None:
    """A worker was declared lost because the clock of its database was set."""
    count = "select count(*) from redrive.jobs where id = any (%s)"
    heard = "select count(*) from redrive.workers where abs(extract(epoch from clock_timestamp() - seen_at)) < 600"
    with workers_on(url, tmp_path) as workers, connect(url) as conn:
        for _ in range(2):
            workers(redrive_heartbeat_ttl=TTL, redrive_slots=8).wait_ready()
        long = [enqueue(conn, "work.until-file", {"file": "go"}) for _ in range(LONG)]
        wait_for(lambda: len(workers.ledger()) == LONG)
        (tmp_path / "end").touch()
        ended = list[int]()
        for off in (HOUR, -HOUR, 0):
            clock.step(off)
            assert abs(seconds_off(conn) - off) < HOUR / 2
            quick = [
                enqueue(conn, "work.until-file", {"file": "end"}) for _ in range(QUICK)
            ]
            wait_for(
                lambda quick=quick: conn.execute(count, (quick,)).fetchone() == (0,)
            )
            wait_for(lambda: conn.execute(heard).fetchone() == (2,))
            assert store.mark_lost(conn, TTL) == 0
            ended += quick
        (tmp_path / "go").touch()
        wait_for(lambda: conn.execute(count, (long,)).fetchone() == (0,))

        marks = conn.execute("select 1 from redrive.marks where what = 'worker lost'")
        assert marks.fetchall() == []
        runs = {job: len(workers.starts(job)) for job in (*long, *ended)}
        assert runs == dict.fromkeys(runs, 1)
