"""redrive schedule: jobs that are enqueued at set times."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from redrive.cli.support.connection import database
from redrive.cli.support.exits import Exit
from redrive.cli.support.options import Run, conn_options, json_option, run_options
from redrive.cli.support.output import (
    answer,
    counted,
    listing,
    not_found,
    printable,
    wants_json,
)
from redrive.database.rows import Connection
from redrive.live_jobs.flow_control import schedules
from redrive.rules.rows import Row

COLUMNS = ("name", "kind", "cron", "tz", "state", "next_at", "last_at", "last_job")


@click.group()
def schedule() -> None:
    """Schedules: list, pause, resume, run one now."""


@schedule.command("ls")
@conn_options
@json_option
def list_schedules(conn: Connection) -> None:
    """List the schedules, with their next and last runs.

    \b
    redrive schedule ls

    A schedule is `undeclared` while no live worker declares it. It is not fired then.
    """
    _show(schedules.find(conn))


def _show(rows: Sequence[Row]) -> None:
    listing(
        rows,
        COLUMNS,
        right=("last_job",),
        empty="no schedule; a handler declares one: @jobs.every('0 7 * * 1-5')",
    )

    for row in rows:
        if row["paused_at"] and not wants_json():
            text = f"{row['name']}: paused by {row['paused_by']}: {row['paused_why']}"
            click.echo(printable(text))


@schedule.command()
@click.argument(
    "names",
    metavar="NAME...",
    nargs=-1,
    required=True,
)
@run_options()
@json_option
def pause(names: tuple[str, ...], run: Run) -> int:
    """Stop firing schedules until they are resumed.

    \b
    redrive schedule pause report.daily --why 'the warehouse is being moved' --yes

    Jobs that they have enqueued continue. Shows what it would do, then asks, unless you give
    --yes.
    """
    return _changed("Pause", "paused", names, run)


@schedule.command()
@click.argument(
    "names",
    metavar="NAME...",
    nargs=-1,
    required=True,
)
@run_options()
@json_option
def resume(names: tuple[str, ...], run: Run) -> int:
    """Fire paused schedules again from their next slot.

    \b
    redrive schedule resume report.daily --why 'the model is fixed' --yes

    Slots that passed while they were paused are skipped, whatever their catch_up. Shows what it
    would do, then asks, unless you give --yes.
    """
    return _changed("Resume", "resumed", names, run)


@schedule.command("now")
@click.argument(
    "names",
    metavar="NAME...",
    nargs=-1,
    required=True,
)
@run_options()
@json_option
def run_now(names: tuple[str, ...], run: Run) -> int:
    """Enqueue the jobs of schedules now; their slots stay.

    \b
    redrive schedule now report.daily --why 'the numbers were late'

    Paused schedules run, too. Shows what it would do, then asks, unless you give --yes.
    """
    return _changed("Run now", "jobs", names, run)


_ACTS: dict[str, Callable[..., Any]] = {
    "paused": schedules.pause,
    "resumed": schedules.resume,
    "jobs": schedules.run_now,
}
"""Key of the report -> the function that makes the change."""


def _changed(verb: str, outcome: str, names: Sequence[str], run: Run) -> int:
    """Change schedules by name after confirmation; print the result."""
    done: list[Any] = []
    with database(run.settings) as conn:
        matched = [row for row in schedules.find(conn) if row["name"] in names]
        if matched and not wants_json():
            _show(matched)

        found = [row["name"] for row in matched]
        why = _agreed(verb, len(found), run)
        if why:
            done = _act(conn, outcome, found, run.settings.who(), why)

    # The JSON has the ids of new jobs, but only how many schedules changed.
    result = done if outcome == "jobs" else len(done)
    text: str | None = None
    if why:
        text = _said(outcome, done)
    elif found:
        text = run.unchanged()

    answer({"matched": len(found), outcome: result}, text)
    return _name_missing(names, found)


def _name_missing(names: Sequence[str], found: Sequence[str]) -> Exit:
    """Name the schedules that do not exist; return the exit code."""
    missing = set(names) - set(found)
    for name in sorted(missing):
        not_found(f"there is no schedule {name}")

    return Exit.DONE if found else Exit.NOTHING_MATCHED


def _agreed(verb: str, n: int, run: Run) -> str | None:
    """Return the reason after confirmation; None = change nothing."""
    if n == 0:
        return None
    question = f"{verb} {counted(n, 'schedule')}?"
    return run.consent(question, str(n))


def _act(
    conn: Connection,
    outcome: str,
    names: Sequence[str],
    actor: str,
    why: str,
) -> list[Any]:
    """Change each schedule. Return one result for each that changed."""
    act = _ACTS[outcome]
    found = [act(conn, name, actor=actor, why=why) for name in names]
    return [value for value in found if value]


def _said(outcome: str, done: Sequence[Any]) -> str:
    if outcome == "jobs":
        jobs = [f"job {job}" for job in done]
        return "enqueued " + ", ".join(jobs)
    return f"{counted(len(done), 'schedule')} {outcome}"
