"""What is told of a job's life, to metrics and to the log: one method per event, called once per
batch.

| event | when | metric | log level |
|---|---|---|---|
| claimed | jobs were claimed, or nothing was due | claims, wait, exchange; span receive | debug |
| settled | endings were written | span settle | |
| completed | attempts succeeded | attempts{succeeded}, duration | debug |
| ended | retried, released, cancelled, or its job died | attempts, retries, released, duration | info or warning |
| stale | settlements were refused: the jobs were no longer ours | stale_settlements | warning |
| rescued | this worker took jobs back from lost ones | jobs_rescued | warning |
| declared_lost | this worker was silent for too long | jobs_lost | warning |
| runner_ended | a runner process died | runner_deaths | warning |
| database_error | the database refused or was gone | db_errors | warning |

Log lines carry ids, kinds and categories, never payloads or messages of failures.
"""

import logging
import platform
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
import psycopg

from redrive.observability.metrics import MAX_LABEL_SETS, Metrics
from redrive.observability.tracing import MAX_LINKS, Tracing
from redrive.rules.model import Category
from redrive.rules.settlement import Outcome

if TYPE_CHECKING:
    from redrive.worker.protocol import Kind, Report
    from redrive.worker.store import ClaimRequest, Row
    from redrive.worker.supervisor.loop import Supervisor
    from redrive.worker.supervisor.pool import Held, RunnerProcess

logger = logging.getLogger("redrive.jobs")

_decode_extras = msgspec.json.Decoder(dict[str, Any]).decode

RETRIED = tuple(
    category for category in Category if category not in {Category.INVALID, Category.BUG}
)

RELEASES = (
    "shutdown",
    "neighbour_killed",
    "newer_payload",
    "unknown_kind",
    "snoozed",
    "unstorable",
)
"""Why jobs are given back; besides `breaker <name>`."""

_LEVELS = {Outcome.DEAD_LETTER: logging.WARNING, Outcome.RELEASE: logging.DEBUG}

OPERATIONS = ("exchange", "lanes", "breakers", "settle", "retire", "pending")
"""What the database may refuse; the code of a cut connection is `none`."""


