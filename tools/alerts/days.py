"""Random days of two installations, with real troubles and harmless events.

A day has slots of two hours, with one event each. For each event it is known whether it
should page, for which trouble, and from when on. Two exporters show the database of
`n`, and one shows that of `m`. `server_days` has the events of the server.
"""

import random
from collections.abc import Callable, Iterator
from itertools import accumulate

from tools.alerts import server_days
from tools.alerts.day import (
    EXPORTERS,
    FAILING,
    MAIL,
    MINUTE,
    OBJECTIVES,
    SLOT,
    SLOTS,
    STEPS,
    Day,
    Place,
)
from tools.alerts.engine import STEP, World

# ------------------------------------------------- troubles that should page


def poison(day: Day, at: int) -> None:
    """Many jobs die within minutes."""
    day.expect(
        "dlq",
        ("n", "mail"),
        at,
        day.die(MAIL, at, day.rng.randint(80, 400), day.minutes(0.5, 4)),
    )


def poison_at_birth(day: Day, at: int) -> None:
    """The first jobs of a new queue die."""
    place = ("n", f"new-{at}")
    day.born[place] = at
    day.expect("dlq", place, at, day.die(place, at, day.rng.randint(60, 200)))


def death_on_a_critical_queue(day: Day, at: int) -> None:
    """One to three jobs die on a queue where one death is enough to page."""
    day.expect("dlq", ("n", "pay"), at, at)
    day.die(("n", "pay"), at, day.rng.randint(1, 3))


