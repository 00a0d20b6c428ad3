"""Random days against the shipped rules; `make alerts-replay` plays thirty."""

from collections.abc import Callable
from random import Random

import pytest

from tools.alerts.day import MINUTE, SLOT, Day
from tools.alerts.days import drawn
from tools.alerts.engine import STEP, Alert
from tools.alerts.replay import RULES, judged_rules, replay, score

FAST = Alert("RedriveDeadLettersGrowingFast", "critical", "dlq", "n", "mail")
STALLED = Alert("RedriveQueueStalled", "critical", "backlog", "n", "mail")


@pytest.mark.scenario
def test_a_random_day_pages_for_all_that_breaks_and_for_nothing_else(
    tool: Callable[[str], str],
) -> None:
    result = replay(tool("promtool"), RULES, 0, holds_up=False)

    assert result.troubles > 3
    assert not result.missed, result
    assert not result.without_cause, result


def test_a_day_is_drawn_by_its_number() -> None:
    assert drawn(1, 3, holds_up=False).happened == drawn(1, 3, holds_up=True).happened
    assert drawn(1, 3, holds_up=False).happened != drawn(1, 4, holds_up=False).happened


def at(step: int, *alerts: Alert) -> dict[int, frozenset[Alert]]:
    """Fires for ten minutes."""
    return {(step + n) * STEP: frozenset(alerts) for n in range(20)}


def test_what_fired_is_held_against_what_was_to_fire() -> None:
    day = Day(Random(1))
    day.happened = ["poison"]
    day.expect("dlq", ("n", "mail"), SLOT + 10, SLOT + 12)

    in_time = score(day, at(SLOT + 14, FAST))
    other = score(day, at(SLOT + 14, STALLED))
    twice = score(day, at(SLOT + 14, FAST) | at(SLOT + 50, FAST))

    assert (in_time.minutes, in_time.missed.total(), in_time.without_cause.total()) == (
        [2 / MINUTE],
        0,
        0,
    )
    assert other.missed == {"poison": 1}
    assert other.without_cause == {"RedriveQueueStalled during poison": 1}
    assert twice.without_cause == {"RedriveDeadLettersGrowingFast during poison": 1}


def test_what_no_page_depends_on_is_left_out() -> None:
    kept = judged_rules(RULES.read_text())

    assert "redrive:dlq_added:seen" in kept
    assert "RedriveDeadLettersGrowingSteadily" not in kept
    assert "redrive:dlq_depth:max" not in kept
    assert "RedriveReplicaLags" in kept, "O25: tickets of the server are replayed"
    assert "redrive:console:seen" in kept
