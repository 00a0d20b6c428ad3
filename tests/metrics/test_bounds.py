"""What a process exports stays bounded, whatever kinds and queues come."""

import logging
import math
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import redrive
from redrive.observability.metrics import (
    MAX_HISTOGRAMS,
    MAX_LABEL_SETS,
    Counter,
    Histogram,
    Metrics,
)
from redrive.rules.attempts.settlement import Outcome, Release
from redrive.rules.times import DURATION_BUCKETS
from redrive.worker.held import Batch, held_from
from redrive.worker.protocol import Report, report_of
from redrive.worker.round_trip import EPOCH, LaneClaim
from redrive.worker.telemetry import OPERATIONS, RELEASES, Telemetry

KINDS = 100_000


def kind(
    name: str, queue: str = "mail", depends_on: tuple[str, ...] = ()
) -> SimpleNamespace:
    return SimpleNamespace(kind=name, queue=queue, depends_on=depends_on)


def samples(family) -> list:
    return [sample for metric in family.collect() for sample in metric.samples]


def test_a_hundred_thousand_kinds_are_a_bounded_number_of_series():
    counter = Counter("redrive_job_attempts_total", "", ("queue", "kind", "outcome"))
    histogram = Histogram(
        "redrive_job_duration_seconds",
        "",
        ("queue", "kind", "outcome"),
        DURATION_BUCKETS,
    )
    for n in range(KINDS):
        counter.add(("mail", f"kind{n}", "dead"))
        histogram.observe(("mail", f"kind{n}", "dead"), (0.1,))

    counted, observed = samples(counter), samples(histogram)

    assert len(counted) <= MAX_LABEL_SETS + 1
    assert len(observed) <= (MAX_HISTOGRAMS + 1) * (len(DURATION_BUCKETS) + 3)
    assert sum(sample.value for sample in counted) == KINDS, "nothing goes uncounted"
    [rest] = [sample for sample in counted if sample.labels["kind"] == "other"]
    assert rest.labels == {"queue": "mail", "kind": "other", "outcome": "dead"}, (
        "its queue and outcome stay known"
    )


def test_a_hundred_thousand_queues_too():
    counter = Counter("redrive_job_attempts_total", "", ("queue", "kind", "outcome"))
    for n in range(KINDS):
        counter.add((f"queue{n}", "kind", "dead"))

    assert len(samples(counter)) <= MAX_LABEL_SETS * 1.1 + 2


def test_known_kinds_are_shown_at_0_and_leave_room_for_what_happens():
    metrics = Metrics()
    telemetry = Telemetry(metrics, ["mail"])
    kinds = [
        kind("welcome", depends_on=("smtp",)),
        kind("charge", queue="billing"),
        kind("hook.*"),
    ]

    telemetry.ready({each.kind: each for each in kinds})

    shown = {
        (s.labels["kind"], s.labels["outcome"]): s.value
        for s in samples(metrics.attempts)
    }
    outcomes = ("succeeded", "retried", "released", "dead", "cancelled")
    assert shown == {("welcome", outcome): 0 for outcome in outcomes}, (
        "those of queues it serves"
    )
    assert {s.labels["reason"] for s in samples(metrics.retries)} >= {
        "transient",
        "throttled",
        "other",
    }
    assert {s.labels["cause"]: s.value for s in samples(metrics.runner_deaths)} == {
        "signal": 0,
        "exit": 0,
        "deadline": 0,
    }

    telemetry.ready({f"kind{n}": kind(f"kind{n}") for n in range(KINDS)})

    assert len(samples(metrics.attempts)) <= MAX_LABEL_SETS / 2 + 1


