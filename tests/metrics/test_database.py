"""The database's figures: one reading for all, dropped when old, the same from everyone."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import psycopg
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from redrive.database.connections.address import Address
from redrive.database.embedded import free_port
from redrive.dead_letters.campaigns.store import plan
from redrive.dead_letters.filter import Filter
from redrive.observability.stats import READ_SECONDS, DatabaseStats
from redrive.worker import store
from tests.factories import (
    claim,
    claim_one,
    complete,
    failure,
    make_dead_letters,
    make_job,
    make_jobs,
    make_limited_worker,
    make_worker,
    settle,
    silence,
)
from tests.flow.harness import wait_for
from tests.postgres import Database, Server


@pytest.fixture
def reader(database: Database) -> Iterator[Callable[[], DatabaseStats]]:
    """Makes exporters' readers, and closes them."""
    made: list[DatabaseStats] = []

    def make() -> DatabaseStats:
        made.append(DatabaseStats(database.url))
        return made[-1]

    yield make
    for stats in made:
        stats.link.close()


def shown(stats: DatabaseStats) -> str:
    """Without what differs from one reader to the next: how long reading took."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(stats)
    lines = generate_latest(registry).decode().splitlines()
    return "\n".join(line for line in lines if "stats_duration" not in line)


def value(text: str, series: str) -> float | None:
    return next(
        (
            float(line.split()[-1])
            for line in text.splitlines()
            if line.startswith(series + " ")
        ),
        None,
    )


def again(stats: DatabaseStats) -> str:
    """Read again, although the last time was just now."""
    stats._fresh_until = float("-inf")
    return shown(stats)


def test_two_exporters_show_the_same(
    database: Database, reader, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("redrive.observability.stats.MAX_AGE_SECONDS", 600.0)
    for n in range(700):
        database.rows("select redrive.enqueue(%s, queue => 'mail')", f"kind{n}")

    first = shown(reader())
    second = shown(reader())

    assert first == second
    enqueued = [
        line
        for line in first.splitlines()
        if line.startswith("redrive_jobs_enqueued_total{")
    ]
    assert len(enqueued) == 501, "500 kinds, and the rest as other"
    assert value(first, 'redrive_jobs_enqueued_total{kind="other",queue="mail"}') == 200


def test_a_kind_keeps_its_name_when_others_come(database: Database, reader):
    stats = reader()
    database.rows("select redrive.enqueue('zebra', queue => 'mail')")
    shown(stats)
    for n in range(600):
        database.rows("select redrive.enqueue(%s, queue => 'mail')", f"kind{n}")
    database.rows("update redrive.snapshots set taken_at = '-infinity'")

    assert (
        value(again(stats), 'redrive_jobs_enqueued_total{kind="zebra",queue="mail"}')
        == 1
    )


def test_a_hundred_scrapes_at_once_are_one_reading(database: Database, reader):
    began, readers = time.monotonic(), [reader() for _ in range(100)]
    first = reader()
    shown(first)  # while the first snapshot ever is made, others have none to show
    database.rows(
        "update redrive.snapshots set taken_at = taken_at - interval '3 seconds'"
    )
    written = "select n_tup_upd from pg_stat_user_tables where relname = 'snapshots'"
    with ThreadPoolExecutor(20) as threads:
        texts = list(threads.map(shown, readers))
    took = time.monotonic() - began

    for stats in (first, *readers):  # a session counts its writes when it ends
        stats.link.close()
    database.rows("select pg_stat_force_next_flush()")
    wait_for(lambda: database.value(written) >= 3)

    assert sum("redrive_stats_up 1.0" in text for text in texts) == 100
    assert database.value(written) <= 10 + took, (
        "ours, and one for every two seconds that it took"
    )


def test_a_kind_that_no_live_worker_handles_is_shown_until_one_does(
    database: Database, reader
):
    stats = reader()
    series = 'redrive_jobs_unhandled{kind="report",queue="mail"}'
    worker = store.Registration("w", "1.0", 30.0, ["welcome"], ["mail"])
    store.register(database.conn, worker)
    for kind in ("report", "report", "welcome"):
        database.rows("select redrive.enqueue(%s, queue => 'mail')", kind)

    assert value(shown(stats), series) == 2

    store.register(database.conn, worker._replace(kinds=["rep*"]))
    database.rows("update redrive.snapshots set taken_at = '-infinity'")

    assert value(again(stats), series) is None


def test_a_snapshot_of_the_release_before_is_read(database: Database, reader):
    shown(reader())
    database.rows(
        "update redrive.snapshots set body = body - 'unhandled', taken_at = now()"
    )

    assert value(shown(reader()), "redrive_stats_up") == 1


def test_figures_read_ahead_are_shown_without_the_database(
    database: Database, reader, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("redrive.observability.stats.AHEAD_SECONDS", 600.0)
    stats = reader()
    shown(stats)
    stats.read_ahead()
    before = shown(stats)
    stats.link.close()
    stats.link.where = Address("host=127.0.0.1 port=1 connect_timeout=2")

    assert shown(stats) == before

    stats.read_ahead()
    assert value(shown(stats), "redrive_stats_up") == 0, (
        "nothing old is shown once that is known"
    )


def test_figures_read_ahead_are_not_shown_for_long(database: Database, reader):
    stats = reader()
    shown(stats)
    stats.read_ahead()

    assert stats._fresh_until - time.monotonic() <= 6
    database.rows("select redrive.enqueue('a', queue => 'mail')")
    database.rows("update redrive.snapshots set taken_at = '-infinity'")
    assert value(again(stats), 'redrive_queue_depth{queue="mail",state="ready"}') == 1


def test_nothing_is_read_ahead_when_nobody_has_scraped_for_a_minute(
    database: Database, reader
):
    stats = reader()
    taken = "select taken_at::text from redrive.snapshots"
    at_first = database.value(taken)
    stats.read_ahead()
    assert database.value(taken) == at_first

    shown(stats)
    database.rows(
        "update redrive.snapshots set taken_at = taken_at - interval '1 hour'"
    )
    at_first = database.value(taken)
    stats._wanted_until -= 71
    stats.read_ahead()

    assert database.value(taken) == at_first


@contextlib.contextmanager
def exporting(database: Database, tmp_path: Path) -> Iterator[int]:
    """An exporter; its port."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "redrive",
        "exporter",
        "--database-url",
        database.url,
        "--http-port",
        str(port),
    ]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(command, stderr=log) as exporter,
    ):
        try:
            wait_for(lambda: _scrape(port))
            yield port
        finally:
            exporter.terminate()


