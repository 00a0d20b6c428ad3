"""A collector that is gone costs no job, and next to nothing else."""

import time
from types import SimpleNamespace

import pytest

from redrive.observability.span_queue import (
    LAST_EXPORT_SECONDS,
    PROBE_SPANS,
    QUEUED_SPANS,
    SpanQueue,
)
from tests.flow.harness import Workers, wait_for
from tests.postgres import Database
from tests.tracing.collector import black_hole
from tests.tracing.test_spans import HANDLERS

JOBS = 4000


@pytest.mark.parametrize("answer", ["never", "refused"])
def test_all_jobs_complete_and_the_worker_exits_in_time(
    workers: Workers, database: Database, answer: str
) -> None:
    database.rows(
        "select redrive.enqueue('quick', '{}', queue => 'mail') from generate_series(1, %s)",
        JOBS,
    )
    with black_hole() as silent:
        url = silent if answer == "never" else "http://127.0.0.1:9"
        worker = workers(
            handlers=HANDLERS,
            redrive_slots=16,
            redrive_drain_timeout=120,
            otel_exporter_otlp_endpoint=url,
        ).wait_ready()
        wait_for(lambda: not database.value("select count(*) from redrive.jobs"))
        status, seconds = worker.stop()

    assert status == 0
    assert seconds < LAST_EXPORT_SECONDS + 60  # of a drain of 120
    assert all(event["level"] != "text" for event in worker.events()), (
        "the exporter's own lines stay out of the log"
    )
    assert database.value("select count(*) from redrive.dead_letters") == 0


class Hole:
    """An exporter that never ends."""

    def export(self, _spans):
        time.sleep(3600)


class Span:
    """As much of one as the queue looks at."""

    class context:  # noqa: N801 # an attribute of a span
        class trace_flags:  # noqa: N801 # an attribute of a span
            sampled = True


def test_the_queue_of_spans_is_bounded_and_ends_in_time() -> None:
    queue = SpanQueue(Hole())
    for _ in range(QUEUED_SPANS * 3):
        queue.on_end(Span())
    began = time.monotonic()

    queue.shutdown()

    assert time.monotonic() - began < LAST_EXPORT_SECONDS + 30
    assert queue.dropped >= QUEUED_SPANS * 3 - PROBE_SPANS * 2


class Answers:
    """An exporter that fails until it is told otherwise."""

    result = SimpleNamespace(name="FAILURE")

    def export(self, _spans):
        return self.result


def test_the_capacity_is_small_until_an_export_has_succeeded() -> None:
    """Or each worker would make thousands of spans for a collector that is gone."""
    exporter = Answers()
    queue = SpanQueue(exporter)
    assert room(queue) == PROBE_SPANS

    exporter.result = SimpleNamespace(name="SUCCESS")
    queue.on_end(Span())
    wait_for(lambda: room(queue) == QUEUED_SPANS)
    exporter.result = SimpleNamespace(name="FAILURE")
    queue.on_end(Span())
    wait_for(lambda: room(queue) == PROBE_SPANS)
    queue.shutdown()


def room(queue: SpanQueue) -> int:
    return queue._capacity
