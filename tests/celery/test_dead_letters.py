"""A task of Celery that fails for good becomes one dead letter."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import celery
import pytest

from tests.celery.harness import Shop, databases
from tests.cli.conftest import Redrive
from tests.flow.harness import wait_for
from tests.postgres import Database, Server

pytestmark = pytest.mark.xdist_group("dead letters of Celery")  # one worker for all


@pytest.fixture(scope="module")
def database(server: Server) -> Iterator[Database]:
    with server.database() as database:
        yield database


@pytest.fixture(scope="module")
def shop(
    redis: str, database: Database, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    """The application with one worker for all tests: each looks at its own tasks."""
    home = tmp_path_factory.mktemp("shop")
    with ExitStack() as undo:
        shop = Shop(home, database.url, f"{redis}/{next(databases)}", undo)
        shop.worker()
        yield shop


def letters(database: Database, task: str) -> list[int]:
    return database.column(
        "select id from redrive.dead_letters where headers -> 'celery' ->> 'id' = %s",
        task,
    )


def the_letter(redrive: Redrive, database: Database, task: str) -> Any:
    """Wait for the dead letter of a task, and return all that is known of it."""
    (letter,) = wait_for(lambda: letters(database, task))
    return redrive("dlq", "show", str(letter), "--json").json


def test_a_task_that_fails(shop: Shop, redrive: Redrive, database: Database):
    kwargs = {"currency": "XAU", "token": "hush-4711-secret"}
    task = shop.send("Shop.charge", 17, kwargs=kwargs)

    letter = the_letter(redrive, database, task)

    assert (letter["kind"], letter["queue"]) == ("celery.Shop.charge", "celery")
    assert letter["payload"]["args"] == [17]
    assert letter["payload"]["kwargs"]["currency"] == "XAU"
    assert letter["error_class"] == "ValueError"
    assert letter["message"].startswith("no rate for XAU")
    assert "hush" not in json.dumps(letter)
    assert letter["headers"]["celery"]["id"] == task
    frame = letter["failures"][0]["detail"]["stack"][-1]
    assert frame["function"] == "charge"
    assert "raise ValueError(msg)" in "".join(frame["source"])
    wait_for(lambda: shop.waiting() == 0)


def test_a_secret_that_was_passed_by_its_position(
    shop: Shop, redrive: Redrive, database: Database
):
    task = shop.send("shop.sign_in", "ada", "kestrel harbour")

    letter = the_letter(redrive, database, task)

    assert letter["message"].startswith("ada may not sign in")
    assert "kestrel" not in json.dumps(letter["failures"])


def test_a_task_that_was_retried_in_vain(
    shop: Shop, redrive: Redrive, database: Database
):
    task = shop.send("shop.mail", "ada@example.org")

    letter = the_letter(redrive, database, task)

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
    sent = shop.send(task)

    letter = the_letter(redrive, database, sent)

    assert letter["error_class"] == error
    assert letter["category"] == "lost"
    assert letter["headers"]["celery"]["routing_key"] == "celery"


def test_a_message_of_a_task_that_no_worker_knows(
    shop: Shop, redrive: Redrive, database: Database
):
    task = shop.send("shop.old", 17)

    letter = the_letter(redrive, database, task)

    assert letter["error_class"] == "celery.NotRegistered"
    assert letter["payload"] == {"args": [17], "kwargs": {}}


def test_an_unknown_task_in_the_first_version_of_the_protocol(
    shop: Shop, redrive: Redrive, database: Database
):
    old = celery.Celery("old", broker=shop.broker)
    old.conf.task_protocol = 1
    task = old.send_task("shop.gone", (17,), {"currency": "XAU"}).id

    letter = the_letter(redrive, database, task)

    assert letter["error_class"] == "celery.NotRegistered"
    assert letter["headers"]["celery"]["id"] == task
    assert letter["payload"] == {"args": [17], "kwargs": {"currency": "XAU"}}


def test_a_pickled_message_of_an_unknown_task_is_not_read(
    shop: Shop, redrive: Redrive, database: Database
):
    task = shop.app.send_task("shop.old", [17], serializer="pickle").id

    letter = the_letter(redrive, database, task)

    (described,) = letter["payload"]["args"]
    assert (
        described["$python"] == "arguments as application/x-python-serialize, not read"
    )


def test_a_message_that_the_worker_does_not_accept(
    shop: Shop, redrive: Redrive, database: Database
):
    task = shop.app.send_task("Shop.charge", [17], serializer="yaml").id

    letter = the_letter(redrive, database, task)

    assert letter["kind"] == "celery.Shop.charge"
    assert letter["error_class"] == "celery.ContentDisallowed"
    assert letter["headers"]["celery"]["id"] == task


@pytest.mark.skipif(celery.VERSION < (5, 7), reason="older ones do not report it")
def test_a_message_that_is_rejected(shop: Shop, redrive: Redrive, database: Database):
    task = shop.send("shop.refuse")

    assert (
        the_letter(redrive, database, task)["error_class"] == "celery.exceptions.Reject"
    )


def test_a_task_that_was_revoked_is_no_dead_letter(shop: Shop, database: Database):
    kwargs = {"currency": "XAU"}
    revoked = shop.send("Shop.charge", 71, kwargs=kwargs, expires=-1)
    after = shop.send("Shop.charge", 72, kwargs=kwargs)

    wait_for(lambda: letters(database, after))

    assert letters(database, revoked) == []
    charged = shop.lines("charged")
    assert ("71 XAU" in charged, "72 XAU" in charged) == (False, True)