def test_the_exporter_reads_ahead_of_its_scrapes(database: Database, tmp_path: Path):
    with exporting(database, tmp_path):
        before = database.value("select taken_at from redrive.snapshots")
        wait_for(
            lambda: database.value("select taken_at from redrive.snapshots") > before
        )


def test_with_no_worker_up_the_exporter_folds_the_counters(
    database: Database, tmp_path: Path
):
    """While workers were scaled to zero, nobody did."""
    database.rows(
        "select redrive.enqueue('a', queue => 'mail') from generate_series(1, 100)"
    )
    assert database.value("select count(*) from redrive.deltas") == 100
    with exporting(database, tmp_path):
        wait_for(lambda: database.value("select count(*) from redrive.deltas") == 0)

    assert database.value("select n from redrive.tallies") == 100


def test_the_exporter_logs_once_that_the_database_is_lost_and_that_it_is_back(
    server: Server, database: Database, tmp_path: Path
):
    """The walk of the runbook: RedriveMetricsAbsent fired, and the log said nothing."""

    def lines() -> list[str]:
        log = (tmp_path / "log").read_text().splitlines()
        events = [json.loads(line) for line in log if line.startswith("{")]
        return [f"{line['level']} {line['event']}" for line in events]

    name = database.conn.info.dbname
    lost, back = "warning database error", "info the database answers again"
    with exporting(database, tmp_path) as port:
        server.admin("alter database {} allow_connections false", name)
        database.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name = 'redrive stats'"
        )
        wait_for(lambda: lost in lines())
        wait_for(lambda: _failures(port) > 2)
        server.admin("alter database {} allow_connections true", name)
        wait_for(lambda: lines()[-1] == back)

    assert lines() == [lost, back] * (len(lines()) // 2)


def _failures(port: int) -> int:
    """How many calls failed in a row, as /readyz says it."""
    try:
        urlopen(f"http://127.0.0.1:{port}/readyz", timeout=300).close()
    except HTTPError as error:
        found = re.search(r"(\d+) calls failed", error.read().decode())
        return int(found[1]) if found else 0
    return 0


def _scrape(port: int) -> bytes | None:
    with (
        contextlib.suppress(OSError),
        urlopen(f"http://127.0.0.1:{port}/metrics", timeout=300) as answer,
    ):
        return bytes(answer.read())
    return None


def test_the_first_ending_of_a_kind_is_an_increase(database: Database, reader):
    database.rows("select redrive.enqueue('welcome', queue => 'mail')")

    text = shown(reader())

    assert value(text, 'redrive_jobs_completed_total{kind="welcome",queue="mail"}') == 0
    assert (
        value(
            text,
            'redrive_dlq_added_total{kind="welcome",queue="mail",reason="expired"}',
        )
        == 0
    )
    assert value(text, 'redrive_dlq_removed_total{action="purged",queue="mail"}') == 0
    assert (
        value(text, 'redrive_redrive_outcomes_total{outcome="dead_again",queue="mail"}')
        == 0
    )


def test_after_a_restore_every_exporter_shows_what_the_database_has(
    database: Database, reader
):
    """Held up at 70, the figure hid the next twenty dead letters."""
    stats = reader()
    database.rows(
        "insert into redrive.tallies values ('mail', 'welcome', 'enqueued', '', 900),"
        " ('mail', 'welcome', 'dead', 'expired', 70)"
    )
    series = 'redrive_dlq_added_total{kind="welcome",queue="mail",reason="expired"}'
    assert value(again(stats), series) == 70

    database.rows("update redrive.tallies set n = 50 where event = 'dead'")
    database.rows("update redrive.snapshots set taken_at = '-infinity'")

    assert value(again(stats), series) == value(shown(reader()), series) == 50


def test_a_lost_worker_counts_while_it_holds_jobs(database: Database, reader):
    """An idle one that was killed counted until somebody was there to forget it."""
    idle, busy = make_worker(database.conn, "idle"), make_worker(database.conn, "busy")
    make_jobs(database.conn, 1)
    jobs = claim(database.conn, busy)
    for worker in (idle, busy):
        silence(database.conn, worker)
    stats = reader()

    assert value(again(stats), "redrive_workers_lost") == 1

    complete(database.conn, busy, *jobs)
    database.rows("update redrive.snapshots set taken_at = '-infinity'")

    assert value(again(stats), "redrive_workers_lost") == 0


@pytest.mark.parametrize("way", ["gone", "hangs"])
def test_without_the_database_the_block_is_dropped(
    database: Database, reader, monkeypatch: pytest.MonkeyPatch, way: str
):
    monkeypatch.setattr("redrive.observability.stats.READ_SECONDS", 2.0)
    stats = reader()
    assert value(shown(stats), "redrive_stats_up") == 1
    [backend] = database.column(
        "select pid from pg_stat_activity where application_name = 'redrive stats'"
    )
    with psycopg.connect(database.url, autocommit=True) as conn:
        if way == "gone":
            conn.execute("select pg_terminate_backend(%s)", (backend,))
            stats.link._url = "host=127.0.0.1 port=1 connect_timeout=2"
        else:
            os.kill(backend, signal.SIGSTOP)
        try:
            text = again(stats)
        finally:
            if way == "hangs":
                os.kill(backend, signal.SIGCONT)

    assert value(text, "redrive_stats_up") == 0
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        "redrive_stats_up 0.0"
    ]
    assert READ_SECONDS < 9, "Prometheus waits ten seconds by default"


