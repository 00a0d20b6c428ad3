"""What the database and the network do to a worker: it comes back by itself, and no job is lost or
run for nothing.
"""

import sys
import time

import psycopg
import pytest

from redrive import enqueue
from redrive.database.connections import address
from redrive.database.connections.connect import connect
from redrive.database.connections.link import Link, Watchdog
from redrive.database.connections.trouble import Trouble, refusal, trouble
from redrive.enqueue import enqueue_many
from tests.flow import look
from tests.flow.harness import Entry, Workers, alive, wait_for
from tests.flow.proxy import CLAIMING, SETTLING, proxy_for
from tests.flow.test_suspension import is_suspended
from tests.postgres import Database

OURS = (
    "select pid from pg_stat_activity"
    " where datname = current_database() and application_name like 'redrive%%'"
)


def terminate(database: Database) -> int:
    """End all connections of workers."""
    return database.value(f"select count(pg_terminate_backend(pid)) from ({OURS}) o")  # type: ignore[arg-type]


def test_terminated_connections_are_opened_again_and_nothing_runs_twice(
    database: Database, workers: Workers
):
    jobs = [enqueue(database.conn, "work.async", {"seconds": 0.05}) for _ in range(150)]
    worker = workers("--slots", "8").wait_ready()
    cuts = 0
    for n in range(5):
        wait_for(lambda n=n: look.live(database) <= 130 - 25 * n)
        cuts += wait_for(
            lambda: terminate(database)
        )  # also where it has yet to come back
    wait_for(lambda: look.live(database) == 0)
    ends = [entry.job for entry in workers.ledger() if entry.phase == "end"]

    assert cuts >= 5
    assert sorted(set(ends)) == jobs
    assert look.reasons(database) == {}
    assert worker.process.poll() is None
    # What was claimed unseen is given back by its identity, and identities left behind go.
    wait_for(lambda: database.value("select count(*) from redrive.workers") == 1)


@pytest.mark.parametrize("words", [SETTLING, CLAIMING], ids=["settlement", "claim"])
def test_a_lost_answer_loses_no_job_and_strands_none(
    database: Database, workers: Workers, words
):
    jobs = [enqueue(database.conn, "work.async", {"seconds": 0.02}) for _ in range(120)]
    with proxy_for(database.url) as proxy:
        worker = workers("--slots", "8", url=proxy.url)
        for n in range(6):
            wait_for(lambda n=n: look.live(database) <= 118 - 18 * n)
            proxy.cut_after = words
            # the others may all have ended by now
            jobs.append(enqueue(database.conn, "work.async", {"seconds": 0.02}))
            wait_for(lambda: not proxy.cut_after)
        wait_for(
            lambda: look.live(database) == 0, what="a job was stranded by a lost answer"
        )
        wait_for(lambda: database.value("select count(*) from redrive.workers") == 1)
        assert worker.process.poll() is None

    assert proxy.cuts == 6
    assert {e.job for e in workers.ledger() if e.phase == "end"} == set(jobs)
    assert look.reasons(database) == {}
    assert look.counted(database)["completed"] == len(jobs)


def test_a_database_that_turns_read_only_is_waited_for(
    database: Database, workers: Workers
):
    worker = workers().wait_ready()
    name = database.value("select quote_ident(current_database())")
    database.conn.execute(
        f"alter database {name} set default_transaction_read_only = on"
    )
    terminate(database)
    wait_for(lambda: worker.metric("redrive_db_errors_total", sqlstate="25006") > 0)
    database.conn.execute(
        f"alter database {name} set default_transaction_read_only = off"
    )
    job = enqueue(database.conn, "work.sync")
    wait_for(lambda: workers.starts(job))

    assert worker.process.poll() is None


