"""Reports of ended attempts, sent in one batch per turn of the event loop."""

import asyncio

from redrive.rules.attempts.settlement import NotComplete
from redrive.worker.channel import Channel
from redrive.worker.protocol import Done, Ended, Report
from redrive.worker.run.attempt import Attempt
from redrive.worker.run.own import clock
from redrive.worker.run.sampler import Sampler

NS_BETWEEN_FLUSHES = 2_000_000
"""Time between two batches while jobs end without a wait.

A batch for each turn of the loop would be a message for sixteen jobs. If the batches
were of whole claims, the supervisor would settle and claim while the runner has nothing
to do.
"""


class Reports:
    """Ends since the last batch.

    From each batch, the `sampler` is offered one job that succeeded and may be sampled.
    """

    def __init__(self, channel: Channel, sampler: Sampler | None = None) -> None:
        self._channel = channel
        self._sampler = sampler

        self._latest: Attempt | None = None
        self._done: list[tuple[int, int, float]] = []
        self._example: tuple[int, str] | None = None
        self._ended: list[Report] = []
        self._flush: asyncio.Handle | None = None
        self._flush_is_soon = False
        self._flushed_ns = 0

    def completed(self, attempt: Attempt, *, more: bool = False) -> None:
        """Report that the work is done. Nothing of it is encoded.

        `more`: another job starts at once, so its report may go in the same batch.
        """
        work = attempt.work
        self._done.append((work.id, work.deliveries, attempt.seconds))

        if attempt.handler.sample:
            self._latest = attempt
        if attempt.trace_id is not None:
            self._example = (work.id, attempt.trace_id)

        if not self._flush_is_soon and (not more or self._flush is None):
            self._schedule(attempt, more)

    def ended(self, attempt: Attempt, settlement: NotComplete) -> None:
        """Report any other end.

        If the handler completed the job in a transaction, the work is probably done.
        """
        self._ended.append(attempt.report(settlement))
        if attempt.may_be_committed and attempt.handler.sample:
            self._latest = attempt
        if not self._flush_is_soon:
            self._schedule(attempt, more=False)

    def _schedule(self, attempt: Attempt, more: bool) -> None:  # noqa: FBT001 # of two callers
        """Flush in this turn of the loop; while jobs follow each other, more rarely."""
        loop = asyncio.get_running_loop()
        if not more or attempt.started_ns - self._flushed_ns > NS_BETWEEN_FLUSHES:
            self._flush_is_soon = True
            loop.call_soon(self.flush)
        elif self._flush is None:
            self._flush = loop.call_later(NS_BETWEEN_FLUSHES / 1e9, self.flush)

    def flush(self) -> None:
        """Send the reports since the last batch."""
        self._flush_is_soon = False
        self._flushed_ns = clock.monotonic_ns()
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None

        if self._done:
            self._channel.send(Done(self._done, self._example))
            self._done = []
            self._example = None

        if self._ended:
            self._channel.send(Ended(self._ended))
            self._ended = []

        latest, self._latest = self._latest, None
        if self._sampler is not None and latest is not None:
            self._sampler.offer(latest)

        # Nothing waits for room in the channel, so try again soon.
        if self._channel.is_blocked:
            asyncio.get_running_loop().call_later(0.002, self._channel.flush)
