"""Breakers in the supervisor: it counts what runners observe, and acts on it.

A dependency that is down must cost no attempts. So a transient failure of a job with
dependencies is held back until the next report, a tenth of a second later. The attempt
is refunded if the breaker is open by then, or if half of all uses by all workers have
failed.

Jobs behind an open breaker are not started. They are given back right after the claim,
spread over time.
"""

import random
import time
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from redrive.database.connections.link import Link
from redrive.rules.attempts.policy import RETRIED_FOR, WINDOW
from redrive.rules.attempts.releases import put_off
from redrive.rules.attempts.settlement import Outcome, Release
from redrive.rules.model import Category, Reason
from redrive.worker import store
from redrive.worker.held import ClaimedJob
from redrive.worker.kinds import KnownKinds
from redrive.worker.protocol import (
    Dependency,
    OpenBreakers,
    Report,
    has_expired,
    read_extras,
)

CHECK_SECONDS = 0.5
REPORT_SECONDS = 0.05
"""Shortest interval between two reports of what was seen of dependencies."""

PROBE_LEASE_SECONDS = 30.0
SAME_SECONDS = 0.25
MAX_REFUNDS = 20
"""Refunds of one job in its life: a job that always fails alone must end."""

RETURNED = frozenset({Outcome.RETRY, Outcome.DEAD_LETTER})
"""Outcomes that a dependency may be to blame for."""

BLAMED = frozenset({Category.TRANSIENT, Category.THROTTLED})


@dataclass(slots=True)
class Standing:
    """State of a dependency at the last report. `open_until` is a monotonic instant."""

    state: str = "closed"
    open_until: float = 0.0
    failing: bool = False

    @property
    def is_closed(self) -> bool:
        """True if jobs may use it."""
        return self.state == "closed"

    @property
    def is_to_blame(self) -> bool:
        """True if failures of dependent jobs are blamed on it."""
        return self.failing or not self.is_closed


