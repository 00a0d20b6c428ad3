"""A task of Celery that fails for good becomes one dead letter."""

import json
from typing import Any

import celery
import pytest

from tests.celery.harness import Shop
from tests.cli.conftest import Redrive
from tests.flow.harness import wait_for
from tests.postgres import Database


def dead(database: Database) -> int:
    return database.value("select count(*) from redrive.dead_letters")


def the_letter(redrive: Redrive, database: Database) -> Any:
    """Wait for the only dead letter, and return all that is known of it."""
    wait_for(lambda: dead(database))
    (letter,) = redrive("dlq", "ls", "--json").lines
    return redrive("dlq", "show", str(letter["id"]), "--json").json


def test_a_task_that_fails(shop: Shop, redrive: Redrive, database: Database):
    shop.worker()
    kwargs = {"currency": "XAU", "token": "hush-4711-secret"}
    task = shop.send("Shop.charge", 17, kwargs=kwargs)

    letter = the_letter(redrive, database)

    assert (letter["kind"], letter["queue"]) == ("celery.shop.charge", "celery")
    assert letter["payload"]["args"] == [17]
    assert letter["payload"]["kwargs"]["currency"] == "XAU"
    assert letter["error_class"] == "ValueError"
    assert letter["message"].startswith("no rate for XAU")
    assert "hush" not in json.dumps(letter)
    assert letter["headers"]["celery"]["id"] == task
    assert letter["failures"][0]["detail"]["stack"][-1]["function"] == "charge"
    wait_for(lambda: shop.waiting() == 0)


def test_a_secret_that_was_passed_by_its_position(
    shop: Shop, redrive: Redrive, database: Database
):
    shop.worker()
    shop.send("shop.sign_in", "ada", "kestrel harbour")

    letter = the_letter(redrive, database)

    assert letter["message"].startswith("ada may not sign in")
    assert "kestrel" not in json.dumps(letter["failures"])


def test_a_task_that_was_retried_in_vain(
    shop: Shop, redrive: Redrive, database: Database
):
    shop.worker()
    shop.send("shop.mail", "ada@example.org")

    letter = the_letter(redrive, database)

    assert letter["error_class"] == "OSError"
    assert letter["attempts"] == 3
    assert letter["headers"]["celery"]["retries"] == 2


@pytest.mark.parametrize(
    ("task", "error"),
    [
        ("shop.kill", "billiard.exceptions.WorkerLostError"),
        ("shop.slow", "billiard.exceptions.TimeLimitExceeded"),
    ],
)
def test_a_task_whose_process_is_gone(
    shop: Shop, redrive: Redrive, database: Database, task: str, error: str
):
    shop.worker()
    shop.send(task)

    letter = the_letter(redrive, database)

    assert letter["error_class"] == error
    assert letter["category"] == "lost"
    assert letter["headers"]["celery"]["routing_key"] == "celery"


def test_a_message_of_a_task_that_no_worker_knows(
    shop: Shop, redrive: Redrive, database: Database
):
    shop.worker()
    shop.send("shop.old", 17)

    letter = the_letter(redrive, database)

    assert letter["error_class"] == "celery.NotRegistered"
    assert letter["payload"] == {"args": [17], "kwargs": {}}


def test_an_unknown_task_in_the_first_version_of_the_protocol(
    shop: Shop, redrive: Redrive, database: Database
):
    shop.worker()
    shop.app.conf.task_protocol = 1
    task = shop.send("shop.gone", 17, kwargs={"currency": "XAU"})

    letter = the_letter(redrive, database)

    assert letter["error_class"] == "celery.NotRegistered"
    assert letter["headers"]["celery"]["id"] == task
    assert letter["payload"] == {"args": [17], "kwargs": {"currency": "XAU"}}


def test_a_pickled_message_of_an_unknown_task_is_not_read(
    shop: Shop, redrive: Redrive, database: Database
):
    shop.worker()
    shop.app.send_task("shop.old", [17], serializer="pickle")

    letter = the_letter(redrive, database)

    (described,) = letter["payload"]["args"]
    assert (
        described["$python"] == "arguments as application/x-python-serialize, not read"
    )


def test_a_message_that_the_worker_does_not_accept(
    shop: Shop, redrive: Redrive, database: Database
):
    shop.worker()
    task = shop.app.send_task("Shop.charge", [17], serializer="yaml").id

    letter = the_letter(redrive, database)

    assert letter["kind"] == "celery.shop.charge"
    assert letter["error_class"] == "celery.ContentDisallowed"
    assert letter["headers"]["celery"]["id"] == task


@pytest.mark.skipif(celery.VERSION < (5, 7), reason="older ones do not report it")
def test_a_message_that_is_rejected(shop: Shop, redrive: Redrive, database: Database):
    shop.worker()
    shop.send("shop.refuse")

    assert the_letter(redrive, database)["error_class"] == "celery.exceptions.Reject"


def test_a_task_that_was_revoked_is_no_dead_letter(shop: Shop, database: Database):
    shop.worker()
    shop.send("Shop.charge", 17, kwargs={"currency": "XAU"}, expires=-1)
    shop.send("Shop.charge", 18, kwargs={"currency": "XAU"})

    wait_for(lambda: dead(database))

    assert (dead(database), shop.lines("charged")) == (1, ["18 XAU"])
