"""A worker that makes no progress says so, and one that has nothing to do does not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive import enqueue
from tests.flow.harness import Worker, Workers, wait_for
from tests.flow.test_limits import set_limit
from tests.postgres import Connection, Database

LIMIT_SECONDS = 30
"""How long exchanges may fail, with the default heartbeat TTL."""


@pytest.fixture
def other(database: Database) -> Iterator[Connection]:
    """Another session, whose locks go with the test at the latest."""
    with database.connect() as conn:
        yield conn


def exchange(worker: Worker) -> tuple[int, str]:
    """Return the status of /readyz, and what it says of the exchange."""
    status, text = worker.get("/readyz")
    said = dict(line.split(": ", 1) for line in text.splitlines())
    return status, said.get("exchange", "")


def age(worker: Worker) -> float:
    return worker.metric("redrive_worker_exchange_age_seconds")


def is_unready(worker: Worker) -> bool:
    status, said = exchange(worker)
    return status == 503 and said != "ok"


@pytest.mark.parametrize(
    ("table", "says"), [("claims", "somebody has locked a table"), ("lanes", "jobs are due")]
)
def test_a_worker_whose_exchange_is_held_up_is_not_ready_until_it_goes_on(
    database: Database, workers: Workers, other: Connection, table: str, says: str
) -> None:
    """C25: a lock stopped every worker while /readyz answered 200."""
    worker = workers().wait_ready()
    wait_for(lambda: database.value("select count(*) from redrive.workers") == 1)
    with other.transaction():
        other.execute(f"lock table redrive.{table} in access exclusive mode")  # type: ignore[arg-type]
        job = enqueue(database.conn, "work.sync", {})

        wait_for(lambda: is_unready(worker), what="it never said that it stands still")
        assert says in exchange(worker)[1]
        assert "exchange: none has succeeded for" in worker.get("/readyz")[1]
        assert age(worker) >= LIMIT_SECONDS
    worker.wait_ready()

    wait_for(lambda: database.value("select count(*) from redrive.jobs") == 0)
    assert exchange(worker) == (200, "ok")
    assert age(worker) < LIMIT_SECONDS
