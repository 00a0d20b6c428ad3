"""Telemetry of a job's life: one method per event, called once per batch.

| event | when | metric | log level |
|---|---|---|---|
| claimed | jobs were claimed, or nothing was due | claims, exchange | |
| received | the jobs of a claim were handed out | wait; span receive | debug |
| settled | settlements were written | span settle | |
| completed | attempts succeeded | attempts{succeeded}, duration | debug |
| ended | attempts did not succeed | attempts, retries, released, duration, time to DLQ | debug to warning |
| stale | settlements were refused: the worker had lost the jobs | stale_settlements | warning |
| rescued | this worker took jobs back from lost ones | jobs_rescued | warning |
| declared_lost | this worker was silent for too long | jobs_lost | warning |
| runner_ended | a runner process died | runner_deaths | warning |
| chore_failed | a chore failed | maintenance_failures | warning |
| beat_failed | a heartbeat did not reach the database | db_errors | |
| database_error | the database refused a call or was out of reach | db_errors | warning |

Log lines hold ids, kinds and categories, and the class and redacted message of a
failure. They never hold payloads. Each minute, the first few of similar failures get a
line each; one more line counts the others.
"""

import logging
import time
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from math import isfinite

import psycopg

from redrive.database.connections.trouble import Trouble, refusal, trouble
from redrive.observability.metrics import MAX_LABEL_SETS, Histogram, Metrics
from redrive.observability.tracing import MAX_LINKS, Tracing
from redrive.rules.attempts.settlement import Outcome
from redrive.rules.model import Category
from redrive.rules.times import WAIT_BUCKETS
from redrive.worker.end_log import EndLog
from redrive.worker.held import ClaimedJob
from redrive.worker.protocol import Kind, Report, read_extras

logger = logging.getLogger("redrive.jobs")

RETRIED = tuple(
    category
    for category in Category
    if category not in {Category.INVALID, Category.BUG}
)

RELEASES = (
    "shutdown",
    "neighbour_killed",
    "no_thread",
    "newer_payload",
    "unknown_kind",
    "snoozed",
    "suspect",
    "trial",
    "unstorable",
)
"""Reasons for giving jobs back, besides `breaker <name>`."""

OPERATIONS = (
    "exchange",
    "claim",
    "lanes",
    "breakers",
    "settle",
    "retire",
    "pending",
    "queues",
    "beat",
    "maintenance",
    "trial",
)
"""Operations that the database may refuse. The code of a cut connection is `none`."""


CHORES = ("rescue", "fold", "sample", "unpark")
"""Chores that are shown at 0."""

CLAIM_RESULTS = ("hit", "empty", "error")
DEATH_CAUSES = ("signal", "exit", "deadline")

_MILESTONES = frozenset({1, 10, 100})
"""Numbers of errors in a row that are logged, besides every thousandth."""


