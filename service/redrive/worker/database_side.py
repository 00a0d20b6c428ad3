"""The database side of a worker: claims, settlements, heartbeat, chores.

Claims and settlements have the loop's connection. The heartbeat and the chores have
threads and connections of their own, because they must not wait for a round trip.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable

import psycopg

from redrive.database.connections.link import GuestLink, Link
from redrive.worker.claim.identity import Identity
from redrive.worker.claim.lanes import LaneBook
from redrive.worker.claim.queues import QueueCheck
from redrive.worker.claim.until_empty import EmptyCheck
from redrive.worker.drain import Drain
from redrive.worker.held import ClaimedJob
from redrive.worker.options import WorkerOptions
from redrive.worker.polling import Polling
from redrive.worker.protocol import Hello
from redrive.worker.runner_side import RunnerSide
from redrive.worker.settle.exchange import Exchange
from redrive.worker.store import Registration
from redrive.worker.telemetry import Telemetry
from redrive.worker.upkeep.heartbeat import Heartbeat
from redrive.worker.upkeep.listener import Listener
from redrive.worker.upkeep.maintenance import Maintenance
from redrive.worker.upkeep.schedules import Schedules
from redrive.worker.upkeep.slowness import Slowness
from redrive.worker.upkeep.standstill import Standstill

LOCK_TIMEOUT = "100ms"
"""Longest wait of the loop for a lock that another session holds; see `Apart`."""

MAINTENANCE_SETTINGS = {
    "statement_timeout": "5s",
    "lock_timeout": "2s",
    "synchronous_commit": "off",
}
"""Settings for chores: they run again in seconds, so none is worth a long wait."""

LAST_WORDS_SECONDS = 0.5
"""How long maintenance may take to send its last figures at shutdown."""


class DatabaseSide:
    """All that one worker says to the database, and hears from it.

    `on_refused` is called with each job whose completion the database does not accept.
    """

    def __init__(
        self,
        options: WorkerOptions,
        telemetry: Telemetry,
        runners: RunnerSide,
        drain: Drain,
        on_refused: Callable[[ClaimedJob, psycopg.Error], None],
    ) -> None:
        self._options = options
        self._telemetry = telemetry
        self._runners = runners
        self._drain = drain

        self.link = Link(options.database, "redrive worker", lock_timeout=LOCK_TIMEOUT)
        self.polling = Polling(time.monotonic())
        self.slowness = Slowness()
        self.standstill = Standstill(
            options.ttl,
            options.queues,
            runners.kinds.names,
            self.exchange_age,
            self.polling.waited_seconds,
        )
        self._schedules = Schedules(options.where.get("version", ""))
        self._unwanted: deque[int] = deque()  # jobs to cancel

        self.heartbeat = self._new_heartbeat()
        self.maintenance = self._new_maintenance()
        self.identity = Identity(self._registration, self.heartbeat)
        self.exchange = self._new_exchange(on_refused)
        self._empty_check = EmptyCheck(self.link, options.queues, telemetry)
        self._queue_check = QueueCheck(self.link, options.queues, telemetry)

    def _new_heartbeat(self) -> Heartbeat:
        options, runners = self._options, self._runners
        listen = options.listen
        return Heartbeat(
            Link(options.database, "redrive heartbeat", synchronous_commit="off"),
            options.ttl,
            runners.suspend,
            runners.selector.wake,
            self._notified,
            self._telemetry.beat_failed,
            runners.pool.held,
            self._progress_of,
            Listener(options.queues),
            self.standstill,
            self.slowness,
            None if listen is None else Link(listen, "redrive listener"),
        )

    def _new_maintenance(self) -> Maintenance:
        return Maintenance(
            GuestLink(self.link, "redrive maintenance", **MAINTENANCE_SETTINGS),
            self._options.ttl,
            self._telemetry,
            self.heartbeat.identities,
            self._unwanted.extend,
            schedules=self._schedules,
            is_caretaker=lambda: self.heartbeat.is_caretaker,
            has_jobs=lambda: self._runners.is_busy,
        )

    def _new_exchange(
        self, on_refused: Callable[[ClaimedJob, psycopg.Error], None]
    ) -> Exchange:
        return Exchange(
            self.link,
            self.identity,
            LaneBook(self._options.queues),
            self.polling,
            self._telemetry,
            on_refused,
            self.slowness.pace,
        )

    def _registration(self) -> Registration:
        """Return the registration of this worker, complete once a runner is ready."""
        options, kinds = self._options, self._runners.kinds
        return Registration(
            name=options.name,
            version=options.version,
            ttl=options.ttl,
            kinds=kinds.names(),
            queues=options.queues,
            depends_on=kinds.depends_on(),
            holds=kinds.holds(),
            limits=kinds.limits(),
            approvals=kinds.approvals(),
            heals=kinds.heals(),
            redrives=kinds.redrives(),
        )

    def start(self) -> None:
        """Start the threads of the heartbeat and the chores."""
        self.heartbeat.start()
        self.maintenance.start()

    def stop(self) -> None:
        """Stop these threads."""
        self.heartbeat.stop()
        self.maintenance.stop(LAST_WORDS_SECONDS)

    def links(self) -> list[Link]:
        """Return all links, for the watchdog."""
        links = [self.link, self.heartbeat.link, self.maintenance.link]
        if self.heartbeat.listen_link is not None:
            links.append(self.heartbeat.listen_link)

        return links

    # ------------------------------------------------------------------ for the loop

    def free_slots(self) -> int:
        """Return how many jobs a claim may take now."""
        if self._drain.is_on or not self.identity.may_claim:
            return 0
        return self._runners.dispatch.free_slots(backlog=self.polling.expects_more)

    def look_after(self, now: float) -> None:
        """Take what the other threads have learned."""
        if not self.exchange.is_needed(self.free_slots()):
            self.exchange.not_needed(now)

        self.polling.others = self.heartbeat.others
        self.polling.longest = self.heartbeat.longest_poll
        self.polling.delay = self.heartbeat.delay
        self._runners.capacity.turn_seconds = self.polling.turn_seconds

        while self._unwanted:
            self._runners.pool.cancel(self._unwanted.popleft())

    def learn(self, hello: Hello, *, has_other_kinds: bool) -> None:
        """Take what a new runner says about its handlers."""
        if self._schedules.learn(hello.schedules) or has_other_kinds:
            self.identity.leave()  # it is registered with the old ones

        self._queue_check.look(each.queue for each in (*hello.kinds, *hello.schedules))
        self.polling.expect_more()

    def has_nothing_left(self, now: float) -> bool:
        """Return True if it is certain that no job is left for this worker."""
        if self._runners.is_busy or self.exchange.is_settling:
            return False

        # Before a runner is ready and has claimed, nobody knows if there are jobs.
        kinds = self._runners.kinds
        if self.polling.expects_more or not kinds or self.identity.me is None:
            return False

        return self._empty_check.is_empty(now, kinds.names())

    def retire_left(self, now: float, known: Iterable[ClaimedJob]) -> None:
        """Give back jobs that were claimed for identities left behind, unseen.

        An identity with jobs that this worker knows of keeps them until they are
        settled. `known`: these, except the jobs that wait to be settled.
        """
        if not self.identity.left or now < self.exchange.available_at:
            return

        try:
            self.identity.retire(self.link, [*known, *self.exchange.jobs()])
        except psycopg.Error as error:
            self._telemetry.database_error("retire", error)

    # ------------------------------------------------------ for threads besides the loop

    def exchange_age(self, now: float) -> float:
        """Return for how many seconds no necessary exchange has succeeded.

        Any thread may call it. `now` is monotonic.
        """
        return max(0.0, now - self.exchange.answered_at)

    def _notified(self) -> None:
        """Wake the loop if a notification makes it poll or report sooner."""
        if self.polling.notified(time.monotonic()) or self._runners.breakers.is_used:
            self._runners.selector.wake()

    def _progress_of(self, worker: int) -> str:
        """Return the progress of an identity's jobs."""
        asked = time.monotonic() - self.exchange.claims.asked_at
        return self._runners.pool.progress(
            worker, asked, self.slowness.slow(), is_draining=self._drain.is_on
        )
