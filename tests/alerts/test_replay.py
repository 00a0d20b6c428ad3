"""Random days against the shipped rules; `make alerts-replay` plays thirty."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tools.alerts import days
from tools.alerts.day import MINUTE, SLOT, SLOTS, Day
from tools.alerts.days import drawn
from tools.alerts.engine import STEP, Alert, World, _seen, fired
from tools.alerts.replay import RULES, judged_rules, pages, replay, score

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


@pytest.mark.scenario
def test_each_outage_of_a_day_is_alerted_within_ten_minutes_and_nothing_else_is(
    tool: Callable[[str], str], tmp_path: Path
) -> None:
    day = Day(Random(51))
    happenings = (
        days.a_provider_is_down,
        days.an_outage_behind_a_breaker,
        days.a_provider_of_a_critical_queue_is_down,
        days.a_short_outage,
        days.an_outage_under_failing_scrapes,
        days.attempts_that_fail_now_and_then,
    )
    for slot in range(1, SLOTS):
        happening = happenings[slot % len(happenings)]
        day.happened.append(happening.__name__)
        happening(day, slot * SLOT + day.minutes(5, 25))
    rules = tmp_path / "rules.yaml"
    rules.write_text(judged_rules(RULES.read_text()))

    looks = fired(tool("promtool"), rules, days.world(day), tmp_path / "day.json")
    result = score(day, looks)

    assert result.minutes == [0] * 5, "each is due ten minutes after it began"
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


def test_an_alert_that_fires_before_and_after_an_outage_of_prometheus_is_one_page() -> (
    None
):
    day = World(40)
    day.down = set(range(9, 14))
    begun_meanwhile = at(10, STALLED)

    looks = dict(_seen(at(2, FAST) | begun_meanwhile | at(12, FAST), day, STEP))

    assert [(step, name) for _, step, name in pages(looks)] == [(2, FAST.name)]


def test_what_no_page_depends_on_is_left_out() -> None:
    kept = judged_rules(RULES.read_text())

    assert "redrive:dlq_added:seen" in kept
    assert "RedriveDeadLettersGrowingSteadily" not in kept
    assert "redrive:dlq_depth:max" not in kept
    assert "RedriveReplicaLags" in kept, "tickets of the server are replayed"
    assert "redrive:console:seen" in kept
