"""Limits with real workers: counted by the handlers, and under kills and restarts."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import LiteralString

from redrive.enqueue import enqueue
from tests.flow.harness import Entry, Workers, kill, wait_for
from tests.postgres import Database

HANDLERS = "tests.flow.limited:jobs"


RECORD_CLAIMS: tuple[LiteralString, ...] = (
    "create table public.seen (since timestamptz, until timestamptz)",
    """create function public.note() returns trigger security definer
    language plpgsql as $$ begin
        insert into public.seen values (now(), clock_timestamp());
        return null;
    end $$""",
    """create trigger note after insert on redrive.claims
    for each row execute function public.note()""",
)
"""Statements that note when each claim began and ended, by the database's clock."""


def set_limit(
    database: Database,
    name: str,
    concurrency: int | None = None,
    rate: float | None = None,
) -> None:
    database.rows(
        "select redrive.set_limit_v1(%s, %s, %s, 'ada', 'why')", name, concurrency, rate
    )


def at_once(entries: Iterable[Entry]) -> int:
    """How many ran at the same time, at most."""
    running, most = 0, 0
    for entry in entries:
        running += 1 if entry.phase == "start" else -1
        most = max(most, running)
    return most


def is_empty(database: Database) -> bool:
    return database.value(
        "select not exists (select from redrive.jobs)"
        " and not exists (select from redrive.limit_slots)"
        " and not exists (select from redrive.limit_waits)"
    )


def test_handlers_never_see_more_of_them_at_once_than_allowed(
    database: Database, workers: Workers
) -> None:
    """Two workers of eight slots, one limit of three and one by a key of the payload.

    Enqueued before any worker had said what is limited, and after.
    """
    set_limit(database, "flow", 3)
    set_limit(database, "key:*", 2)
    for n in range(20):
        enqueue(database.conn, "limited.work", {"key": n % 3, "seconds": 0.01})
    for _ in range(2):
        workers(handlers=HANDLERS, redrive_slots=8).wait_ready()
    for n in range(20):
        enqueue(database.conn, "limited.work", {"key": n % 3, "seconds": 0.01})
    wait_for(lambda: is_empty(database))

    entries = workers.ledger()
    starts = Counter(entry.job for entry in entries if entry.phase == "start")
    assert set(starts.values()) == {1}
    assert len(starts) == 40
    assert 2 <= at_once(entries) <= 3


def test_a_killed_worker_holds_its_slots_until_its_jobs_are_taken_back(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    """Then they go to others, none is lost, and a job without a limit never waits."""
    set_limit(database, "flow", 2)
    killed = workers(handlers=HANDLERS).wait_ready()
    jobs = [enqueue(database.conn, "limited.held") for _ in range(4)]
    wait_for(lambda: len(workers.ledger()) == 2)
    kill(database, killed)
    workers(handlers=HANDLERS).wait_ready()
    free = enqueue(database.conn, "free.work")
    wait_for(lambda: workers.starts(free))
    wait_for(lambda: len([e for e in workers.ledger() if e.job in jobs]) == 4)

    assert database.value("select count(*) from redrive.limit_slots") == 2
    # The two others wait as soon as they are due and a claim finds the limit full.
    waits = "select count(*) from redrive.limit_waits"
    wait_for(lambda: database.value(waits) == 2)
    (tmp_path / "go").touch()
    wait_for(lambda: is_empty(database))
    ended = Counter(entry.job for entry in workers.ledger() if entry.phase == "end")
    assert ended == dict.fromkeys(jobs, 1)


def test_a_worker_stays_until_those_behind_a_limit_have_run(
    database: Database, workers: Workers
) -> None:
    """`--until-empty`, with a rate: each waits for its time."""
    set_limit(database, "flow", rate=10.0)
    for statement in RECORD_CLAIMS:
        database.rows(statement)
    for _ in range(10):
        enqueue(database.conn, "limited.work")
    workers.run(handlers=HANDLERS)

    starts = [entry.job for entry in workers.ledger() if entry.phase == "start"]
    assert len(starts) == 10
    # Two may begin at once, each other one in its turn.
    took = "select extract(epoch from max(until) - min(since)) from public.seen"
    assert database.value(took) >= 7 / 10
    assert is_empty(database)
