"""redrive top: what runs and what is wrong, on one screen."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import click
import psycopg

from redrive.cli.support.options import conn_options, json_option
from redrive.cli.support.output import emit, printable, table, wants_json
from redrive.database.rows import Connection
from redrive.dead_letters.groups import store
from redrive.jobs.workers import find as find_workers
from redrive.observability.series import now_of, read_series
from redrive.overview import figures
from redrive.rules.brief import counted
from redrive.rules.instants import duration
from redrive.rules.rows import Row
from redrive.rules.times import period

RECENT = timedelta(minutes=20)
MOST_GROUPS = 5
STATES = ("ready", "running", "retrying", "dead")
QUEUES = ("queue", *STATES, "completed", "failed", "p95")
WORKERS = ("worker", "version", "state", "jobs", "heartbeat")
GROUPS = ("failing", "open", "group", "kind", "error_class", "message")


@click.command()
@conn_options
@json_option
def top(conn: Connection) -> None:
    """Show what is wrong, and what runs.

    \b
    redrive top
    watch redrive top

    It shows what is wrong now, the queues in trouble first, with what ended in their
    last 20 minutes, the workers, and the largest groups of failing jobs and dead
    letters.
    """
    found = read(conn)
    if wants_json():
        emit(found)
    else:
        _show(**found)


def _show(
    troubles: Sequence[str],
    queues: Sequence[Row],
    workers: Sequence[Row],
    groups: Sequence[Row] | None,
) -> None:
    sums = [f"{sum(one[state] for one in queues):,} {state}" for state in STATES]
    alive = sum(worker["state"] == "working" for worker in workers)
    click.echo(",  ".join([*sums, counted(alive, "worker")]))
    for text in troubles or ["Nothing is wrong."]:
        click.echo(printable(text))

    table(QUEUES, _rows(queues, QUEUES), right=QUEUES[1:], empty="no queue")
    table(WORKERS, map(_worker, workers), right=("jobs",), empty="no worker")
    empty = "no group"
    if groups is None:
        empty = "groups: this login may not read them"
    table(GROUPS, _rows(groups or (), GROUPS), right=GROUPS[:2], empty=empty)


def _rows(found: Sequence[Row], columns: Sequence[str]) -> Iterator[list[Any]]:
    return ([one[name] for name in columns] for one in found)


def read(conn: Connection) -> Row:
    """Read the figures of the screen; groups are None if the login may not read them."""
    now = figures.now(conn)
    by_queue = {one["queue"]: one for one in now["queues"]}
    for queue in by_queue.values():
        queue |= {"completed": 0, "failed": 0, "p95": None}

    at = now_of(conn)
    for point in read_series(conn, period(at - RECENT, at, at, 1), by_queue=True):
        queue = by_queue.get(point.queue or "", {})
        queue |= {"completed": point.completed, "failed": point.failed}
        queue["p95"] = _seconds(point.duration_at(0.95) if point.duration else None)

    return {
        "troubles": [text for text, _ in now["troubles"]],
        "queues": sorted(by_queue.values(), key=_trouble),
        "workers": sorted(
            find_workers(conn), key=lambda one: one["state"] == "working"
        ),
        "groups": _groups(conn),
    }


def _trouble(queue: Row) -> tuple[Any, ...]:
    """Return the sort key of a queue: what needs attention comes first."""
    held = queue["ready"] + queue["running"] + queue["retrying"]
    is_stuck = queue["unhandled"] or (queue["why"] and queue["ready"])
    return not is_stuck, -queue["failed"], -queue["dead"], -held, queue["queue"]


def _seconds(value: float | None) -> str | None:
    """Format a time: 2.52 ms, 4.2 s, 3 min."""
    if value is None:
        return None
    if value < 1:
        return f"{value * 1000:.3g} ms"
    return duration(value)


def _groups(conn: Connection) -> list[Row] | None:
    try:
        return store.find(conn, limit=MOST_GROUPS)
    except psycopg.errors.InsufficientPrivilege:
        return None


def _worker(worker: Row) -> list[Any]:
    return [
        *(worker[name] for name in ("name", "version", "state")),
        f"{worker['inflight']}/{worker['slots'] or '?'}",
        f"{duration(worker['heartbeat_age_seconds'])} ago",
    ]
