"""Open transactions of users: whatever a function locks in one, only its own job waits."""

import pytest

from tests.flow.harness import Workers
from tests.flow.held_open import RECIPES, World, granted, together
from tests.postgres import Database


@pytest.fixture
def world(database: Database, workers: Workers) -> World:
    made = World(database, workers)
    made.prepare()
    return made


def test_every_function_that_somebody_may_call_has_a_recipe(database: Database):
    missing = granted(database) - RECIPES.keys()

    assert missing == set(), "add a recipe to tests/flow/held_open.py for each of these"


def test_whatever_is_held_other_jobs_start_and_workers_come_and_go(world: World):
    """One open transaction stopped every worker for every kind."""
    world.probe()  # so that the lanes have their rows
    for held in together(world):
        assert held
        world.probe()
        world.beats()
        world.ends()
        world.probe()
