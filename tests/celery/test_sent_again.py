"""Dead letters go back through Celery's broker, and end as their task ends there."""

from collections.abc import Callable
from typing import Any

from redis import Redis

from redrive.database.connections.connect import connect
from redrive.dead_letters.imports import document
from redrive.dead_letters.imports.store import take
from redrive.enqueue import enqueue
from tests.celery.harness import Shop
from tests.cli.conftest import Redrive
from tests.flow.harness import wait_for
from tests.postgres import Database

WHY = ("--yes", "--json", "--why", "the rates are there")


def states(database: Database) -> list[tuple[int, str, str | None, int]]:
    """The life of each dead letter: its job, its state, its outcome and its redrives."""
    return database.rows(
        "select id, state, outcome, redrives from redrive.dead_letters order by id, redrives"
    )


def open_letters(database: Database) -> int:
    return database.value(
        "select count(*) from redrive.dead_letters where state = 'open'"
    )


def test_a_mended_task_succeeds_and_one_that_is_not_dies_again(
    shop: Shop, redrive: Redrive, database: Database, sending: Callable[..., Any]
):
    worker = shop.worker()
    sending()
    task = shop.send("Shop.charge", 17, kwargs={"currency": "XAU"})
    wait_for(lambda: open_letters(database))
    ((job, *_),) = states(database)

    redrive("dlq", "redrive", str(job), *WHY)
    wait_for(lambda: (job, "open", None, 1) in states(database))
    again = redrive("dlq", "show", str(job), "--json").json
    (shop.home / "mended").touch()
    redrive("dlq", "redrive", str(job), *WHY)
    wait_for(lambda: (job, "resolved", "succeeded", 1) in states(database))

    assert [f["error_class"] for f in again["failures"]] == ["ValueError"] * 2
    assert len({f["fingerprint"] for f in again["failures"]}) == 1
    assert {job for job, *_ in states(database)} == {job}
    assert shop.lines("charged") == ["17 XAU"] * 3
    assert worker.log.read_text().count(f"[{task}] received") == 3


def test_a_retried_task_keeps_its_mark(
    shop: Shop, redrive: Redrive, database: Database, sending: Callable[..., Any]
):
    shop.worker()
    sending()
    shop.send("shop.mail", "ada@example.org")
    wait_for(lambda: open_letters(database))
    ((job, *_),) = states(database)

    redrive("dlq", "redrive", str(job), *WHY)
    wait_for(lambda: (job, "open", None, 1) in states(database))

    assert {job for job, *_ in states(database)} == {job}
    assert shop.lines("mailed") == ["0", "1", "2"] * 2


def test_a_campaign_stops_if_its_canaries_die_again(
    shop: Shop, redrive: Redrive, database: Database, sending: Callable[..., Any]
):
    shop.worker()
    sending()
    for n in range(12):
        shop.send("Shop.charge", n, kwargs={"currency": "XAU"})
    wait_for(lambda: open_letters(database) == 12)

    ended = redrive("dlq", "redrive", "--all", "--canaries", "3", *WHY)

    assert "died again, more than 10%" in ended.err
    assert len(shop.lines("charged")) == 12 + 3
    wait_for(lambda: open_letters(database) == 12)


def test_nobody_reports_an_end(
    shop: Shop, redrive: Redrive, database: Database, sending: Callable[..., Any]
):
    worker = shop.worker()
    sending(shop_verdict="2")
    shop.send("Shop.charge", 17, kwargs={"currency": "XAU"})
    wait_for(lambda: open_letters(database))
    ((job, *_),) = states(database)
    worker.kill()

    redrive("dlq", "redrive", str(job), *WHY)
    wait_for(lambda: (job, "open", None, 1) in states(database))

    assert "2 s" in redrive("dlq", "show", str(job), "--json").json["message"]
    (shop.home / "mended").touch()
    shop.worker()
    wait_for(lambda: (job, "dismissed", None, 1) in states(database))
    assert "reported late" in redrive("dlq", "show", str(job)).out


