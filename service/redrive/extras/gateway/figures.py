"""Metrics of the gateway, by source."""

import time
from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from redrive.extras.gateway.intake import Intake
from redrive.extras.gateway.tally import SENT, SENT_AGAIN, Tally

TAKEN_IN = {
    "taken": "Messages taken in as dead letters.",
    "known": "Messages that had been taken in before.",
    "returned": "Messages that came back dead after they were sent back.",
    "returned_late": "Messages that came back dead after their job had succeeded.",
    "possible_duplicates": "Messages taken in that may have been taken in before.",
    "refused": "Messages that cannot be stored; they stay in their queue.",
}
SENT_BACK = {
    SENT: "Messages sent back.",
    SENT_AGAIN: "Messages sent again, because the confirmation was lost.",
}


def figures(intakes: Sequence[Intake], tally: Tally) -> Iterator[Metric]:
    """Yield the families of all sources."""
    for name, text in TAKEN_IN.items():
        # The default binds this name, not the last one.
        yield _counter(intakes, name, text, lambda i, n=name: i.counts[n])

    for name, text in SENT_BACK.items():
        yield _counter(intakes, name, text, lambda i, n=name: tally.count(n, i.kind))

    errors = "Lost connections to the source or to the database."
    yield _counter(intakes, "errors", errors, lambda intake: intake.state.errors)
    yield _waiting(intakes)
    yield _stalled(intakes)


def _counter(
    intakes: Sequence[Intake], name: str, text: str, value: Callable[[Intake], int]
) -> Metric:
    family = CounterMetricFamily(f"redrive_gateway_{name}", text, labels=["source"])
    for intake in intakes:
        family.add_metric([intake.kind], value(intake))

    return family


def _waiting(intakes: Sequence[Intake]) -> Metric:
    text = "Messages that wait in the dead letter queue of the source."
    waiting = GaugeMetricFamily("redrive_gateway_waiting", text, labels=["source"])

    for intake in intakes:
        if intake.state.waiting is not None:
            waiting.add_metric([intake.kind], intake.state.waiting)

    return waiting


def _stalled(intakes: Sequence[Intake]) -> Metric:
    text = "Time since a message was last taken in, or none waited."
    name = "redrive_gateway_stalled_seconds"
    stalled = GaugeMetricFamily(name, text, labels=["source"])

    for intake in intakes:
        stalled.add_metric([intake.kind], time.monotonic() - intake.state.moved_at)

    return stalled