def test_a_chore_that_never_ran_is_shown_only_with_an_interval(
    database: Database, reader
):
    database.rows("update redrive.chores set ran_at = '-infinity', every = null")
    database.rows(
        "update redrive.chores set every = interval '1 day' where name = 'purge'"
    )

    text = shown(reader())

    assert value(text, 'redrive_maintenance_interval_seconds{task="purge"}') == 86400
    assert (
        value(text, 'redrive_maintenance_last_success_timestamp_seconds{task="purge"}')
        == 0
    )
    assert 'task="rescue"' not in text


def test_what_an_aborted_campaign_left_is_not_to_go(database: Database, reader):
    """A new campaign takes it, and it would count twice."""
    for state, place in (("aborted", 3), ("running", 1)):
        make_dead_letters(database.conn, 1)
        made = plan(database.conn, Filter(), actor="ada").plan
        database.rows(
            "update redrive.campaigns set matched = 5, place = %s, state = %s where id = %s",
            place,
            state,
            made,
        )

    assert value(shown(reader()), "redrive_campaign_waiting_jobs") == 4


def test_limits_are_shown_without_keys_of_payloads(database: Database, reader):
    """Those of one base stand together, however many keys and campaigns have their own."""
    worker = make_limited_worker(database.conn, "emails", "customer:{c}")
    for name, slots in (
        ("emails", 2),
        ("customer:*", 9),
        ("customer:17", 9),
        ("campaign:1", 1),
    ):
        database.rows(
            "select redrive.set_limit_v1(%s, %s, null, 'ada', 'why')", name, slots
        )
    for customer in (17, 17, 18, 18):
        make_job(database.conn, "a.b", {"c": customer})
    claim(database.conn, worker)
    text = again(reader())

    assert value(text, 'redrive_limit_slots{limit="emails"}') == 2
    assert value(text, 'redrive_limit_slots_used{limit="emails"}') == 2
    assert value(text, 'redrive_limit_waiting{limit="emails"}') == 2
    assert value(text, 'redrive_limit_slots_used{limit="customer:*"}') == 2
    assert value(text, 'redrive_limit_slots{limit="customer:*"}') is None
    assert "customer:17" not in text


