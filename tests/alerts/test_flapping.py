"""Two hours at the threshold of an alert, a little above it and a little below it in turn, are one
notification.
"""

import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tools.alerts.engine import STEP, Alert, World, fired
from tools.alerts.replay import needed_rules

from .conftest import RULES
from .situations import backlog, dead, ended, exporter, failing, minute, well, workers

Signal = Callable[[float], bool]
"""Whether a figure is above the threshold, by the minute."""

TWO_HOURS, LONG = 130, 250
"""Minutes of a simulation, and of one for an alert that waits for an hour."""

AT_THE_THRESHOLD: dict[
    str, tuple[Callable[[World, Signal], None], tuple[int, int], int]
] = {}
"""What happens at the threshold of an alert. It is above it for the first number of minutes and
below for the second, in turn: above for longer than the alert waits, and below for nearly as long
as the alert keeps firing. The last number is the length of the simulation.
"""


def at_the_threshold(
    above: int, below: int, of: str, minutes: int = TWO_HOURS
) -> Callable[[Callable[[World, Signal], None]], None]:
    """Add a case for each of these alerts."""

    def add(happens: Callable[[World, Signal], None]) -> None:
        for name in of.split():
            AT_THE_THRESHOLD[f"Redrive{name}"] = happens, (above, below), minutes

    return add


def gauge(
    of: str,
    name: str,
    high: float,
    low: float,
    above: int = 8,
    below: int = 13,
    minutes: int = TWO_HOURS,
    beside: dict[str, float] | None = None,
    **labels: str,
) -> None:
    """Add a case whose figure is one of these two values."""

    @at_the_threshold(above, below, of, minutes)
    def _(world: World, is_above: Signal) -> None:
        well(world, dlq_oldest_age_seconds=60, dlq_unacknowledged_age_seconds=60)
        world.put(
            f"redrive_{name}",
            lambda n: high if is_above(minute(world, n)) else low,
            pod="e",
            **labels,
        )
        for other, value in (beside or {}).items():
            world.put(
                f"redrive_{other}",
                lambda _, value=value: value,
                pod="e",
                **{k: v for k, v in labels.items() if k not in {"scope", "kind"}},
            )


def summed(rate: Callable[[float], float]) -> Callable[[float], float]:
    """A counter, from what it gains in each minute."""
    totals = [0.0]
    for n in range(2 * LONG):
        totals.append(totals[-1] + rate(n / 2) / 2)
    return lambda now: totals[int(2 * now)]


def counter(
    of: str, name: str, fast: float, slow: float, above: int, below: int, **labels: str
) -> None:
    """Add a case whose counter gains these numbers in a minute."""

    @at_the_threshold(above, below, of)
    def _(world: World, is_above: Signal) -> None:
        well(world)
        total = summed(lambda now: fast if is_above(now) else slow)
        world.put(
            f"redrive_{name}_total",
            lambda n: total(minute(world, n)),
            pod="e",
            **labels,
        )


@at_the_threshold(8, 6, "DeadLettersGrowingFast")
def _(world: World, is_above: Signal) -> None:
    well(world)
    dead(world, summed(lambda now: 13 if is_above(now) else 4))


@at_the_threshold(20, 28, "DeadLettersGrowingSteadily")
def _(world: World, is_above: Signal) -> None:
    well(world, dlq_added_5m=1e6)
    dead(world, summed(lambda now: 12 if is_above(now) else 0))


@at_the_threshold(1, 23, "DeadLetterOnCriticalQueue")
def _(world: World, is_above: Signal) -> None:
    well(world, page_on_first_dead_letter=1)
    dead(world, summed(lambda now: 1 if is_above(now) else 0))


def burning(world: World, high: float, low: float, is_above: Signal) -> None:
    well(world, dead_ratio=0.001, dlq_added_5m=1e6, dlq_added_1h=1e6)
    deaths = summed(lambda now: high if is_above(now) else low)
    ended(world, lambda now: 1000 * now)
    ended(world, deaths, outcome="dead")
    dead(world, deaths)


@at_the_threshold(13, 7, "DeadLetterBudgetBurningFast")
def _(world: World, is_above: Signal) -> None:
    """1.44 % is the limit of the last hour and of the last 5 minutes."""
    burning(world, 20, 10, is_above)


@at_the_threshold(40, 14, "DeadLetterBudgetBurningSlowly")
def _(world: World, is_above: Signal) -> None:
    """0.6 % is the limit of the last 6 hours and of the last 30 minutes."""
    burning(world, 9, 3, is_above)