def poison_in_a_gap(day: Day, at: int) -> None:
    """Many jobs die while Prometheus is down."""
    gap = day.minutes(3, 20)
    day.down |= set(range(at, at + gap))
    day.die(MAIL, at + gap // 2, day.rng.randint(100, 400))
    day.expect("dlq", MAIL, at, at + gap)


def poison_after_a_restore(day: Day, at: int) -> None:
    """The database is restored, and many jobs die minutes later."""
    restore(day, at)
    begins = at + day.minutes(4, 10)
    due = day.die(MAIL, begins, day.rng.randint(80, 200), day.minutes(0.5, 2))
    day.expect("dlq", MAIL, begins, due)


def poison_under_failing_scrapes(day: Day, at: int) -> None:
    """Many jobs die while scrapes fail."""
    failing_scrapes(day, at)
    poison(day, at + day.minutes(5, 15))


def no_worker(day: Day, at: int) -> None:
    """Jobs wait, and all workers are gone."""
    lasts = day.minutes(20, 40)
    pile_up(day, at, lasts)
    day.without_workers["n"] |= set(range(at, at + lasts))
    day.expect("backlog", MAIL, at, at + 10 * MINUTE)


def workers_crash_again_and_again(day: Day, at: int) -> None:
    """Workers are seen once in five minutes."""
    lasts = day.minutes(30, 50)
    pile_up(day, at, lasts)
    gone = {
        n for n in range(at, at + lasts) if (n - at) % (5 * MINUTE) < 5 * MINUTE - 1
    }
    day.without_workers["n"] |= gone
    day.expect("backlog", MAIL, at, at + 10 * MINUTE)


def handlers_hang(day: Day, at: int) -> None:
    """Jobs wait and no attempt ends."""
    lasts = day.minutes(25, 40)
    pile_up(day, at, lasts)
    day.full |= set(range(at, at + lasts))
    day.expect("backlog", MAIL, at, at + 10 * MINUTE)


def a_lock_holds_up_all_workers(day: Day, at: int) -> None:
    """Jobs wait, slots are free, and no exchange succeeds."""
    lasts = day.minutes(25, 40)
    pile_up(day, at, lasts)
    day.standing["n"] |= set(range(at, at + lasts))
    day.held_up |= set(range(at, at + lasts))
    day.expect("standstill", ("n", ""), at, at + 5 * MINUTE)
    day.expect("backlog", MAIL, at, at + 10 * MINUTE)


def exporters_are_gone(day: Day, at: int) -> None:
    """No exporter can be scraped."""
    lasts = day.minutes(10, 40)
    for pod in EXPORTERS["n"]:
        day.blind["n", pod] |= set(range(at, at + lasts))
    day.expect("blind", ("n", ""), at, at + 5 * MINUTE)


def figures_come_and_go(day: Day, at: int) -> None:
    """The database hides its figures for 5 of every 10 minutes."""
    lasts = 50 * MINUTE
    day.without_figures["n"] |= {
        n for n in range(at, at + lasts) if (n - at) % 20 < 5 * MINUTE
    }
    day.expect("blind", ("n", ""), at, at + 15 * MINUTE)


def an_installation_is_gone(day: Day, at: int) -> None:
    """Exporter and workers of `m` are gone."""
    steps = set(range(at, at + day.minutes(10, 40)))
    day.blind["m", "a"] |= steps
    day.without_workers["m"] |= steps
    day.expect("blind", ("m", ""), at, at + 5 * MINUTE)


def outage(day: Day, at: int, place: Place = MAIL) -> int:
    """All attempts fail, with waits that double; then the provider is back."""
    lasts = day.minutes(15, 60)
    jobs = day.rng.randint(20, 200)
    for number in range(10):
        begins = (2**number - 1) * MINUTE // 4
        spread = max(1, 2**number * MINUTE // 8)
        for n in range(spread):
            share = jobs * (n + 1) // spread - jobs * n // spread
            step = at + begins + n
            if step < at + lasts:
                day.failures[place][step] = day.failures[place].get(step, 0) + share
    day.idle[place] |= set(range(at, at + lasts))
    day.failing[place] |= set(range(at + 1, at + lasts + 30 * MINUTE))
    return lasts


def a_provider_is_down(day: Day, at: int) -> None:
    """The jobs of a queue fail, and are retried."""
    outage(day, at)
    day.expect("retries", MAIL, at, at + 10 * MINUTE)


def a_provider_of_a_critical_queue_is_down(day: Day, at: int) -> None:
    """The jobs of a critical queue fail, and are retried."""
    place = ("n", "pay")
    outage(day, at, place)
    day.expect("retries", place, at, at + 10 * MINUTE)


def an_outage_under_failing_scrapes(day: Day, at: int) -> None:
    """The jobs of a queue fail while scrapes fail."""
    failing_scrapes(day, at)
    a_provider_is_down(day, at + day.minutes(2, 10))


# ------------------------------------------------- events that should not page


def an_outage_behind_a_breaker(day: Day, at: int) -> None:
    """The breaker opens within two minutes, and its alert is a ticket."""
    opens = at + day.minutes(0.5, 2)
    lasts = day.minutes(10, 60)
    day.idle[MAIL] |= set(range(at, at + lasts))
    day.failures[MAIL] |= dict.fromkeys(range(at, opens), day.rng.randint(5, 50))
    day.failing[MAIL] |= set(range(at + 1, at + lasts + 5 * MINUTE))
    day.behind[MAIL] |= set(range(opens, at + lasts))


def a_short_outage(day: Day, at: int) -> None:
    """All attempts fail for two minutes."""
    lasts = 2 * MINUTE
    day.idle[MAIL] |= set(range(at, at + lasts))
    day.failures[MAIL] |= dict.fromkeys(range(at, at + lasts), 40)
    day.failing[MAIL] |= set(range(at + 1, at + 10 * MINUTE))
    day.successes[MAIL] |= dict.fromkeys(range(at + lasts, at + 20 * MINUTE), 40)


def attempts_that_fail_now_and_then(day: Day, at: int) -> None:
    """Three or four of ten attempts fail."""
    steps = range(at, at + day.minutes(20, 60))
    day.successes[MAIL] |= dict.fromkeys(steps, 12)
    day.failures[MAIL] |= {n: day.rng.randint(3, 9) for n in steps}
    day.failing[MAIL] |= set(steps)


def pile_up(day: Day, at: int, lasts: int) -> None:
    """Jobs wait and no attempt ends; used by events, not an event by itself."""
    for n in range(lasts):
        day.ready[MAIL][at + n] = 10 + n
    day.idle[MAIL] |= set(range(at, at + lasts))


def restore(day: Day, at: int) -> None:
    """The database forgets some dead letters."""
    day.deaths[MAIL][at] = day.deaths[MAIL].get(at, 0) - day.rng.randint(50, 900)


def restore_under_failing_scrapes(day: Day, at: int) -> None:
    """The database forgets some dead letters, and scrapes fail.

    One exporter has just restarted.
    """
    day.restarts["n", "b"].add(at + 1)
    restore(day, at)
    failing_scrapes(day, at)


def failing_scrapes(day: Day, at: int) -> None:
    """Every second to fourth scrape of the exporters fails."""
    every = day.rng.randint(2, 4)
    for pod in EXPORTERS["n"]:
        day.blind["n", pod] |= {
            n for n in range(at, at + day.minutes(20, 60)) if n % every == 0
        }


def workers_are_replaced(day: Day, at: int) -> None:
    """A rollout of the workers, with a hole."""
    day.without_workers["n"] |= set(range(at, at + day.minutes(0.5, 2)))


def exporters_are_replaced(day: Day, at: int) -> None:
    """A rollout of the exporters, with or without a hole."""
    hole = day.minutes(0, 3)
    for pod in EXPORTERS["n"]:
        day.restarts["n", pod].add(at)
        day.blind["n", pod] |= set(range(at, at + hole))


def prometheus_is_down(day: Day, at: int) -> None:
    """Prometheus scrapes and evaluates nothing."""
    day.down |= set(range(at, at + day.minutes(1, 40)))


def scaled_to_zero_by_a_kill(day: Day, at: int) -> None:
    """The last worker is killed while it is idle."""
    steps = set(range(at, at + day.minutes(10, 40)))
    day.without_workers["n"] |= steps
    day.killed_idle |= steps
    day.idle[MAIL] |= steps


def jobs_of_45_minutes(day: Day, at: int) -> None:
    """A deep backlog of long jobs, which is normal."""
    for n in range(at, at + 80 * MINUTE):
        day.ready["n", "slow"][n] = 30
    day.idle["n", "slow"] |= {
        n for n in range(at, at + 80 * MINUTE) if (n - at) % (45 * MINUTE)
    }


def every_slot_has_a_long_job(day: Day, at: int) -> None:
    """No attempt ends anywhere, and more long jobs wait."""
    steps = range(at, at + 40 * MINUTE)
    day.ready["n", "slow"] |= dict.fromkeys(steps, 30)
    day.standing["n"] |= set(steps)
    day.full |= set(steps)


def the_only_busy_queue_is_paused(day: Day, at: int) -> None:
    """The jobs of the only busy queue are due, slots are free, and no attempt ends."""
    lasts = day.minutes(20, 60)
    pile_up(day, at, lasts)
    day.standing["n"] |= set(range(at, at + lasts))
    day.paused |= set(range(at, at + lasts))


def all_jobs_wait_for_a_breaker_or_a_limit(day: Day, at: int) -> None:
    """No job is ready, and no attempt ends anywhere."""
    day.standing["n"] |= set(range(at, at + day.minutes(20, 60)))


def a_little_growth(day: Day, at: int) -> None:
    """Fewer jobs die than the objective allows."""
    day.die(MAIL, at, day.rng.randint(5, 45), day.minutes(0.5, 5))


def a_new_queue(day: Day, at: int) -> None:
    """A new queue, and fewer of its jobs die."""
    day.born["n", f"new-{at}"] = at
    day.die(("n", f"new-{at}"), at, day.rng.randint(0, 20))


HAPPENINGS: tuple[Callable[[Day, int], None], ...] = (
    poison,
    poison_at_birth,
    death_on_a_critical_queue,
    poison_in_a_gap,
    poison_after_a_restore,
    poison_under_failing_scrapes,
    no_worker,
    workers_crash_again_and_again,
    handlers_hang,
    a_lock_holds_up_all_workers,
    exporters_are_gone,
    figures_come_and_go,
    an_installation_is_gone,
    a_provider_is_down,
    a_provider_of_a_critical_queue_is_down,
    an_outage_under_failing_scrapes,
    an_outage_behind_a_breaker,
    a_short_outage,
    attempts_that_fail_now_and_then,
    restore,
    restore_under_failing_scrapes,
    failing_scrapes,
    workers_are_replaced,
    exporters_are_replaced,
    prometheus_is_down,
    scaled_to_zero_by_a_kill,
    jobs_of_45_minutes,
    every_slot_has_a_long_job,
    the_only_busy_queue_is_paused,
    all_jobs_wait_for_a_breaker_or_a_limit,
    a_little_growth,
    a_new_queue,
    *server_days.HAPPENINGS,
)


def drawn(seed: int, number: int, *, holds_up: bool) -> Day:
    """Return a day by its number; its first slot is calm."""
    day = Day(random.Random(f"{seed}/{number}"), holds_up)  # a simulation
    for slot in range(1, SLOTS):
        happening = day.rng.choice(HAPPENINGS)
        day.happened.append(happening.__name__.replace("_", " "))
        happening(day, slot * SLOT + day.minutes(5, 25))
    for step in range(STEPS):  # occasionally a job dies and a scrape fails
        if day.rng.random() < 1 / (30 * MINUTE):
            day.die(MAIL, step, 1)
        for namespace, pods in EXPORTERS.items():
            for pod in pods:
                if day.rng.random() < FAILING:
                    day.blind[namespace, pod].add(step)
    return day


# ------------------------------------------------- series that are scraped


def world(day: Day) -> World:
    """Return the series of a day."""
    made = World(STEPS)
    made.down = day.down
    for namespace, pods in EXPORTERS.items():
        for pod in pods:
            _exporter(made, day, namespace, pod)
        _workers(made, day, namespace)
    server_days.console(made, day)
    return made


def _exporter(made: World, day: Day, namespace: str, pod: str) -> None:
    blind, hidden = day.blind[namespace, pod], day.without_figures[namespace]

    def put(
        name: str, value: Callable[[int], float], since: int = 0, **labels: str
    ) -> None:
        made.put(
            name,
            lambda n: None if n < since or n in blind or n in hidden else value(n),
            namespace=namespace,
            pod=pod,
            **labels,
        )

    made.put(
        "redrive_stats_up",
        lambda n: None if n in blind else n not in hidden,
        namespace=namespace,
        pod=pod,
    )
    put("redrive_stats_timestamp_seconds", lambda n: n * STEP)
    lost = set() if not day.holds_up or namespace != "n" else day.killed_idle
    put("redrive_workers_lost", lambda n: n in lost)
    if namespace == "n":
        server_days.exported(day, put)
    for place, since in day.born.items():
        if place[0] == namespace:
            _queue(day, place, since, pod, put)


def _queue(
    day: Day, place: Place, since: int, pod: str, put: Callable[..., None]
) -> None:
    queue, ready = place[1], day.ready[place]
    objectives = OBJECTIVES | (
        {"page_on_first_dead_letter": 1} if queue == "pay" else {}
    )
    for name, value in objectives.items():
        put(
            "redrive_queue_objective",
            lambda _, v=value: v,
            since,
            queue=queue,
            objective=name,
        )
    put(
        "redrive_queue_depth",
        lambda n: ready.get(n, 0),
        since,
        queue=queue,
        state="ready",
    )
    failing, behind = day.failing[place], day.behind[place]
    put(
        "redrive_failing_jobs",
        lambda n: 9 if n in failing else None,
        since,
        queue=queue,
        kind="k",
        category="transient",
    )
    if behind:
        breaker = {"breaker": f"of-{queue}"}
        put(
            "redrive_failing_behind_breaker",
            lambda n: 1 if n in behind else None,
            since,
            kind="k",
            **breaker,
        )
        put(
            "redrive_circuit_breaker_state",
            lambda n: n in behind,
            since,
            state="open",
            **breaker,
        )
    paused = day.paused if place == MAIL else set[int]()
    put("redrive_queue_paused", lambda n: n in paused, since, queue=queue)
    ages = list(
        accumulate(range(STEPS), lambda age, n: age + STEP if ready.get(n) else 0)
    )
    put("redrive_queue_oldest_ready_age_seconds", ages.__getitem__, since, queue=queue)
    totals = list(_totals(day, place, day.restarts[place[0], pod]))
    put(
        "redrive_dlq_added_total",
        totals.__getitem__,
        since,
        queue=queue,
        kind="k",
        reason="r",
    )


def _totals(day: Day, place: Place, restarts: set[int]) -> Iterator[float]:
    total = highest = 0 if day.born[place] else 1000
    for step in range(STEPS):
        total += day.deaths[place].get(step, 0)
        highest = total if step in restarts else max(total, highest)
        yield highest if day.holds_up else total


def _workers(made: World, day: Day, namespace: str) -> None:
    gone = day.without_workers[namespace]

    def put(name: str, value: Callable[[int], float], **labels: str) -> None:
        made.put(
            name,
            lambda n: None if n in gone else value(n),
            namespace=namespace,
            **labels,
        )

    put("redrive_worker_up", lambda _: 1, queue="*", pod="w")
    _slots(day, namespace, put)
    for place in day.born:
        if place[0] == namespace:
            idle = day.idle[place] | day.standing[namespace] | gone
            labels = {"queue": place[1], "pod": "w"}
            more, failures = day.successes[place], day.failures[place]
            ends = {
                "succeeded": ((n not in idle) + more.get(n, 0) for n in range(STEPS)),
                "retried": (failures.get(n, 0) for n in range(STEPS)),
            }
            for outcome, ended in ends.items():
                totals = list(accumulate(ended, initial=0))
                put(
                    "redrive_job_attempts_total",
                    totals.__getitem__,
                    kind="k",
                    outcome=outcome,
                    **labels,
                )
            if not day.holds_up:
                longest = 3600 if place[1] == "slow" else 300
                put("redrive_queue_timeout_seconds", lambda _, v=longest: v, **labels)


def _slots(day: Day, namespace: str, put: Callable[..., None]) -> None:
    """Add the slots of a worker, and the time since its exchange last succeeded."""
    full, held_up = (
        (day.full, day.held_up) if namespace == "n" else (set[int](), set[int]())
    )
    put("redrive_worker_slots", lambda _: 4, pod="w")
    put("redrive_worker_slots_busy", lambda n: 4 if n in full else 1, pod="w")
    ages = list(
        accumulate(range(STEPS), lambda age, n: age + STEP if n in held_up else 0)
    )
    put("redrive_worker_exchange_age_seconds", ages.__getitem__, pod="w")
