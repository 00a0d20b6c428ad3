"""The model allows what the functions do, in whatever order they are called."""

import pytest

from tests.postgres import Database
from tools.model.judge import explain, judge
from trials.model.walk import walk

pytestmark = pytest.mark.model


@pytest.mark.parametrize("overlaps", [False, True], ids=["in turn", "overlapping"])
@pytest.mark.parametrize("seed", range(3))
def test_the_model_allows_a_random_walk(database: Database, seed: int, overlaps: bool):
    notes = walk(database, seed, 400, overlaps=overlaps)

    verdict = judge({"walk": notes}, is_serial=not overlaps)["walk"]

    assert [explain(run, is_serial=not overlaps) for run in verdict.refused[:1]] == []
    assert verdict.steps > 400