gauge("DeadLettersUnattended", "dlq_oldest_age_seconds", 61, 59, 18, 14, queue="q")
gauge(
    "DeadLettersUnacknowledged",
    "dlq_unacknowledged_age_seconds",
    61,
    59,
    18,
    14,
    queue="q",
)
counter("GroupRegressed", "dlq_group_regressions", 1, 0, 1, 23, queue="q", kind="k")


@at_the_threshold(12, 12, "RedriveRefillsDeadLetters")
def _(world: World, is_above: Signal) -> None:
    well(world)
    for outcome, high, low in (("dead_again", 5, 3), ("succeeded", 3, 5)):
        total = summed(lambda now, h=high, low=low: h if is_above(now) else low)
        world.put(
            "redrive_redrive_outcomes_total",
            lambda n, total=total: total(minute(world, n)),
            queue="q",
            outcome=outcome,
            pod="e",
        )


@at_the_threshold(8, 9, "QueueWaitTooLong")
def _(world: World, is_above: Signal) -> None:
    well(world, ready_age_seconds=120)
    world.lose(lambda _: True, "redrive_queue_oldest_ready_age_seconds")
    world.put(
        "redrive_queue_oldest_ready_age_seconds",
        lambda n: 121 if is_above(minute(world, n)) else 119,
        queue="q",
        pod="other",
    )


@at_the_threshold(13, 4, "QueueUnserved")
def _(world: World, is_above: Signal) -> None:
    well(world)
    backlog(world, lambda _: 10)
    workers(world, up=lambda now: not is_above(now))


gauge("JobsUnhandled", "jobs_unhandled", 1, 0, 2, queue="q", kind="k")


@at_the_threshold(20, 1, "QueueStalled")
def _(world: World, is_above: Signal) -> None:
    """An attempt ends now and then."""
    well(world)
    backlog(world, lambda _: 10)
    ended(world, summed(lambda now: 1 if now > 1 and not is_above(now) else 0))


@at_the_threshold(8, 1, "NothingMoves")
def _(world: World, is_above: Signal) -> None:
    well(world)
    backlog(world, lambda _: 10)
    ended(world, summed(lambda now: 1 if now > 1 and not is_above(now) else 0))
    for name, value in (("slots", 4), ("slots_busy", 1)):
        world.put(f"redrive_worker_{name}", lambda _, v=value: v, pod="worker-*")


@at_the_threshold(12, 9, "KindFailing CriticalKindFailing")
def _(world: World, is_above: Signal) -> None:
    """The share of the last 5 minutes goes above 50 %, and below."""
    well(world)
    rate = summed(lambda now: 13 if is_above(now) else 7)
    ended(world, lambda now: 20 * now - rate(now))
    failing(world, rate)


gauge("RetryingTooLong", "queue_retrying_age_seconds", 3601, 3599, 13, queue="q")
gauge("CircuitBreakerOpen", "circuit_breaker_state", 1, 0, breaker="b", state="open")
gauge("WorkersNotRescued", "workers_lost", 1, 0)
counter("JobsLost", "jobs_lost", 0.3, 0.1, 16, 14)
counter("RunnersDying", "runner_deaths", 0.4, 0.3, 20, 9, cause="signal")


@at_the_threshold(9, 9, "MetricsAbsent")
def _(world: World, is_above: Signal) -> None:
    well(world)
    world.lose(lambda n: is_above(minute(world, n)), 'pod="exporter"')


@at_the_threshold(5, 9, "MetricsStale")
def _(world: World, is_above: Signal) -> None:
    exporter(world)
    world.lose(lambda _: True, "stats_timestamp")
    late = {True: 125, False: 115}
    world.put(
        "redrive_stats_timestamp_seconds",
        lambda n: n * STEP - late[is_above(minute(world, n))],
        pod="other",
    )


@at_the_threshold(8, 9, "MaintenanceOverdue")
def _(world: World, is_above: Signal) -> None:
    well(world)
    late = {True: 190, False: 170}
    world.put(
        "redrive_maintenance_last_success_timestamp_seconds",
        lambda n: max(1, n * STEP - late[is_above(minute(world, n))]),
        task="purge",
    )
    for name, value in (("expected_timestamp_seconds", 0), ("interval_seconds", 60)):
        world.put(f"redrive_maintenance_{name}", lambda _, v=value: v, task="purge")


