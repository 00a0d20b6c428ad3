"""Random rollouts, in small; `make rollout-test` has 200 of them."""

import pytest

from tests.postgres import Database
from trials.rollouts.rollouts import simulate


@pytest.mark.long
def test_no_regression_is_missed_and_none_is_false(database: Database) -> None:
    figures = simulate(database, rollouts=20, seed=1)

    assert figures["regressions"] >= 10
    assert figures["refused"] >= 10
    assert figures["backports"] >= 5
    assert (figures["missed"], figures["false"]) == (0, 0)