class Telemetry:
    """Observes one worker. `queues`: None = all."""

    def __init__(
        self,
        metrics: Metrics,
        queues: Sequence[str] | None,
        tracing: Tracing | None = None,
    ) -> None:
        self.metrics = metrics
        self.tracing = tracing
        self.errors_in_a_row = 0
        self._queues = queues
        self._shown: set[tuple[str, str]] = set()
        self.waits = Histogram(
            name="", documentation="", labels=("queue", "kind"), buckets=WAIT_BUCKETS
        )
        """Waits by kind, for the series; the metric shows them by queue."""
        self.end_log = EndLog()

        for queue in queues or ("*",):
            metrics.up.set((queue,), 1)

        metrics.draining.set((), 0)
        self._show_worker()

    def _show_worker(self) -> None:
        """Show at 0 the metrics of the worker as a whole."""
        metrics = self.metrics
        for result in CLAIM_RESULTS:
            metrics.claims.create((result,))

        for cause in DEATH_CAUSES:
            metrics.runner_deaths.create((cause,))

        for operation in OPERATIONS:
            metrics.database_errors.create((operation, "none"))

        for chore in CHORES:
            metrics.maintenance_failures.create((chore,))

        metrics.exchange.observe((), ())
        metrics.lost.create(())
        metrics.rescued.create(())

    def ready(self, kinds: Mapping[str, Kind]) -> None:
        """Count the kinds of a runner that is ready.

        Each kind is shown at 0, so that its first settlement is an increase.
        """
        for kind in kinds.values():
            is_prefix = "*" in kind.kind
            if is_prefix or not (self._queues is None or kind.queue in self._queues):
                continue

            self._show(kind.queue, kind.kind)
            for name in kind.depends_on:
                self.metrics.released.create((kind.queue, f"breaker {name}"))

        logger.info("runner ready", extra={"kinds": len(kinds)})

    def _show(self, queue: str, kind: str) -> None:
        labels = (queue, kind)
        if labels in self._shown:
            return

        if len(self._shown) < MAX_LABEL_SETS:
            self._shown.add(labels)
            self._show_kind(queue, kind)

    def _show_kind(self, queue: str, kind: str) -> None:
        """Show at 0 the metrics of one kind."""
        metrics = self.metrics
        for outcome in Outcome:
            metrics.attempts.create((queue, kind, outcome.label))

        for category in RETRIED:
            metrics.retries.create((queue, kind, category))

        metrics.stale.create((queue, kind))
        metrics.wait.observe((queue,), ())
        metrics.time_to_dlq.observe((queue,), ())

        for why in RELEASES:
            metrics.released.create((queue, why))

    def claimed(self, count: int, cost: float) -> None:
        """Count a claim that took `cost` seconds, by whether it found jobs."""
        self.errors_in_a_row = 0
        self.metrics.exchange.observe((), (cost,))
        self.metrics.claims.add(("hit" if count else "empty",))

    def received(self, jobs: Sequence[ClaimedJob], cost: float) -> None:
        """Count the jobs of a claim that took `cost` seconds, after their hand-out."""
        # only this figure needs our clock to agree with the database's
        now = datetime.now(UTC)
        for of_lane in _by_lane(jobs):
            self._claimed_from(of_lane[0].queue, of_lane, now, cost)

        if logger.isEnabledFor(logging.DEBUG):
            _log_claimed(jobs)

    def _claimed_from(
        self, queue: str, jobs: Sequence[ClaimedJob], now: datetime, cost: float
    ) -> None:
        """Count the claimed jobs of one lane."""
        if self.tracing and not self.tracing.is_overrun:
            self.tracing.call("receive", queue, cost, len(jobs), _created(jobs))

        waits = _waits(jobs, now)
        self.metrics.wait.observe((queue,), waits)

        for labels, values in _seconds_by_kind(zip(jobs, waits, strict=True)).items():
            self._show(*labels)
            self.waits.observe(labels, values)

    def settled(self, jobs: Iterable[ClaimedJob], cost: float) -> None:
        """Trace settlements that were written in `cost` seconds."""
        if self.tracing and not self.tracing.is_overrun:
            for queue, count in Tally(held.queue for held in jobs).items():
                self.tracing.call("settle", queue, cost, count)

    def completed(
        self,
        finished: Sequence[tuple[ClaimedJob, float]],
        example: tuple[int, str] | None = None,
    ) -> None:
        """Count attempts that succeeded, with their seconds and the trace of one."""
        succeeded = Outcome.COMPLETE.label
        for (queue, kind), values in _seconds_by_kind(finished).items():
            labels = (queue, kind, succeeded)
            self.metrics.attempts.add(labels, len(values))
            self.metrics.duration.observe(labels, values)

        if example is not None:
            self._exemplify(finished, *example)
        if logger.isEnabledFor(logging.DEBUG):
            _log_completed(finished)

    def _exemplify(
        self, finished: Iterable[tuple[ClaimedJob, float]], job: int, trace: str
    ) -> None:
        """Show the trace of a job with its duration."""
        for held, seconds in finished:
            if held.id != job:
                continue

            labels = (held.queue, held.kind, Outcome.COMPLETE.label)
            self.metrics.duration.exemplify(labels, seconds, trace)

    def ended(self, held: ClaimedJob, report: Report) -> None:
        """Count and log an attempt that did not succeed."""
        self._count(held, report)
        self.end_log.ended(held, report)

    def _count(self, held: ClaimedJob, report: Report) -> None:
        labels = (held.queue, held.kind, report.outcome.label)
        self.metrics.attempts.add(labels)

        duration = self.metrics.duration
        duration.observe(labels, (report.seconds,))
        if report.trace is not None:
            duration.exemplify(labels, report.seconds, report.trace)

        self._count_reason(held, report)

    def _count_reason(self, held: ClaimedJob, report: Report) -> None:
        """Count why a job runs again, or how long it took to die."""
        outcome = report.outcome
        reason = report.reason or "other"

        if outcome is Outcome.RETRY:
            self.metrics.retries.add((held.queue, held.kind, reason))
        elif outcome is Outcome.RELEASE:
            self.metrics.released.add((held.queue, reason))
        elif outcome is Outcome.DEAD_LETTER and not read_extras(held.extras).redrives:
            self._time_to_dlq(held)

    def _time_to_dlq(self, held: ClaimedJob) -> None:
        """Observe how long a job took to die."""
        seconds = time.time() - held.created
        seconds = max(seconds, 0.0)
        self.metrics.time_to_dlq.observe((held.queue,), (seconds,))

    def stale(self, jobs: Iterable[ClaimedJob]) -> None:
        """Count and log settlements that were refused."""
        for held in jobs:
            self.metrics.stale.add((held.queue, held.kind))
            logger.warning(
                "stale settlement refused", extra={"job": held.id, "kind": held.kind}
            )

    def rescued(self, lost: int, rescued: int, dead: int) -> None:
        """Count the jobs taken back from `lost` workers; `dead` of them died."""
        self.metrics.rescued.add((), rescued + dead)
        logger.warning(
            "rescued jobs of lost workers",
            extra={"workers": lost, "jobs": rescued, "dead": dead},
        )

    def declared_lost(self, held: int) -> None:
        """Count the jobs that this worker dropped after a silence."""
        self.metrics.lost.add((), held)

    def runner_ended(self, pid: int, cause: str, status: int, running: int) -> None:
        """Count and log the death of a runner, by one of DEATH_CAUSES."""
        self.metrics.runner_deaths.add((cause,))
        extra = {"pid": pid, "cause": cause, "status": status, "running": running}
        logger.warning("runner died", extra=extra)

    def chore_failed(self, chore: str, error: Exception, in_a_row: int) -> None:
        """Count a failed chore. `in_a_row`: how often it has failed."""
        is_of_database = isinstance(error, psycopg.Error)
        if is_of_database and trouble(error) is Trouble.LOST:  # no fault of the chore
            self._count_database_error("maintenance", error)
            return

        self.metrics.maintenance_failures.add((chore,))
        if _is_milestone(in_a_row):
            extra = {
                "chore": chore,
                "error": type(error).__name__,
                "sqlstate": (error.sqlstate if is_of_database else None) or "none",
                "in_a_row": in_a_row,
            }
            logger.warning("maintenance failed", extra=extra)

    def beat_failed(self, error: psycopg.Error) -> None:
        """Count a heartbeat that did not reach the database."""
        self._count_database_error("beat", error)

    def _count_database_error(self, operation: str, error: psycopg.Error) -> str:
        state = error.sqlstate or "none"
        self.metrics.database_errors.add((operation, state))
        return state

    def database_error(self, operation: str, error: psycopg.Error) -> None:
        """Count and log a call that the database refused or did not answer.

        The text of the error may hold values, so the log does not show it.
        """
        state = self._count_database_error(operation, error)
        if operation == "exchange":
            self.metrics.claims.add(("error",))

        self.errors_in_a_row += 1
        if _is_milestone(self.errors_in_a_row):
            extra = {
                "operation": operation,
                "error": type(error).__name__,
                "sqlstate": state,
                "in_a_row": self.errors_in_a_row,
                "why": refusal(error),
            }
            logger.warning("database error", extra=extra)

    def gauges(
        self,
        inflight: Mapping[tuple[str, str], int],
        timeout_of: Callable[[str], float],
        slots: int,
        *,
        is_draining: bool,
    ) -> None:
        """Show the current figures. `inflight`: jobs of runners by queue and kind."""
        metrics = self.metrics
        counts = {labels: float(count) for labels, count in inflight.items()}
        metrics.inflight.replace(counts)

        metrics.timeout.replace(_longest(inflight, timeout_of))

        # Runners also hold jobs that wait for a slot.
        busy = min(slots, sum(inflight.values()))
        metrics.slots.set((), slots)
        metrics.busy.set((), busy)

        metrics.draining.set((), float(is_draining))


