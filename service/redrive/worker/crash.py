"""Deaths of runners: their cause, and the settlements of their jobs."""

import logging
import random
import signal
import time
from collections import deque
from collections.abc import Container, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import psycopg

from redrive.database.connections.trouble import refusal
from redrive.rules.attempts.categories import Evidence, category_of
from redrive.rules.attempts.failure import made_up
from redrive.rules.attempts.policy import decide, decide_loss
from redrive.rules.attempts.settlement import Cancel, DeadLetter, NotComplete, Release
from redrive.rules.model import Category, Claimed, Failure
from redrive.worker.drain import Drain
from redrive.worker.held import ClaimedJob
from redrive.worker.inbox import Inbox
from redrive.worker.kinds import KnownKinds
from redrive.worker.processes.oom import OomWatch
from redrive.worker.processes.remains import Remains, remains_of
from redrive.worker.processes.runner_process import RunnerProcess
from redrive.worker.protocol import Died, claimed_of, read_extras, report_of
from redrive.worker.runner_side import RunnerSide
from redrive.worker.settle.exchange import Exchange
from redrive.worker.telemetry import Telemetry

logger = logging.getLogger("redrive.worker")

MAX_UNTOLD = 1000
"""Deaths that are kept until a runner can be told."""


@dataclass(frozen=True, slots=True)
class Crash:
    """Death of a runner.

    Attributes:
        status: its exit status, negative for a signal.
        running: how many jobs ran in it.
        killed_for: the jobs that outlived their timeouts.
        blameless: it was killed through no fault of its jobs.
        peak_memory: in bytes.
        oom_kills: kills of the kernel meanwhile, for lack of memory.
        cancelled: its jobs (id, deliveries) that were no longer wanted.
    """

    status: int
    running: int = 0
    killed_for: AbstractSet[int] = field(default_factory=frozenset[int])
    blameless: bool = False
    peak_memory: int = 0
    oom_kills: int = 0
    cancelled: Container[tuple[int, int]] = ()

    def record(self) -> dict[str, object]:
        """Return the details for the failure of a job that was in it."""
        found: dict[str, object] = {"exit": _how(self.status)}
        if self.peak_memory:
            found["peak_memory_bytes"] = self.peak_memory
        if self.oom_kills:
            found["oom_kills"] = self.oom_kills

        return found

    def __str__(self) -> str:
        text = _how(self.status)
        if self.oom_kills and self.status == -signal.SIGKILL:
            text += ", out of memory"

        return text