def test_every_counter_of_a_worker_is_there_before_anything_happens():
    """Or increase() would miss the first: one that was not there at 0 begins at 1."""
    metrics = Metrics()
    telemetry = Telemetry(metrics, None)
    telemetry.ready({"welcome": kind("welcome", depends_on=("smtp",))})
    counters = [
        family for family in vars(metrics).values() if isinstance(family, Counter)
    ]

    assert [counter.name for counter in counters if not samples(counter)] == []
    assert {sample.value for counter in counters for sample in samples(counter)} == {0}
    assert [
        sample.value
        for sample in samples(metrics.exchange)
        if sample.name.endswith("_count")
    ] == [0]
    assert [
        sample.value
        for sample in samples(metrics.wait)
        if sample.name.endswith("_count")
    ] == [0]
    assert {s.labels["reason"] for s in samples(metrics.released)} == {
        *RELEASES,
        "breaker smtp",
    }


@pytest.mark.parametrize(
    ("call", "known"),
    [(r'Release\("(\w+)"', RELEASES), (r'database_error\("(\w+)"', OPERATIONS)],
    ids=["why jobs are given back", "operations that may fail"],
)
def test_what_is_shown_at_0_is_all_that_the_code_says(
    call: str, known: tuple[str, ...]
):
    source = "".join(
        path.read_text() for path in Path(redrive.__file__).parent.rglob("*.py")
    )
    said = set(re.findall(call, source))

    assert said
    assert said <= set(known)


def test_that_a_worker_is_too_old_for_a_kind_is_said_once_a_minute(caplog):
    telemetry = Telemetry(Metrics(), None)
    kinds = enumerate(("a", "a", "b"))
    rows = [(1, n, 1, 1, kind, "{}", None, EPOCH, 0.0) for n, kind in kinds]
    lane = LaneClaim(1, 3, EPOCH, 1, 1, 1)
    with caplog.at_level(logging.DEBUG, "redrive"):
        for held in held_from(Batch(1, ["default"]), [lane], rows):
            settlement = Release("unknown_kind", 15.0)
            telemetry.ended(held, report_of(held.id, held.deliveries, settlement))

    said = [(r.levelname, r.kind, r.reason) for r in caplog.records]
    assert said == [
        ("WARNING", "a", "unknown_kind"),
        ("DEBUG", "a", "unknown_kind"),
        ("WARNING", "b", "unknown_kind"),
    ]
    now = time.monotonic()
    assert [telemetry.end_log._is_news("a", now + later) for later in (59, 61, 62)] == [
        False,
        True,
        False,
    ]


def test_the_longest_timeout_that_a_worker_holds_is_shown_by_queue():
    """A queue of 45-minute jobs was taken for stalled, though their timeout is known."""
    telemetry = Telemetry(Metrics(), "test", None)
    timeouts = {"slow": 3600.0, "quick": 30.0, "unknown": math.inf}
    inflight = {
        ("q", "slow"): 1,
        ("q", "quick"): 4,
        ("mail", "quick"): 1,
        ("new", "unknown"): 1,
    }

    telemetry.gauges(inflight, timeouts.__getitem__, 8, is_draining=False)

    [family] = telemetry.metrics.timeout.collect()
    assert {s.labels["queue"]: s.value for s in family.samples} == {
        "q": 3600,
        "mail": 30,
    }


@pytest.mark.parametrize(
    ("extras", "counted"), [(None, 1), ('{"redrives": 0}', 1), ('{"redrives": 2}', 0)]
)
def test_the_first_death_of_a_job_is_measured_from_its_enqueueing(
    extras: str | None, counted: int
):
    """Nobody could tell how long jobs take until people learn of them."""
    metrics = Metrics()
    telemetry = Telemetry(metrics, None)
    lane = LaneClaim(1, 3, EPOCH, 1, 1, 1)
    row = (1, 7, 1, 3, "a", "{}", extras, EPOCH, time.time() - 7_200)
    (held,) = held_from(Batch(1, ["mail"]), [lane], [row])

    telemetry.ended(held, Report(7, 1, Outcome.DEAD_LETTER, reason="not_retryable"))
    telemetry.ended(held, Report(7, 1, Outcome.RETRY, reason="transient"))

    found = {
        sample.labels.get("le"): sample.value
        for sample in samples(metrics.time_to_dlq)
        if sample.name.endswith("_bucket")
    }
    assert found.get("3600.0", 0) == 0
    assert found.get("14400.0", 0) == counted
