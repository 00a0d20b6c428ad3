"""Write docs/metrics.md. Names, types, labels and meanings come from the code."""

import json
import re
from collections.abc import Iterable, Sequence

import yaml
from prometheus_client.metrics_core import Metric

from redrive.extras.console.metrics import SIGN_INS, requests, sign_ins
from redrive.extras.gateway.figures import figures
from redrive.extras.gateway.tally import Tally
from redrive.observability import process
from redrive.observability.families import OUTCOMES, REMOVALS, STATES
from redrive.observability.metrics import Metrics, exchange_figures
from redrive.observability.stats import DatabaseStats
from redrive.rules.attempts.settlement import Outcome
from redrive.rules.model import Category, Reason
from tools.generated import ROOT, Files, main
from tools.scratch import scratch_postgres

PAGE = ROOT / "docs" / "metrics.md"

NOT_SHOWN: dict[str, str] = {
    "redrive_pg_long_transaction_age_seconds": "the panel of the oldest transaction shows the same",
    "redrive_worker_exchange_slowdown_ratio": "the panel of the durations of exchanges shows more",
    "redrive_gateway_stalled_seconds": "the panels of waiting messages and of messages taken in show the same",
    "redrive_queue_timeout_seconds": "RedriveQueueStalled waits for this time, too, before it fires",
    "redrive_kind_objective": "alerts compare with it: `redrive objective ls` shows the same",
    "redrive_failing_since_timestamp_seconds": "`RedriveKindFailing` says since when, and of which group:"
    " `redrive dlq groups` shows the same",
    "redrive_failing_behind_breaker": "`RedriveKindFailing` is quiet for these:"
    " `redrive breaker ls` shows the breaker",
    "redrive_dlq_newest_group": "pages name the group: `redrive dlq groups` shows the same",
    "redrive_queue_objective": "dashboards draw `redrive:objective:max`, which is made of it",
    "redrive_owner": "alerts get their label `owner` from it: `redrive owner ls` shows the same",
    "redrive_limit_slots": "exists only if limits are set: `redrive limit ls` shows the same",
    "redrive_limit_slots_used": "as `redrive_limit_slots`",
    "redrive_limit_waiting": "as `redrive_limit_slots`",
    "redrive_console_sign_ins": "shows whether a console runs",
    "redrive_dlq_imported": "exists only after an import: explains why a queue's depth rose and no"
    " alert fired",
}
"""Metrics on no dashboard and in no alert, and why they are exported nevertheless."""

METRIC = re.compile(r"\bredrive_[a-z0-9_]+\b(?=\{|\[| offset|\)|$| )")
SERIES_OF = {
    "counter": ("_total",),
    "histogram": ("_bucket", "_sum", "_count"),
    "gauge": ("",),
}

HEAD = """\
# Metrics

Made from the code by `make generate`.

Each process serves its metrics as `/metrics` on `REDRIVE_HTTP_PORT` (9808).

- `redrive exporter` exports the *figures of the database*. Workers export them, too, unless they have
  `REDRIVE_DATABASE_METRICS=false`, which the chart sets. These figures are the same in every process
  that exports them, so aggregate them with `max by (...)` first. They come from one snapshot. It is
  renewed at most every two seconds, however many processes ask for it. If it cannot be read,
  `redrive_stats_up` is 0 and the other figures are left out, because old figures would hide a problem.
- The *figures of a worker* are its own: apply `rate()` to each series first, then add up.
- The *figures of a process* describe the exporter, each worker and the console. The console serves its
  own figures on `REDRIVE_CONSOLE_PORT` (9809).

Every label has few values: never the id of a job, a tenant or a message. `group` names the main cause
of each kind that fails, of 200 kinds at most. If a database has more than 1,000
queues, 500 kinds, or 3,000 pairs of a queue and a kind, the others are counted as `other`. A queue or
kind with objectives of its own is never counted as `other` (`redrive objective set`). A queue or kind
that has labels of its own keeps them. If it gets them later, its counter begins at 0, and not at the
number that was counted as `other`, so no counter jumps. If there are more than 500 pairs of a queue
and a kind, counters of events that have not happened are left out instead of shown as 0. The alerts
notice a first dead letter all the same.

"""

