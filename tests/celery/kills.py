"""Tasks that fail for good while workers are killed: each is one dead letter."""

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from redis import Redis

from tests.celery.harness import CeleryWorker, Shop
from tests.postgres import Database

FAILS = 2
"""Every second task fails for good."""

QUIET_SECONDS = 12.0
"""How long nothing must happen before the run is over: longer than the broker waits."""

STUCK_SECONDS = 300.0


@dataclass
class Run:
    """A run and its figures."""

    shop: Shop
    database: Database
    between: float
    workers: list[CeleryWorker] = field(default_factory=list)
    children: int = 0
    whole: int = 0
    sessions: int = 0
    figures: str = ""

    @property
    def kills(self) -> int:
        return self.children + self.whole + self.sessions

    def start(self) -> None:
        self.workers.append(self.shop.worker(level="warning"))

    def kill(self) -> None:
        """Kill a process of the pool, a whole worker, or a session of Postgres."""
        worker = random.choice(self.workers)
        chance = random.random()
        if chance < 0.15:
            worker.kill()
            self.workers.remove(worker)
            self.start()
            self.whole += 1
        elif chance < 0.3:
            self.sessions += self.database.value(
                "select count(pg_terminate_backend(pid)) from pg_stat_activity"
                " where application_name = 'redrive celery'"
            )
        elif pool := worker.pool:
            with contextlib.suppress(ProcessLookupError):
                os.kill(random.choice(pool), signal.SIGKILL)
                self.children += 1


def run(shop: Shop, database: Database, tasks: int, between: float) -> Run:
    """Send the tasks, kill until all is done, and compare both sides."""
    done = Run(shop, database, between)
    sent = {send(shop, n) for n in range(tasks // 2)}
    for _ in range(2):
        done.start()
    # A busy machine may be done with all tasks before the first kill.
    while not done.kills:
        done.kill()
    sent |= {send(shop, n) for n in range(tasks // 2, tasks)}
    failing = {task for task, fails in sent if fails}
    kill_until(done, quiet(shop, database))

    exhausted = set(shop.lines("exhausted"))
    dead = database.column(
        "select i.source_id from redrive.imports i join redrive.dead_letters d on d.id = i.job"
    )
    done.figures = (
        f"{tasks} tasks, {len(failing)} of them fail; {done.children} processes of pools,"
        f" {done.whole} whole workers and {done.sessions} sessions of Postgres killed;"
        f" {len(exhausted)} exhausted, {len(shop.lines('exhausted'))} times; {len(dead)} dead letters;"
        f" {len(failing - exhausted)} never reached their last try"
    )
    assert len(dead) == len(set(dead))
    assert set(dead) == exhausted
    assert exhausted <= failing
    return done


def send(shop: Shop, n: int) -> tuple[str, bool]:
    fails = n % FAILS == 0
    return shop.send("shop.work", n, kwargs={"fails": fails}), fails


def quiet(shop: Shop, database: Database) -> Callable[[], bool]:
    """Return a function that says whether nothing has happened for a while."""
    broker = Redis.from_url(shop.broker)
    seen: tuple[int, ...] = ()
    since = time.monotonic()

    def is_quiet() -> bool:
        nonlocal seen, since
        waiting = (broker.llen("celery"), broker.hlen("unacked"), shop.waiting())
        dead = database.value("select count(*) from redrive.dead_letters")
        now = (*waiting, dead, len(shop.lines("exhausted")))
        if now != seen:
            seen, since = now, time.monotonic()
        idle = time.monotonic() - since
        assert idle < STUCK_SECONDS, f"stuck at {now}"
        return not any(waiting) and idle > QUIET_SECONDS

    return is_quiet


def kill_until(done: Run, is_over: Callable[[], bool]) -> None:
    """Kill now and then while there is work, and stop before the end."""
    broker = Redis.from_url(done.shop.broker)
    while not is_over():
        time.sleep(done.between)
        if broker.llen("celery"):
            done.kill()
