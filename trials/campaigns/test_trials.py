"""The trials of campaigns, in small; `make campaign-test` has them at size."""

from tests.postgres import Database
from trials.campaigns import trials


def test_a_driver_that_is_killed_at_random_loses_and_doubles_nothing(
    database: Database,
) -> None:
    assert trials.kills(database, letters=300, times=8, seed=1)["kills"] > 3


def test_it_aborts_within_what_its_plan_promised(database: Database) -> None:
    assert trials.share_that_fails(database, rounds=3, seed=1)["most_put_back"] <= 21


def test_a_share_below_the_limit_goes_through_however_fast_jobs_end(
    database: Database,
) -> None:
    assert trials.share_below_the_limit(database, letters=5_000)["dead_again"] == 151
