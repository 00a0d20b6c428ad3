"""What a worker owes to its clocks whatever the database does: a beat in time, a deadline kept."""

import time

from redrive import enqueue
from tests.flow import look
from tests.flow.harness import Workers, alive, wait_for
from tests.flow.proxy import proxy_for
from tests.postgres import Database

WAITING = (
    "select count(*) from pg_stat_activity where datname = current_database()"
    " and application_name like 'redrive%%' and wait_event_type = 'Lock'"
)


def test_a_chore_that_hangs_delays_no_beat_and_no_claim(database: Database, workers: Workers):
    """C2: the beat waited behind a chore, and the worker declared itself lost."""
    running = [enqueue(database.conn, "work.until-file", {"file": "go"}) for _ in range(3)]
    worker = workers(redrive_heartbeat_ttl=2).wait_ready()
    wait_for(lambda: len(workers.ledger()) == 3)
    blocker = database.session()
    blocker.rows("begin")
    blocker.rows("lock table redrive.samples in access exclusive mode")
    wait_for(lambda: database.value(WAITING), what="no chore hangs")
    hanging_since = time.monotonic()
    later = enqueue(database.conn, "work.sync")
    wait_for(lambda: workers.starts(later))
    wait_for(lambda: time.monotonic() - hanging_since > 5)
    blocker.rows("rollback")
    (workers.home / "go").touch()
    wait_for(lambda: look.live(database) == 0)

    assert [len(workers.starts(job)) for job in (*running, later)] == [1, 1, 1, 1]
    assert not [e for e in worker.events() if e["event"] == "declared lost"]


def test_a_deadline_is_kept_while_the_database_says_nothing(database: Database, workers: Workers):
    """C18: the loop sat in a call for up to 15 s, and so long a hanging attempt went on."""
    with proxy_for(database.url) as proxy:
        workers(url=proxy.url, redrive_heartbeat_ttl=60).wait_ready()
        job = enqueue(database.conn, "hang.for-a-while")
        (start,) = wait_for(lambda: workers.starts(job))
        proxy.swallow = True
        wait_for(lambda: not alive(start.pid))
        seconds = time.monotonic() - start.at

    assert seconds < 6  # of which 3 are its timeout, and 1 what it gets to react
