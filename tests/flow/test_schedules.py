"""Jobs that come by the clock, from real workers: each slot once, whatever restarts."""

import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from redrive.database.embedded import EmbeddedPostgres, free_port
from redrive.database.schema.migrate import migrate
from tests.flow.harness import Worker, Workers, wait_for, workers_on
from tests.postgres import SETTINGS, Database, guarded

CLOCK = Path(__file__).parents[2] / "trials" / "chaos" / "clock.c"
COMPILER = shutil.which("cc")
SECOND = timedelta(seconds=1)
APPLICATION = "tests.flow.scheduled:jobs"
QUICK = {"redrive_heartbeat_ttl": 3, "redrive_http_port": 0, "redrive_slots": 1}


def ran(home: Path) -> dict[datetime, set[int]]:
    """Slot -> the jobs that ran for it, of the schedule that comes each second."""
    found: dict[datetime, set[int]] = defaultdict(set)
    path = home / "slots"
    for line in path.read_text().splitlines() if path.exists() else ():
        job, kind, slot = line.split()
        if kind == "tick":
            found[datetime.fromisoformat(slot)].add(int(job))
    return found


def kill(worker: Worker) -> None:
    """Kill -9 a worker's supervisor; its runners end with it."""
    worker.process.kill()
    worker.process.wait()


@pytest.fixture
def postgres() -> Iterator[EmbeddedPostgres]:
    """A server that may be crashed."""
    home = Path(tempfile.mkdtemp(prefix="redrive-tests-"))
    server = EmbeddedPostgres(home, port=free_port(), settings=SETTINGS)
    with guarded(home, server.version):
        server.start()
        with psycopg.connect(server.url(), autocommit=True) as conn:
            migrate(conn)
        yield server


def step(clock: Path, seconds: int) -> None:
    """Put the clock of the workers that go by this file off by so much, from now on."""
    with clock.open("r+b" if clock.exists() else "wb") as file:
        file.write(seconds.to_bytes(8, sys.byteorder, signed=True))


def wrong_clock(clock: Path, seconds: int) -> dict[str, object]:
    """The environment of a worker whose clock can be stepped."""
    if COMPILER is None:
        return {}
    library = clock.with_suffix(".so")
    subprocess.run(
        [COMPILER, "-shared", "-fPIC", "-O2", "-o", library, CLOCK], check=True
    )
    step(clock, seconds)
    return {"ld_preload": library, "chaos_clock": clock}


@pytest.mark.waits
@pytest.mark.parametrize("rounds", [1, pytest.param(3, marks=pytest.mark.long)])
def test_each_slot_is_one_job_whatever_dies_and_whatever_clocks_say(
    postgres: EmbeddedPostgres, tmp_path: Path, rounds: int
) -> None:
    """Two clocks are stepped by hours; workers are killed, and Postgres crashes in the second round."""
    ahead, behind = tmp_path / "ahead", tmp_path / "behind"
    clocks = [wrong_clock(ahead, 3600), wrong_clock(behind, -3600)]
    with workers_on(postgres.url(), tmp_path) as workers:

        def start(**environment: object) -> Worker:
            return workers(handlers=APPLICATION, **QUICK, **environment)

        up = [
            *(start(**clock) for clock in clocks),
            *(start() for _ in range(2 * rounds)),
        ]
        wait_for(lambda: ran(tmp_path))
        for round_ in range(rounds):
            kill(up.pop(2))
            kill(up.pop(round_ % 2))  # one whose clock is off
            up.insert(round_ % 2, start(**clocks[round_ % 2]))
            up.append(start())
            if COMPILER:
                step(ahead, (round_ - 1) * 7200)
                step(behind, (1 - round_) * 7200)
            if round_ == 1:
                postgres.stop("immediate")
                postgres.start()
            seen = len(ran(tmp_path))
            wait_for(lambda n=seen: len(ran(tmp_path)) > n + 2)  # type: ignore[misc]
        with psycopg.connect(postgres.url(), autocommit=True) as conn:
            (until,) = conn.execute("select clock_timestamp()").fetchone() or (None,)
        assert until is not None
        first, last = min(ran(tmp_path)), until.replace(microsecond=0)
        expected = {
            first + n * SECOND for n in range(round((last - first) / SECOND) + 1)
        }
        # one of a worker that was killed has to be rescued
        wait_for(lambda: expected <= ran(tmp_path).keys(), what="some are missing")
        found = ran(tmp_path)

    assert {s: jobs for s, jobs in found.items() if len(jobs) > 1} == {}, (
        "none came twice"
    )
    assert abs(until.timestamp() - time.time()) < 60
    # nobody went by a clock that was ahead
    assert max(found) < until + timedelta(minutes=5)


