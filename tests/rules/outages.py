"""Simulation of an outage: jobs fail from its first second on, until it is over.

`python -m tests.rules.outages` prints the tables of README.md and docs/failures.md.
`test_outages.py` checks them.
"""

import random
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from redrive import Policy
from redrive.rules.attempts import settlement
from redrive.rules.attempts.policy import decide
from redrive.rules.model import Category, Claimed, Failure

JOBS = 300
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
OUTAGES = {
    "1 min": MINUTE,
    "75 s": 75.0,
    "10 min": 10 * MINUTE,
    "1 h": HOUR,
    "6 h": 6 * HOUR,
    "1 day": DAY,
}
Waits = Callable[[random.Random], Iterator[float]]
"""Function that returns the waits between the attempts of a job, in order."""


class Result(NamedTuple):
    """Share of the jobs that died, and seconds from the recovery to the last success."""

    dead: float
    last: float


def redrive(policy: Policy, category: Category) -> Waits:
    """Return the waits that a policy chooses while the same failure repeats."""

    def waits(chance: random.Random) -> Iterator[float]:
        retried_for, attempt = 0.0, 1
        while True:
            job = Claimed(
                "k",
                attempt,
                streak=attempt - 1,
                fingerprint="f",
                retried_for=retried_for,
            )
            failure = Failure("E", "m", category, "f")
            ending = decide(job, failure, policy, chance.random())
            if not isinstance(ending, settlement.Retry):
                return
            yield ending.delay
            retried_for = ending.failure.detail["retried_for"]
            attempt += 1

    return waits


def river(chance: random.Random) -> Iterator[float]:
    """Return attempt ** 4 seconds, 10 % more or less; 25 attempts.

    Source: riverqueue.com/docs/job-retries, DefaultClientRetryPolicy.
    """
    return (n**4 * chance.uniform(0.9, 1.1) for n in range(1, 25))


def oban(chance: random.Random) -> Iterator[float]:
    """Return 15 + 2 ** attempt seconds, up to 10 % more; 20 attempts.

    Source: Oban.Worker.backoff/1 and Oban.Backoff, hexdocs.pm/oban.
    """
    return ((15 + 2**n) * chance.uniform(1.0, 1.1) for n in range(1, 20))


def sidekiq(chance: random.Random) -> Iterator[float]:
    """Return n ** 4 + 15 seconds, and up to 10 * (n + 1) more; 25 retries.

    Source: Sidekiq::JobRetry; github.com/sidekiq/sidekiq/wiki/Error-Handling.
    """
    return (n**4 + 15 + chance.randrange(10) * (n + 1) for n in range(25))


def celery(_: random.Random) -> Iterator[float]:
    """Return 180 s, 3 times, for a task that calls retry().

    Source: Task.default_retry_delay and Task.max_retries, docs.celeryq.dev.
    """
    return (180.0 for _ in range(3))


OTHERS = {"River": river, "Oban": oban, "Sidekiq": sidekiq, "Celery": celery}


def simulate(waits: Waits, outage: float, jobs: int = JOBS) -> Result:
    """Start `jobs` jobs when the outage begins, and follow each to its end."""
    chance = random.Random(4)  # the same table each time
    ends = [_success(waits(chance), outage) for _ in range(jobs)]
    late = [end - outage for end in ends if end is not None]
    return Result(1 - len(late) / jobs, max(late, default=0.0))


def _success(waits: Iterator[float], outage: float) -> float | None:
    """Return when a job succeeds; None if it dies before."""
    at = 0.0
    for wait in waits:
        at += wait
        if at >= outage:
            return at
    return None


def shown(result: Result) -> str:
    """Return a cell of the table."""
    if result.dead == 1:
        return "all die"
    dead = "" if result.dead == 0 else f"{_percent(result.dead)} die, "
    return f"{dead}{_time(result.last)}"


def _percent(share: float) -> str:
    return f"{max(1, round(100 * share))} %"


def _time(seconds: float) -> str:
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * HOUR:
        return f"{seconds / MINUTE:.0f} min"
    return f"{seconds / HOUR:.0f} h"


def attempts(waits: Waits, outage: float) -> int:
    """Return how many attempts one job makes during an outage."""
    at, made = 0.0, 0
    for wait in waits(random.Random(4)):  # the same table each time
        made += 1
        at += wait
        if at >= outage:
            break
    return made


def short_table() -> str:
    """Return the table of README.md."""
    default = redrive(Policy(), Category.TRANSIENT)
    names = ["1 min", "10 min", "1 h", "6 h", "1 day"]
    rows: list[list[str] | None] = [
        ["outage of a provider", *names],
        None,
        ["jobs that die", *(_dead(default, name) for name in names)],
        [
            "the last job is done after",
            *(_time(simulate(default, OUTAGES[name]).last) for name in names),
        ],
    ]
    return _lines(rows)


def _dead(waits: Waits, name: str) -> str:
    share = simulate(waits, OUTAGES[name]).dead
    return "none" if share == 0 else _percent(share)


def long_table() -> str:
    """Return the table of docs/failures.md."""
    systems: dict[str, Waits] = {
        "transient, throttled": redrive(Policy(), Category.TRANSIENT),
        "lost": redrive(Policy(), Category.LOST),
        "other": redrive(Policy(), Category.OTHER),
        "auth, missing": redrive(Policy(), Category.AUTH),
        **OTHERS,
    }
    rows: list[list[str] | None] = [["", *OUTAGES], None]
    for name, waits in systems.items():
        cells = (shown(simulate(waits, outage)) for outage in OUTAGES.values())
        rows.append([name, *cells])
    return _lines(rows)


def _lines(rows: list[list[str] | None]) -> str:
    """Return a table in Markdown; None is the line below its head."""
    width = len(rows[0] or ())
    return "\n".join(
        "|" + "---|" * width if row is None else "| " + " | ".join(row) + " |"
        for row in rows
    )


if __name__ == "__main__":
    print(short_table(), long_table(), sep="\n\n")
    for name, waits in {
        "Redrive": redrive(Policy(), Category.TRANSIENT),
        **OTHERS,
    }.items():
        made = [attempts(waits, outage) for outage in OUTAGES.values()]
        total = sum(islice(waits(random.Random(4)), 1000)) / DAY
        print(name, made, f"{total:.1f} days in all")
