"""One simulated day: its length, its places, and what happens on it."""

import random
from collections import defaultdict
from dataclasses import dataclass, field

from tools.alerts.engine import STEP

SLOT = 2 * 60 * 60 // STEP
SLOTS = 12
STEPS = SLOT * SLOTS
MINUTE = 60 // STEP
OBJECTIVES = {
    "dlq_added_5m": 50,
    "dlq_added_1h": 200,
    "dead_ratio": 0.2,
    "ready_age_seconds": 300,
    "failed_ratio": 0.5,
}
EXPORTERS = {"n": ("a", "b"), "m": ("a",)}
Place = tuple[str, str]
"""Namespace and queue."""

MAIL = ("n", "mail")
QUEUES: tuple[Place, ...] = (MAIL, ("n", "pay"), ("n", "slow"), ("m", "mail"))
FAILING = 0.003
"""Share of scrapes that fail on a calm day."""


@dataclass(frozen=True)
class Trouble:
    """Trouble that should page.

    Its fields are the family of alerts, the place, the start, and when the page is due.
    """

    family: str
    place: Place
    begins: int
    due: int
    what: str


@dataclass
class Day:
    """Events of a day, step by step.

    `holds_up`: its exporters never lower their counters.
    """

    rng: random.Random
    holds_up: bool = False
    troubles: list[Trouble] = field(default_factory=list)
    happened: list[str] = field(default_factory=list)
    born: dict[Place, int] = field(default_factory=lambda: dict.fromkeys(QUEUES, 0))
    deaths: dict[Place, dict[int, int]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    ready: dict[Place, dict[int, int]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    failures: dict[Place, dict[int, int]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """Attempts that fail and are retried at a step."""
    successes: dict[Place, dict[int, int]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """Attempts that succeed at a step, beside the one of each step."""
    failing: dict[Place, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Steps at which jobs that have failed wait to be retried."""
    behind: dict[Place, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Steps at which the breaker of a queue's jobs is open."""
    idle: dict[Place, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Steps at which no attempt ends; at all others one does."""
    standing: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Steps at which no attempt of any queue of a namespace ends."""
    held_up: set[int] = field(default_factory=set)
    """Steps at which no exchange of the workers of `n` succeeds."""
    full: set[int] = field(default_factory=set)
    """Steps at which the workers of `n` have no free slot."""
    paused: set[int] = field(default_factory=set)
    """Steps at which the queue `mail` of `n` is paused."""
    blind: dict[tuple[str, str], set[int]] = field(
        default_factory=lambda: defaultdict(set)
    )
    """Steps at which the scrape of an exporter fails, by namespace and pod."""
    without_figures: dict[str, set[int]] = field(
        default_factory=lambda: defaultdict(set)
    )
    without_workers: dict[str, set[int]] = field(
        default_factory=lambda: defaultdict(set)
    )
    restarts: dict[tuple[str, str], set[int]] = field(
        default_factory=lambda: defaultdict(set)
    )
    server: dict[str, dict[int, float]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """Values that differ from NORMAL of tools.alerts.server_days, by name and step."""
    without_console: set[int] = field(default_factory=set)
    killed_idle: set[int] = field(default_factory=set)
    down: set[int] = field(default_factory=set)

    def die(self, place: Place, step: int, jobs: int, steps: int = 1) -> int:
        """Let jobs die over some steps.

        Returns the step after which the deaths exceed the objective.
        """
        due = step
        for n in range(steps):
            share = jobs * (n + 1) // steps - jobs * n // steps
            self.deaths[place][step + n] = self.deaths[place].get(step + n, 0) + share
            if jobs * (n + 1) // steps <= OBJECTIVES["dlq_added_5m"]:
                due = step + n + 1
        return due

    def expect(self, family: str, place: Place, begins: int, due: int) -> None:
        """Record that a trouble should page."""
        self.troubles.append(Trouble(family, place, begins, due, self.happened[-1]))

    def minutes(self, least: float, most: float) -> int:
        """Return a random duration in steps."""
        return self.rng.randint(int(least * MINUTE), int(most * MINUTE))
