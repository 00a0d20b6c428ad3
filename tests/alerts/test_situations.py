"""Situations that make alerts wrong, each against the shipped rules in promtool's rule engine.

A situation says which pages fire and between which minutes each begins. Any other page fails it.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.alerts.engine import World, fired
from tools.alerts.replay import judged_rules

from .conftest import RULES
from .situations import (
    ABSENT,
    BURNING,
    CRITICAL,
    FAILING,
    FAST,
    NOT_RESCUED,
    NOTHING_MOVES,
    SITUATIONS,
    STALLED,
    UNSERVED,
    backlog,
    beginnings,
    born,
    dead,
    ended,
    exporter,
    failing,
    is_as_it_should_be,
    minute,
    objectives,
    situation,
    step_up,
    well,
    workers,
    worlds,
)

# ---------------------------------------------------------------------- growth: at birth


@situation("the first 60 jobs of a new queue are all poison", {f"{FAST} new": (10, 12)})
def _(world: World) -> None:
    well(world)
    objectives(world, "new")
    world.lose(lambda step: step < 20, 'queue="new"')
    backlog(world, born(10, lambda _: 0), queue="new")
    dead(world, born(10, lambda _: 60), "new")


@situation(
    "a new queue's first 60 die over three scrapes", {f"{FAST} new": (10.5, 12.5)}
)
def _(world: World) -> None:
    well(world)
    objectives(world, "new")
    world.lose(lambda step: step < 20, 'queue="new"')
    backlog(world, born(10, lambda _: 0), queue="new")
    dead(world, born(10, lambda now: min(60, 20 + (now - 10) * 40)), "new")


@situation(
    "the first queue that an empty installation ever has", {f"{FAST} new": (10, 12)}
)
def _(world: World) -> None:
    exporter(world)
    workers(world)
    objectives(world, "new")
    world.lose(lambda step: step < 20, 'queue="new"')
    dead(world, born(10, lambda _: 60), "new")


@situation("as many as the objective allows, at birth")
def _(world: World) -> None:
    well(world)
    objectives(world, "new")
    world.lose(lambda step: step < 20, 'queue="new"')
    dead(world, born(10, lambda _: 50), "new")


@situation(
    "a critical queue's very first job dies at birth", {f"{CRITICAL} pay": (20, 20.5)}
)
def _(world: World) -> None:
    well(world)
    objectives(world, "pay", page_on_first_dead_letter=1)
    world.lose(lambda step: step < 40, 'queue="pay"')
    dead(world, born(20, lambda _: 1), "pay")


def imported(world: World, total: Callable[[float], float], queue: str) -> None:
    """Dead letters that came from a file, or had died long before, by the minute."""
    for name, more in (
        ("redrive_dlq_imported_total", {"kind": "rabbitmq.orders"}),
        ("redrive_dlq_depth", {"reason": "r"}),
    ):
        labels = {"queue": queue, "namespace": "n", "pod": "exporter"} | more
        world.put(name, lambda step: total(minute(world, step)), **labels)


@situation("5,000 old dead letters are imported, some of them by a gateway")
def _(world: World) -> None:
    well(world, "gateway", page_on_first_dead_letter=1)
    dead(world, lambda _: 0, "gateway", "rabbitmq.orders")
    imported(world, step_up(10, 0, 5000), "gateway")


@situation(
    "60 messages die in RabbitMQ while a gateway works off 5,000 old ones",
    {f"{FAST} gateway": (10, 12)},
)
def _(world: World) -> None:
    well(world, "gateway")
    imported(world, step_up(5, 0, 5000), "gateway")
    dead(world, step_up(10, 0, 60), "gateway", "rabbitmq.orders")


@situation("Prometheus has just started and finds 5,000 old dead letters")
def _(world: World) -> None:
    well(world, page_on_first_dead_letter=1)
    dead(world, lambda _: 5000)


@situation("an installation is watched for the first time, with 5,000 old dead letters")
def _(world: World) -> None:
    well(world)
    exporter(world, "late", begins=10)
    workers(world, namespace="late")
    objectives(world, namespace="late", page_on_first_dead_letter=1)
    backlog(world, born(10, lambda _: 0), namespace="late")
    dead(world, born(10, lambda _: 5000), namespace="late")
    world.lose(lambda step: step < 20, 'namespace="late"')


@situation("exporters leave a queue out for 25 minutes and show it again", minutes=60)
def _(world: World) -> None:
    well(world)
    objectives(world, "q2")
    dead(world, lambda _: 5000, "q2")
    world.lose(lambda step: 20 <= step < 70, 'queue="q2"')


@situation("a new kind of an old queue is all poison", {f"{FAST} q": (10, 12)})
def _(world: World) -> None:
    well(world)
    dead(world, lambda _: 40)
    dead(world, born(10, lambda _: 60), kind="new")


# ---------------------------------------------------------------------- growth: across gaps


def prometheus_is_down(world: World, begins: float, minutes: float) -> None:
    """No scrape and no evaluation."""
    per_minute = 60 / world.interval
    world.down = set(
        range(int(begins * per_minute), int((begins + minutes) * per_minute))
    )


@situation("300 die while Prometheus is down for 4 minutes", {f"{FAST} q": (14, 16)})
def _(world: World) -> None:
    well(world)
    dead(world, step_up(12, 1000, 1300))
    prometheus_is_down(world, 10, 4)


@situation("300 die while Prometheus is down for 7 minutes", {f"{FAST} q": (17, 19)})
def _(world: World) -> None:
    well(world)
    dead(world, step_up(12, 1000, 1300))
    prometheus_is_down(world, 10, 7)


@situation(
    "300 die while Prometheus is down for 40 minutes",
    {f"{FAST} q": (50, 52)},
    minutes=60,
)
def _(world: World) -> None:
    well(world)
    dead(world, step_up(12, 1000, 1300))
    prometheus_is_down(world, 10, 40)


@situation("20 die while Prometheus is down for 7 minutes")
def _(world: World) -> None:
    well(world)
    dead(world, step_up(12, 1000, 1020))
    prometheus_is_down(world, 10, 7)


@situation(
    "one dies on a critical queue while Prometheus is down for 40 minutes",
    {f"{CRITICAL} q": (50, 51)},
    minutes=60,
)
def _(world: World) -> None:
    well(world, page_on_first_dead_letter=1)
    dead(world, step_up(12, 1000, 1001))
    prometheus_is_down(world, 10, 40)


@situation(
    "the exporter cannot be scraped for 4 minutes, and 300 die", {f"{FAST} q": (14, 16)}
)
def _(world: World) -> None:
    well(world)
    dead(world, step_up(12, 1000, 1300))
    world.lose(lambda step: 20 <= step < 28, 'pod="exporter"')


@situation(
    "every second scrape fails, once a minute, and 60 die",
    {f"{FAST} q": (10, 14)},
    interval=60,
)
def _(world: World) -> None:
    well(world)
    dead(world, step_up(10, 1000, 1060))
    world.lose(lambda step: step % 2 == 1)


@situation(
    "every second scrape fails, once a minute, and nothing else",
    minutes=60,
    interval=60,
)
def _(world: World) -> None:
    well(world, page_on_first_dead_letter=1)
    dead(world, lambda _: 1000)
    world.lose(lambda step: step % 2 == 1)


@situation("two exporters, each of whose scrapes fails now and then", minutes=60)
def _(world: World) -> None:
    well(world, page_on_first_dead_letter=1)
    exporter(world, pod="second")
    dead(world, lambda _: 1000)
    dead(world, lambda _: 1000, pod="second")
    world.lose(lambda step: step % 3 == 0, 'pod="exporter"')
    world.lose(lambda step: step % 5 == 0, 'pod="second"')


@situation(
    "a page lasts over a gap of two minutes, and is not a second one",
    {f"{FAST} q": (10, 12)},
)
def _(world: World) -> None:
    well(world)
    dead(world, step_up(10, 1000, 1060))
    world.lose(lambda step: 24 <= step < 28)


# ---------------------------------------------------------------------- growth: restores, rollouts


def restored(before: float, after: float, more: float = 0) -> Callable[[float], float]:
    """A total that a restore at minute 10 sets back; from minute 14 on there are `more`."""
    return lambda now: before if now < 10 else after if now < 14 else after + more


@situation("restored from 210 to 10, then 150 die", {f"{FAST} q": (14, 16)})
def _(world: World) -> None:
    well(world)
    dead(world, restored(210, 10, 150))


@situation("restored from 210 to 10, and nothing more")
def _(world: World) -> None:
    well(world, page_on_first_dead_letter=1)
    dead(world, restored(210, 10))


@situation(
    "restored under two exporters, one of whose scrapes fails now and then", minutes=40
)
def _(world: World) -> None:
    well(world, page_on_first_dead_letter=1)
    exporter(world, pod="second")
    dead(world, restored(210, 10))
    dead(world, restored(210, 10), pod="second")
    world.lose(lambda step: step % 4 == 0, 'pod="second"')


@situation("a failover forgets three dead letters, and three others die")
def _(world: World) -> None:
    well(world)
    dead(world, restored(210, 207, 3))


@situation("restored twice, 60 die in between", {f"{FAST} q": (14, 16)})
def _(world: World) -> None:
    well(world)
    dead(
        world,
        lambda now: 500 if now < 10 else 100 if now < 14 else 160 if now < 20 else 100,
    )


@situation(
    "exporters are replaced one after the other while 60 die",
    {f"{FAST} q": (10.5, 12.5)},
)
def _(world: World) -> None:
    well(world)
    exporter(world, pod="second", begins=11)
    total = step_up(10.5, 1000, 1060)
    dead(world, lambda now: total(now) if now < 11.5 else None)
    dead(world, lambda now: total(now) if now >= 11 else None, pod="second")


@situation("exporters are replaced with a hole of two minutes")
def _(world: World) -> None:
    well(world, page_on_first_dead_letter=1)
    dead(world, lambda _: 1000)
    world.lose(lambda step: 20 <= step < 24, 'pod="exporter"')


@situation("a kind is forgotten, then 60 of another die", {f"{FAST} q": (14, 16)})
def _(world: World) -> None:
    well(world)
    dead(world, step_up(14, 10, 70))
    dead(world, lambda now: 4900 if now < 10 else None, kind="old")


@situation("9 in five minutes for an hour is no fast growth", minutes=60)
def _(world: World) -> None:
    well(world)
    dead(world, lambda now: int(now * 9 / 5))


# ---------------------------------------------------------------------- blind


@situation(
    "one installation of two is gone, workers and all", {f"{ABSENT} n": (15, 16)}
)
def _(world: World) -> None:
    well(world)
    world.lose(lambda step: step >= 20, 'namespace="n"')
    well(world, namespace="m")


@situation(
    "its exporter loops, up for a minute of five", {f"{ABSENT} n": (5, 24)}, minutes=60
)
def _(world: World) -> None:
    well(world)
    well(world, namespace="m")
    world.lose(lambda step: step >= 10 and step % 10 >= 2, 'pod="exporter"')
    for key in [key for key in world.series if 'namespace="m"' in key]:
        del world.series[key]
    well(world, namespace="m")


@situation(
    "the database hides its figures for 5 of every 10 minutes",
    {f"{ABSENT} n": (15, 40)},
    minutes=60,
)
def _(world: World) -> None:
    well(world)
    world.lose(
        lambda step: step >= 20 and step % 20 >= 10, "redrive_stats_timestamp_seconds"
    )


@situation(
    "the only installation is gone: one page, not two", {f"{ABSENT} n": (15, 16)}
)
def _(world: World) -> None:
    well(world)
    world.lose(lambda step: step >= 20)


@situation("the exporter is away for four and a half minutes")
def _(world: World) -> None:
    well(world)
    world.lose(lambda step: 20 <= step < 29, 'pod="exporter"')


@situation("the exporter is away for three minutes twice in twenty", minutes=60)
def _(world: World) -> None:
    well(world)
    world.lose(lambda step: 20 <= step < 26 or 40 <= step < 46, 'pod="exporter"')


@situation("Prometheus was down for 20 minutes", minutes=60)
def _(world: World) -> None:
    well(world)
    dead(world, lambda _: 1000)
    prometheus_is_down(world, 10, 20)


@situation(
    "a release in another namespace grows: its page, and no other",
    {f"{FAST} m/q": (10, 12)},
)
def _(world: World) -> None:
    well(world)
    well(world, namespace="m")
    dead(world, lambda _: 1000)
    dead(world, step_up(10, 0, 60), namespace="m")


# ---------------------------------------------------------------------- unserved


@situation(
    "workers crash again and again, each seen once in five minutes",
    {f"{UNSERVED} q": (10, 20)},
    minutes=60,
)
def _(world: World) -> None:
    exporter(world)
    objectives(world)
    backlog(world, step_up(5, 0, 7))
    workers(world, lambda now: now < 5 or now % 5 < 0.5)


@situation("no worker after minute 5, with ready jobs", {f"{UNSERVED} q": (9, 10)})
def _(world: World) -> None:
    exporter(world)
    objectives(world)
    backlog(world, lambda _: 7, oldest=lambda _: 60)
    workers(world, lambda now: now < 5)


@situation("scaled from zero in three minutes, every half an hour", minutes=70)
def _(world: World) -> None:
    exporter(world)
    objectives(world)
    backlog(world, lambda now: 5 if now % 30 < 4 else 0)
    workers(world, lambda now: 3 <= now % 30 < 12)
    ended(world, lambda now: now if 3 <= now % 30 < 12 else None)


@situation("every second scrape of the workers fails", minutes=60)
def _(world: World) -> None:
    well(world)
    backlog(world, lambda _: 7, oldest=lambda _: 60)
    world.lose(lambda step: step % 2 == 1, "redrive_worker_up")


@situation(
    "a queue without a pool, beside one that is served", {f"{UNSERVED} q2": (9, 10)}
)
def _(world: World) -> None:
    exporter(world)
    objectives(world)
    objectives(world, "q2")
    workers(world, queue="q")
    backlog(world, lambda _: 0)
    backlog(world, step_up(5, 0, 7), queue="q2")


@situation("jobs are enqueued four minutes before their first worker starts")
def _(world: World) -> None:
    exporter(world)
    objectives(world)
    backlog(world, lambda now: 0 if now < 2 else 7 if now < 7 else 0)
    workers(world, lambda now: now >= 6)


@situation("all workers are replaced, with a hole of a minute and a half", minutes=60)
def _(world: World) -> None:
    exporter(world)
    objectives(world)
    backlog(world, lambda _: 7, oldest=lambda _: 20)
    workers(world, lambda now: not 20 <= now < 21.5)
    ended(world, lambda now: now if not 20 <= now < 21.5 else None)


@situation("ready jobs of a paused queue without workers", minutes=60)
def _(world: World) -> None:
    exporter(world)
    objectives(world)
    backlog(world, lambda _: 7)
    world.put("redrive_queue_paused", lambda _: 1, queue="q", pod="exporter")


# ---------------------------------------------------------------------- stalled


def attempts(until: float) -> Callable[[float], float]:
    """One ends every minute, until nothing does."""
    return lambda now: min(now, until)


def slots(
    world: World,
    busy: Callable[[float], float] = lambda _: 0,
    exchange_age: Callable[[float], float] = lambda _: 0,
) -> None:
    """Four slots of a worker, and for how long its exchange has failed, by the minute."""
    pod = "worker-*"
    world.put("redrive_worker_slots", lambda _: 4, pod=pod)
    world.put(
        "redrive_worker_slots_busy", lambda step: busy(minute(world, step)), pod=pod
    )
    age = "redrive_worker_exchange_age_seconds"
    world.put(age, lambda step: exchange_age(minute(world, step)), pod=pod)


@situation(
    "a lock keeps every worker from claiming",
    {f"{NOTHING_MOVES} n": (15, 17), f"{STALLED} q": (15, 27)},
    minutes=60,
)
def _(world: World) -> None:
    well(world)
    backlog(world, step_up(10, 0, 9))
    slots(world, exchange_age=lambda now: max(0, now - 10) * 60)
    ended(world, attempts(10))


@situation("one worker of two cannot claim, and the other can", minutes=40)
def _(world: World) -> None:
    well(world)
    backlog(world, step_up(10, 0, 9))
    slots(world, exchange_age=lambda now: max(0, now - 10) * 60)
    ended(world, lambda now: now * 7, pod="worker-2")


@situation(
    "jobs behind an open breaker or a limit are not ready, and nothing ends", minutes=40
)
def _(world: World) -> None:
    well(world)
    slots(world)
    ended(world, attempts(10))


@situation("a paused queue, free slots, and nothing ends", minutes=40)
def _(world: World) -> None:
    well(world)
    backlog(world, step_up(10, 0, 9))
    slots(world)
    world.put("redrive_queue_paused", lambda _: 1, queue="q", pod="exporter")
    ended(world, attempts(10))


@situation("every slot has a job of 40 minutes, and more wait", minutes=60)
def _(world: World) -> None:
    well(world)
    backlog(world, step_up(10, 0, 9))
    slots(world, busy=step_up(10, 0, 4))
    world.put(
        "redrive_queue_timeout_seconds", lambda _: 3600, queue="q", pod="worker-*"
    )
    ended(world, attempts(10))


@situation("handlers hang", {f"{STALLED} q": (15, 27)}, minutes=60)
def _(world: World) -> None:
    well(world)
    backlog(world, step_up(10, 0, 9))
    ended(world, attempts(10))


@situation(
    "workers crash again and again, up for 3 of 5 minutes",
    {f"{STALLED} q": (15, 30)},
    minutes=60,
)
def _(world: World) -> None:
    exporter(world)
    objectives(world)
    backlog(world, step_up(10, 0, 9))
    workers(world, lambda now: now < 10 or now % 5 < 3)
    ended(world, attempts(10))


def slow(
    world: World, timeout: float, every: float, jobs: Callable[[float], float]
) -> None:
    """A deep backlog of long jobs: one job ends in each period of some minutes."""
    exporter(world)
    workers(world)
    objectives(world)
    backlog(world, jobs, oldest=lambda now: 7200 if jobs(now) else 0)
    ended(world, lambda now: int(now / every))
    world.put(
        "redrive_queue_timeout_seconds", lambda _: timeout, queue="q", pod="worker-*"
    )


@situation("jobs of 45 minutes with a deep backlog", minutes=150)
def _(world: World) -> None:
    slow(world, 3600, 45, lambda _: 40)


@situation("jobs of 45 minutes begin on a queue that was idle for hours", minutes=150)
def _(world: World) -> None:
    slow(world, 3600, 300, lambda now: 40 if 90 <= now < 135 else 0)


@situation(
    "nothing ends for longer than a job may take",
    {f"{STALLED} q": (72, 85)},
    minutes=90,
)
def _(world: World) -> None:
    slow(world, 3600, 1000, lambda _: 40)


@situation("a queue resumes after a pause of half an hour", minutes=60)
def _(world: World) -> None:
    well(world)
    backlog(world, lambda _: 40, oldest=lambda _: 1800)
    world.put(
        "redrive_queue_paused",
        lambda step: minute(world, step) < 30,
        queue="q",
        pod="exporter",
    )
    ended(world, lambda now: max(0, now - 32))


@situation("jobs wait that no worker handles, and nothing else is ready", minutes=60)
def _(world: World) -> None:
    well(world)
    backlog(world, lambda _: 9)
    world.put(
        "redrive_jobs_unhandled", lambda _: 9, queue="q", kind="k", pod="exporter"
    )


@situation("a job ends every eight minutes", minutes=60)
def _(world: World) -> None:
    well(world)
    backlog(world, lambda _: 9, oldest=lambda _: 900)
    ended(world, lambda now: int(now / 8))


@situation("every attempt ends on a pod that is new", minutes=60)
def _(world: World) -> None:
    well(world)
    backlog(world, lambda _: 9, oldest=lambda _: 900)
    for n in range(12):
        ended(
            world, lambda now, n=n: 1 if n * 5 <= now < n * 5 + 5 else None, pod=f"w{n}"
        )


# ---------------------------------------------------------------------- lost workers, the budget


@situation(
    "workers that hold jobs are lost, and nobody is left",
    {f"{NOT_RESCUED} n": (15, 16)},
)
def _(world: World) -> None:
    well(world)
    world.put("redrive_workers_lost", lambda step: int(step >= 20), pod="exporter")


def dying(world: World, share: float) -> None:
    """So large a share of a hundred jobs a minute is dead-lettered."""
    ended(world, lambda now: now * 100 * (1 - share))
    ended(world, lambda now: now * 100 * share, outcome="dead")
    dead(world, lambda now: now * 100 * share)


@situation("all jobs die, of an objective of 20 %", {f"{BURNING} q": (2, 8)})
def _(world: World) -> None:
    well(world, dead_ratio=0.2, dlq_added_5m=10_000)
    dying(world, 1.0)


@situation("three of four die, of an objective of 7 %", {f"{BURNING} q": (2, 8)})
def _(world: World) -> None:
    well(world, dead_ratio=0.07, dlq_added_5m=10_000)
    dying(world, 0.75)


@situation("half of them die, of an objective of 20 %")
def _(world: World) -> None:
    well(world, dead_ratio=0.2, dlq_added_5m=10_000)
    dying(world, 0.5)


@situation("all die, of an objective that lets them", minutes=60)
def _(world: World) -> None:
    well(world, dead_ratio=1, dlq_added_5m=10_000)
    dying(world, 1.0)


# ---------------------------------------------------------------------- retries


@situation("a provider of a critical queue is down", {f"{FAILING} q": (15, 20)}, 60)
def _(world: World) -> None:
    well(world)
    ended(world, lambda now: 20 * min(now, 10))
    failing(world, lambda now: 20 * max(now - 10, 0), 10)


@situation(
    "a provider of a critical queue with a job a minute is down",
    {f"{FAILING} q": (25, 30)},
    60,
)
def _(world: World) -> None:
    well(world)
    ended(world, lambda now: min(now, 10))
    failing(world, lambda now: max(now - 10, 0), 10)


@situation(
    "the exporter names fewer kinds than fail", {f"{FAILING} q": (15, 20)}, minutes=60
)
def _(world: World) -> None:
    well(world)
    ended(world, lambda now: 20 * min(now, 10))
    failing(world, lambda now: 20 * max(now - 10, 0), 10, kind="other")


@situation("every third scrape fails in an outage", {f"{FAILING} q": (15, 20)}, 60)
def _(world: World) -> None:
    well(world)
    ended(world, lambda now: 20 * min(now, 10))
    failing(world, lambda now: 20 * max(now - 10, 0), 10)
    world.lose(lambda step: step % 3 == 2)


@situation("all attempts fail for three minutes", minutes=60)
def _(world: World) -> None:
    well(world)
    ended(world, lambda now: 20 * (min(now, 10) + max(now - 13, 0)))
    failing(world, lambda now: 20 * min(max(now - 10, 0), 3), 10)


@situation("four of ten attempts fail all the time", minutes=60)
def _(world: World) -> None:
    well(world)
    ended(world, lambda now: 12 * now)
    failing(world, lambda now: 8 * now)


@situation("a job of a quiet queue fails again and again", minutes=60)
def _(world: World) -> None:
    well(world)
    failing(world, lambda now: now // 4)


# ---------------------------------------------------------------------- the tests


@pytest.fixture(scope="session")
def page_rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped pages and the rules that they depend on: half of the time."""
    path = tmp_path_factory.mktemp("rules") / "pages.yaml"
    path.write_text(judged_rules(RULES.read_text(), tickets=()))
    return path


@pytest.mark.parametrize(
    ("minutes", "interval"),
    sorted({(case.minutes, case.interval) for case in SITUATIONS}),
)
def test_what_pages_and_what_does_not(
    minutes: int,
    interval: int,
    tool: Callable[[str], str],
    page_rules: Path,
    tmp_path: Path,
) -> None:
    """A situation pages in time, and with the alert of its cause."""
    cases = {
        f"c{n}": case
        for n, case in enumerate(SITUATIONS)
        if (case.minutes, case.interval) == (minutes, interval)
    }
    began: dict[str, dict[str, list[float]]] = {}
    for world in worlds(cases):
        looks = fired(tool("promtool"), page_rules, world, tmp_path / "situation.yaml")
        began |= beginnings(looks, minutes * 60)

    assert began.keys() <= cases.keys()
    assert {
        case.name: began.get(cluster, {})
        for cluster, case in cases.items()
        if not is_as_it_should_be(case, began.get(cluster, {}))
    } == {}


def test_there_are_at_least_forty_situations() -> None:
    names = [case.name for case in SITUATIONS]

    assert len(set(names)) == len(names) >= 40
