"""What runners say while the database works on an exchange goes with the next one."""

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from redrive.database.connect import Link
from redrive.observability.metrics import Metrics
from redrive.rules.settlement import Outcome
from redrive.worker.protocol import Checkpoint, CheckpointKept, Report
from redrive.worker.supervisor.exchange import Exchange
from redrive.worker.supervisor.identity import Identity
from redrive.worker.supervisor.lanes import LaneBook
from redrive.worker.supervisor.polling import Polling
from redrive.worker.supervisor.telemetry import Telemetry
from tests.factories import make_jobs, make_worker
from tests.postgres import Database

JOBS = "select id from redrive.jobs order by id"


@pytest.fixture
def link(database: Database) -> Iterator[Link]:
    link = Link(database.url, "worker")
    yield link
    link.close()


@pytest.fixture
def exchange(database: Database, link: Link) -> Exchange:
    nobody: Any = None
    identity = Identity(nobody, nobody)
    identity.me = make_worker(database.conn)
    telemetry = Telemetry(Metrics(), None)
    return Exchange(link, identity, LaneBook(None), Polling(0.0), telemetry)


def server_process(link: Link) -> Any:
    with link.use() as conn:
        return SimpleNamespace(pid=conn.info.backend_pid)


def once(do: Callable[[], None]) -> Callable[[], None]:
    """It is called before each wait for the server."""
    left = [do]
    return lambda: left.pop()() if left else None


def test_a_job_that_ends_meanwhile_is_settled_by_the_next_one(
    database: Database, link: Link, exchange: Exchange
) -> None:
    ids = make_jobs(database.conn, 3)
    one, two = exchange.run(time.monotonic(), room=2, linger=0.0)
    exchange.completed([(one, 0.1)])
    ours = server_process(link)
    other = database.session()
    other.rows("begin")
    other.rows("select from redrive.jobs where id = %s for update", one.id)

    def meanwhile() -> None:
        database.wait_until_blocked(ours)
        exchange.completed([(two, 0.1)])
        other.rows("rollback")

    (three,) = exchange.run(time.monotonic(), room=1, linger=0.0, meanwhile=once(meanwhile))

    assert exchange.is_settling
    assert database.column(JOBS) == ids[1:]
    assert exchange.run(time.monotonic(), room=0, linger=0.0) == []
    assert not exchange.is_settling
    assert database.column(JOBS) == [three.id]
    assert database.column("select id from redrive.claims") == [three.claim.id]


def test_a_checkpoint_that_comes_meanwhile_is_not_blamed_for_a_report_that_is_refused(
    database: Database, link: Link, exchange: Exchange
) -> None:
    make_jobs(database.conn, 3)
    one, two, three = exchange.run(time.monotonic(), room=3, linger=0.0)
    exchange.completed([(one, 0.1)])
    exchange.ended(two, Report(two.id, two.deliveries, Outcome.RETRY, failure="no JSON"))
    ours = server_process(link)
    other = database.session()
    other.rows("begin")
    other.rows("select from redrive.jobs where id = %s for update", one.id)
    said: list[bool] = []

    def answer(message: CheckpointKept) -> None:
        said.append(message.is_kept)

    def meanwhile() -> None:
        database.wait_until_blocked(ours)
        exchange.keep(three, Checkpoint(three.id, three.deliveries, 1, "{}"), answer)
        other.rows("rollback")

    exchange.run(time.monotonic(), room=0, linger=0.0, meanwhile=once(meanwhile))

    assert said == []
    exchange.run(time.monotonic(), room=0, linger=0.0)
    assert said == [True]
