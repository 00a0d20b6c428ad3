"""Runners that are suspended because the database is silent are continued or killed."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive import enqueue
from tests.flow import look
from tests.flow.harness import Worker, Workers, alive, wait_for
from tests.flow.proxy import Proxy, proxy_for
from tests.postgres import Database

TTL = 2


def is_suspended(pid: int) -> bool:
    """Return whether a process is stopped by a signal."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # it is gone
        return False
    return stat.rpartition(")")[2].split()[0] == "T"


@pytest.fixture
def proxy(database: Database) -> Iterator[Proxy]:
    with proxy_for(database.url) as started:
        yield started


def suspended(
    workers: Workers, proxy: Proxy, job: int, **env: object
) -> tuple[Worker, int]:
    """Start a worker, silence it while it runs a job, return it and its stopped runner."""
    worker = workers(
        url=proxy.url, redrive_drain_timeout=3, **{"redrive_heartbeat_ttl": TTL} | env
    )
    (start,) = wait_for(lambda: workers.starts(job))
    proxy.swallow = True
    wait_for(lambda: is_suspended(start.pid))
    return worker, start.pid


def reconnect(proxy: Proxy) -> None:
    """Close what was swallowed, and pass everything on again."""
    proxy.swallow, proxy.refuse = False, True
    wait_for(lambda: not proxy._clients)
    proxy.refuse = False


def test_sigterm_ends_a_suspended_worker_and_its_runners(
    database: Database, workers: Workers, proxy: Proxy
):
    job = enqueue(database.conn, "work.until-file", {"file": "go"})
    worker, runner = suspended(workers, proxy, job)
    worker.stop()

    wait_for(lambda: not alive(runner))


def test_a_suspended_runner_dies_with_its_supervisor(
    database: Database, workers: Workers, proxy: Proxy
):
    """A runner also dies if it is stopped before it has asked to die with its parent."""
    job = enqueue(database.conn, "work.until-file", {"file": "go"})
    worker, runner = suspended(workers, proxy, job)
    os.kill(runner, signal.SIGKILL)
    (newborn,) = wait_for(lambda: [pid for pid in worker.runners if pid != runner])
    wait_for(
        lambda: Path(f"/proc/{newborn}/cmdline").read_bytes().count(b"redrive.worker")
    )
    worker.signal(signal.SIGKILL)

    wait_for(lambda: not alive(newborn))


@pytest.mark.waits
def test_time_in_suspension_counts_towards_no_timeout(
    database: Database, workers: Workers, proxy: Proxy
):
    """An async handler whose timeout had passed meanwhile was cancelled and charged for it."""
    job = enqueue(database.conn, "work.async-until-file", {"file": "go"})
    # Suspended 5 s after its start and killed 30 s later: both far from its timeout.
    _, runner = suspended(workers, proxy, job, redrive_heartbeat_ttl=6)
    (start,) = workers.starts(job)
    wait_for(lambda: time.monotonic() > start.at + 21)  # its timeout is 20 s
    reconnect(proxy)
    wait_for(lambda: not is_suspended(runner))
    (workers.home / "go").touch()
    wait_for(lambda: look.live(database) == 0)

    assert look.reasons(database) == {}
    assert len(workers.starts(job)) == 1


def test_somebody_elses_sigcont_does_not_end_a_suspension(
    database: Database, workers: Workers, proxy: Proxy
):
    job = enqueue(database.conn, "work.until-file", {"file": "go"})
    _, runner = suspended(workers, proxy, job)
    os.kill(runner, signal.SIGCONT)

    wait_for(lambda: is_suspended(runner))


def test_a_long_suspension_ends_and_with_it_what_the_handler_holds(
    database: Database, workers: Workers, proxy: Proxy
):
    """The handler's own connection works; its transaction ends all the same."""
    job = enqueue(database.conn, "work.child-until-file", {"file": "go"})
    held = "select count(*) from pg_stat_activity where application_name = 'handler'"
    _, runner = suspended(workers, proxy, job, redrive_test_direct_url=database.url)
    child = int((workers.home / "child").read_text())
    wait_for(lambda: is_suspended(child))
    assert database.value(held) == 1
    wait_for(lambda: not alive(runner))
    wait_for(lambda: not alive(child))
    wait_for(lambda: database.value(held) == 0)
    (workers.home / "go").touch()
    reconnect(proxy)
    wait_for(lambda: look.live(database) == 0)

    assert look.reasons(database) == {}
    assert [entry.attempt for entry in workers.starts(job)] == [1, 1]