def test_an_outage_longer_than_the_ttl_suspends_what_runs_and_nothing_starts_again(
    database: Database, workers: Workers
):
    """12 of 12 jobs were started 5 times in 4 outages of 9 s."""
    slow = enqueue(database.conn, "work.until-file", {"file": "go"})
    quick = enqueue(database.conn, "work.until-file", {"file": "end"})
    with proxy_for(database.url) as proxy:
        worker = workers(url=proxy.url, redrive_heartbeat_ttl=2).wait_ready()
        wait_for(lambda: len(workers.ledger()) == 2)
        (start,) = workers.starts(slow)
        for _ in range(2):
            proxy.swallow = True
            wait_for(lambda: is_suspended(start.pid), what="it outlived its claim")
            (workers.home / "end").touch()
            proxy.swallow, proxy.refuse = False, True
            wait_for(lambda: not proxy._clients)
            proxy.refuse = False
            wait_for(lambda: not is_suspended(start.pid))
            wait_for(lambda: look.live(database) == 1)
        (workers.home / "go").touch()
        wait_for(lambda: look.live(database) == 0)

    assert look.reasons(database) == {}
    assert [len(workers.starts(job)) for job in (slow, quick)] == [1, 1]
    assert {e["event"] for e in worker.events()}.isdisjoint(
        {"retried", "declared lost"}
    )


NOT_OURS = {"declared lost", "stale settlement refused"}
"""Events that say that others own a job. It is the second if its runner was killed before."""


def test_a_job_that_others_have_taken_meanwhile_ends_without_running_on(
    database: Database, workers: Workers
):
    slow = enqueue(database.conn, "work.until-file", {"file": "go"})
    with proxy_for(database.url) as proxy:
        worker = workers(url=proxy.url, redrive_heartbeat_ttl=2).wait_ready()
        (start,) = wait_for(lambda: workers.starts(slow))
        proxy.swallow = True
        # The suspension comes 0.4 s before the ttl, which a busy machine can miss.
        wait_for(lambda: is_suspended(start.pid))
        workers(redrive_heartbeat_ttl=2)
        wait_for(lambda: len(workers.starts(slow)) == 2)
        # Its worker kills it after five ttls.
        assert is_suspended(start.pid) or not alive(start.pid), "two ran at once"
        proxy.swallow, proxy.refuse = False, True
        wait_for(lambda: not proxy._clients)
        proxy.refuse = False
        wait_for(lambda: not alive(start.pid))
        (workers.home / "go").touch()
        wait_for(lambda: look.live(database) == 0)
        wait_for(lambda: {e["event"] for e in worker.events()} & NOT_OURS)

    assert look.reasons(database) == {}
    assert [e.delivery for e in workers.starts(slow)] == [1, 2]
    assert len([e for e in workers.ledger() if e.phase == "end"]) == 1


def test_an_idle_worker_hears_of_a_job_although_listening_is_impossible(
    database: Database, workers: Workers
):
    worker = workers().wait_ready()
    deaf = (
        "select count(pg_terminate_backend(pid)) from pg_stat_activity"
        " where application_name = 'redrive heartbeat'"
    )
    for _ in range(5):
        database.value(deaf)
        job = enqueue(database.conn, "work.sync")
        wait_for(lambda job=job: workers.starts(job), every=0.005)

    assert worker.process.poll() is None


POLLS_ONLY_SOON_AFTER_ACTIVITY = """
import sys
from redrive.cli import main
from redrive.worker import polling

class Share(float):
    def __rmul__(self, idle_seconds):
        return 0.0 if idle_seconds < 2 else 3600.0

polling.IDLE_SHARE, polling.MAX_SECONDS = Share(), 3600.0
sys.exit(main(sys.argv[4:]))  # past: python -m redrive
"""


def test_a_listener_wakes_an_idle_worker(database: Database, workers: Workers):
    """It may look in vain at first, at lanes that it knew, and polls again at once, as always."""
    workers(under=(sys.executable, "-c", POLLS_ONLY_SOON_AFTER_ACTIVITY)).wait_ready()

    def is_heard() -> list[Entry]:
        enqueue(database.conn, "work.sync")
        return workers.ledger()

    wait_for(is_heard, every=0.2)  # it may be ready before it listens
    wait_for(lambda: look.live(database) == 0)
    time.sleep(2.5)  # now it polls no more
    job = enqueue(
        database.connect(), "work.sync"
    )  # a session tells of its own now and then
    wait_for(lambda: workers.starts(job))