class Breakers:
    """Dependencies of one worker."""

    def __init__(self, kinds: KnownKinds) -> None:
        self._kinds = kinds
        # What the handlers of the runners declare.
        self._settings: dict[str, Dependency] = {}

        # Uses since the last report, and the failures that wait for the next one.
        self._failures = Tally[str]()
        self._successes = Tally[str]()
        self._held: list[tuple[ClaimedJob, Report]] = []

        # The answer to the last report.
        self._standing: dict[str, Standing] = {}
        # Until when the probe of each dependency is this worker's.
        self._probing: dict[str, float] = {}
        # Jobs given back since each breaker opened.
        self._ahead: dict[str, int] = {}

        self._check_at = 0.0
        self._quiet_until = 0.0
        # The last message to the runners.
        self._said: OpenBreakers | None = None

    def configure(self, dependencies: Iterable[Dependency]) -> None:
        """Take the dependencies of a runner's handlers."""
        self._settings = {dependency.name: dependency for dependency in dependencies}

        # A new runner knows of no open breaker, so all of them are news.
        self._said = None

    # ------------------------------------------------------------------ what is seen

    @property
    def is_used(self) -> bool:
        """True if any handler has a dependency."""
        return bool(self._settings)

    def succeeded(self, kind: str) -> None:
        """Count an attempt that succeeded for the dependencies of its kind."""
        for name in self._names(kind):
            self._successes[name] += 1

    def observed(self, name: str, *, succeeded: bool) -> None:
        """Count a use of a dependency by name."""
        if name in self._settings:
            counts = self._successes if succeeded else self._failures

            counts[name] += 1

    def holds_back(self, held: ClaimedJob, report: Report) -> bool:
        """Hold back a failure that a dependency may have caused, until the next report."""
        names = self._names(held.kind)
        if not names or report.category not in BLAMED or report.outcome not in RETURNED:
            return False

        for name in names:
            self._failures[name] += 1

        self._held.append((held, report))
        return True

    def jobs(self) -> Iterator[ClaimedJob]:
        """Return the jobs whose failures are held back."""
        return (held for held, _ in self._held)

    def give_up(self) -> list[tuple[ClaimedJob, Report]]:
        """Take out what is held back, unchanged: there is no time for a report."""
        held, self._held = self._held, []
        return held

    def _names(self, kind: str) -> tuple[str, ...]:
        known = self._kinds.find(kind)
        return known.depends_on if known else ()

    # ------------------------------------------------------------------ the report

    def is_due(self, now: float, *, was_notified: bool) -> bool:
        """Return True if it is time to report."""
        if not self.is_used or now < self._quiet_until:
            return False

        return bool(self._failures) or was_notified or now >= self._check_at

    def report(
        self, link: Link, worker: int, now: float
    ) -> list[tuple[ClaimedJob, Report]]:
        """Report, and learn the state of the dependencies.

        Returns the failures that were held back, with their final reports. Raises
        psycopg.Error; then they stay held back.
        """
        # Set this first, so that a failed report is not repeated at once.
        self._quiet_until = now + REPORT_SECONDS

        with link.use() as conn:
            found = store.breakers(
                conn, list(self._settings.values()), self._failures, self._successes
            )

            for one in found:
                self._take_probe(conn, one, worker, now)

        self._learn(found, now)
        return [(held, self._final(held, report)) for held, report in self.give_up()]

    def _learn(self, found: Sequence[store.BreakerRow], now: float) -> None:
        """Take the answer to a report: the counts are known, and the states are new."""
        self._failures.clear()
        self._successes.clear()
        self._check_at = now + CHECK_SECONDS
        self._standing = {
            one.name: Standing(one.state, now + one.open_for, one.failing)
            for one in found
        }
        # A breaker that is no longer open starts to count anew.
        self._ahead = {
            one.name: self._ahead.get(one.name, 0)
            for one in found
            if one.state == "open"
        }

    def _take_probe(
        self, conn: store.Connection, one: store.BreakerRow, worker: int, now: float
    ) -> None:
        """Take the one probe of a half-open dependency, if no worker has it."""
        name = one.name
        if one.state != "half_open":
            self._probing.pop(name, None)
            return

        if self._is_probing(name, now):
            return

        if store.take_probe(conn, name, worker, PROBE_LEASE_SECONDS):
            self._probing[name] = now + PROBE_LEASE_SECONDS

    def _is_probing(self, name: str, now: float) -> bool:
        """Return True if one job of this worker may try a half-open dependency."""
        return self._probing.get(name, 0.0) > now

    def _final(self, held: ClaimedJob, report: Report) -> Report:
        """Return the final report of a failure that was held back.

        If a dependency is to blame, it is a retry with the attempt refunded.
        """
        to_blame = self._to_blame(held.kind)
        extras = read_extras(held.extras)
        refunds = extras.refunds or 0

        is_used_up = refunds >= MAX_REFUNDS
        if not to_blame or is_used_up or _is_for_good(report):
            return report

        now = time.monotonic()
        waits = [one.open_until - now for one in to_blame]
        refunded = _refunded(report, max(0.0, *waits), refunds)
        failure = _without_wait(report.failure, extras.retried_for)

        return msgspec.structs.replace(refunded, failure=failure)

    def _to_blame(self, kind: str) -> list[Standing]:
        """Return the dependencies that are to blame for a kind's failures."""
        found: list[Standing] = []
        for name in self._names(kind):
            standing = self._standing.get(name)
            if standing is not None and standing.is_to_blame:
                found.append(standing)

        return found

    # ------------------------------------------------------------------ its effect

    @property
    def is_any_open(self) -> bool:
        """True if any breaker stops jobs from running."""
        return any(not standing.is_closed for standing in self._standing.values())

    def put_off(
        self, jobs: Sequence[ClaimedJob]
    ) -> tuple[list[ClaimedJob], list[tuple[ClaimedJob, Release]]]:
        """Take out the jobs that wait for a dependency, each with its release.

        Returns the other jobs first. Jobs that have expired are among them.
        """
        now = time.monotonic()
        others: list[ClaimedJob] = []
        releases: list[tuple[ClaimedJob, Release]] = []

        for held in jobs:
            # A job that has expired needs no dependency: its runner ends it.
            release = None
            if not has_expired(held.extras):
                release = self._release(held.kind, now)
            if release is None:
                others.append(held)
            else:
                releases.append((held, release))

        return others, releases

    def _release(self, kind: str, now: float) -> Release | None:
        """Return the release of a job of this kind; None if it may run or probe."""
        for name in self._names(kind):
            standing = self._standing.get(name)
            if standing is None or standing.is_closed or self._is_probing(name, now):
                continue

            ahead = self._ahead[name] = self._ahead.get(name, 0) + 1
            cooldown = self._settings[name].cooldown

            return put_off(
                name,
                open_for=standing.open_until - now,
                cooldown=cooldown,
                ahead=ahead,
                jitter=random.random(),
            )

        return None

    def news(self, now: float) -> OpenBreakers | None:
        """Return the breakers that the runners do not know of yet, or None."""
        names = {
            name: (standing.open_until, self._settings[name].cooldown)
            for name, standing in self._standing.items()
            if not standing.is_closed
        }
        probing = [name for name in names if self._is_probing(name, now)]
        news = OpenBreakers(names, {name: self._probing[name] for name in probing})
        if self._said is not None and _is_alike(self._said, news):
            return None

        self._said = news
        return news


def _refunded(report: Report, wait: float, refunds: int) -> Report:
    """Turn a report into a retry. It is later after more refunds."""
    spread = random.uniform(0.2, 2.0) * min(60.0, 1.3**refunds)
    return msgspec.structs.replace(
        report,
        outcome=Outcome.RETRY,
        reason=report.category,
        delay=max(report.delay, wait + spread),
        refund=True,
    )


def _without_wait(failure: str | None, retried_for: float | None) -> str | None:
    """Return the failure; its wait does not count against the window of its job.

    `retried_for`: the sum of the waits before it, as claimed.
    """
    if failure is None:
        return None

    found = msgspec.json.decode(failure)
    detail = found["detail"]

    for name in (RETRIED_FOR, WINDOW):
        detail.pop(name, None)

    if retried_for:
        detail[RETRIED_FOR] = retried_for

    return msgspec.json.encode(found).decode()


def _is_for_good(report: Report) -> bool:
    """Return True if another attempt would not have helped."""
    return (
        report.outcome is Outcome.DEAD_LETTER
        and report.reason != Reason.ATTEMPTS_EXHAUSTED
    )


def _is_alike(one: OpenBreakers, other: OpenBreakers) -> bool:
    """Return True if both reports say the same.

    Two reports of the same breaker differ by a few milliseconds in its `open_until`.
    While a probe runs, its breaker is always due, so a later instant changes nothing.
    """
    if one.names.keys() != other.names.keys() or one.probes != other.probes:
        return False
    if one.probes:
        return True

    return all(
        abs(open_until - other.names[name][0]) < SAME_SECONDS
        for name, (open_until, _) in one.names.items()
    )