LABELS: Sequence[tuple[str, str, Iterable[str]]] = (
    ("state", "redrive_queue_depth", STATES),
    ("reason", "redrive_dlq_*", Reason),
    ("reason", "redrive_job_retries_total", Category),
    ("category", "redrive_failing_*", Category),
    ("action", "redrive_dlq_removed_total", sorted(REMOVALS)),
    ("outcome", "redrive_redrive_outcomes_total", OUTCOMES),
    (
        "outcome",
        "redrive_job_attempts_total, redrive_job_duration_seconds",
        [outcome.label for outcome in Outcome],
    ),
    ("result", "redrive_claims_total", ("hit", "empty", "error")),
    ("outcome", "redrive_console_sign_ins_total", SIGN_INS),
    ("cause", "redrive_runner_deaths_total", ("deadline", "signal", "exit")),
)
"""Labels, each with its metrics and its values."""


def of_a_worker() -> list[Metric]:
    """Return the metric families of a worker process."""
    own = [family for part in vars(Metrics()).values() for family in part.collect()]
    return [
        *own,
        *process.of_runners(lambda: 0)(),
        *exchange_figures(lambda: 0.0, lambda: 1.0)(),
    ]


def of_the_database(url: str) -> list[Metric]:
    """Return the metric families that every process exports."""
    stats = DatabaseStats(url)
    try:
        return list(stats.collect())
    finally:
        stats.link.close()


def of_the_console() -> list[Metric]:
    """Return the metric families that only `redrive console` exports."""
    return [*requests().collect(), *sign_ins().collect()]


def of_a_gateway() -> list[Metric]:
    """Return the metric families that only `redrive gateway` exports."""
    return list(figures((), Tally(None)))


def series(family: Metric) -> set[str]:
    """Return the names of a family's series."""
    return {family.name + ending for ending in SERIES_OF[family.type]}


def used() -> dict[str, set[str]]:
    """Return where each metric name is used: dashboards and alerts."""
    found: dict[str, set[str]] = {}
    rules = [
        rule
        for path in (ROOT / "alerts").glob("*.yaml")
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
    ]
    behind = {rule["record"]: rule["expr"] for rule in rules if "record" in rule}
    for rule in rules:
        for name in _metrics(rule["expr"], behind):
            found.setdefault(name, set()).add("alerts")
    for path in sorted((ROOT / "dashboards").glob("*.json")):
        board = json.loads(path.read_text())
        asked = [
            target["expr"]
            for panel in board["panels"]
            for target in panel.get("targets", ())
        ]
        asked += [mark["expr"] for mark in board["annotations"]["list"]]
        for expression in asked:
            for name in _metrics(expression, {}):
                found.setdefault(name, set()).add(path.stem.replace("-", " "))
    return found


def recorded(expression: str) -> set[str]:
    """Return the names of recording rules in an expression."""
    return set(re.findall(r"\bredrive:[\w:]+", expression))


def _metrics(expression: str, behind: dict[str, str]) -> set[str]:
    """Return the names of metrics, including those behind recording rules."""
    found = set(METRIC.findall(re.sub(r"\{[^}]*\}", "{", expression)))
    return found.union(
        *(_metrics(behind[name], {}) for name in recorded(expression) & set(behind))
    )


def page(worker: Iterable[Metric], database: Iterable[Metric]) -> str:
    """Return the whole page."""
    labels = [
        f"| {label} | {of} | {', '.join(f'`{value}`' for value in values)} |\n"
        for label, of, values in LABELS
    ]
    return "".join(
        (
            HEAD,
            _section("Figures of the database", database),
            _section("Figures of a worker", worker),
            _section("Figures of the console", of_the_console()),
            _section("Figures of a gateway", of_a_gateway()),
            _section("Figures of a process", process.collect()),
            "## Values of labels\n\n| label | of | values |\n|---|---|---|\n",
            *labels,
        )
    )


def _section(title: str, families: Iterable[Metric]) -> str:
    where = used()
    head = f"## {title}\n\n| name | type | labels | meaning | shown |\n|---|---|---|---|---|\n"
    rows = (
        _row(family, where)
        for family in sorted(families, key=lambda family: family.name)
    )
    return f"{head}{''.join(rows)}\n"


def _row(family: Metric, where: dict[str, set[str]]) -> str:
    name = family.name + ("_total" if family.type == "counter" else "")
    labels = family._labelnames  # noqa: SLF001 # told nowhere else when there are no series yet
    shown = sorted(set().union(*(where.get(each, set()) for each in series(family))))
    cells = (
        f"`{name}`",
        family.type,
        ", ".join(labels),
        family.documentation,
        ", ".join(shown) or NOT_SHOWN.get(name, ""),
    )
    return f"| {' | '.join(cells)} |\n"


def files() -> Files:
    """Return the page, made with the exports of a temporary database."""
    with scratch_postgres() as postgres:
        return {PAGE: page(of_a_worker(), of_the_database(postgres.url()))}


if __name__ == "__main__":
    main(files)
