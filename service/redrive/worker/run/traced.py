"""Attempt within a span of its own."""

from redrive.observability.tracing import Tracing, fail, is_sampled, traceparent
from redrive.rules.attempts.settlement import DeadLetter, NotComplete, Retry
from redrive.worker.protocol import read_extras
from redrive.worker.run.attempt import Attempt


async def run_traced(attempt: Attempt, tracing: Tracing) -> NotComplete | None:
    """Run an attempt in a span. If its trace is kept, the attempt knows it."""
    work = attempt.work
    with tracing.process(
        attempt.queue,
        work.kind,
        work.id,
        work.attempt,
        read_extras(work.extras).headers,
    ) as span:
        attempt.traceparent = traceparent(span)
        settlement = await attempt.run()
        if isinstance(settlement, Retry | DeadLetter):
            fail(span, settlement.failure.error_class)

    if is_sampled(span):
        attempt.trace_id = attempt.traceparent.split("-")[1]

    return settlement
