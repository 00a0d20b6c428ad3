"""What a process exports stays bounded, whatever kinds and queues come."""

from types import SimpleNamespace

from redrive.metrics import DURATION_BUCKETS, MAX_HISTOGRAMS, MAX_LABEL_SETS, Counter, Histogram, Metrics
from redrive.telemetry import Telemetry

KINDS = 100_000


def samples(family) -> list:
    return [sample for metric in family.collect() for sample in metric.samples]


def test_a_hundred_thousand_kinds_are_a_bounded_number_of_series():
    counter = Counter("redrive_job_attempts_total", "", ("queue", "kind", "outcome"))
    histogram = Histogram("redrive_job_duration_seconds", "", ("queue", "kind", "outcome"), DURATION_BUCKETS)
    for n in range(KINDS):
        counter.add(("mail", f"kind{n}", "dead"))
        histogram.observe(("mail", f"kind{n}", "dead"), (0.1,))

    counted, observed = samples(counter), samples(histogram)

    assert len(counted) <= MAX_LABEL_SETS + 1
    assert len(observed) <= (MAX_HISTOGRAMS + 1) * (len(DURATION_BUCKETS) + 3)
    assert sum(sample.value for sample in counted) == KINDS, "nothing goes uncounted"
    [rest] = [sample for sample in counted if sample.labels["kind"] == "other"]
    assert rest.labels == {"queue": "mail", "kind": "other", "outcome": "dead"}, "its queue and outcome stay known"


def test_a_hundred_thousand_queues_too():
    counter = Counter("redrive_job_attempts_total", "", ("queue", "kind", "outcome"))
    for n in range(KINDS):
        counter.add((f"queue{n}", "kind", "dead"))

    assert len(samples(counter)) <= MAX_LABEL_SETS * 1.1 + 2


def test_known_kinds_are_shown_at_0_and_leave_room_for_what_happens():
    metrics = Metrics()
    telemetry = Telemetry(metrics, "1.0", ["mail"])
    kinds = [SimpleNamespace(kind="welcome", queue="mail"), SimpleNamespace(kind="charge", queue="billing"),
             SimpleNamespace(kind="hook.*", queue="mail")]  # fmt: skip

    telemetry.ready({kind.kind: kind for kind in kinds})

    shown = {(s.labels["kind"], s.labels["outcome"]): s.value for s in samples(metrics.attempts)}
    outcomes = ("succeeded", "retried", "released", "dead", "cancelled")
    assert shown == {("welcome", outcome): 0 for outcome in outcomes}, "those of queues it serves"
    assert {s.labels["reason"] for s in samples(metrics.retries)} >= {"transient", "throttled", "other"}
    assert {s.labels["cause"]: s.value for s in samples(metrics.runner_deaths)} == {
        "signal": 0,
        "exit": 0,
        "deadline": 0,
    }

    many = [SimpleNamespace(kind=f"kind{n}", queue="mail") for n in range(KINDS)]
    telemetry.ready({kind.kind: kind for kind in many})

    assert len(samples(metrics.attempts)) <= MAX_LABEL_SETS / 2 + 1