gauge("ScheduleOverdue", "schedule_overdue_seconds", 121, 119)
counter("ChoresFailing", "maintenance_failures", 0.7, 0.3, 14, 14, chore="batches")
counter("DatabaseErrors", "db_errors", 7, 5, 12, 14, operation="exchange")
gauge("DatabaseSlow", "worker_exchange_slowdown_ratio", 10, 1, 5)
gauge("LongTransactionHoldsVacuum", "pg_oldest_transaction_age_seconds", 1801, 1799)


@at_the_threshold(13, 14, "ConnectionsNearlyUsedUp")
def _(world: World, is_above: Signal) -> None:
    well(world)
    used = {True: 81, False: 79}
    for name, value in (
        ("", lambda n: used[is_above(minute(world, n))]),
        ("_available", lambda _: 100),
    ):
        world.put(f"redrive_pg_connections{name}", value, scope="server")


gauge(
    "FreezingFallsBehind",
    "pg_freeze_age",
    5.1e8,
    4.9e8,
    63,
    58,
    LONG,
    {"pg_freeze_max_age": 2e8},
    counter="transactions",
    scope="server",
)
gauge(
    "WraparoundNear",
    "pg_freeze_age",
    1.51e9,
    1.49e9,
    beside={"pg_freeze_max_age": 2e8},
    counter="transactions",
    scope="server",
)
gauge(
    "VacuumFallsBehind",
    "pg_table_dead_tuples",
    100_001,
    99_999,
    63,
    58,
    LONG,
    {"pg_table_vacuum_threshold": 5000},
    table="jobs",
)
gauge(
    "ReplicationSlotKeepsWal",
    "pg_replication_slot_kept_bytes",
    20.1e9,
    19.9e9,
    18,
    14,
    slot="b",
)
gauge("ReplicaLags", "pg_replication_lag_seconds", 301, 299, 13, standby="b")
gauge("NamesNearlyUsedUp", "names_used_ratio", 0.81, 0.79, names="kinds")
gauge(
    "DiskBudgetNearlyUsedUp",
    "disk_used_bytes",
    81e9,
    79e9,
    18,
    58,
    LONG,
    {"disk_budget_bytes": 100e9},
    what="history",
)
gauge("SequenceNearlyUsedUp", "pg_sequence_used_ratio", 0.76, 0.74, sequence="s")


@at_the_threshold(13, 9, "ConsoleDown")
def _(world: World, is_above: Signal) -> None:
    well(world)
    world.put(
        "redrive_console_sign_ins_total",
        lambda n: None if n > 1 and is_above(minute(world, n)) else 0,
    )


@at_the_threshold(14, 12, "ConsoleFailing")
def _(world: World, is_above: Signal) -> None:
    well(world)
    for status, high, low in (("200", 20, 20), ("500", 2, 0)):
        total = summed(lambda now, h=high, low=low: h if is_above(now) else low)
        world.put(
            "redrive_console_request_seconds_count",
            lambda n, total=total: total(minute(world, n)),
            page="/",
            status=status,
        )


gauge("GatewayStalled", "gateway_stalled_seconds", 601, 599, source="s")


@at_the_threshold(20, 9, "GatewayDeadLettersGrow")
def _(world: World, is_above: Signal) -> None:
    well(world)
    total = summed(lambda now: 8 if is_above(now) else 5)
    world.put(
        "redrive_gateway_taken_total", lambda n: total(minute(world, n)), source="s"
    )
    world.put("redrive_gateway_waiting", lambda _: 0, source="s")


gauge(
    "CampaignForgotten", "campaign_idle_seconds", 86401, 86399, 18, 14, state="paused"
)
gauge("HealKeepsFailing", "heals_aborted", 3, 2)
gauge("LimitStarvesJobs", "limit_oldest_wait_seconds", 86401, 86399, limit="l")


def in_turn(above: int, below: int) -> Signal:
    return lambda now: now % (above + below) < above


def noise(seed: str) -> Signal:
    """Above for two of three scrapes, by chance."""
    drawn = random.Random(seed)
    values = [drawn.random() < 2 / 3 for _ in range(2 * LONG + 2)]
    return lambda now: values[int(2 * now)]


def fired_alone(
    tool: Callable[[str], str], scratch: Path, world: World, alert: str
) -> dict[int, frozenset[Alert]]:
    """When an alert fires; no rule that it does not depend on is evaluated."""
    rules = scratch / RULES.name
    rules.write_text(needed_rules(RULES.read_text(), [alert]))
    looks = fired(tool("promtool"), rules, world, scratch / "world.json")
    return {
        time: frozenset(found for found in alerts if found.name == alert)
        for time, alerts in looks.items()
    }


