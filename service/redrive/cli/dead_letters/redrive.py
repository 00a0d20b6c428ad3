"""redrive dlq redrive: plan and start a campaign in one command."""

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Any

import click
import psycopg

from redrive.cli.support.connection import database, only_one
from redrive.cli.support.exits import Exit
from redrive.cli.support.filters import filter_options
from redrive.cli.support.names import say_unknown
from redrive.cli.support.options import (
    Command,
    Run,
    json_option,
    option,
    require_why,
    run_options,
    with_options,
)
from redrive.cli.support.output import counted, emit, listing, not_found, printable
from redrive.cli.support.terminal import is_watched, progress
from redrive.dead_letters import campaign as campaigns
from redrive.dead_letters.campaign import MAX_REDRIVES, Plan, Redriven, plan
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.runs import mark_done
from redrive.rules.dead_letters.campaign import CANARIES, FEW, GOING, State
from redrive.rules.dead_letters.terms import Terms, usual_canaries

ENV = "REDRIVE_REDRIVE"
GROUPS_SHOWN = 10
GROUP_COLUMNS = ("count", "group", "kind", "error_class", "message")


def _what_options(command: Command) -> Command:
    """Add the further options for the selection and the speed."""
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
            help="At most so many jobs a second.",
        ),
        option(
            ENV,
            "--canaries",
            type=click.IntRange(0),
            metavar="N",
            help=f"So many go first. [default: {CANARIES} of more than {FEW}, none of ids]",
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
        option(
            ENV,
            "--include-quarantined",
            "with_quarantined",
            is_flag=True,
            help="Also what died once more of the same.",
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
    canaries: int | None,
    max_redrives: int,
    with_quarantined: bool,
    run: Run,
    as_json: bool,
) -> int:
    """Put dead letters back to work, by id or by filters.

    \b
    redrive dlq redrive 17 18 --why 'customer fixed the address'
    redrive dlq redrive --kind invoice.charge --since 2h --rate 5 --why 'provider is back'

    A campaign, planned and started in one: it shows first what it would do; then asks, unless
    --yes. Without a terminal and without --yes it only shows. It ends when all have had their turn;
    stopped before that, or where no worker runs the first ones, workers carry the campaign on
    (`redrive campaign`). What has succeeded since, was redriven too often, or died once more of the
    same (unless it is named by its id), stays where it is and says so. Exit code 1: it aborted, for
    too many died again. Every option is also an environment variable, for Jobs and CronJobs:
    REDRIVE_REDRIVE_KIND, ..., REDRIVE_REDRIVE_YES=true.
    """
    chosen = replace(chosen, ids=(*jobs, *chosen.ids))
    is_vague = not chosen.narrows() and not everything
    if is_vague and run.yes:
        raise click.UsageError(
            "name ids or a filter; for every open dead letter, say --all"
        )
    if run.yes and not run.dry_run:
        require_why(run.why)
    may_act = not (is_vague or run.dry_run) and (run.yes or is_watched())
    with database(run.settings) as conn:
        actor = run.settings.who() if may_act else None
        planned = plan(
            conn,
            chosen,
            actor=actor,
            max_redrives=max_redrives,
            with_quarantined=with_quarantined,
        )
        if not as_json:
            show_plan(planned, rate)
        if not planned.matched:
            say_unknown(conn, kind=chosen.kind, queue=chosen.queue)
        usual = usual_canaries(planned.matched, are_named=bool(chosen.ids))
        terms = Terms(rate, usual if canaries is None else canaries)
        found = _redrive(conn, planned, chosen, run, terms) if may_act else None
    _show_outcome(planned, found, run, is_vague=is_vague, as_json=as_json)
    return _exit(planned, chosen, found)


def _exit(planned: Plan, chosen: Filter, found: dict[str, Any] | None) -> Exit:
    """Name the requested dead letters that are missing; return the exit code."""
    for missed in planned.missing:
        not_found(f"job {missed} has no open dead letter, or it does not match")
    if found and found["state"] == State.ABORTED:
        return Exit.FAILED
    return Exit.NOTHING_MATCHED if chosen.ids and not planned.matched else Exit.DONE


def _redrive(
    conn: psycopg.Connection[Any], planned: Plan, chosen: Filter, run: Run, terms: Terms
) -> dict[str, Any] | None:
    """Redrive a plan after confirmation.

    Returns None if there was nothing to do or the user declined.
    """
    found = None
    if planned.matched:
        question = f"Redrive {counted(planned.matched, 'dead letter')}?"
        why = run.consent(question, str(planned.matched))
        if why is None:
            return None
        found = _carry_out(conn, planned, chosen, run, terms, why)
    if run.every is not None:
        mark_done(conn, "redrive", run.every)
    return found


def _carry_out(
    conn: psycopg.Connection[Any],
    planned: Plan,
    chosen: Filter,
    run: Run,
    terms: Terms,
    why: str,
) -> dict[str, Any]:
    """Start the campaign and wait until every dead letter is processed."""
    assert planned.plan is not None  # noqa: S101 # it was planned to be started
    # single dead letters need not wait for a scheduled run
    lock = nullcontext() if chosen.ids else only_one(run.settings, "redrive")
    with lock, progress("redriven", planned.matched) as advance:
        campaigns.start(conn, planned.plan, terms, actor=run.settings.who(), why=why)
        if terms.canaries:
            first = (
                f"{terms.canaries} go first" if terms.canaries > 1 else "one goes first"
            )
            click.echo(
                f"campaign {planned.plan}: {first}, and workers have to run them",
                err=True,
            )
        found = campaigns.feed(conn, planned.plan, progress=advance)
    if found["waiting"] and found["state"] in GOING:
        goes_on = f"campaign {planned.plan} waits for workers, and goes on when they are there"
        click.echo(f"{goes_on}: redrive campaign watch {planned.plan}", err=True)
    return found


def show_plan(planned: Plan, rate: float | None) -> None:
    """Print the content of a plan."""
    if not planned.matched:
        click.echo("nothing matched")
        return
    letters, groups = planned.matched, planned.group_count
    click.echo(f"{counted(letters, 'open dead letter')} in {counted(groups, 'group')}")
    listing(
        planned.groups[:GROUPS_SHOWN], GROUP_COLUMNS, as_json=False, right=("count",)
    )
    for remark in _remarks(planned, rate):
        click.echo(remark)


def _remarks(planned: Plan, rate: float | None) -> Iterator[str]:
    """Yield warnings about the dead letters before they are redriven."""
    yield "for example: " + ", ".join(map(str, planned.sample))
    for cause, count in sorted(planned.blocked.items()):
        hint = (
            "; look at them, or --include-quarantined" if cause == "quarantined" else ""
        )
        yield f"{count} will stay: {cause}{hint}"
    if planned.acted:
        yield f"{planned.acted} have side effects on record; see dlq show"
    if rate:
        yield f"at {rate:g} per second this takes {math.ceil(planned.matched / rate)} s"


def _show_outcome(
    planned: Plan,
    found: dict[str, Any] | None,
    run: Run,
    *,
    is_vague: bool,
    as_json: bool,
) -> None:
    report = Redriven(planned.matched, blocked=planned.blocked)
    if found:
        done, stayed = found["redriven"], found["blocked"]
        report = Redriven(planned.matched, done, stayed, found["campaign"])
    if as_json:
        emit(asdict(report))
    elif found:
        causes = "".join(
            f", {n} {cause}" for cause, n in sorted(report.blocked.items())
        )
        click.echo(f"{report.redriven} redriven{causes}, campaign {report.campaign}")
    elif planned.matched:
        hint = (
            "; name ids or a filter, or say --all"
            if is_vague
            else "; add --yes to do it"
        )
        click.echo("nothing was changed" + ("" if run.dry_run else hint))
    if found and found["state"] == State.ABORTED:
        click.echo(f"redrive: campaign aborted: {printable(found['said'])}", err=True)
