"""Dead letters go back through Celery's broker, and end as their task ends there."""

from collections.abc import Callable
from typing import Any

from redis import Redis

from redrive.database.connections.connect import connect
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
    shop: Shop,
    redrive: Redrive,
    database: Database,
    sending: Callable[..., Any],
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
    shop: Shop,
    redrive: Redrive,
    database: Database,
    sending: Callable[..., Any],
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
    shop: Shop,
    redrive: Redrive,
    database: Database,
    sending: Callable[..., Any],
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
    shop: Shop,
    redrive: Redrive,
    database: Database,
    sending: Callable[..., Any],
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
    shop: Shop,
    redrive: Redrive,
    database: Database,
    sending: Callable[..., Any],
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
    shop: Shop,
    redrive: Redrive,
    database: Database,
    sending: Callable[..., Any],
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
    shop: Shop,
    redrive: Redrive,
    database: Database,
    sending: Callable[..., Any],
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
    shop: Shop,
    redrive: Redrive,
    database: Database,
    sending: Callable[..., Any],
):
    """S45"""
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
    assert "it is no dead letter of another system" in letter["message"]
    assert Redis.from_url(shop.broker).llen("celery") == 0
