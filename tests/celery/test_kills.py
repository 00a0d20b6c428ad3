"""Each task that fails for good is one dead letter, however many workers are killed."""

import pytest

from tests.celery.harness import Shop
from tests.celery.kills import run
from tests.postgres import Database


@pytest.mark.slow
def test_each_task_that_fails_is_one_dead_letter(shop: Shop, database: Database):
    print()
    done = run(shop, database, tasks=600, between=1.0)

    assert done.children + done.whole + done.sessions > 0, done.figures
