"""The supervisor's side of breakers: count what is seen of dependencies, learn how they stand, act
on it.

A dependency that is down must cost no attempts. So a transient failure of a job that depends on
something is held back until the next report (a tenth of a second); when the breaker is open by
then, or half of what the fleet saw of the dependency has failed, the attempt is refunded. Jobs
behind an open breaker are not started at all: they are given back as they are claimed, without a
way through a runner, and so that they do not come back all at once.
"""

import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from redrive.database.connect import Link
from redrive.handlers import matching
from redrive.rules.model import Category, Reason
from redrive.rules.policy import put_off
from redrive.rules.settlement import Outcome, Release
from redrive.worker import store
from redrive.worker.protocol import Dependency, OpenBreakers, Report
from redrive.worker.supervisor.pool import Held

CHECK_SECONDS = 0.5
PROBE_LEASE_SECONDS = 30.0
SAME_SECONDS = 0.25
MAX_REFUNDS = 20
"""Refunds a job gets in its life: one that fails alone in a quiet hour must not go on for ever."""

RETURNED = frozenset({Outcome.RETRY, Outcome.DEAD_LETTER})
"""Settlements that a dependency may be to blame for."""

BLAMED = frozenset({Category.TRANSIENT, Category.THROTTLED})


@dataclass(slots=True)
class Standing:
    """How a dependency stood at the last report. `open_until` is a monotonic instant."""

    state: str = "closed"
    open_until: float = 0.0
    failing: bool = False


