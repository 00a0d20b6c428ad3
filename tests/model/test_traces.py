"""What a real database did is what the model allows; what a wrong one did is not."""

import os
import random

import pytest

from tests.model import recorder
from tests.model.walk import Walk
from tests.postgres import Database
from tools.model.judge import judge
from tools.model.mutants import named
from tools.model.trace import transactions

WALKS = int(os.environ.get("REDRIVE_TEST_WALKS", "4"))
STEPS = 500
pytestmark = pytest.mark.model


def _walk(database: Database, seed: object) -> list[dict[str, object]]:
    recorder.install(database.conn)
    Walk(database.conn, random.Random(str(seed))).run(STEPS)
    return list(recorder.read(database.conn))


def test_the_model_allows_what_the_database_does(server):
    records = []
    for seed in range(WALKS):
        with server.database() as database:
            records.append(_walk(database, seed))

    verdict = judge(*records, is_serial=True)

    assert verdict.refused is None
    assert verdict.steps > 500


@pytest.mark.parametrize("mistake", named())
def test_the_model_refuses_a_classic_mistake(server, mistake):
    records = []
    for seed in range(WALKS):
        with server.database() as database:
            database.conn.execute(named()[mistake])
            records.append(_walk(database, seed))

    assert judge(*records, is_serial=True).refused is not None


def test_transactions_are_ordered_by_their_last_note():
    notes = [
        {"seq": 1, "xid": 7, "what": "a"},
        {"seq": 2, "xid": 8, "what": "b"},
        {"seq": 3, "xid": 7, "what": "c"},
    ]

    assert [[note["what"] for note in of] for of in transactions(notes)] == [
        ["b"],
        ["a", "c"],
    ]
