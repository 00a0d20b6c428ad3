"""Run random days against the alert rules.

The results are missed alerts, alerts without cause, and the time to the alert. All
pages are judged, and the tickets about the server and about neglected work.

`make alerts-replay` runs it. ARGS="--rules FILE --holds-up" selects other rules, and
exporters that never lower their counters.
"""

import json
import re
import statistics
import tempfile
from argparse import ArgumentParser, BooleanOptionalAction
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml

from tools.alerts.day import MINUTE, SLOT, STEPS, Day, Trouble
from tools.alerts.days import drawn, world
from tools.alerts.engine import STEP, TICKETS, Alert, fired
from tools.alerts.monitoring import find
from tools.generated import ROOT

RULES = ROOT / "alerts" / "redrive.rules.yaml"
LATE = 20 * MINUTE
"""Delay after which a page counts as missed."""

Incident = tuple[str, str, str]
"""Family, namespace and queue, which PagerDuty groups into one incident."""


@dataclass
class Score:
    """Outcome of the troubles.

    `minutes`: delays from the due time of a page to its arrival.
    """

    troubles: int = 0
    minutes: list[float] = field(default_factory=list)
    missed: Counter[str] = field(default_factory=Counter)
    without_cause: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Score") -> None:
        """Add another day."""
        self.troubles += other.troubles
        self.minutes += other.minutes
        self.missed += other.missed
        self.without_cause += other.without_cause

    def __str__(self) -> str:
        median = f"{statistics.median(self.minutes):.1f}" if self.minutes else "-"
        longest = f"{max(self.minutes):.1f}" if self.minutes else "-"
        pages = f"{self.missed.total()} missed, {self.without_cause.total()} pages without cause"
        times = f"{median} minutes to the page (median), {longest} at most"
        lines = [f"{self.troubles} troubles, {pages}, {times}"]
        lines += (f"  missed {n}: {what}" for what, n in self.missed.most_common())
        lines += (
            f"  without cause {n}: {what}"
            for what, n in self.without_cause.most_common()
        )
        return "\n".join(lines)


def judged_rules(text: str, tickets: Collection[str] = TICKETS) -> str:
    """Return all pages, the tickets of these groups, and the rules that they depend on."""
    return needed_rules(
        text,
        {
            r["alert"]
            for group in _groups(text)
            for r in group["rules"]
            if r.get("labels", {}).get("severity") == "critical"
            or ("alert" in r and group["name"] in tickets)
        },
    )


def needed_rules(text: str, wanted: Collection[str]) -> str:
    """Return these alerts and records, and the rules that they depend on."""
    groups = _groups(text)
    needed = set(wanted)
    rules = [rule for group in groups for rule in group["rules"]]
    for rule in 2 * rules[::-1]:  # texts name records of later groups
        if _name(rule) in needed:
            text = f"{rule['expr']} {rule.get('annotations')}"
            needed |= set(re.findall(r"redrive:[a-z0-9_:]+", text))
    kept = [
        group | {"rules": [rule for rule in group["rules"] if _name(rule) in needed]}
        for group in groups
    ]
    return json.dumps({"groups": kept})  # JSON is valid YAML


@cache
def _groups(text: str) -> list[dict[str, Any]]:
    return yaml.load(text, yaml.CSafeLoader)["groups"]


def _name(rule: Mapping[str, Any]) -> str:
    return rule.get("alert", rule.get("record"))


def pages(looks: Mapping[int, Iterable[Alert]]) -> Iterator[tuple[Incident, int, str]]:
    """Yield each incident that begins, with its step and its alert."""
    open_since: set[Incident] = set()
    for time in range(0, STEPS * STEP, STEP):
        now: dict[Incident, str] = {}
        for alert in sorted(looks.get(time, ())):
            now.setdefault((alert.family, alert.namespace, alert.queue), alert.name)
        for incident in now.keys() - open_since:
            yield incident, time // STEP, now[incident]
        open_since = set(now)


def score(day: Day, looks: Mapping[int, Iterable[Alert]]) -> Score:
    """Compare the alerts that fired with the expected ones."""
    result = Score(troubles=len(day.troubles))
    waiting: dict[Trouble, None] = dict.fromkeys(day.troubles)
    for (family, namespace, queue), step, name in pages(looks):
        for trouble in waiting:
            is_it = (family, (namespace, queue)) == (trouble.family, trouble.place)
            if is_it and trouble.begins <= step <= trouble.due + LATE:
                result.minutes.append(max(0, step - trouble.due) / MINUTE)
                del waiting[trouble]
                break
        else:
            during = day.happened[step // SLOT - 1] if step >= SLOT else "nothing"
            result.without_cause[f"{name} during {during}"] += 1
    result.missed.update(trouble.what for trouble in waiting)
    return result


def replay(
    promtool: str, rules: Path, number: int, seed: int = 1, *, holds_up: bool
) -> Score:
    """Replay one day."""
    day = drawn(seed, number, holds_up=holds_up)
    with tempfile.TemporaryDirectory() as home:
        only = Path(home, "rules.yaml")
        only.write_text(judged_rules(rules.read_text()))
        return score(day, fired(promtool, only, world(day), Path(home, "day.yaml")))


def main() -> None:
    """Replay days, two at a time."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--first", type=int, default=0, help="number of the first day")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rules", type=Path, default=RULES)
    parser.add_argument("--holds-up", action=BooleanOptionalAction, default=False)
    options = parser.parse_args()
    one = partial(
        replay,
        find("promtool") or "promtool",
        options.rules,
        seed=options.seed,
        holds_up=options.holds_up,
    )
    total = Score()
    with ThreadPoolExecutor(2) as pool:
        days = range(options.first, options.first + options.days)
        for number, of_day in zip(days, pool.map(one, days), strict=True):
            total.add(of_day)
            print(f"day {number + 1}: {total}", flush=True)


if __name__ == "__main__":
    main()
