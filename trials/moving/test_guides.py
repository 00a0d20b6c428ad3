"""The scripts of docs/moving, on what the other systems hold, as it was recorded."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Redrive
from tests.postgres import Database

GUIDES = Path(__file__).parents[2] / "docs" / "moving"
RECORDED = Path(__file__).with_name("recorded")


def lines_of(script: str, recorded: str | Path, *arguments: str) -> str:
    """What a script makes of a recording."""
    with (RECORDED / recorded).open() as file:
        return subprocess.run(
            [sys.executable, GUIDES / script, *arguments],
            stdin=file,
            capture_output=True,
            text=True,
            check=True,
        ).stdout


def asked(database: Database, script: str) -> str:
    """What psql -qAtX prints for a query of the guides."""
    query = (GUIDES / script).read_text()
    lines = database.column(query)  # type: ignore[arg-type]
    return "".join(f"{line}\n" for line in lines)


def imported(
    redrive: Redrive, database: Database, source: str, lines: str
) -> list[Any]:
    """Import these lines, twice. Returns what `dlq ls` says of them, the first to die first."""
    come = [
        "dlq",
        "import",
        "-",
        "--source",
        source,
        "--why",
        "we move",
        "--yes",
        "--json",
    ]
    n = len(lines.splitlines())
    first, second = redrive(*come, stdin=lines), redrive(*come, stdin=lines)

    assert (first.code, first.err) == (0, "")
    assert first.json == {"matched": n, "imported": n, "skipped": 0}
    assert second.json == {"matched": n, "imported": 0, "skipped": n}
    return redrive("dlq", "ls", "--json").lines[::-1]


def enqueued(redrive: Redrive, database: Database, lines: str) -> list[tuple[Any, ...]]:
    """Enqueue these lines, twice. Returns what waits."""
    n = len(lines.splitlines())
    assert redrive("enqueue", "-", "--json", stdin=lines).json == {
        "read": n,
        "created": n,
    }
    assert redrive("enqueue", "-", "--json", stdin=lines).json["created"] == 0
    return waiting(database)


def waiting(database: Database) -> list[tuple[Any, ...]]:
    return database.rows(
        "select kind, queue, payload, priority, ordering_key, run_at > '2998-01-01'"
        " from redrive.jobs order by id"
    )


def test_sidekiq(redrive: Redrive, database: Database):
    dead = lines_of("sidekiq_lines.py", "sidekiq_dead.txt", "dead")
    mail, charge = imported(redrive, database, "sidekiq", dead)
    shown = redrive("dlq", "show", str(charge["id"]), "--json").json

    assert (charge["kind"], charge["queue"]) == ("Billing.ChargeJob", "critical")
    assert (charge["error_class"], charge["attempts"]) == ("RateMissing", 25)
    assert shown["payload"] == {"args": [17, {"currency": "XAU"}]}
    assert [
        f["function"] for f in shown["failures"][0]["detail"]["stack"] if f["own"]
    ] == ["perform"]
    assert (mail["kind"], mail["error_class"]) == ("MailJob", "Net::ReadTimeout")
    for dump, at in (("sidekiq_queue.txt", False), ("sidekiq_schedule.txt", True)):
        moved = lines_of("sidekiq_lines.py", dump, "waiting")
        found = enqueued(redrive, database, moved)[-2:]
        assert [(row[0], row[5]) for row in found] == [("HardWorker", at)] * 2


def test_celery(redrive: Redrive, database: Database):
    dead = lines_of("celery_lines.py", "celery_results.jsonl", "dead")
    rate, timeout = imported(redrive, database, "celery", dead)

    assert (rate["kind"], rate["queue"]) == ("Shop.charge", "celery")
    assert rate["error_class"] == "shop.rates.RateMissing"
    assert rate["message"] == "no rate for XAU of invoice 17"
    assert (timeout["category"], timeout["attempts"]) == ("transient", 4)
    payloads = [
        redrive("dlq", "show", str(letter["id"]), "--json").json["payload"]
        for letter in (rate, timeout)
    ]
    assert payloads == [{"args": [17], "kwargs": {"currency": "XAU"}}, {"invoice": 18}]
    moved = lines_of("celery_lines.py", "celery_messages.jsonl", "waiting")
    assert enqueued(redrive, database, moved) == [
        ("Shop.charge", "billing", {"invoice": 20}, 0, None, True),
        ("Shop.charge", "billing", {"args": [19], "kwargs": {}}, 0, None, False),
    ]
    rejected = lines_of("celery_lines.py", "celery_messages.jsonl", "dead")
    assert [json.loads(line)["error_class"] for line in rejected.splitlines()] == [
        "celery.Rejected"
    ] * 2


def test_sqs(redrive: Redrive, database: Database):
    letters = imported(
        redrive,
        database,
        "orders-dlq",
        lines_of("sqs_lines.py", "sqs.json", "dead", "sqs.order"),
    )
    first = redrive("dlq", "ls", "--json", "--kind", "order.charge").json
    shown = redrive("dlq", "show", str(first["id"]), "--json").json

    assert (
        sorted(letter["kind"] for letter in letters)
        == ["order.charge"] + ["sqs.order"] * 2
    )
    assert first["message"] == "received too often from orders"
    assert first["attempts"] == 5
    assert shown["payload"] == {"order": 17, "password": "[redacted]"}
    assert shown["headers"]["shop"] == "berlin"
    moved = lines_of("sqs_lines.py", "sqs.json", "waiting", "sqs.order")
    assert [(row[2], row[4]) for row in enqueued(redrive, database, moved)][1:] == [
        ({"body": "just text"}, None),
        ({"body": [1, 2]}, "customer-4"),
    ]


@pytest.mark.parametrize("system", ["procrastinate", "pgqueuer"])
def test_a_queue_in_the_same_postgres(
    redrive: Redrive, database: Database, system: str
):
    database.rows((RECORDED / f"{system}.sql").read_text())  # type: ignore[arg-type]

    check_a_queue_in_postgres(redrive, database, system)


def check_a_queue_in_postgres(
    redrive: Redrive, database: Database, system: str
) -> None:
    """Invoices 17 and 18 failed, 19 (priority 3) and 20 (much later) wait: all of them come."""
    letters = imported(redrive, database, system, asked(database, f"{system}_dead.sql"))
    payloads = [
        redrive("dlq", "show", str(letter["id"]), "--json").json["payload"]
        for letter in letters
    ]
    move = (GUIDES / f"{system}_waiting.sql").read_text()
    moved = [database.value(move) for _ in "12"]  # type: ignore[arg-type]

    assert {letter["kind"] for letter in letters} == {"Shop.charge"}
    assert len({letter["group"] for letter in letters}) == 1
    assert sorted(payload["invoice"] for payload in payloads) == [17, 18]
    assert moved == [2, 0]
    soon, later = waiting(database)
    assert (soon[0], soon[2:4], soon[5]) == (
        "Shop.charge",
        ({"invoice": 19}, -3),
        False,
    )
    assert (later[2:4], later[4]) == (({"invoice": 20}, 0), None)
    if system == "procrastinate":
        assert {letter["queue"] for letter in letters} == {"billing"}
        assert (soon[1], soon[4]) == ("billing", "customer-4")
    else:
        assert {letter["error_class"] for letter in letters} == {"ValueError"}
