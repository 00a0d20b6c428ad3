"""Reactions of the supervisor to the messages of its runners."""

import logging
import time
from collections.abc import Iterable
from typing import assert_never

from redrive.rules.attempts.settlement import Release
from redrive.worker.database_side import DatabaseSide
from redrive.worker.drain import Drain
from redrive.worker.held import ClaimedJob
from redrive.worker.processes.remains import Remains, remains_of
from redrive.worker.processes.runner_process import RunnerProcess
from redrive.worker.protocol import (
    Checkpoint,
    CheckpointKept,
    Done,
    Ended,
    Hello,
    Leaving,
    Observed,
    Progress,
    Report,
    Returned,
    Sampled,
    SideEffect,
    Unstarted,
    Up,
)
from redrive.worker.runner_side import RunnerSide

logger = logging.getLogger("redrive.worker")


class Inbox:
    """Receives messages of runners, and passes on what they say about jobs."""

    def __init__(
        self, runners: RunnerSide, database: DatabaseSide, drain: Drain
    ) -> None:
        self._runners = runners
        self._breakers = runners.breakers
        self._maintenance = database.maintenance
        self._exchange = database.exchange
        self._drain = drain

    def handle(self, runner: RunnerProcess, message: Up) -> Hello | None:
        """Act on a message. Returns the first one of a runner, its Hello."""
        match message:
            case Done(rows=rows, example=example):
                self.completed(runner, rows, example)

            case Ended(reports=reports):
                for report in reports:
                    self._ended(runner, report)
                self._runners.capacity.measure(runner, time.monotonic())

            case SideEffect(id=job):
                if held := runner.held.find(job):
                    self._exchange.tell(held, message)

            case Checkpoint() | Progress() | Returned():
                self._note(runner, message)

            case Unstarted(ids=jobs):
                for held in runner.held.take_unstarted(jobs):
                    self.take_back(held)

            case Leaving(why=why):
                logger.warning(
                    "a runner cannot continue, and is replaced: %s",
                    why,
                    extra={"pid": runner.pid},
                )
                runner.halt(time.monotonic())

            case Observed(name=name, succeeded=succeeded):
                self._breakers.observed(name, succeeded=succeeded)

            case Sampled():
                self._maintenance.samples.append(message)

            case Hello():
                runner.ready = True
                return message

            case _:
                assert_never(message)

        return None

    def completed(
        self,
        runner: RunnerProcess,
        rows: Iterable[tuple[int, int, float]],
        example: tuple[int, str] | None = None,
    ) -> None:
        """Take completed jobs: (id, deliveries, seconds), and the trace of one."""
        finished = runner.held.take_completed(rows)
        self._runners.capacity.measure(runner, time.monotonic())

        if self._breakers.is_used:
            for held, _ in finished:
                self._breakers.succeeded(held.kind)

        self._exchange.completed(finished, example)

    def read_last(self, runner: RunnerProcess) -> None:
        """Take the last messages of a dead runner, and what it completed unreported."""
        for message in runner.receive() or ():
            self.handle(runner, message)

        self.completed_unreported(runner, remains_of(runner))

    def completed_unreported(self, runner: RunnerProcess, remains: Remains) -> None:
        """Take the jobs that a dead runner completed and did not report."""
        self.completed(runner, [(*held.key, 0.0) for held in remains.completed])

    def take_back(self, held: ClaimedJob) -> None:
        """Keep a job that never started for another runner, or give it back."""
        if self._drain.is_on:
            self._exchange.settle(held, Release("shutdown"))
        else:
            self._runners.dispatch.take_back(held)

    def _note(
        self, runner: RunnerProcess, message: Checkpoint | Progress | Returned
    ) -> None:
        """Keep a note of a handler, if its job is still its own."""
        match message:
            case Checkpoint():
                self._checkpoint(runner, message)

            case Progress(rows=rows):
                for job, deliveries, share, detail in rows:
                    if (held := runner.held.find(job, deliveries)) is not None:
                        self._maintenance.progress.note(held, share, detail)

            case Returned(id=job, deliveries=deliveries):
                if (held := runner.held.find(job, deliveries)) is not None:
                    held.returned = message
                    self._exchange.expect_results()

            case _:
                assert_never(message)

    def _checkpoint(self, runner: RunnerProcess, message: Checkpoint) -> None:
        held = runner.held.find(message.id, message.deliveries)
        if held is None:
            runner.tell(
                CheckpointKept(message.id, message.deliveries, message.n, is_kept=False)
            )
        else:
            self._exchange.keep(held, message, runner.tell)

    def _ended(self, runner: RunnerProcess, report: Report) -> None:
        held = runner.held.take_ended(report.id, report.deliveries)
        if held is None:
            return

        # A drain does not wait for the next report about dependencies.
        if self._drain.is_on or not self._breakers.holds_back(held, report):
            self._exchange.ended(held, report)