def test_a_worker_started_before_its_database_waits_for_it(
    database: Database, workers: Workers
):
    job = enqueue(database.conn, "work.sync")
    with proxy_for(database.url) as proxy:
        proxy.refuse = True
        worker = workers(url=proxy.url)
        wait_for(
            lambda: any("cannot be reached" in e["event"] for e in worker.events())
        )
        proxy.refuse = False
        wait_for(lambda: workers.starts(job))


def test_a_thousand_failures_in_a_row_do_not_break_the_link(database: Database):
    link = Link("host=127.0.0.1 port=1 connect_timeout=1", "test")
    link._backoff.failures = 5_000
    began = time.monotonic()
    with pytest.raises(psycopg.OperationalError), link.use():
        pass

    assert began < link.retry_at <= time.monotonic() + 5


def test_a_link_says_why_the_server_cannot_be_reached():
    """It named only the number of calls, and a worker's log `OperationalError (None)`."""
    link = Link("host=127.0.0.1 port=1 connect_timeout=1", "test")
    with pytest.raises(psycopg.OperationalError) as error, link.use():
        pass

    assert link.trouble() == "1 calls failed in a row: Connection refused"
    assert refusal(error.value) == "Connection refused"


def test_a_missing_right_is_named(database: Database):
    """As where the Secrets of worker and exporter are swapped."""
    database.conn.execute("set role redrive_viewer")
    with pytest.raises(psycopg.errors.InsufficientPrivilege) as error:
        database.conn.execute("select redrive.beat_v1('{}', '{}', '{}')")

    assert refusal(error.value) == "permission denied for function beat_v1 (42501)"


def fail(link: Link) -> float:
    """Fail to reach the server. Returns how many seconds to wait then."""
    with pytest.raises(psycopg.OperationalError), link.use():
        pass
    return link.retry_at - time.monotonic()


def test_a_young_outage_is_looked_into_every_second(database: Database):
    """The wait used to grow to 5 s within seconds."""
    link = Link("host=127.0.0.1 port=1 connect_timeout=1", "test")

    assert fail(link) <= 0.1, (
        "at first at once: a connection that was cut is the server's no longer"
    )
    assert max(fail(link) for _ in range(100)) <= 1.0


def test_links_of_a_process_come_back_together(database: Database):
    """The first that hears the server again tells the others."""
    lost, other = (Link("host=127.0.0.1 port=1", "test"), Link(database.url, "test"))
    watchdog = Watchdog(lost, other)
    with other.use() as conn:
        conn.execute("select 1")
    for _ in range(10):
        fail(lost)
    watchdog.look(time.monotonic())
    assert lost.retry_at > 0, "what was heard before the failure means nothing"

    with other.use() as conn:
        conn.execute("select 1")
    watchdog.look(time.monotonic())
    other.close()

    assert lost.retry_at == 0


def _ask(link: Link) -> None:
    """Make a call of at most a second."""
    with link.use(bound=1) as conn:
        assert link.overdue_at <= time.monotonic() + 1
        conn.execute("select 1")


def test_a_server_that_accepts_and_says_nothing_more_does_not_hold_a_call(
    database: Database,
):
    with proxy_for(database.url) as proxy:
        link = Link(proxy.url, "test")
        Watchdog(link).start()
        with link.use() as conn:
            conn.execute("select 1")
        proxy.swallow = True
        with pytest.raises(psycopg.Error) as caught:
            _ask(link)

    assert trouble(caught.value) is Trouble.LOST


def test_the_watchdog_knows_a_connection_before_its_first_statement(
    database: Database, monkeypatch
):
    with proxy_for(database.url) as proxy:
        link = Link(proxy.url, "test")
        Watchdog(link).start()
        real = connect

        def open_and_go_silent(url: str, **options: str):
            conn = real(url, **options)
            proxy.swallow = True
            return conn

        monkeypatch.setattr(address, "connect", open_and_go_silent)
        with pytest.raises(psycopg.Error):
            _ask(link)


def test_many_fast_jobs_are_settled_in_batches(database: Database, workers: Workers):
    enqueue_many(database.conn, [{"kind": "work.payload-only"} for _ in range(5_000)])
    worker = workers.run("--slots", "16")

    assert look.counted(database)["completed"] == 5_000
    assert look.live(database) == 0
    assert worker.process.returncode == 0