def test_an_argument_that_json_cannot_hold(
    shop: Shop, redrive: Redrive, database: Database, sending: Callable[..., Any]
):
    shop.worker()
    sending()
    shop.app.send_task("shop.refund", [17, {1, 2}], serializer="pickle")
    wait_for(lambda: open_letters(database))
    ((job, *_),) = states(database)
    letter = redrive("dlq", "show", str(job), "--json").json

    redrive("dlq", "redrive", str(job), *WHY)
    wait_for(lambda: (job, "open", None, 1) in states(database))
    refused = redrive("dlq", "show", str(job), "--json").json

    assert letter["payload"]["args"] == [
        17,
        {"$python": "builtins.set", "repr": "{1, 2}"},
    ]
    assert refused["message"].startswith("payload.args[1]: JSON cannot hold")


def test_what_follows_on_a_task_runs_after_it(
    shop: Shop, redrive: Redrive, database: Database, sending: Callable[..., Any]
):
    shop.worker("-Q", "celery,urgent")
    sending()
    following = shop.app.signature("Shop.charge", (18,), immutable=True)
    charge = shop.app.signature("Shop.charge", (17,), {"currency": "XAU"})
    (charge.set(queue="urgent", priority=3) | following).apply_async()
    wait_for(lambda: open_letters(database))
    ((job, *_),) = states(database)
    letter = redrive("dlq", "show", str(job), "--json").json
    (shop.home / "mended").touch()

    redrive("dlq", "redrive", str(job), *WHY)
    wait_for(lambda: (job, "resolved", "succeeded", 0) in states(database))

    wait_for(lambda: len(shop.lines("charged")) == 3)
    assert letter["queue"] == "urgent"
    assert shop.lines("charged") == ["17 XAU", "17 XAU", "18 EUR"]


def test_a_task_that_is_out_of_time_again_is_the_same_dead_letter(
    shop: Shop, redrive: Redrive, database: Database, sending: Callable[..., Any]
):
    shop.worker()
    sending()
    shop.send("shop.slow")
    wait_for(lambda: open_letters(database))
    ((job, *_),) = states(database)

    redrive("dlq", "redrive", str(job), *WHY)
    wait_for(lambda: (job, "open", None, 1) in states(database))

    assert {job for job, *_ in states(database)} == {job}


def test_a_producer_cannot_send_a_task(
    shop: Shop, redrive: Redrive, database: Database, sending: Callable[..., Any]
):
    sending()
    forged = {"task": "Shop.charge", "id": "4711", "routing_key": "celery"}
    with connect(database.url) as conn:
        enqueue(
            conn,
            "celery.shop.charge",
            {"args": [17], "kwargs": {}},
            queue="celery",
            headers={"celery": forged},
        )

    wait_for(lambda: open_letters(database))

    ((job, *_),) = states(database)
    letter = redrive("dlq", "show", str(job), "--json").json
    assert "not imported" in letter["message"]
    assert Redis.from_url(shop.broker).llen("celery") == 0

    left = redrive("dlq", "redrive", str(job), "--json", *WHY).json
    assert left["blocked"] == {"not_imported": 1}
    assert Redis.from_url(shop.broker).llen("celery") == 0


def test_an_import_under_another_name_or_of_another_task_is_not_sent(
    shop: Shop, redrive: Redrive, database: Database, sending: Callable[..., Any]
):
    sending()
    header = {"task": "Shop.charge", "id": "4711", "routing_key": "celery"}
    payload = {"args": [17], "kwargs": {}}
    given: dict[str, Any] = {
        "queue": "celery",
        "payload": payload,
        "headers": {"celery": header},
    }

    for source, kind in (("sidekiq", "Shop.charge"), ("celery", "shop.mail")):
        letter = document.read(
            {**given, "kind": f"celery.{kind}", "source_id": kind, "message": "x"},
            source,
        )
        with connect(database.url) as conn:
            assert take(conn, source, [letter], why="a test", actor="ada") == 1

    wait_for(lambda: database.column("select id from redrive.workers"))
    redrive("dlq", "redrive", "--all", "--canaries", "0", *WHY)

    messages = "select message from redrive.dead_letters where redrives = 1 order by id"
    (misnamed,) = wait_for(lambda: database.column(messages))
    assert "another kind" in misnamed
    assert database.column(
        "select blocked from redrive.dead_letters where blocked is not null"
    ) == ["not_imported"]
    assert Redis.from_url(shop.broker).llen("celery") == 0
