"""The same with the systems themselves, in an environment of their own: `make moving-test`."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.cli.conftest import Redrive
from tests.flow.harness import free_port
from tests.moving.test_guides import (
    RECORDED,
    check_a_queue_in_postgres,
    enqueued,
    imported,
    lines_of,
)
from tests.postgres import Database

pytestmark = pytest.mark.moving

PEERS = Path(__file__).with_name("peers")
PYTHON = Path(__file__).parents[2] / "build" / "moving" / "bin" / "python"


def leave_behind(system: str, url: str) -> None:
    """Let the system itself fail jobs, and leave others waiting."""
    subprocess.run(
        [PYTHON, PEERS / f"{system}_jobs.py", url], check=True, capture_output=True, timeout=120
    )


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[int]:
    """The port of a Redis of the test's own."""
    if not shutil.which("redis-server"):
        pytest.skip("needs redis-server")
    port = free_port()
    options = ["--port", str(port), "--save", "", "--dir", str(tmp_path)]
    with subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL) as server:
        for _ in range(100):
            if "PONG" in asked_of(port, "ping"):
                break
            time.sleep(0.05)
        yield port
        server.terminate()


def asked_of(port: int, *command: str) -> str:
    """What redis-cli --raw prints."""
    done = subprocess.run(
        ["redis-cli", "-p", str(port), "--raw", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


@pytest.mark.parametrize("system", ["procrastinate", "pgqueuer"])
def test_a_queue_in_postgres(redrive: Redrive, database: Database, system: str):
    at = conninfo_to_dict(database.url)
    leave_behind(system, "postgresql://{user}@{host}:{port}/{dbname}".format_map(at))

    check_a_queue_in_postgres(redrive, database, system)


def test_celery_on_redis(redrive: Redrive, database: Database, redis: int, tmp_path: Path):
    leave_behind("celery", f"redis://127.0.0.1:{redis}/0")
    results, messages = tmp_path / "results", tmp_path / "messages"
    keys = asked_of(redis, "keys", "celery-task-meta-*").split()
    results.write_text(asked_of(redis, "mget", *keys))
    messages.write_text(asked_of(redis, "lrange", "celery", "0", "-1"))

    letters = imported(redrive, database, "celery", lines_of("celery_lines.py", results, "dead"))
    jobs = enqueued(redrive, database, lines_of("celery_lines.py", messages, "waiting"))

    assert {letter["error_class"] for letter in letters} == {"ValueError", "TimeoutError"}
    assert {letter["kind"] for letter in letters} == {"shop.charge"}
    assert sorted(json.dumps(job[2]) for job in jobs) == [
        '{"args": [19], "kwargs": {}}',
        '{"invoice": 20}',
    ]


def test_sidekiq_on_redis(redrive: Redrive, database: Database, redis: int, tmp_path: Path):
    """Redis gives its members back as they are in the recording, and scores after them."""
    dumps: dict[str, Any] = {}
    for line in (RECORDED / "sidekiq_dead.txt").read_text().splitlines():
        asked_of(redis, "zadd", "dead", "1772390001.5", line)
    for line in (RECORDED / "sidekiq_queue.txt").read_text().splitlines():
        asked_of(redis, "lpush", "queue:default", line)
    schedule = (RECORDED / "sidekiq_schedule.txt").read_text().splitlines()
    for member, score in zip(schedule[::2], schedule[1::2], strict=True):
        asked_of(redis, "zadd", "schedule", score, member)
    for name, command in {
        "dead": ("zrange", "dead", "0", "-1"),
        "queue": ("lrange", "queue:default", "0", "-1"),
        "schedule": ("zrange", "schedule", "0", "-1", "withscores"),
    }.items():
        dumps[name] = tmp_path / name
        dumps[name].write_text(asked_of(redis, *command))

    dead = lines_of("sidekiq_lines.py", dumps["dead"], "dead")
    assert len(imported(redrive, database, "sidekiq", dead)) == 2
    for name in ("queue", "schedule"):
        moved = lines_of("sidekiq_lines.py", dumps[name], "waiting")
        assert len(enqueued(redrive, database, moved)) in (2, 4)
