"""What a real database did is what the model allows; what a wrong one did is not."""

import os
import random

import pytest

from tests.model import recorder
from tests.model.walk import Walk
from tests.postgres import Database
from tools.model.judge import explain, judge
from tools.model.mutants import named

WALKS = int(os.environ.get("REDRIVE_TEST_WALKS", "3"))
STEPS = 400
pytestmark = pytest.mark.model


def _walk(database: Database, seed: object) -> list[dict[str, object]]:
    recorder.install(database.conn)
    Walk(database.conn, random.Random(str(seed))).run(STEPS)
    return list(recorder.read(database.conn))


def test_the_model_allows_what_the_database_does(server):
    records = {}
    for seed in range(WALKS):
        with server.database() as database:
            records[str(seed)] = _walk(database, seed)

    verdicts = judge(records, is_serial=True)

    assert [
        explain(run, is_serial=True)
        for found in verdicts.values()
        for run in found.refused
    ] == []
    assert all(found.steps > 200 for found in verdicts.values())


def test_the_model_refuses_each_classic_mistake(server):
    mistakes = named()
    records = {}
    for name, text in mistakes.items():
        for seed in range(WALKS):
            with server.database() as database:
                database.conn.execute(text)
                records[f"{name} {seed}"] = _walk(database, seed)

    verdicts = judge(records, is_serial=True)

    noticed = {
        name
        for name in mistakes
        if any(verdicts[f"{name} {seed}"].refused for seed in range(WALKS))
    }
    assert noticed == set(mistakes)
