"""Each task that fails for good is one dead letter, however many workers are killed."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.celery.harness import Shop
from tests.celery.kills import run
from tests.cli.conftest import Redrive
from tests.flow.harness import wait_for
from tests.postgres import Database

SENT = 40


@pytest.mark.long
def test_each_task_that_fails_is_one_dead_letter(shop: Shop, database: Database):
    done = run(shop, database, tasks=200, between=0.5)

    assert done.kills > 0, done.figures


@pytest.mark.long
def test_no_dead_letter_is_lost_if_workers_of_redrive_are_killed(
    shop: Shop, redrive: Redrive, database: Database, sending: Callable[..., Any]
):
    shop.worker()
    for n in range(SENT):
        shop.send("Shop.charge", n, kwargs={"currency": "XAU"})
    letters = "select count(*) from redrive.dead_letters where state = "
    wait_for(lambda: database.value(letters + "'open'") == SENT)
    (shop.home / "mended").touch()
    worker = sending(redrive_heartbeat_ttl="2")
    redrive("dlq", "redrive", "--all", "--yes", "--canaries", "0", "--why", "mended")
    for sent in (SENT // 5, SENT // 2):
        wait_for(lambda n=sent: len(shop.lines("charged")) > SENT + n)
        worker.end()
        worker = sending(redrive_heartbeat_ttl="2")

    wait_for(lambda: database.value(letters + "'resolved'") == SENT)

    charged = shop.lines("charged")[SENT:]
    assert sorted({*charged}) == sorted(f"{n} XAU" for n in range(SENT))
    assert len(charged) < 2 * SENT