@pytest.mark.parametrize("alert", AT_THE_THRESHOLD)
def test_an_alert_at_its_threshold_comes_once(
    tool: Callable[[str], str], tmp_path: Path, alert: str
) -> None:
    happens, (above, below), minutes = AT_THE_THRESHOLD[alert]
    world = World(minutes * 60 // STEP)
    for kind, signal in (("waves", in_turn(above, below)), ("noise", noise(alert))):
        alone = World(world.steps)
        happens(alone, signal)
        world.add(kind, alone)
    looks = fired_alone(tool, tmp_path, world, alert)
    began = Counter(
        found.cluster
        for before, now in pairwise(range(-STEP, minutes * 60, STEP))
        for found in looks.get(now, frozenset()) - looks.get(before, frozenset())
    )

    assert began["waves"] == 1
    assert began["noise"] <= 1


def test_each_alert_that_somebody_gets_is_tried_at_its_threshold(
    alerts: dict[str, dict[str, Any]],
) -> None:
    """Alerts with the severity info go to nobody."""
    sent = {n for n, rule in alerts.items() if rule["labels"]["severity"] != "info"}

    assert sent == set(AT_THE_THRESHOLD)
    assert all("keep_firing_for" in alerts[name] for name in sent)


def an_outage(
    *, is_behind: Signal = lambda _: False, a_minute: int = 10, drains: bool = False
) -> World:
    """All attempts fail from minute 10 to 50, and then none.

    Args:
        is_behind: the breaker of the kind is open.
        a_minute: attempts.
        drains: no job that failed is left as soon as attempts succeed again.
    """
    world = World(90 * 60 // STEP)
    well(world)
    is_down = lambda now: 10 <= now < 50  # noqa: E731 # a figure by the minute
    failed = summed(lambda now: a_minute if is_down(now) and not is_behind(now) else 0)
    ended(world, summed(lambda now: 0 if is_down(now) else a_minute))
    failing(world, failed, begins=10)
    if drains:
        world.put(
            "redrive_failing_jobs",
            lambda n: 30 if is_down(minute(world, n)) else None,
            queue="q",
            kind="k",
            category="transient",
            pod="exporter",
        )
    world.put(
        "redrive_failing_behind_breaker",
        lambda n: 1 if is_behind(minute(world, n)) else None,
        kind="k",
        pod="exporter",
    )
    return world


def spans(
    tool: Callable[[str], str], scratch: Path, world: World
) -> list[tuple[float, float]]:
    """The first and last minute of each notification of RedriveKindFailing."""
    looks = fired_alone(tool, scratch, world, "RedriveKindFailing")
    times = [time / 60 for time, alerts in looks.items() if alerts]
    found: list[tuple[float, float]] = []
    for time in times:
        if found and time - found[-1][1] <= STEP / 60:
            found[-1] = found[-1][0], time
        else:
            found.append((time, time))
    return found


def test_a_breaker_that_closes_for_a_moment_makes_no_alert_about_its_kind(
    tool: Callable[[str], str], tmp_path: Path
) -> None:
    """RedriveCircuitBreakerOpen says it."""
    world = an_outage(is_behind=lambda now: 11 <= now < 50 and now % 4 < 3)
    assert spans(tool, tmp_path, world) == []


def test_a_breaker_that_opens_and_closes_in_turn_is_one_notification(
    tool: Callable[[str], str], tmp_path: Path
) -> None:
    world = an_outage(is_behind=lambda now: 20 <= now < 50 and now % 20 < 8)
    ((begins, ends),) = spans(tool, tmp_path, world)
    assert begins == 18
    assert 66.5 <= ends <= 67


@pytest.mark.parametrize(
    ("a_minute", "drains", "ends"),
    [
        *((10, drains, 52) for drains in (True, False)),  # half of the last 5 minutes
        (3, False, 55),  # fewer than 20 in 5 minutes: none of these has failed
        (3, True, 53),  # no failing job was seen for 3 minutes
    ],
)
def test_an_outage_is_over_when_the_share_has_fallen_or_no_job_fails_any_more(
    tool: Callable[[str], str], tmp_path: Path, a_minute: int, drains: bool, ends: int
) -> None:
    """Whichever comes first; the alert fires for 15 minutes more."""
    world = an_outage(a_minute=a_minute, drains=drains)
    ((_, last),) = spans(tool, tmp_path, world)
    assert ends + 14.5 <= last <= ends + 15
