"""The trials of campaigns, in small; `make campaign-test` has them at size."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaigns import together, trials
from tests.postgres import Database, Server


def test_a_driver_that_is_killed_at_random_loses_and_doubles_nothing(
    database: Database,
) -> None:
    assert trials.kills(database, letters=300, times=8, seed=1)["kills"] > 3


def test_it_aborts_within_what_its_plan_promised(database: Database) -> None:
    assert trials.share_that_fails(database, rounds=3, seed=1)["most_put_back"] <= 21


def test_c28_a_share_below_the_limit_goes_through_however_fast_jobs_end(
    database: Database,
) -> None:
    assert trials.share_below_the_limit(database, letters=5_000)["dead_again"] == 151


@pytest.fixture
def cells(server: Server) -> Iterator[dict[str, Database]]:
    with contextlib.ExitStack() as stack:
        yield {n: stack.enter_context(server.database()) for n in ("a", "b", "c")}


@pytest.mark.long
def test_a_driver_of_cells_that_is_killed_tries_three_jobs_in_all(
    cells: dict[str, Database], tmp_path: Path
) -> None:
    found = together.cause_that_is_not_fixed(
        cells, tmp_path, letters=50, kills=5, seed=1
    )
    assert found["ran_again"] == 3


@pytest.mark.long
def test_a_driver_of_cells_that_is_killed_loses_and_doubles_nothing(
    cells: dict[str, Database], tmp_path: Path
) -> None:
    found = together.cause_that_is_fixed(
        cells, tmp_path, letters=150, kills=4, rate=100.0, seed=1
    )
    assert found["rates_of_all_cells"] == pytest.approx(100)