class Breakers:
    """The dependencies of one worker."""

    def __init__(self) -> None:
        self._settings: dict[str, Dependency] = {}
        self._of_kind: dict[str, tuple[str, ...]] = {}
        self._prefixes: list[str] = []
        self._failures: dict[str, int] = {}
        self._successes: dict[str, int] = {}
        self._standing: dict[str, Standing] = {}
        self._held: list[tuple[Held, Report]] = []
        self._probing: dict[str, float] = {}
        self._ahead: dict[str, int] = {}  # jobs given back since it opened
        self._check_at = 0.0
        self._said: OpenBreakers | None = None

    def configure(
        self, dependencies: Iterable[Dependency], of_kind: Mapping[str, tuple[str, ...]]
    ) -> None:
        """Take what a runner said of its handlers."""
        self._settings = {dependency.name: dependency for dependency in dependencies}
        self._of_kind = {kind: names for kind, names in of_kind.items() if names}
        self._prefixes = sorted(
            (k for k in self._of_kind if k.endswith("*")), key=len, reverse=True
        )
        self._said = None

    @property
    def is_used(self) -> bool:
        """Whether any handler depends on anything."""
        return bool(self._settings)

    def saw(self, kind: str, *, succeeded: int = 0) -> None:
        """Attempts of a kind succeeded."""
        for name in self._names(kind):
            self._successes[name] = self._successes.get(name, 0) + succeeded

    def _names(self, kind: str) -> tuple[str, ...]:
        return self._of_kind.get(matching(kind, self._of_kind, self._prefixes) or "", ())

    def observed(self, name: str, *, succeeded: bool) -> None:
        """A handler used a dependency by name."""
        counts = self._successes if succeeded else self._failures
        if name in self._settings:
            counts[name] = counts.get(name, 0) + 1

    def holds_back(self, held: Held, report: Report) -> bool:
        """Take a failure that a dependency may be to blame for, until the next report says."""
        names = self._names(held.kind)
        if not names or report.category not in BLAMED or report.outcome not in RETURNED:
            return False
        for name in names:
            self._failures[name] = self._failures.get(name, 0) + 1
        self._held.append((held, report))
        return True

    @property
    def is_barring(self) -> bool:
        """Whether any breaker keeps jobs from running."""
        return any(standing.state != "closed" for standing in self._standing.values())

    def put_off(self, kind: str) -> Release | None:
        """The release of a job behind an open breaker; None when it may run, or may be the probe."""
        now = time.monotonic()
        for name in self._names(kind):
            standing = self._standing.get(name)
            if standing is None or standing.state == "closed" or self._probing.get(name, 0.0) > now:
                continue
            ahead = self._ahead[name] = self._ahead.get(name, 0) + 1
            return put_off(
                name,
                standing.open_until - now,
                self._settings[name].cooldown,
                ahead,
                random.random(),
            )
        return None

    def is_due(self, now: float, *, was_notified: bool) -> bool:
        """Whether to report now."""
        return self.is_used and (bool(self._failures) or was_notified or now >= self._check_at)

    def report(self, link: Link, worker: int, now: float) -> list[tuple[Held, Report]]:
        """Report and learn. Returns the failures that were held back, with their final reports.

        Raises psycopg.Error; what was held back stays so.
        """
        names = list(self._settings)
        with link.use() as conn:
            rows = store.breakers(
                conn, [self._settings[n] for n in names], self._failures, self._successes
            )
            for name, state, _, _ in rows:
                if state == "half_open" and self._probing.get(name, 0.0) < now:
                    if store.take_probe(conn, name, worker, PROBE_LEASE_SECONDS):
                        self._probing[name] = now + PROBE_LEASE_SECONDS
                elif state != "half_open":
                    self._probing.pop(name, None)
        self._failures, self._successes = {}, {}
        self._check_at = now + CHECK_SECONDS
        self._standing = {
            name: Standing(state, now + open_for, failing)
            for name, state, open_for, failing in rows
        }
        self._ahead = {
            name: self._ahead.get(name, 0) for name, state, _, _ in rows if state == "open"
        }
        held, self._held = self._held, []
        return [(one, self._final(one, report)) for one, report in held]

    def bar(self) -> OpenBreakers | None:
        """What the runners must be told now, or None when they know."""
        now = time.monotonic()
        barred = {
            name: (standing.open_until, self._settings[name].cooldown)
            for name, standing in self._standing.items()
            if standing.state != "closed"
        }
        probes = {
            name: self._probing[name] for name in barred if self._probing.get(name, 0.0) > now
        }
        bar = OpenBreakers(barred, probes)
        if self._said is not None and _is_alike(self._said, bar):
            return None
        self._said = bar
        return bar

    def states(self) -> dict[str, str]:
        """Each dependency's state, as last heard."""
        return {name: standing.state for name, standing in self._standing.items()}

    def holding(self) -> list[Held]:
        """The jobs whose failures are held back."""
        return [held for held, _ in self._held]

    def give_up_holding(self) -> list[tuple[Held, Report]]:
        """What is held back, as it came: when there is no time left to ask."""
        held, self._held = self._held, []
        return held

    def _final(self, held: Held, report: Report) -> Report:
        standings = [self._standing[n] for n in self._names(held.kind) if n in self._standing]
        to_blame = [s for s in standings if s.state != "closed" or s.failing]
        refunds = held.deliveries - held.row[2]
        if (
            not to_blame
            or refunds >= MAX_REFUNDS
            or (
                report.outcome is Outcome.DEAD_LETTER and report.reason != Reason.ATTEMPTS_EXHAUSTED
            )
        ):
            return report
        wait = max(0.0, *(s.open_until - time.monotonic() for s in to_blame))
        delay = max(report.delay, wait + random.uniform(0.2, 2.0) * min(60.0, 1.3**refunds))
        return msgspec.structs.replace(
            report, outcome=Outcome.RETRY, reason=report.category, delay=delay, refund=True
        )


def _is_alike(one: OpenBreakers, other: OpenBreakers) -> bool:
    """Whether they say the same; each report counts anew how long a breaker stays open, a few
    milliseconds apart.

    While a probe is out its breaker is due at every moment: that it is a later one is nothing new.
    """
    if one.names.keys() != other.names.keys() or one.probes != other.probes:
        return False
    return bool(one.probes) or all(
        abs(one.names[n][0] - other.names[n][0]) < SAME_SECONDS for n in one.names
    )
