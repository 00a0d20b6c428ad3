"""Waits are judged by what was held, and by what else was broken."""

from trials.chaos.holding import Hold, waits
from trials.chaos.ledger import Entry
from trials.chaos.verdict import EVERYBODY, Fault


def held(since: float, until: float) -> Hold:
    hold = Hold("", 0, lambda _: set())
    hold.since, hold.until = since, until
    return hold


def ledger(**starts: float) -> dict[int, list[Entry]]:
    return {
        int(n[1:]): [Entry("start", int(n[1:]), 1, 11, 10, at)]
        for n, at in starts.items()
    }


def test_a_wait_counts_by_when_the_job_came_and_apart_if_another_fault_was_near():
    began = ledger(_1=101, _2=152, _3=203, _4=301)
    faults = [
        Fault("kill_group", 10, 149, 149),
        Fault("terminate", EVERYBODY, 100, 100),
    ]
    found = waits(
        [held(90, 210)], {1: 100, 2: 150, 3: 200, 4: 300, 5: 100}, began, faults
    )

    assert found.calm == [1, 3]
    assert found.held == [1, 2, 3]
    assert found.free == [1]


def test_a_hold_that_never_began_holds_nothing():
    assert waits([held(100, 100)], {1: 100}, ledger(_1=101), []).held == []
