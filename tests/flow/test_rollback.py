"""The real programs of the baseline's commit through an upgrade, and after a rollback."""

import io
import os
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from redrive.database.schema.migrate import latest
from tests.flow.harness import ROOT, Worker, Workers, wait_for, workers_on
from tests.postgres import Server, Session, connect

pytestmark = pytest.mark.slow

COME_BACK = """
insert into redrive.jobs (kind, lane, payload)
select 'work.sync', -1, '{}' from generate_series(1, 20)"""
"""Jobs in a front lane, which the baseline does not know."""

BASELINE = "b115eb0ef4f4e28590f381b8888b92f4ae139392"
"""The last commit before a second migration: nothing newer serves less than its programs."""

PRODUCER = """
import sys, time
from pathlib import Path
import psycopg
from redrive import enqueue

stop = Path(sys.argv[2])
with psycopg.connect(sys.argv[1], autocommit=True) as conn:
    while not stop.exists():
        enqueue(conn, "work.sync", {})
        enqueue(conn, "work.sync", {}, ordering_key="k")
        enqueue(conn, "fail.until", {"attempt": 2})
        time.sleep(0.05)
"""


@pytest.fixture(scope="session")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of the baseline's commit."""
    archive = ["git", "-C", str(ROOT), "archive", BASELINE, "service", "sql", "tests"]
    taken = subprocess.run(archive, check=False, capture_output=True)
    if taken.returncode:
        pytest.skip("this clone has no history: " + taken.stderr.decode()[:200])
    root = tmp_path_factory.mktemp("baseline")
    with tarfile.open(fileobj=io.BytesIO(taken.stdout)) as files:
        files.extractall(root, filter="tar")
    return root


def run(root: Path, url: str, *arguments: str) -> str:
    """Run a command of the checkout at `root`, and return what it printed."""
    ended = subprocess.run(
        [sys.executable, "-m", "redrive", *arguments],
        check=False,
        env=_environment(root, url),
        cwd=root,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@contextmanager
def producing(root: Path, url: str, home: Path) -> Iterator[None]:
    """Enqueue jobs with the program of the checkout at `root` until the block ends."""
    stop = home / "stop"
    producer = subprocess.Popen(
        [sys.executable, "-c", PRODUCER, url, str(stop)],
        env=_environment(root, url),
        cwd=root,
    )
    try:
        yield
        assert producer.poll() is None, "the producer failed"
        stop.touch()
        assert producer.wait(60) == 0
    finally:
        producer.kill()
        producer.wait()


@contextmanager
def session(url: str) -> Iterator[Session]:
    """A session that ends with the block."""
    opened = Session(connect(url))
    try:
        yield opened
    finally:
        opened.close()


def _environment(root: Path, url: str) -> dict[str, str]:
    service = str(root / "service")
    return os.environ | {"PYTHONPATH": service, "REDRIVE_DATABASE_URL": url}


@pytest.mark.long
def test_the_programs_of_the_baseline_go_on_through_an_upgrade_and_a_rollback(
    server: Server, baseline: Path, tmp_path: Path
) -> None:
    """Each job runs once, whichever release enqueues, claims, fails and redrives it.

    Also if it came back to a worker of this release.
    """
    with server.empty() as url, workers_on(url, tmp_path) as workers:
        run(baseline, url, "migrate")
        with session(url) as database:
            with producing(baseline, url, tmp_path):
                stays, restarts = old(workers, baseline), old(workers, baseline)
                wait_for_more(workers)
                run(ROOT, url, "migrate")
                database.rows(COME_BACK)
                wait_for_more(workers)
                assert restarts.stop()[0] == 0
                restarts = old(workers, baseline)
                new = workers().wait_ready()
                run(ROOT, url, "enqueue", "fail.always", "{}")
                wait_for_more(workers)

                assert new.stop()[0] == 0
                run(baseline, url, "migrate")
                database.rows(COME_BACK)
                wait_for(lambda: deaths(database) == [0])
                why = ("--yes", "--why", "the rollback mends it")
                run(baseline, url, "dlq", "redrive", "--kind", "fail.always", *why)
                wait_for(lambda: deaths(database) == [0, 1])
                wait_for_more(workers)
            wait_for(lambda: not database.rows("select from redrive.jobs"))
            version = database.value("select max(version) from redrive.migrations")
            (died,) = set(database.column("select id from redrive.dead_letters"))
        assert version == latest()
        for worker in (stays, restarts):
            assert worker.stop()[0] == 0
        assert_each_ran_once(workers, died)


def old(workers: Workers, baseline: Path) -> Worker:
    """Start a worker of the baseline."""
    service = str(baseline / "service")
    return workers(forked=False, root=baseline, pythonpath=service).wait_ready()


def wait_for_more(workers: Workers) -> None:
    """Wait until each worker that runs has written twenty more lines."""
    before = lines(workers)

    def have_written() -> bool:
        return all(count > before[pid] + 20 for pid, count in lines(workers).items())

    wait_for(have_written, every=0.2)


def lines(workers: Workers) -> dict[int, int]:
    """Count what the runners of each worker that runs have written down."""
    written = Counter(entry.pid for entry in workers.ledger())
    return {
        worker.pid: sum(written[runner] for runner in worker.runners)
        for worker in workers.started
        if worker.process.poll() is None
    }


def deaths(database: Session) -> list[int]:
    """List after how many redrives each dead letter was made."""
    made = "select redrives from redrive.dead_letters order by redrives"
    return database.column(made)


def assert_each_ran_once(workers: Workers, died: int) -> None:
    """Each other job ended once, after one start of each attempt."""
    starts, ends = dict[int, list[int]](), list[int]()
    for entry in workers.ledger():
        if entry.phase == "end":
            ends.append(entry.job)
        elif entry.job != died:
            starts.setdefault(entry.job, []).append(entry.attempt)
    assert sorted(ends) == sorted(starts)
    assert all(attempts in ([1], [1, 2]) for attempts in starts.values())