def _is_milestone(errors: int) -> bool:
    """Return True if so long a row of errors gets a log line."""
    return errors in _MILESTONES or errors % 1000 == 0


def _longest(
    inflight: Iterable[tuple[str, str]], timeout_of: Callable[[str], float]
) -> dict[tuple[str, ...], float]:
    """Return the longest timeout of each queue; unknown kinds have none."""
    longest: dict[tuple[str, ...], float] = {}
    for queue, kind in inflight:
        timeout = timeout_of(kind)
        if isfinite(timeout):
            longest[queue,] = max(timeout, longest.get((queue,), 0.0))

    return longest


def _waits(jobs: Iterable[ClaimedJob], now: datetime) -> list[float]:
    """Return how many seconds each job has been due, at least 0."""
    return [max((now - held.run_at).total_seconds(), 0.0) for held in jobs]


def _by_lane(jobs: Iterable[ClaimedJob]) -> Iterable[list[ClaimedJob]]:
    lanes: dict[int, list[ClaimedJob]] = defaultdict(list)
    for held in jobs:
        lanes[held.lane_no].append(held)
    return lanes.values()


def _seconds_by_kind(
    finished: Iterable[tuple[ClaimedJob, float]],
) -> Mapping[tuple[str, str], Sequence[float]]:
    """Collect the seconds of attempts by queue and kind."""
    times: dict[tuple[str, str], list[float]] = defaultdict(list)

    for held, seconds in finished:
        times[(held.queue, held.kind)].append(seconds)

    return times


def _log_claimed(jobs: Iterable[ClaimedJob]) -> None:
    for held in jobs:
        fields = {
            "delivery": held.deliveries,
            "attempt": held.attempt,
            "kind": held.kind,
        }
        logger.debug("claimed", extra={"job": held.id} | fields)


def _log_completed(finished: Iterable[tuple[ClaimedJob, float]]) -> None:
    for held, seconds in finished:
        fields = {"job": held.id, "kind": held.kind, "seconds": round(seconds, 4)}
        logger.debug(Outcome.COMPLETE.logged, extra=fields)


def _created(jobs: Iterable[ClaimedJob]) -> list[object]:
    """Return the contexts in which some of these jobs were enqueued."""
    # A search is cheaper than to decode the extras of every job.
    traced = (
        held.extras
        for held in jobs
        if held.extras is not None and '"traceparent"' in held.extras
    )
    return [
        read_extras(extras).headers.get("traceparent")
        for extras in islice(traced, MAX_LINKS)
    ]
