"""The same with the systems themselves, in an environment of their own: `make moving-test`."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from redrive.database.embedded import free_port
from tests import pages
from tests.cli.conftest import Redrive
from tests.postgres import Database
from trials.moving.test_guides import (
    GUIDES,
    check_a_queue_in_postgres,
    enqueued,
    imported,
    lines_of,
    waiting,
)

pytestmark = pytest.mark.moving

PEERS = Path(__file__).with_name("peers")
PYTHON = Path(__file__).parents[2] / "build" / "moving" / "bin" / "python"


def leave_behind(system: str, url: str) -> None:
    """Let the system itself fail jobs, and leave others waiting."""
    subprocess.run(
        [PYTHON, PEERS / f"{system}_jobs.py", url],
        check=True,
        capture_output=True,
        timeout=300,
    )


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[int]:
    """The port of a Redis of the test's own."""
    if not shutil.which("redis-server"):
        pytest.skip("needs redis-server")
    port = free_port()
    options = ["--port", str(port), "--save", "", "--dir", str(tmp_path)]
    with subprocess.Popen(
        ["redis-server", *options], stdout=subprocess.DEVNULL
    ) as server:
        until(lambda: "PONG" in asked_of(port, "ping"))
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


def test_celery_on_redis(
    redrive: Redrive, database: Database, redis: int, tmp_path: Path
):
    leave_behind("celery", f"redis://127.0.0.1:{redis}/0")
    results, messages = tmp_path / "results", tmp_path / "messages"
    keys = asked_of(redis, "keys", "celery-task-meta-*").split()
    results.write_text(asked_of(redis, "mget", *keys))
    messages.write_text(asked_of(redis, "lrange", "celery", "0", "-1"))

    letters = imported(
        redrive, database, "celery", lines_of("celery_lines.py", results, "dead")
    )
    jobs = enqueued(redrive, database, lines_of("celery_lines.py", messages, "waiting"))

    assert {letter["error_class"] for letter in letters} == {
        "ValueError",
        "TimeoutError",
    }
    assert {letter["kind"] for letter in letters} == {"Shop.charge"}
    assert sorted(json.dumps(job[2]) for job in jobs) == [
        '{"args": [19], "kwargs": {}}',
        '{"invoice": 20}',
    ]


def test_sidekiq(
    redrive: Redrive,
    database: Database,
    redis: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
):
    """Its processes leave dead jobs behind; the commands of the page bring all that is there."""
    if not shutil.which("sidekiq"):
        pytest.skip("needs sidekiq")
    jobs = PEERS / "sidekiq_jobs.rb"
    monkeypatch.setenv("REDIS_URL", f"redis://127.0.0.1:{redis}/0")
    subprocess.run(["ruby", jobs], check=True, capture_output=True, timeout=300)
    process = ["sidekiq", "-r", jobs, "-q", "critical", "-c", "1"]
    with subprocess.Popen(
        process, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as sidekiq:
        until(lambda: asked_of(redis, "zcard", "dead").strip() == "2")
        sidekiq.terminate()

    follow(
        "sidekiq",
        database,
        tmp_path,
        f'redis-cli() {{ command redis-cli -p {redis} "$@"; }}',
    )

    letters = redrive("dlq", "ls", "--json").lines
    assert {(letter["kind"], letter["queue"]) for letter in letters} == {
        ("Billing.ChargeJob", "critical")
    }
    assert sorted(letter["message"] for letter in letters) == [
        "no rate for XAG of invoice 18",
        "no rate for XAU of invoice 17",
    ]
    shown = redrive("dlq", "show", str(letters[0]["id"]), "--json").json
    assert [f["function"] for f in shown["failures"][0]["detail"]["stack"]][
        -1
    ] == "perform"
    assert sorted((row[2]["args"], row[1]) for row in waiting(database)) == [
        ([19], "default"),
        ([20], "default"),
    ]
    assert asked_of(redis, "exists", "queue:default", "schedule").strip() == "0"


def test_sqs(redrive: Redrive, database: Database, tmp_path: Path):
    """The commands of the page, on a server that speaks SQS: all come, and the queue is empty."""
    if not shutil.which("jq"):
        pytest.skip("needs jq")
    port = free_port()
    at = f'aws() {{ {PYTHON.with_name("aws")} --endpoint-url http://127.0.0.1:{port} "$@"; }}'
    made = f"""{at}
    DLQ=$(aws sqs create-queue --queue-name orders-dlq --output text)
    for n in $(seq 12); do
        aws sqs send-message --queue-url "$DLQ" --message-body "{{\\"order\\": $n}}" > sent.json
    done
    """
    server = [PYTHON.with_name("moto_server"), "-p", str(port)]
    with subprocess.Popen(
        server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as sqs:
        until(lambda: listens(port))
        follow("sqs", database, tmp_path, made)
        sqs.terminate()

    letters = redrive("dlq", "ls", "--json").lines
    payloads = [
        redrive("dlq", "show", str(letter["id"]), "--json").json["payload"]
        for letter in letters
    ]
    assert {letter["kind"] for letter in letters} == {"order.charge"}
    assert sorted(payload["order"] for payload in payloads) == [*range(1, 13)]


def follow(guide: str, database: Database, here: Path, first: str) -> None:
    """Type what the guide shows, beside its script."""
    shutil.copy(GUIDES / f"{guide}_lines.py", here)
    shown = "".join(
        b.text for b in pages.blocks("sh") if b.page == f"docs/moving/{guide}.md"
    )
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_SECRET_ACCESS_KEY": "test",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "REDRIVE_ACTOR": "tester",
        "REDRIVE_DATABASE_URL": database.url,
    }
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"{first}\n{shown}"],
        check=True,
        cwd=here,
        env=environment,
        timeout=300,
    )


def until(met: Callable[[], bool]) -> None:
    """Wait for another process; a minute is far more than it takes."""
    for _ in range(600):
        if met():
            return
        time.sleep(0.1)
    pytest.fail("it never came")


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
