"""Evaluate alerts on synthetic series in promtool's rule engine."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

STEP = 30
"""Seconds between two evaluations, as in the rules file."""

TICKETS = ("redrive.retries", "redrive.health", "redrive.neglect")
"""Groups whose tickets are replayed, beside all pages."""

GROUPS = (
    *("redrive.recording", "redrive.dlq", "redrive.retries", "redrive.flow"),
    *("redrive.platform", "redrive.health", "redrive.neglect"),
    "redrive.dashboards",
)
Values = Sequence[float | None]
"""One value per scrape; None = the scrape failed."""

LITTLE_GARBAGE = {"GOGC": "400"}
"""Collecting the garbage of promtool after each 4 MiB was a fifth of its work."""

_GOT = re.compile(r"time: (?P<time>\S+),\s+exp: nil\s+got: (?P<series>.*)")
_LABELS = re.compile(r'(\w+)="([^"]*)"')
_CLOCK = re.compile(r"(\d+)(ms|d|h|m|s)")
_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1, "ms": 0}
_FIRING = (
    "count by (alertname, severity, alert_family, cluster, namespace, queue)"
    ' (ALERTS{alertstate="firing",severity!="info"})'
)


class EngineError(Exception):
    """Failure of promtool to evaluate the rules."""


@dataclass(frozen=True, order=True)
class Alert:
    """Firing alert; `queue` is empty if it has none."""

    name: str
    severity: str
    family: str
    namespace: str
    queue: str
    cluster: str = "c"


class World:
    """Series that Prometheus scrapes over `steps` scrapes, `interval` seconds apart."""

    def __init__(self, steps: int, interval: int = STEP) -> None:
        self.steps, self.interval = steps, interval
        self.series: dict[str, list[float | None]] = {}
        self.down: set[int] = set()
        """Scrapes that are missing because Prometheus was down."""

    def put(
        self, name: str, value: Callable[[int], float | None], **labels: str
    ) -> None:
        """Set a series as a function of the scrape's number.

        It belongs to installation `n` unless `labels` say otherwise.
        """
        labels = {"cluster": "c", "namespace": "n", "job": "redrive", **labels}
        key = f"{name}{{{','.join(f'{k}={json.dumps(v)}' for k, v in labels.items())}}}"
        self.series[key] = [value(step) for step in range(self.steps)]

    def add(self, cluster: str, world: "World") -> None:
        """Add the series of another world as those of a cluster."""
        for key, values in world.series.items():
            self.series[key.replace('cluster="c"', f'cluster="{cluster}"')] = values

    def lose(self, lost: Callable[[int], bool], where: str = "") -> None:
        """Make scrapes fail for all series whose name and labels contain `where`."""
        for key, values in self.series.items():
            if where in key:
                self.series[key] = [
                    None if lost(n) else value for n, value in enumerate(values)
                ]

    def lines(self) -> Iterator[dict[str, str]]:
        """Yield the series in promtool's notation."""
        for key, values in self.series.items():
            yield {"series": key, "values": " ".join(self._notes(values))}

    def _notes(self, values: Values) -> Iterator[str]:
        was_there = False
        for step, value in enumerate(values):
            if step in self.down or value is None:
                yield "stale" if was_there else "_"
                was_there = False
            else:
                yield f"{value:.10g}"
                was_there = True


def fired(
    promtool: str, rules: Path, world: World, scratch: Path, every: int = STEP
) -> dict[int, frozenset[Alert]]:
    """Return the firing alerts by time in seconds, checked every `every` seconds.

    Quiet times are left out. promtool also evaluates while Prometheus is down, so
    alerts that begin then are ignored, and alerts that fired before stay as they were.
    """
    end = world.steps * world.interval
    looks = [
        {"expr": _FIRING, "eval_time": f"{time}s", "exp_samples": []}
        for time in range(0, end, every)
    ]
    test = {
        "rule_files": [str(rules.resolve())],
        "evaluation_interval": f"{STEP}s",
        "group_eval_order": list(GROUPS),
        "tests": [
            {
                "interval": f"{world.interval}s",
                "input_series": list(world.lines()),
                "promql_expr_test": looks,
            }
        ],
    }
    scratch.write_text(json.dumps(test))  # JSON is valid YAML
    done = subprocess.run(
        [promtool, "test", "rules", str(scratch)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | LITTLE_GARBAGE,
    )
    words = done.stdout + done.stderr
    if "SUCCESS" in words:
        return {}
    found = {
        _seconds(got["time"]): _alerts(got["series"]) for got in _GOT.finditer(words)
    }
    if not found:
        raise EngineError(words)
    return dict(_seen(found, world, every))


def _seen(
    found: Mapping[int, frozenset[Alert]], world: World, every: int
) -> Iterator[tuple[int, frozenset[Alert]]]:
    unseen: frozenset[Alert] = frozenset()
    seen: frozenset[Alert] = frozenset()
    for time in range(0, world.steps * world.interval, every):
        now = found.get(time, frozenset())
        if time // world.interval in world.down:
            unseen |= now - seen
        else:
            unseen &= now
            seen = now - unseen
        if seen:
            yield time, seen


def _alerts(series: str) -> frozenset[Alert]:
    return frozenset(
        Alert(
            found["alertname"],
            found["severity"],
            found["alert_family"],
            found.get("namespace", ""),
            found.get("queue", ""),
            found.get("cluster", ""),
        )
        for found in (dict(_LABELS.findall(one)) for one in series.split("}"))
        if found
    )


def _seconds(clock: str) -> int:
    return sum(int(number) * _SECONDS[unit] for number, unit in _CLOCK.findall(clock))
