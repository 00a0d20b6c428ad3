"""Reports of ended attempts, sent in one batch per turn of the event loop."""

import asyncio
import time

from redrive.rules.attempts.settlement import NotComplete
from redrive.worker.channel import Channel
from redrive.worker.protocol import Done, Ended, Report
from redrive.worker.runner.attempt import Attempt
from redrive.worker.runner.sampler import Sampler


class Reports:
    """Ends since the last batch. `flushed_ns`: when that was sent; monotonic.

    From each batch, the `sampler` is offered one job that succeeded and may be sampled.
    """

    def __init__(self, channel: Channel, sampler: Sampler | None = None) -> None:
        self._channel = channel
        self._sampler = sampler

        self._latest: Attempt | None = None
        self._done: list[tuple[int, int, float]] = []
        self._example: tuple[int, str] | None = None
        self._ended: list[Report] = []
        self._flush_is_due = False
        self.flushed_ns = 0

    def completed(self, attempt: Attempt) -> None:
        """Report that the work is done. Nothing of it is encoded."""
        work = attempt.work
        self._done.append((work.id, work.deliveries, attempt.seconds))

        if attempt.handler.sample:
            self._latest = attempt
        if attempt.trace_id is not None:
            self._example = (work.id, attempt.trace_id)

        if not self._flush_is_due:
            self._schedule()

    def ended(self, attempt: Attempt, settlement: NotComplete) -> None:
        """Report any other end.

        If the handler completed the job in a transaction, the work is probably done.
        """
        self._ended.append(attempt.report(settlement))
        if attempt.may_be_committed and attempt.handler.sample:
            self._latest = attempt
        if not self._flush_is_due:
            self._schedule()

    def _schedule(self) -> None:
        self._flush_is_due = True
        asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Send the reports since the last batch."""
        self._flush_is_due = False
        self.flushed_ns = time.monotonic_ns()

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
