"""Campaigns at size, under kills and restarts: each trial returns its figures, or what is wrong."""

import multiprocessing
import os
import random
import signal
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

from redrive.database.embedded import EmbeddedPostgres
from redrive.dead_letters.campaigns import drive as driver
from redrive.dead_letters.campaigns.drive import drive, drive_all
from redrive.dead_letters.campaigns.pace import GOING, exposure
from redrive.dead_letters.campaigns.store import plan, show, start
from redrive.dead_letters.campaigns.terms import Terms
from redrive.dead_letters.filter import Filter
from tests.factories import claim, complete, let_die, make_dead_letters, make_worker
from tests.flow.harness import wait_for, workers_on
from tests.postgres import Connection, Database, connect

Figures = dict[str, float]
STEP_SIZE = 5
LIFE_SECONDS = 0.03
"""A driver lives for up to so long after its first step: a few more."""


def begun(conn: Connection, chosen: Filter, terms: Terms) -> int:
    """A campaign over all that matches. Returns its id."""
    made = plan(conn, chosen, actor="trial").plan
    assert made is not None
    start(conn, made, terms, actor="trial", why="a trial")
    return made


def known(conn: Connection, campaign: int) -> dict[str, Any]:
    found = show(conn, campaign)
    assert found is not None
    return found


def drive_until_killed(url: str, campaign: int, told: Pipe) -> None:
    """Take steps as whoever is alive does; say so after the first."""
    driver.STEP_SIZE = STEP_SIZE
    with connect(url) as conn:
        drive(conn, campaign)
        told.send(True)
        while True:
            drive(conn, campaign)


def kills(database: Database, *, letters: int, times: int, seed: int) -> Figures:
    """kill -9 of the driver at random moments: rows in are rows out, each with one new life."""
    ids = make_dead_letters(database.conn, letters)
    campaign = begun(database.conn, Filter(ids=ids), Terms())
    worker, chance = make_worker(database.conn), random.Random(seed)
    runs: Counter[int] = Counter()

    def run_what_is_due() -> None:
        jobs = claim(database.conn, worker, letters)
        runs.update(job.id for job in jobs)
        if jobs:
            complete(database.conn, worker, *jobs)

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["trials.campaigns.trials"])
    killed = 0
    while killed < times and known(database.conn, campaign)["state"] in GOING:
        hears, tells = context.Pipe(duplex=False)
        driver = context.Process(
            target=drive_until_killed, args=(database.url, campaign, tells)
        )
        driver.start()
        assert hears.poll(300), "a driver did not begin"
        time.sleep(chance.uniform(0, LIFE_SECONDS))
        driver.kill()
        driver.join()
        killed += 1
        run_what_is_due()
    while known(database.conn, campaign)["state"] in GOING:
        drive(database.conn, campaign)
        run_what_is_due()

    found = known(database.conn, campaign)
    assert (found["state"], found["redriven"], found["succeeded"]) == (
        "done",
        letters,
        letters,
    )
    assert set(runs) == set(ids), "rows in are not rows out"
    assert set(runs.values()) == {1}, "some had two lives"
    left = "select state, outcome, redrives, count(*) from redrive.dead_letters group by 1, 2, 3"
    assert database.rows(left) == [("resolved", "succeeded", 0, letters)]
    assert database.value("select count(*) from redrive.jobs") == 0
    return {"letters": letters, "kills": killed}


def starters(database: Database, *, letters: int, at_once: int) -> Figures:
    """Many plan and start the same set at once: each dead letter gets one new generation."""
    ids = make_dead_letters(database.conn, letters)
    together = threading.Barrier(at_once)

    def act(_: int) -> int:
        with connect(database.url) as conn:
            together.wait(60)
            campaign = begun(conn, Filter(ids=ids), Terms(canaries=0))
            wait_for(lambda: _fed(conn, campaign), 600, every=0)
            return int(known(conn, campaign)["redriven"])

    done = threading.Event()

    def run_what_is_due() -> None:
        # the bound on what nobody has begun would stop them all
        with connect(database.url) as conn:
            worker = make_worker(conn)
            while not done.is_set():
                jobs = claim(conn, worker, 1000)
                if jobs:
                    complete(conn, worker, *jobs)

    runner = threading.Thread(target=run_what_is_due)
    runner.start()
    try:
        with ThreadPoolExecutor(at_once) as pool:
            redriven = list(pool.map(act, range(at_once)))
    finally:
        done.set()
        runner.join()
    assert sum(redriven) == letters, f"{sum(redriven)} generations for {letters}"
    lives = "select count(*), count(*) filter (where state in ('redriven', 'resolved'))"
    assert database.row(f"{lives} from redrive.dead_letters") == (letters, letters)
    return {"letters": letters, "starters": at_once, "generations": sum(redriven)}


