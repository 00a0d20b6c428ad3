"""What a worker owes to its clocks whatever the database does: a beat in time, a deadline kept."""

import time

import pytest

from redrive import enqueue
from redrive.database.connections.link import Link
from redrive.observability.metrics import Metrics
from redrive.worker.telemetry import Telemetry
from redrive.worker.upkeep import maintenance
from tests.flow import look
from tests.flow.harness import Workers, alive, wait_for
from tests.flow.proxy import proxy_for
from tests.postgres import Database

WAITING = (
    "select count(*) from pg_stat_activity where datname = current_database()"
    " and application_name like 'redrive%%' and wait_event_type = 'Lock'"
)
HEARD = f"{WAITING} and query_start < (select min(seen_at) from redrive.workers)"


def test_a_chore_that_hangs_delays_no_beat_and_no_claim(
    database: Database, workers: Workers
):
    """The beat waited behind a chore, and the worker declared itself lost."""
    running = [
        enqueue(database.conn, "work.until-file", {"file": "go"}) for _ in range(3)
    ]
    worker = workers(redrive_heartbeat_ttl=9).wait_ready()
    wait_for(lambda: len(workers.ledger()) == 3)
    blocker = database.session()
    blocker.rows("begin")
    blocker.rows("lock table redrive.samples in access exclusive mode")
    wait_for(lambda: database.value(WAITING), what="no chore hangs")
    later = enqueue(database.conn, "work.sync")
    wait_for(lambda: workers.starts(later))
    wait_for(lambda: database.value(HEARD), what="no beat came while a chore hung")
    blocker.rows("rollback")
    (workers.home / "go").touch()
    wait_for(lambda: look.live(database) == 0)

    assert [len(workers.starts(job)) for job in (*running, later)] == [1, 1, 1, 1]
    assert not [e for e in worker.events() if e["event"] == "declared lost"]


def test_a_deadline_is_kept_while_the_database_says_nothing(
    database: Database, workers: Workers
):
    """The loop sat in a call for up to 15 s, and so long a hanging attempt went on."""
    with proxy_for(database.url) as proxy:
        workers(url=proxy.url, redrive_heartbeat_ttl=60).wait_ready()
        job = enqueue(database.conn, "hang.for-a-while")
        (start,) = wait_for(lambda: workers.starts(job))
        proxy.swallow = True
        wait_for(lambda: not alive(start.pid))
        seconds = time.monotonic() - start.at

    assert seconds < 12  # of which 3 are its timeout, and 1 what it gets to react


@pytest.mark.parametrize(
    ("table", "chore", "is_named"),
    [("limit_keys", "limits", True), ("samples", "sample", False)],
    ids=["jobs wait for it", "it keeps figures"],
)
def test_a_chore_that_fails_is_counted_and_named_if_jobs_wait_for_it(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    table: str,
    chore: str,
    is_named: bool,
):
    """The log said it at debug, and nothing else did.

    Later, workers that could not keep figures were not ready, although their jobs ran.
    """
    monkeypatch.setattr(maintenance, "PUT_OFF_SECONDS", 0.1)
    monkeypatch.setattr(maintenance, "STANDSTILL_SECONDS", 600.0)
    blocker = database.session()
    blocker.rows("begin")
    blocker.rows(f"lock table redrive.{table} in access exclusive mode")
    telemetry = Telemetry(Metrics(), None)
    chores = maintenance.Maintenance(
        Link(database.url, "test", lock_timeout="1ms"), 0.6, telemetry, list, list
    )
    chores.start()
    wait_for(lambda: failures(telemetry).get(chore))
    asked_at = time.monotonic() + maintenance.UNWELL_SECONDS
    before = failures(telemetry)[chore]
    wait_for(lambda: failures(telemetry)[chore] > before + 1)
    # as it will be when the chore has failed for 5 minutes, and just now
    named = chores.fault(asked_at)
    blocker.rows("rollback")
    wait_for(lambda: chores.fault(asked_at) is None)
    chores.stop()
    wait_for(lambda: chores.link.is_closed)

    assert (named or "").startswith(f"{chore} has failed for 30") == is_named
    assert {name for name, count in failures(telemetry).items() if count} == {chore}
    assert caplog.records[0].levelname == "WARNING"
    assert caplog.records[0].__dict__["chore"] == chore
    assert caplog.records[0].__dict__["sqlstate"] == "55P03"


def test_a_chore_that_raises_any_exception_ends_no_other(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    """A row that nobody can read keeps no worker from rescuing jobs."""

    def unreadable(_: object) -> bool:
        raise ValueError

    monkeypatch.setattr(maintenance, "drive_all", unreadable)
    monkeypatch.setattr(maintenance, "PUT_OFF_SECONDS", 0.1)
    database.rows(
        "insert into redrive.heals (kind, version, canaries) values ('a', '1', 3)"
    )
    telemetry = Telemetry(Metrics(), None)
    chores = maintenance.Maintenance(
        Link(database.url, "test"), 0.6, telemetry, list, list
    )
    chores.start()
    wait_for(lambda: failures(telemetry).get(maintenance.CAMPAIGN, 0) > 2)
    rescued = "select ran_at > %s from redrive.chores where name = 'rescue'"
    now = database.value("select clock_timestamp()")
    wait_for(lambda: database.value(rescued, now))
    chores.stop()
    wait_for(lambda: chores.link.is_closed)

    assert caplog.records[0].__dict__["chore"] == maintenance.CAMPAIGN
    assert caplog.records[0].__dict__["error"] == "ValueError"


def test_failures_an_hour_apart_are_no_hour_of_failures():
    failing = maintenance.Failing(first_at=0.0, last_at=1.0, times=2)

    assert failing.again(now=60.0) == (0.0, 60.0, 3)
    assert failing.again(now=3600.0) == (3600.0, 3600.0, 1)


def failures(telemetry: Telemetry) -> dict[str, float]:
    """How often each chore came to nothing."""
    (family,) = telemetry.metrics.maintenance_failures.collect()
    return {sample.labels["chore"]: sample.value for sample in family.samples}