def let_fail(database: Database, kind: str, jobs: int, **said: str) -> None:
    """Let jobs of a kind on the queue `mail` fail once, and wait for an hour."""
    worker = make_worker(database.conn)
    for _ in range(jobs):
        make_job(database.conn, kind, queue="mail")
    for _ in range(jobs):
        job = claim_one(database.conn, worker)
        fault = failure(**said)
        assert settle(database.conn, worker, job, "retry", delay=3600, failure=fault)


def test_failing_jobs_are_shown_by_category_and_their_main_cause_by_group(
    database: Database, reader
):
    let_fail(database, "send", 2, category="transient", fingerprint="f1")
    let_fail(database, "send", 1, category="auth", fingerprint="f2")
    let_fail(database, "forged", 1, category="auth", fingerprint="f3; rm -rf /")
    database.rows("select redrive.set_owner_v1('*', 'send', 'money', null, 'a', 'b')")

    text = shown(reader())

    where = 'kind="send",queue="mail"'
    jobs = f'redrive_failing_jobs{{category="%s",{where}}}'
    cause = (
        f'redrive_failing_since_timestamp_seconds{{category="%s",group="%s",{where}}}'
    )
    first = database.value(
        "select extract(epoch from min(at)) from redrive.failures where fingerprint = 'f1'"
    )
    assert value(text, jobs % "transient") == 2
    assert value(text, jobs % "auth") == 1
    assert value(text, cause % ("transient", "f1")) == pytest.approx(float(first))
    assert value(text, cause % ("auth", "f2")) is None
    assert (
        'redrive_failing_jobs{category="auth",kind="forged",queue="mail"} 1.0' in text
    )
    assert "rm -rf" not in text, "people type the name of a group that an alert names"
    assert value(text, 'redrive_owner{kind="send",owner="money",queue="mail"}') == 1
    assert "redrive_failing_behind_breaker{" not in text


def test_failing_jobs_behind_a_breaker_are_shown_while_it_is_open(
    database: Database, reader
):
    let_fail(database, "send", 1)
    store.register(
        database.conn,
        store.Registration(
            "w", "1.0", 30.0, ["send"], ["mail"], depends_on={"send": ["smtp"]}
        ),
    )
    series = 'redrive_failing_behind_breaker{breaker="smtp",kind="send"}'
    for state, expected in (("open", 1), ("half_open", None), ("closed", None)):
        database.rows("delete from redrive.breakers")
        database.rows(
            "insert into redrive.breakers (name, state) values ('smtp', %s)", state
        )
        database.rows(
            "update redrive.snapshots set taken_at = '-infinity', body = '{}'"
        )

        assert value(again(reader()), series) == expected