def _fed(conn: Connection, campaign: int) -> bool:
    drive(conn, campaign)
    return known(conn, campaign)["waiting"] == 0


def share_that_fails(database: Database, *, rounds: int, seed: int) -> Figures:
    """Three of each ten die again, in any order: it stops within what the plan promised."""
    worker, chance, most = make_worker(database.conn), random.Random(seed), 0
    for _ in range(rounds):
        ids = make_dead_letters(database.conn, 60)
        campaign = begun(database.conn, Filter(ids=ids), Terms())
        dies = {
            ids[at + n] for at in range(0, 60, 10) for n in chance.sample(range(10), 3)
        }
        while known(database.conn, campaign)["state"] in GOING:
            drive(database.conn, campaign)
            for job in claim(database.conn, worker, 100):
                if job.id in dies:
                    let_die(database.conn, worker, job)
                else:
                    complete(database.conn, worker, job)
        found = known(database.conn, campaign)
        assert found["state"] == "aborted", found
        assert found["redriven"] <= exposure(3), found
        most = max(most, found["redriven"])
    return {"rounds": rounds, "promised": exposure(3), "most_put_back": most}


def share_below_the_limit(database: Database, *, letters: int) -> Figures:
    """Three of each hundred die again, and thousands end between two looks: all go through."""
    ids = make_dead_letters(database.conn, letters)
    campaign = begun(database.conn, Filter(), Terms())
    dies, worker, looks = set(ids[32::33]), make_worker(database.conn), 0
    while known(database.conn, campaign)["state"] in GOING:
        drive_all(database.conn)
        looks += 1
        while jobs := claim(database.conn, worker, 1000):
            good = [job for job in jobs if job.id not in dies]
            complete(database.conn, worker, *good)
            for job in jobs:
                if job.id in dies:
                    let_die(database.conn, worker, job)
    found = known(database.conn, campaign)
    assert (found["state"], found["dead_again"]) == ("done", len(dies)), found
    assert found["succeeded"] == letters - len(dies), found
    return {"letters": letters, "dead_again": len(dies), "looks": looks}


def healthy(home: Path, *, rate: float, window: float) -> Figures:
    """At the asked rate, also after a pause, the death of a worker and a restart of Postgres."""
    postgres = EmbeddedPostgres(home / "postgres")
    postgres.start()
    try:
        database = Database(postgres.url())
        _migrate(postgres.url())
        make_dead_letters(
            database.conn, int(rate * (window * 4 + 60)), kind="work.sync"
        )
        with workers_on(postgres.url(), home) as workers:
            return _course(database, postgres, workers, rate, window)
    finally:
        postgres.stop("immediate")


def _migrate(url: str) -> None:
    from redrive.database.schema.migrate import migrate

    with connect(url) as conn:
        migrate(conn)


def _course(
    database: Database,
    postgres: EmbeddedPostgres,
    workers: Any,
    rate: float,
    window: float,
) -> Figures:
    ttl = {"redrive_heartbeat_ttl": 3}
    first, _ = (workers(**ttl).wait_ready() for _ in range(2))
    begun(database.conn, Filter(), Terms(rate=rate))

    def pause() -> None:
        database.rows("select redrive.pause_v1('default', 'trial', 'a trial')")
        time.sleep(8)
        database.rows("select redrive.resume_v1('default', 'trial', 'a trial')")

    def kill_a_worker() -> None:
        os.kill(first.pid, signal.SIGKILL)
        workers(**ttl).wait_ready()

    def restart() -> None:
        postgres.stop("fast")
        postgres.start()

    figures: Figures = {"rate": rate}
    events: dict[str, Callable[[], None]] = {
        "from_the_start": lambda: None,
        "after_a_pause": pause,
        "after_kill_9_of_a_worker": kill_a_worker,
        "after_a_restart_of_postgres": restart,
    }
    for name, event in events.items():
        event()
        at = time.monotonic()
        time.sleep(10 + window)
        started = [e.at for e in workers.ledger() if e.phase == "start" and e.at > at]
        figures[name] = sum(at + 10 <= s < at + 10 + window for s in started) / window
        figures[f"{name}_most_in_a_second"] = max(
            Counter(int(s - at) for s in started).values(), default=0
        )
    rates = [figures[name] for name in events]
    assert all(abs(found / rate - 1) <= 0.1 for found in rates), figures
    assert figures["after_a_pause_most_in_a_second"] <= 4 * rate + 1, figures
    return figures | {"mean": statistics.mean(rates)}
