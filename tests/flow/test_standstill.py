"""A worker that makes no progress says so, and one that has nothing to do does not."""

import json
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from redrive import enqueue
from redrive.cli import main
from redrive.jobs import standing
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


@pytest.mark.waits
@pytest.mark.parametrize(
    ("table", "says"),
    [("claims", "somebody has locked a table"), ("lanes", "jobs are due")],
)
def test_a_worker_whose_exchange_is_held_up_is_not_ready_until_it_goes_on(
    database: Database,
    workers: Workers,
    other: Connection,
    table: str,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A lock stopped every worker while /readyz answered 200."""
    monkeypatch.setattr(standing, "PATIENCE_SECONDS", LIMIT_SECONDS / 2)
    worker = workers().wait_ready()
    reporting = "select id from redrive.workers where progress ? 'slots'"
    identities = wait_for(lambda: database.column(reporting))
    with other.transaction():
        other.execute(f"lock table redrive.{table} in access exclusive mode")  # type: ignore[arg-type]
        enqueue(database.conn, "work.sync", {})

        wait_for(lambda: is_unready(worker), what="it never said that it stands still")
        assert says in exchange(worker)[1]
        assert "exchange: none has succeeded for" in worker.get("/readyz")[1]
        assert f"(test) has locked table {table}" in exchange(worker)[1]
        assert age(worker) >= LIMIT_SECONDS
        assert database.column("select id from redrive.workers") == identities
        capsys.readouterr()
        main(["check", "--json", "--database-url", database.url])
        checked = map(json.loads, capsys.readouterr().out.splitlines())
        (progress,) = [line for line in checked if line["check"] == "progress"]
        assert not progress["ok"]
        assert f"has locked table {table}" in progress["text"]
    worker.wait_ready()

    wait_for(lambda: database.value("select count(*) from redrive.jobs") == 0)
    assert exchange(worker) == (200, "ok")
    assert age(worker) < LIMIT_SECONDS


@pytest.mark.waits
@pytest.mark.parametrize(
    ("application", "status", "says"),
    [
        ("test", 503, "for a lane; session {pid} (test) has locked rows"),
        # it may be a worker, so a restart would not help
        ("redrive x", 200, "for a lane"),
    ],
)
def test_a_worker_whose_lane_a_session_has_locked_says_so_and_names_it(
    database: Database,
    workers: Workers,
    other: Connection,
    application: str,
    status: int,
    says: str,
) -> None:
    """Its exchanges succeed, but each claim skips the locked lane."""
    other.execute("select set_config('application_name', %s, false)", (application,))
    worker = workers().wait_ready()
    job = enqueue(database.conn, "work.sync", {})
    wait_for(lambda: workers.starts(job))
    with other.transaction():
        pid = other.info.backend_pid
        other.execute("select from redrive.lanes for update")
        job = enqueue(database.conn, "work.sync", {})

        wait_for(lambda: exchange(worker)[1] != "ok", what="it never said so")
        assert exchange(worker)[0] == status
        said = exchange(worker)[1]
        assert "claims have waited for" in said
        assert says.format(pid=pid) in said
        assert age(worker) < LIMIT_SECONDS
    wait_for(lambda: workers.starts(job))
    assert exchange(worker) == (200, "ok")


SLOW = """
    create function public.take_long() returns trigger language plpgsql as $$
        begin perform pg_sleep(2); return null; end $$;
    create trigger take_long before insert on redrive.deltas
        for each statement execute function public.take_long()"""
"""Each claim and each settlement writes deltas."""


@pytest.mark.waits
def test_a_worker_whose_exchange_takes_long_says_so_and_names_the_open_snapshot(
    database: Database,
    workers: Workers,
    other: Connection,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is ready all the same, because another worker would be as slow."""
    worker = workers().wait_ready()

    def work() -> None:
        job = enqueue(database.conn, "work.sync", {})
        wait_for(lambda: workers.starts(job))

    for _ in range(40):
        work()
    assert exchange(worker) == (200, "ok")
    with other.transaction():
        other.execute("set transaction isolation level repeatable read")
        (pid,) = other.execute("select pg_backend_pid()").fetchone() or ()
        database.rows(SLOW)
        for _ in range(8):
            work()
        wait_for(lambda: exchange(worker)[1] != "ok", what="it never said so")
        status, said = exchange(worker)
        assert status == 200
        assert "times as long as usual" in said
        assert worker.metric("redrive_worker_exchange_slowdown_ratio") > 1

        wait_for(
            lambda: database.rows("select from redrive.workers where progress ? 'slow'")
        )
        capsys.readouterr()
        main(["check", "--json", "--database-url", database.url])
        checked = map(json.loads, capsys.readouterr().out.splitlines())
        (speed,) = [line for line in checked if line["check"] == "speed"]
        assert not speed["ok"]
        assert "times as long as usual" in speed["text"]
        assert f"session {pid} of" in speed["text"]


def idle(_: Database, workers: Workers) -> Worker:
    return workers().wait_ready()


def paused(database: Database, workers: Workers) -> Worker:
    database.rows("select redrive.pause_v1('default', 'ada', 'why')")
    enqueue(database.conn, "work.sync", {})
    return workers().wait_ready()


def full(database: Database, workers: Workers) -> Worker:
    jobs = [enqueue(database.conn, "work.until-file", {"file": "go"}) for _ in range(3)]
    worker = workers(redrive_slots=1).wait_ready()
    wait_for(lambda: workers.starts(jobs[0]))
    wait_for(lambda: database.rows("select from redrive.due_v1(null, null)"))
    return worker


def limited(database: Database, workers: Workers) -> Worker:
    set_limit(database, "flow", 0)
    enqueue(database.conn, "limited.held", {})
    worker = workers(handlers="tests.flow.limited:jobs").wait_ready()
    wait_for(lambda: database.rows("select from redrive.limit_waits"))
    return worker


def broken(database: Database, workers: Workers) -> Worker:
    worker = workers(handlers="tests.flow.judged:jobs").wait_ready()
    wait_for(lambda: database.rows("select from redrive.breakers where name = 'mail'"))
    done = ("--why", "maintenance", "--yes", "--database-url", database.url)
    main(["breaker", "force", "mail", "open", *done])

    def is_known() -> float:
        enqueue(database.conn, "mail.send")  # the first ones may run before it is
        return worker.metric("redrive_jobs_released_total", reason="breaker mail")

    wait_for(is_known, every=0.5)
    return worker


@pytest.mark.parametrize("situation", [idle, paused, full, limited, broken])
def test_a_worker_that_has_nothing_to_claim_stays_ready(
    database: Database,
    workers: Workers,
    situation: Callable[[Database, Workers], Worker],
) -> None:
    """Its exchange does not grow old: again and again it is younger than a moment before."""
    worker = situation(database, workers)
    ages = [age(worker)]

    def is_renewed() -> bool:
        ages.append(age(worker))
        return sum(later < sooner for sooner, later in pairwise(ages)) >= 3

    wait_for(is_renewed, every=0.1, what=f"its exchange grows old: {ages}")
    assert max(ages) < LIMIT_SECONDS
    assert exchange(worker) == (200, "ok")
