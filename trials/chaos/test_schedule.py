"""A run can be repeated, and no fault is forgotten in it."""

from collections import Counter
from itertools import pairwise

import pytest

from trials.chaos.monkey import Monkey
from trials.chaos.schedule import (
    FAULTS,
    FULL,
    HOLDS,
    MANY,
    OUTAGES,
    PEERS,
    TIERS,
    TRACED,
    plan,
)

ALL = [*TIERS.values(), PEERS, HOLDS]


@pytest.mark.parametrize("tier", ALL, ids=lambda tier: tier.name)
def test_a_seed_gives_one_schedule_and_another_seed_another(tier):
    assert plan(tier, 7) == plan(tier, 7)
    assert plan(tier, 7) != plan(tier, 8)


@pytest.mark.parametrize("tier", ALL, ids=lambda tier: tier.name)
def test_a_schedule_has_each_fault_as_often_as_its_tier_says_within_its_time(tier):
    planned = plan(tier, 1)

    assert Counter(fault.kind for fault in planned) == tier.faults
    assert all(2 <= fault.at <= tier.seconds for fault in planned)


@pytest.mark.parametrize(
    "tier",
    [tier for tier in TIERS.values() if tier not in (TRACED, MANY)],
    ids=lambda tier: tier.name,
)
def test_every_tier_has_every_fault_and_between_two_outages_there_is_time_to_work(tier):
    assert set(tier.faults) == set(FAULTS)
    outages = [fault.at for fault in plan(tier, 1) if fault.kind in OUTAGES]
    assert min(b - a for a, b in pairwise(outages)) > 4


def test_a_part_of_a_tier_has_as_much_in_the_same_time():
    part = FULL.part(0.25)

    assert (part.name, part.seconds, part.jobs) == ("full 0.25", 345, 150_000)
    assert part.faults["term"] == 90
    assert set(part.faults) == set(FAULTS)


def test_the_monkey_can_do_every_fault():
    assert [kind for kind in FAULTS if not callable(getattr(Monkey, kind, None))] == []
