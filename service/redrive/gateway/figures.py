"""Metrics of the intake, by source."""

import time
from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from redrive.gateway.intake import Intake

COUNTERS = {
    "taken": "Messages taken in as dead letters.",
    "known": "Messages that had been taken in before.",
    "returned": "Messages that came back dead after they were sent back.",
    "possible_duplicates": "Messages taken in that may have been taken in before.",
    "refused": "Messages that are too large; they stay in their queue.",
    "errors": "Lost connections to the source or to the database.",
}


def figures(intakes: Sequence[Intake]) -> Iterator[Metric]:
    """Yield the families of all sources."""
    for name, text in COUNTERS.items():
        family = CounterMetricFamily(f"redrive_gateway_{name}", text, labels=["source"])
        for intake in intakes:
            family.add_metric([intake.kind], getattr(intake.counts, name))
        yield family
    yield _waiting(intakes)
    yield _stalled(intakes)


def _waiting(intakes: Sequence[Intake]) -> Metric:
    text = "Messages that wait in the dead letter queue of the source."
    waiting = GaugeMetricFamily("redrive_gateway_waiting", text, labels=["source"])
    for intake in intakes:
        if intake.counts.waiting is not None:
            waiting.add_metric([intake.kind], intake.counts.waiting)
    return waiting


def _stalled(intakes: Sequence[Intake]) -> Metric:
    text = "Time since a message was last taken in, or none waited."
    name = "redrive_gateway_stalled_seconds"
    stalled = GaugeMetricFamily(name, text, labels=["source"])
    for intake in intakes:
        since = time.monotonic() - intake.counts.moved_at
        stalled.add_metric([intake.kind], since)
    return stalled