def test_a_rollout_takes_a_schedule_away_when_the_last_old_worker_has_gone(
    database: Database, workers: Workers
) -> None:
    """And a changed one holds at once, whichever of the two applications starts again."""

    def state(name: str, column: str) -> object:
        return next(
            iter(
                database.column(
                    f"select {column} from redrive.schedules_v1() where name = %s",  # type: ignore[arg-type] # ours
                    name,
                )
            ),
            None,
        )

    old = workers(handlers=APPLICATION, redrive_version="1.4", **QUICK)
    wait_for(lambda: ran(workers.home) and state("morning_report", "next_at"))
    assert state("morning_report", "(cron, tz, versions)::text") == (
        '("0 7 * * 1-5",Europe/Berlin,{1.4})'
    )
    workers(handlers="tests.flow.scheduled:rolled_out", redrive_version="1.5", **QUICK)
    wait_for(lambda: state("morning_report", "cron") == "0 8 * * 1-5")
    assert state("morning_report", "versions") == ["1.4", "1.5"]
    assert state("tick", "state") == "active"

    wait_for(lambda: at_eight(database))

    old.stop()
    wait_for(lambda: state("tick", "state") == "undeclared")
    fired = "select n from redrive.totals where kind = 'tick' and event = 'enqueued'"
    before = database.value(fired)
    wait_for(
        lambda: (
            not database.value("select count(*) from redrive.jobs where kind = 'tick'")
        )
    )
    assert database.value(fired) == before, (
        "what was enqueued has run, and nothing was added"
    )


def at_eight(database: Database) -> bool:
    return database.value(
        "select extract(hour from next_at at time zone 'Europe/Berlin') = 8"
        " from redrive.schedules where name = 'morning_report'"
    )


def test_a_worker_without_schedules_does_not_ask_for_any(
    database: Database, workers: Workers
) -> None:
    worker = workers(redrive_heartbeat_ttl=3).wait_ready()
    assert worker.process.poll() is None

    assert database.value(
        "select ran_at = '-infinity' from redrive.chores where name = 'schedules'"
    )


@pytest.mark.skipif(COMPILER is None, reason="no C compiler on this machine")
def test_a_clock_of_the_database_that_was_ahead_silences_nothing(
    postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One look by a clock that was a day ahead, and for a day nothing fired, nor was anything new.

    Real workers, and a server whose clock is stepped.
    """
    clock = postgres.home / "clock"
    for name, value in wrong_clock(clock, 0).items():
        monkeypatch.setenv(name.upper(), str(value))
    postgres.stop()
    postgres.start()
    for name in ("LD_PRELOAD", "CHAOS_CLOCK"):
        monkeypatch.delenv(name)
    off = "select clock_timestamp() - %s::timestamptz"

    with (
        psycopg.connect(postgres.url(), autocommit=True) as conn,
        workers_on(postgres.url(), tmp_path) as start,
    ):

        def found(query: LiteralString, *values: object) -> Any:
            row = conn.execute(query, values).fetchone()
            return row and row[0]

        def next_slot() -> datetime:
            return found("select next_at from redrive.schedules where name = 'tick'")

        start(handlers=APPLICATION, **QUICK)
        wait_for(lambda: ran(tmp_path))
        step(clock, 86_400)
        assert found(off, datetime.now(UTC)) > timedelta(hours=23), (
            "the clock was not stepped"
        )
        wait_for(lambda: next_slot() > datetime.now(UTC) + timedelta(hours=23))
        found("select redrive.stats_v1('1 min')")
        found("select redrive.sample_v1()::text")
        step(clock, 0)
        back = datetime.now(UTC)
        wait_for(
            lambda: any(
                back < slot < back + timedelta(hours=1) for slot in ran(tmp_path)
            )
        )

        taken_at = found("select (redrive.stats_v1('1 min') ->> 'taken_at')::float8")
        assert taken_at < time.time() + 60
        found("select redrive.sample_v1()::text")
        assert found("select max(minute) from redrive.samples") < datetime.now(UTC)
    assert all(len(jobs) == 1 for jobs in ran(tmp_path).values()), (
        "a slot was fired twice"
    )