class Telemetry:
    """Observes one worker."""

    def __init__(
        self,
        metrics: Metrics,
        version: str,
        queues: Sequence[str] | None,
        tracing: Tracing | None = None,
    ) -> None:
        self.metrics = metrics
        self.tracing = tracing
        self.errors_in_a_row = 0
        self._queues = queues
        self._shown: set[tuple[str, str]] = set()
        metrics.build.set((version, platform.python_version()), 1)
        for queue in queues or ("*",):
            metrics.up.set((queue,), 1)
        metrics.draining.set((), 0)
        for result in ("hit", "empty", "error"):
            metrics.claims.create((result,))
        for cause in ("signal", "exit", "deadline"):
            metrics.runner_deaths.create((cause,))
        for operation in OPERATIONS:
            metrics.database_errors.create((operation, "none"))
        metrics.exchange.observe((), ())
        metrics.lost.create(())
        metrics.rescued.create(())

    def ready(self, kinds: Mapping[str, "Kind"]) -> None:
        """A runner said what it can run: each kind is shown at 0, so that its first ending is an
        increase.
        """
        for kind in kinds.values():
            if "*" not in kind.kind and (self._queues is None or kind.queue in self._queues):
                self._show(kind.queue, kind.kind)
                for name in kind.depends_on:
                    self.metrics.released.create((kind.queue, f"breaker {name}"))
        logger.info("runner ready", extra={"kinds": len(kinds)})

    def _show(self, queue: str, kind: str) -> None:
        if (queue, kind) in self._shown or len(self._shown) >= MAX_LABEL_SETS:
            return
        self._shown.add((queue, kind))
        for outcome in Outcome:
            self.metrics.attempts.create((queue, kind, outcome.label))
        for category in RETRIED:
            self.metrics.retries.create((queue, kind, category))
        self.metrics.stale.create((queue, kind))
        self.metrics.wait.observe((queue,), ())
        for why in RELEASES:
            self.metrics.released.create((queue, why))

    def claimed(self, request: "ClaimRequest", rows: Sequence["Row"], cost: float) -> None:
        """Jobs were claimed, or nothing was due."""
        self.errors_in_a_row = 0
        self.metrics.exchange.observe((), (cost,))
        self.metrics.claims.add(("hit" if rows else "empty",))
        if not rows:
            return
        now = datetime.now(UTC)  # only this figure trusts our clock to agree with the database's
        waits: dict[int, list[float]] = defaultdict(list)
        for row in rows:
            wait = (now - row[7]).total_seconds()
            waits[row[6]].append(wait if wait > 0.0 else 0.0)  # noqa: FURB136 # max() takes four times as long
        if self.tracing is not None and not self.tracing.is_overrun:
            for lane_no, values in waits.items():
                created = _created(row for row in rows if row[6] == lane_no)
                self.tracing.call(
                    "receive", request.lanes[lane_no - 1].queue, cost, len(values), created
                )
        pairs: set[tuple[int, str]] = {(row[6], row[3]) for row in rows}
        for lane_no, kind in pairs:
            self._show(request.lanes[lane_no - 1].queue, kind)
        for lane_no, values in waits.items():
            self.metrics.wait.observe((request.lanes[lane_no - 1].queue,), values)
        if logger.isEnabledFor(logging.DEBUG):
            for row in rows:
                logger.debug(
                    "claimed",
                    extra={"job": row[0], "delivery": row[1], "attempt": row[2], "kind": row[3]},
                )

    def settled(self, jobs: Iterable["Held"], cost: float) -> None:
        """Endings were written."""
        if self.tracing is not None and not self.tracing.is_overrun:
            for queue, count in Tally(held.queue for held in jobs).items():
                self.tracing.call("settle", queue, cost, count)

    def completed(
        self, finished: Sequence[tuple["Held", float]], example: tuple[int, str] | None = None
    ) -> None:
        """Attempts succeeded; with the seconds each took, and the trace of one of them."""
        succeeded = Outcome.COMPLETE.label
        times: dict[tuple[str, str], list[float]] = defaultdict(list)
        for held, spent in finished:
            row = held.row
            times[held.batch.queues[row[6] - 1], row[3]].append(spent)
        for (queue, kind), values in times.items():
            self.metrics.attempts.add((queue, kind, succeeded), len(values))
            self.metrics.duration.observe((queue, kind, succeeded), values)
        if example is not None:
            for held, spent in finished:
                if held.id == example[0]:
                    self.metrics.duration.exemplify(
                        (held.queue, held.kind, succeeded), spent, example[1]
                    )
        if logger.isEnabledFor(logging.DEBUG):
            for held, spent in finished:
                logger.debug(
                    Outcome.COMPLETE.told,
                    extra={"job": held.id, "kind": held.kind, "seconds": round(spent, 4)},
                )

    def ended(self, held: "Held", report: "Report") -> None:
        """An attempt ended otherwise."""
        outcome = report.outcome
        labels = (held.queue, held.kind, outcome.label)
        self.metrics.attempts.add(labels)
        self.metrics.duration.observe(labels, (report.seconds,))
        if report.trace is not None:
            self.metrics.duration.exemplify(labels, report.seconds, report.trace)
        if outcome is Outcome.RETRY:
            self.metrics.retries.add((held.queue, held.kind, report.reason or "other"))
        if outcome is Outcome.RELEASE:
            self.metrics.released.add((held.queue, report.reason or "other"))
        fields: dict[str, object] = {
            "job": held.id,
            "kind": held.kind,
            "delivery": held.deliveries,
            "reason": report.reason,
            "category": report.category or None,
            "trace_id": report.trace,
        }
        if outcome is Outcome.RETRY:
            fields["retry_in"] = round(report.delay, 1)
        logger.log(_LEVELS.get(outcome, logging.INFO), outcome.told, extra=fields)

    def stale(self, jobs: Iterable["Held"]) -> None:
        """Settlements were refused."""
        for held in jobs:
            self.metrics.stale.add((held.queue, held.kind))
            logger.warning("stale settlement refused", extra={"job": held.id, "kind": held.kind})

    def rescued(self, lost: int, rescued: int, buried: int) -> None:
        """This worker took jobs back from lost ones."""
        self.metrics.rescued.add((), rescued + buried)
        logger.warning(
            "rescued jobs of lost workers", extra={"workers": lost, "jobs": rescued, "dead": buried}
        )

    def declared_lost(self, held: int) -> None:
        """This worker was silent for too long and dropped its jobs."""
        self.metrics.lost.add((), held)

    def runner_ended(self, runner: "RunnerProcess", status: int, running: int) -> None:
        """A runner process is gone."""
        if runner.retiring and not runner.killed_for and status == 0:
            return
        cause = "deadline" if runner.killed_for else "signal" if status < 0 else "exit"
        self.metrics.runner_deaths.add((cause,))
        logger.warning("runner died", extra={"cause": cause, "status": status, "running": running})

    def database_error(self, operation: str, error: psycopg.Error) -> None:
        """The database refused, or was gone. Its text may hold values and stays out of the log."""
        state = error.sqlstate or "none"
        self.metrics.database_errors.add((operation, state))
        if operation == "exchange":
            self.metrics.claims.add(("error",))
        self.errors_in_a_row += 1
        if self.errors_in_a_row in {1, 10, 100} or self.errors_in_a_row % 1000 == 0:
            extra = {
                "operation": operation,
                "error": type(error).__name__,
                "sqlstate": state,
                "in_a_row": self.errors_in_a_row,
            }
            logger.warning("database error", extra=extra)

    def gauges(self, supervisor: "Supervisor") -> None:
        """What is so at this moment."""
        inflight = Tally(
            (held.queue, held.kind) for r in supervisor.pool.runners for held in r.held.values()
        )
        self.metrics.inflight.replace({labels: float(n) for labels, n in inflight.items()})
        slots = supervisor.options.slots * supervisor.options.runners
        self.metrics.slots.set((), slots)
        self.metrics.busy.set((), min(slots, inflight.total()))
        self.metrics.draining.set((), float(supervisor.drain.is_on))


def _created(rows: Iterable["Row"]) -> list[object]:
    """The contexts in which some of these jobs were enqueued."""
    traced = (row[5] for row in rows if row[5] is not None and '"traceparent"' in row[5])
    return [
        _decode_extras(rest)["headers"].get("traceparent") for rest in islice(traced, MAX_LINKS)
    ]
