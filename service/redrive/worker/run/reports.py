"""Reports of ended attempts, sent in batches."""

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
        self._flush_later: asyncio.TimerHandle | None = None
        self._flushed_ns = 0

    def completed(self, attempt: Attempt) -> None:
        """Report that the work is done. Nothing of it is encoded."""
        work = attempt.work
        self._done.append((work.id, work.deliveries, attempt.seconds))

        if attempt.handler.sample:
            self._latest = attempt
        if attempt.trace_id is not None:
            self._example = (work.id, attempt.trace_id)

    def ended(self, attempt: Attempt, settlement: NotComplete) -> None:
        """Report any other end.

        If the handler completed the job in a transaction, the work is probably done.
        """
        self._ended.append(attempt.report(settlement))
        if attempt.may_be_committed and attempt.handler.sample:
            self._latest = attempt

    def send(self, *, more: bool) -> None:
        """Send what has been reported.

        `more`: jobs are listed that start as soon as they can, so their reports may go
        in the same batch.
        """
        if not (self._done or self._ended):
            return

        if not more or clock.monotonic_ns() - self._flushed_ns > NS_BETWEEN_FLUSHES:
            self.flush()
        elif self._flush_later is None:
            self._flush_later = asyncio.get_running_loop().call_later(
                NS_BETWEEN_FLUSHES / 1e9, self.flush
            )

    def flush(self) -> None:
        """Send the reports since the last batch."""
        self._flushed_ns = clock.monotonic_ns()
        if self._flush_later is not None:
            self._flush_later.cancel()
            self._flush_later = None

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
