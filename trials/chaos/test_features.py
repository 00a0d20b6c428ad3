"""Limits, schedules, batches and checkpoints together, while workers are killed and Postgres
crashes: no limit is exceeded, each slot comes once, each batch has its callbacks once, and what a
handler was promised is there for the next attempt.
"""

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redrive import enqueue
from redrive.batches import close_batch, open_batch
from redrive.database.connections.connect import connect
from redrive.database.embedded import NEWEST, EmbeddedPostgres
from redrive.database.schema.migrate import migrate
from redrive.rules.payloads.job_fields import JobFields
from tests.flow.harness import Worker, wait_for, workers_on
from tests.postgres import Connection, guarded
from trials.chaos.feature_handlers import AT_MOST

WORKERS = 3
LIMITED, LONG, BATCHES, KEYS = 60, 6, 3, 7
"""Jobs of a round, and among how many batches they are dealt."""

SETTINGS = {"fsync": "off", "log_min_messages": "fatal"}
OWN = {
    "handlers": "trials.chaos.feature_handlers:jobs",
    "redrive_heartbeat_ttl": 4,
    "redrive_drain_timeout": 2,
    "redrive_log_level": "warning",
}
LIVE = "select count(*) from redrive.jobs where kind <> 'tick'"


@pytest.fixture
def postgres() -> Iterator[EmbeddedPostgres]:
    """A server that may be crashed, migrated and with the limits set."""
    home = Path(tempfile.mkdtemp(prefix="redrive-chaos-"))
    server = EmbeddedPostgres(home, NEWEST, settings=SETTINGS)
    with guarded(home, NEWEST):
        server.start()
        with connect(server.url()) as conn:
            migrate(conn)
            for name, most in (("three", AT_MOST), ("key:*", 1)):
                conn.execute(
                    "select redrive.set_limit_v1(%s, %s, null, 'ada', 'why')",
                    (name, most),
                )
        yield server


def callbacks(n: int) -> dict[str, JobFields]:
    """Both of the batch that the test counts as its `n`th."""
    return {
        name: {"kind": "callback", "payload": {"of": f"{name} {n}"}}
        for name in ("on_success", "on_end")
    }


def work(conn: Connection, round_: int) -> tuple[set[int], set[str]]:
    """Enqueue the jobs of a round. Returns their ids, and which callbacks are to come."""
    ids: set[int] = set()
    told: set[str] = set()
    with conn.transaction():
        for n in range(round_ * BATCHES, (round_ + 1) * BATCHES):
            asked = callbacks(n)
            batch = open_batch(conn, **asked)
            ids |= {
                enqueue(
                    conn, "limited", {"key": k % KEYS, "seconds": 0.03}, batch=batch
                )
                for k in range(LIMITED // BATCHES)
            }
            ids |= {
                enqueue(conn, "long", {"seconds": 0.2}, batch=batch)
                for _ in range(LONG // BATCHES)
            }
            close_batch(conn, batch)
            told |= {f"{name} {n}" for name in asked}
    return ids, told


def said(home: Path) -> dict[str, list[dict[str, Any]]]:
    """What the handlers wrote down, by what it was, in the order of time."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path in home.glob("said-*"):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                found[(entry := json.loads(line))["what"]].append(entry)
    for entries in found.values():
        entries.sort(key=lambda entry: entry["at"])
    return found


def kill(worker: Worker) -> None:
    """Kill -9 a worker and its runners."""
    worker.process.kill()
    worker.end()


def ended(home: Path, ids: set[int]) -> int:
    """How many of these have ended."""
    return len(ids & {entry["job"] for entry in said(home)["end"]})


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.chaos)])
def test_features_keep_their_promises_whoever_dies(
    postgres: EmbeddedPostgres, tmp_path: Path, rounds: int
) -> None:
    """In each round a worker is killed -9 in the midst of its jobs, then Postgres crashes."""
    ids: set[int] = set()
    told: set[str] = set()
    with workers_on(postgres.url(), tmp_path) as workers:
        up = [workers(**OWN) for _ in range(WORKERS)]
        wait_for(lambda: said(tmp_path)["slot"])
        for round_ in range(rounds):
            with connect(postgres.url()) as conn:
                more, callbacks_of_it = work(conn, round_)
            ids, told = ids | more, told | callbacks_of_it
            wait_for(lambda m=more: ended(tmp_path, m) > LIMITED // 4)  # type: ignore[misc]
            kill(up.pop(0))
            up.append(workers(**OWN))
            wait_for(lambda m=more: ended(tmp_path, m) > LIMITED // 2)  # type: ignore[misc]
            postgres.stop("immediate")
            postgres.start()
        with connect(postgres.url()) as conn:
            wait_for(lambda: conn.execute(LIVE).fetchone() == (0,), 90)
            (until,) = (
                conn.execute("select extract(epoch from clock_timestamp())").fetchone()
                or ()
            )
            # one of a worker that was killed has to be rescued
            wait_for(lambda: not missing_slots(said(tmp_path), float(until)))
            left = conn.execute(
                "select (select count(*) from redrive.dead_letters),"
                " (select count(*) from redrive.limit_slots),"
                " (select count(*) from redrive.limit_waits),"
                " (select count(*) from redrive.checkpoints),"
                " (select count(*) from redrive.batches where over_at is null)"
            ).fetchone()
        found = said(tmp_path)

    assert left == (0, 0, 0, 0, 0)
    assert found["exceeded"] == []
    assert {entry["job"] for entry in found["end"]} == ids
    check_slots(found)
    check_callbacks(found, told)
    check_checkpoints(found)


def missing_slots(found: dict[str, list[dict[str, Any]]], until: float) -> set[int]:
    """The seconds from the first to the last one that are not there."""
    slots = {round(entry["slot"]) for entry in found["slot"]}
    return {*range(min(slots), int(until) + 1)} - slots


def check_slots(found: dict[str, list[dict[str, Any]]]) -> None:
    """Each slot is one job."""
    jobs: dict[float, set[int]] = defaultdict(set)
    for entry in found["slot"]:
        jobs[entry["slot"]].add(entry["job"])
    assert {slot: ids for slot, ids in jobs.items() if len(ids) > 1} == {}, (
        "none came twice"
    )


def check_callbacks(found: dict[str, list[dict[str, Any]]], told: set[str]) -> None:
    """Each is one job, and knows of all."""
    jobs: dict[str, set[int]] = defaultdict(set)
    size = (LIMITED + LONG) // BATCHES
    for entry in found["callback"]:
        jobs[entry["of"]].add(entry["job"])
        counts = {
            name: entry["counts"][name] for name in ("total", "succeeded", "dead")
        }
        assert counts == {"total": size, "succeeded": size, "dead": 0}
    assert set(jobs) == told
    assert {of: ids for of, ids in jobs.items() if len(ids) > 1} == {}, (
        "none came twice"
    )


def check_checkpoints(found: dict[str, list[dict[str, Any]]]) -> None:
    """No attempt began before what an earlier one had been told is kept."""
    kept: dict[int, int] = defaultdict(int)
    entries = sorted(found["from"] + found["kept"], key=lambda entry: entry["at"])
    for entry in entries:
        if entry["what"] == "kept":
            kept[entry["job"]] = max(kept[entry["job"]], entry["page"])
        else:
            assert entry["page"] >= kept[entry["job"]], f"{entry} forgot a checkpoint"
