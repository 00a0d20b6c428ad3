"""redrive dlq redrive."""

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Any

import click
import psycopg

from redrive.cli.connection import database, only_one
from redrive.cli.exits import Exit
from redrive.cli.filters import filter_options
from redrive.cli.options import Command, Run, json_option, option, run_options, with_options
from redrive.cli.output import counted, emit, listing, not_found
from redrive.cli.terminal import progress
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.redrive import MAX_REDRIVES, Plan, Redriven, plan, redrive
from redrive.dead_letters.runs import mark_done
from redrive.settings import Settings

ENV = "REDRIVE_REDRIVE"
GROUPS_SHOWN = 10
GROUP_COLUMNS = ("count", "group", "kind", "error_class", "message")


def _what_options(command: Command) -> Command:
    """Add what else says which dead letters go back, and how fast."""
    options = [
        option(
            ENV,
            "--all",
            "everything",
            is_flag=True,
            help="Every open dead letter, when no filter is given.",
        ),
        option(
            ENV,
            "--rate",
            type=click.FloatRange(0, min_open=True),
            metavar="PER_SECOND",
            help="Spread them out: jobs per second.",
        ),
        option(
            ENV,
            "--max-redrives",
            type=click.IntRange(1),
            default=MAX_REDRIVES,
            metavar="N",
            show_default=True,
            help="Leave out what was redriven this often already.",
        ),
    ]
    return with_options(options, command)


@click.command("redrive")
@click.argument("jobs", metavar="[ID]...", nargs=-1, type=click.INT)
@filter_options(ENV, states=("open",))
@_what_options
@run_options(ENV)
@json_option
def redrive_dead_letters(
    jobs: tuple[int, ...],
    chosen: Filter,
    everything: bool,
    rate: float | None,
    max_redrives: int,
    run: Run,
    as_json: bool,
) -> int:
    """Put dead letters back to work, by id or by filters.

    \b
    redrive dlq redrive 17 18 --why 'customer fixed the address'
    redrive dlq redrive --kind invoice.charge --since 2h --rate 5 --why 'provider is back'

    Shows first what it would do; then asks, unless --yes. Without a terminal and without --yes it
    only shows. What has succeeded since, or was redriven too often, stays where it is and says so.
    Every option is also an environment variable, for Jobs and CronJobs: REDRIVE_REDRIVE_KIND, ...,
    REDRIVE_REDRIVE_YES=true.
    """
    chosen = replace(chosen, ids=(*jobs, *chosen.ids))
    is_vague = not chosen.narrows() and not everything
    if is_vague and run.yes:
        raise click.UsageError("name ids or a filter; for every open dead letter, say --all")
    with database(run.settings) as conn:
        planned = plan(conn, chosen, max_redrives=max_redrives)
        if not as_json:
            _show_plan(planned, rate)
        report = None if is_vague else _redrive(conn, planned, run, rate)
    if as_json:
        emit(asdict(report or planned.untouched()))
    else:
        _show_outcome(planned, report, run, is_vague=is_vague)
    for missed in sorted(set(chosen.ids) - set(planned.ids)):
        not_found(f"job {missed} has no open dead letter, or it does not match")
    return Exit.NOTHING_MATCHED if chosen.ids and not planned.matched else Exit.DONE


def _redrive(
    conn: psycopg.Connection[Any], planned: Plan, run: Run, rate: float | None
) -> Redriven | None:
    """Redrive what was planned, where somebody agrees. None = there was nothing to do, or no."""
    if run.dry_run:
        return None
    report = None
    if planned.matched:
        question = f"Redrive {counted(planned.matched, 'dead letter')}?"
        why = run.consent(question, str(planned.matched))
        if why is None:
            return None
        report = _put_back(conn, planned, run.settings, rate, why)
    if run.every is not None:
        mark_done(conn, "redrive", run.every)
    return report


def _put_back(
    conn: psycopg.Connection[Any], planned: Plan, settings: Settings, rate: float | None, why: str
) -> Redriven:
    # single ones need not wait for a scheduled run
    lock = nullcontext() if planned.chosen.ids else only_one(settings, "redrive")
    with lock, progress("redriven", planned.matched) as advance:
        actor = settings.who()
        return redrive(conn, planned, why=why, actor=actor, rate=rate, progress=advance)


def _show_plan(planned: Plan, rate: float | None) -> None:
    if not planned.matched:
        click.echo("nothing matched")
        return
    letters, groups = len(planned.ids), len(planned.groups)
    click.echo(f"{counted(letters, 'open dead letter')} in {counted(groups, 'group')}")
    shown = planned.groups[:GROUPS_SHOWN]
    listing(shown, GROUP_COLUMNS, as_json=False, right=("count",))
    for remark in _remarks(planned, rate):
        click.echo(remark)


def _remarks(planned: Plan, rate: float | None) -> Iterator[str]:
    """What to know of the dead letters before they go back."""
    yield "for example: " + ", ".join(map(str, planned.sample))
    for cause, count in sorted(planned.blocked.items()):
        yield f"{count} will stay: {cause}"
    if planned.acted:
        yield f"{planned.acted} have side effects on record; see dlq show"
    if rate:
        yield f"at {rate:g} per second this takes {math.ceil(planned.matched / rate)} s"


def _show_outcome(planned: Plan, report: Redriven | None, run: Run, *, is_vague: bool) -> None:
    if report:
        stayed = "".join(f", {n} {cause}" for cause, n in sorted(report.blocked.items()))
        click.echo(f"{report.redriven} redriven{stayed}, campaign {report.campaign}")
    elif planned.matched:
        hint = "; name ids or a filter, or say --all" if is_vague else "; add --yes to do it"
        click.echo("nothing was changed" + ("" if run.dry_run else hint))