class Crashes:
    """Settles the jobs of dead runners, or passes them on.

    `where` is kept with every failure.
    """

    def __init__(  # noqa: PLR0913 # the jobs of a dead runner go every way there is
        self,
        runners: RunnerSide,
        inbox: Inbox,
        exchange: Exchange,
        drain: Drain,
        telemetry: Telemetry,
        where: Mapping[str, str],
    ) -> None:
        self._pool = runners.pool
        self._kinds = runners.kinds
        self._inbox = inbox
        self._exchange = exchange
        self._drain = drain
        self._telemetry = telemetry
        self._where = where

        self._oom_watch = OomWatch()
        self._untold: deque[Died] = deque(maxlen=MAX_UNTOLD)

    def ended(self, runner: RunnerProcess) -> int | None:
        """Remove a runner whose channel has closed, and settle its jobs.

        Returns the exit status of the worker if its runners cannot even start, else
        None.
        """
        # Do this first, because `remove` closes the shared memory.
        remains = remains_of(runner)
        status = self._pool.remove(runner)
        if self._pool.waits_for_change(runner, status):
            logger.warning("the code cannot be loaded; waiting for its next change")
            return None

        if self._is_unable_to_start(runner, status):
            logger.error(
                "a runner ended before it could say what it runs",
                extra={"status": status},
            )
            return status or 1

        if cause := runner.cause_of_death(status):
            self._telemetry.runner_ended(
                runner.pid, cause, status, len(remains.running)
            )

        self._inbox.completed_unreported(runner, remains)
        for held in remains.waiting:
            self._inbox.take_back(held)

        self._charge(runner, remains, status)
        return None

    def _is_unable_to_start(self, runner: RunnerProcess, status: int) -> bool:
        """Return True if it could not load the handlers and has said why.

        If it was killed, the next one may start.
        """
        return not self._kinds and not runner.alone and status >= 0

    def _charge(self, runner: RunnerProcess, remains: Remains, status: int) -> None:
        """Settle the jobs that had started: one of them may have killed the runner."""
        if self._drain.is_on and self._drain.is_over(time.monotonic()):
            # The time of the drain is up, so this worker has killed the runners itself.
            for held in (*remains.running, *remains.failed):
                self._end(held, Release("shutdown"), is_abandoned=True)

            return

        crash = Crash(
            status=status,
            running=len(remains.running),
            killed_for=runner.killed_for,
            blameless=runner.blameless,
            peak_memory=runner.process.peak_memory,
            oom_kills=self._oom_watch.since(),
            cancelled=runner.cancelled,
        )
        for was_running, jobs in ((True, remains.running), (False, remains.failed)):
            for held in jobs:
                settlement = decide_crash(
                    held, crash, self._kinds, self._where, was_running=was_running
                )
                self._end(held, settlement, is_abandoned=True)

    def refused(self, held: ClaimedJob, error: psycopg.Error) -> None:
        """Settle a job that its handler completed and the database refuses."""
        policy = self._kinds.policy(held.kind)
        failure = _refused(held, error, _detail(held, self._kinds, self._where))
        self._end(held, decide(_claimed(held), failure, policy, random.random()))

    def _end(
        self, held: ClaimedJob, settlement: NotComplete, *, is_abandoned: bool = False
    ) -> None:
        report = report_of(held.id, held.deliveries, settlement)
        self._exchange.ended(held, report, is_abandoned=is_abandoned)
        if isinstance(settlement, DeadLetter):
            self._untold.append(Died(held.id, held.kind, held.attempt, report))

    def tell(self) -> None:
        """Tell a ready runner's `on_dead` of the deaths that no runner saw."""
        listener = self._pool.listener()
        while listener is not None and self._untold:
            listener.tell(self._untold.popleft())


def decide_crash(
    held: ClaimedJob,
    crash: Crash,
    kinds: KnownKinds,
    where: Mapping[str, str],
    *,
    was_running: bool,
) -> NotComplete:
    """Decide about a job whose process died.

    A job that was not running had just failed.
    """
    if held.key in crash.cancelled:
        return Cancel("no longer wanted")

    policy = kinds.policy(held.kind)
    claimed = _claimed(held)
    running = crash.running if was_running else 0
    detail = {**crash.record(), "running": running, **_detail(held, kinds, where)}

    if held.id in crash.killed_for:
        failure = _outlived(held, kinds, detail)
        return decide(claimed, failure, policy, random.random())

    if crash.killed_for or crash.blameless or not running:
        # Another job or this worker is to blame. Or the job had just failed, and its
        # report was lost with the process.
        return Release("neighbour_killed")

    text = f"its process died: {crash}"
    failure = made_up(
        "RunnerLost", message=text, category=Category.LOST, kind=held.kind, **detail
    )
    return decide_loss(claimed, failure, policy, alone=running == 1)


def _detail(
    held: ClaimedJob, kinds: KnownKinds, where: Mapping[str, str]
) -> dict[str, object]:
    """Return the details that every failure of a job keeps."""
    detail: dict[str, object] = dict(where)
    known = kinds.find(held.kind)
    if known is not None and known.secret:
        detail["secret_fields"] = known.secret

    return detail


def _claimed(held: ClaimedJob) -> Claimed:
    return claimed_of(held.kind, held.attempt, read_extras(held.extras))


def _outlived(
    held: ClaimedJob, kinds: KnownKinds, detail: Mapping[str, object]
) -> Failure:
    known = kinds.find(held.kind)
    limit = known.timeout if known else 0.0
    text = f"it outlived its timeout of {limit:g} s and was killed"

    return made_up(
        "DeadlineExceeded",
        message=text,
        category=Category.LOST,
        kind=held.kind,
        **detail,
    )


def _refused(
    held: ClaimedJob, error: psycopg.Error, detail: Mapping[str, object]
) -> Failure:
    text = f"its handler succeeded, and the database refused to complete it: {refusal(error)}"
    category = category_of(Evidence((), "", sqlstate=error.sqlstate))

    return made_up("CompletionRefused", text, category, held.kind, **detail)


def _how(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"

    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal has no name
        return f"signal {-status}"
