"""The database is away for longer than the ttl, and comes back: nobody was at fault."""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import psycopg
import pytest

from redrive import enqueue
from redrive.database.connections.connect import connect
from redrive.database.embedded import NEWEST, EmbeddedPostgres
from redrive.database.schema.migrate import migrate
from tests.flow.harness import wait_for, workers_on
from tests.flow.proxy import Proxy, proxy_for
from tests.postgres import Connection, guarded

TTL = 12  # a worker on a busy machine must beat in time once the database is back
AWAY_SECONDS = 16
LONG, QUICK = 9, 12


@pytest.fixture
def postgres() -> Iterator[EmbeddedPostgres]:
    """A server of the test's own with a migrated database `chaos`."""
    home = Path(tempfile.mkdtemp(prefix="redrive-chaos-"))
    server = EmbeddedPostgres(
        home, NEWEST, settings={"fsync": "off", "log_min_messages": "fatal"}
    )
    with guarded(home, NEWEST):
        server.start()
        with psycopg.connect(server.url(), autocommit=True) as conn:
            conn.execute("create database chaos")
        with connect(server.url("chaos")) as conn:
            migrate(conn)
        yield server


@contextlib.contextmanager
def stopped(postgres: EmbeddedPostgres, _proxy: Proxy) -> Iterator[None]:
    postgres.stop("immediate")
    yield
    postgres.start()


def written(conn: Connection) -> None:
    """Wait until what was committed is on disk: a claim that a crash may forget runs again."""
    (lsn,) = conn.execute("select pg_current_wal_insert_lsn()").fetchone() or ()
    flushed = "select pg_current_wal_flush_lsn() >= %s"
    wait_for(lambda: conn.execute(flushed, (lsn,)).fetchone() == (True,))


@contextlib.contextmanager
def cut_off(_postgres: EmbeddedPostgres, proxy: Proxy) -> Iterator[None]:
    proxy.refuse = True
    yield
    proxy.refuse = False


@pytest.mark.parametrize(
    "go_away", [stopped, pytest.param(cut_off, marks=pytest.mark.long)]
)
def test_an_outage_charges_nobody_and_repeats_nothing(
    postgres: EmbeddedPostgres,
    tmp_path: Path,
    go_away: Callable[[EmbeddedPostgres, Proxy], AbstractContextManager[None]],
):
    """The first worker to come back took the others for dead, and jobs ran again."""
    url = postgres.url("chaos")
    with proxy_for(url) as proxy, workers_on(proxy.url, tmp_path) as workers:
        for _ in range(3):
            workers(redrive_heartbeat_ttl=TTL, redrive_slots=8).wait_ready()
        with connect(url) as conn:
            long = [
                enqueue(conn, "work.until-file", {"file": "go"}) for _ in range(LONG)
            ]
            quick = [
                enqueue(conn, "work.until-file", {"file": "end"}) for _ in range(QUICK)
            ]
            wait_for(lambda: len(workers.ledger()) == LONG + QUICK)
            written(conn)
        with go_away(postgres, proxy):
            (tmp_path / "end").touch()
            returns_at = time.monotonic() + AWAY_SECONDS
            wait_for(lambda: time.monotonic() > returns_at)
        with connect(url) as conn:
            count = "select count(*) from redrive.jobs where id = any (%s)"
            wait_for(lambda: conn.execute(count, (quick,)).fetchone() == (0,))
            for worker in workers.started:
                wait_for(
                    lambda worker=worker: (
                        "resumed" in {e["event"] for e in worker.events()}
                    )
                )
            losses = conn.execute(
                "select id, losses from redrive.jobs where losses > 0"
            ).fetchall()
            (tmp_path / "go").touch()
            wait_for(lambda: conn.execute(count, (long,)).fetchone() == (0,))
            dead = conn.execute(
                "select id, reason from redrive.dead_letters"
            ).fetchall()

        assert losses == []
        assert dead == []
        assert {job: len(workers.starts(job)) for job in quick} == dict.fromkeys(
            quick, 1
        )
        assert [e.attempt for job in long for e in workers.starts(job)] == [1] * LONG
