"""Situations, the series that they begin with, and what fires in them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from tools.alerts.engine import STEP, Alert, World

FAST = "RedriveDeadLettersGrowingFast"
CRITICAL = "RedriveDeadLetterOnCriticalQueue"
BURNING = "RedriveDeadLetterBudgetBurningFast"
UNSERVED = "RedriveQueueUnserved"
STALLED = "RedriveQueueStalled"
NOTHING_MOVES = "RedriveNothingMoves"
ABSENT = "RedriveMetricsAbsent"
NOT_RESCUED = "RedriveWorkersNotRescued"
FAILING = "RedriveCriticalKindFailing"
Minutes = tuple[float, float]


@dataclass
class Situation:
    """What happens, and what fires: alert and queue or namespace -> its first minutes."""

    name: str
    happens: Callable[[World], None]
    pages: dict[str, Minutes] = field(default_factory=dict)
    minutes: int = 40
    interval: int = STEP

    def world(self) -> World:
        world = World(self.minutes * 60 // self.interval, self.interval)
        self.happens(world)
        return world


SITUATIONS: list[Situation] = []


def situation(
    name: str,
    pages: dict[str, Minutes] | None = None,
    minutes: int = 40,
    interval: int = STEP,
) -> Callable[[Callable[[World], None]], Callable[[World], None]]:
    """Add one."""

    def add(happens: Callable[[World], None]) -> Callable[[World], None]:
        SITUATIONS.append(Situation(name, happens, pages or {}, minutes, interval))
        return happens

    return add


def minute(world: World, step: int) -> float:
    """When a scrape is."""
    return step * world.interval / 60


def objectives(
    world: World, queue: str = "q", namespace: str = "n", **values: float
) -> None:
    """The thresholds of a queue."""
    for name, value in ({"dlq_added_5m": 50, "dlq_added_1h": 200} | values).items():
        world.put(
            "redrive_queue_objective",
            lambda _, value=value: value,
            queue=queue,
            objective=name,
            namespace=namespace,
            pod="exporter",
        )


def exporter(
    world: World, namespace: str = "n", begins: float = 0, pod: str = "exporter"
) -> None:
    """An exporter without a queue."""

    def since(value: Callable[[int], float]) -> Callable[[int], float | None]:
        return lambda step: value(step) if minute(world, step) >= begins else None

    labels = {"namespace": namespace, "pod": pod}
    world.put("redrive_stats_up", since(lambda _: 1), **labels)
    world.put(
        "redrive_stats_timestamp_seconds",
        since(lambda step: step * world.interval),
        **labels,
    )


def workers(
    world: World,
    up: Callable[[float], bool] = lambda _: True,
    queue: str = "*",
    namespace: str = "n",
) -> None:
    """A pool of workers that is there while `up`, by the minute."""
    world.put(
        "redrive_worker_up",
        lambda step: 1 if up(minute(world, step)) else None,
        queue=queue,
        namespace=namespace,
        pod=f"worker-{queue}",
    )


def dead(
    world: World,
    total: Callable[[float], float | None],
    queue: str = "q",
    kind: str = "k",
    namespace: str = "n",
    pod: str = "exporter",
) -> None:
    """Dead letters ever added, by the minute."""
    world.put(
        "redrive_dlq_added_total",
        lambda step: total(minute(world, step)),
        queue=queue,
        kind=kind,
        reason="r",
        namespace=namespace,
        pod=pod,
    )


def backlog(
    world: World,
    ready: Callable[[float], float | None],
    oldest: Callable[[float], float] | None = None,
    queue: str = "q",
    namespace: str = "n",
) -> None:
    """Ready jobs of a queue and the age of the oldest, by default since they were there."""
    labels = {"queue": queue, "namespace": namespace, "pod": "exporter"}
    world.put(
        "redrive_queue_depth",
        lambda step: ready(minute(world, step)),
        state="ready",
        **labels,
    )
    waited = 0.0

    def age(step: int) -> float | None:
        nonlocal waited
        now = ready(minute(world, step))
        waited = waited + world.interval if now else 0.0
        return (
            None if now is None else oldest(minute(world, step)) if oldest else waited
        )

    world.put("redrive_queue_oldest_ready_age_seconds", age, **labels)


def ended(
    world: World,
    total: Callable[[float], float | None],
    queue: str = "q",
    outcome: str = "succeeded",
    pod: str = "worker-*",
) -> None:
    """Attempts that ended on a pod, by the minute."""
    world.put(
        "redrive_job_attempts_total",
        lambda step: total(minute(world, step)),
        queue=queue,
        kind="k",
        outcome=outcome,
        pod=pod,
    )


def failing(
    world: World, total: Callable[[float], float], begins: float = 0, kind: str = "k"
) -> None:
    """A critical queue whose attempts ever failed, by the minute, and 30 failing jobs."""
    objectives(world, failed_ratio=0.5, page_on_first_dead_letter=1)
    ended(world, total, outcome="retried")
    world.put(
        "redrive_failing_jobs",
        lambda step: 30 if minute(world, step) >= begins else None,
        queue="q",
        kind=kind,
        category="transient",
        pod="exporter",
    )


def well(world: World, queue: str = "q", namespace: str = "n", **values: float) -> None:
    """An installation with one queue on which nothing happens."""
    exporter(world, namespace)
    workers(world, namespace=namespace)
    objectives(world, queue, namespace, **values)
    backlog(world, lambda _: 0, queue=queue, namespace=namespace)


def step_up(at: float, before: float, after: float) -> Callable[[float], float]:
    """A figure that jumps at a minute."""
    return lambda now: after if now >= at else before


def born(at: float, value: Callable[[float], float]) -> Callable[[float], float | None]:
    """A figure that is not there before."""
    return lambda now: value(now) if now >= at else None


def pages(alerts: Iterable[Alert]) -> set[tuple[str, str]]:
    """Name the pages, with their cluster."""
    return {
        (alert.cluster, named(alert))
        for alert in alerts
        if alert.severity == "critical"
    }


def named(alert: Alert) -> str:
    """Name an alert by its queue, or by its namespace."""
    is_of_n = alert.namespace == "n" or not alert.queue
    namespace = "" if is_of_n else f"{alert.namespace}/"
    return f"{alert.name} {namespace}{alert.queue or alert.namespace}"


def beginnings(
    looks: dict[int, frozenset[Alert]], end: int
) -> dict[str, dict[str, list[float]]]:
    """When each page of each cluster began to fire, in minutes."""
    began: dict[str, dict[str, list[float]]] = {}
    for before, now in pairwise(range(-STEP, end, STEP)):
        for cluster, name in pages(looks.get(now, ())) - pages(looks.get(before, ())):
            began.setdefault(cluster, {}).setdefault(name, []).append(now / 60)
    return began


def is_as_it_should_be(case: Situation, began: dict[str, list[float]]) -> bool:
    """Whether each of its pages began once, in time: it does not come and go."""
    return began.keys() == case.pages.keys() and all(
        len(began[name]) == 1 and earliest <= began[name][0] <= latest
        for name, (earliest, latest) in case.pages.items()
    )


def needs_its_own(world: World) -> bool:
    """Whether Prometheus is down, or nobody's figures are there: rules see that of all clusters."""
    figures = [
        values for key, values in world.series.items() if "stats_timestamp" in key
    ]
    are_gone = (
        all(value is None for value in step) for step in zip(*figures, strict=True)
    )
    return bool(world.down) or not figures or any(are_gone)


def worlds(cases: dict[str, Situation]) -> Iterator[World]:
    """Make a world in which each case is a cluster, and others for those that must be alone."""
    shared: World | None = None
    for cluster, case in cases.items():
        of_case = case.world()
        is_alone = needs_its_own(of_case)
        world = shared if shared and not is_alone else like(of_case)
        world.add(cluster, of_case)
        if is_alone:
            yield world
        else:
            shared = world
    if shared:
        yield shared


def like(world: World) -> World:
    """Make an empty world of the same times."""
    empty = World(world.steps, world.interval)
    empty.down = world.down
    return empty
