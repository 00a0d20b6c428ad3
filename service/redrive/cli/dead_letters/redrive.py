"""redrive dlq redrive: plan and start a campaign in one command."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from functools import partial

import click

from redrive.cli.dead_letters.plan import (
    MAX_REDRIVES_HELP,
    RATE_HELP,
    TO_QUEUE_HELP,
    TermType,
    allow_options,
    exit_of,
    require_ids,
    show_plan,
)
from redrive.cli.support.connection import database, only_one
from redrive.cli.support.exits import Exit
from redrive.cli.support.filters import filter_options
from redrive.cli.support.names import say_unknown
from redrive.cli.support.options import (
    Run,
    json_option,
    option,
    require_why,
    run_options,
    with_options,
)
from redrive.cli.support.output import counted, emit, printable, shown_id, wants_json
from redrive.cli.support.terminal import confirm, is_watched, progress
from redrive.database.rows import Connection
from redrive.dead_letters.campaigns import campaign as campaigns
from redrive.dead_letters.campaigns.campaign import MAX_REDRIVES, Plan, Redriven, plan
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.runs import mark_done
from redrive.live_jobs.surroundings.destination import remarks
from redrive.live_jobs.surroundings.standing import alive
from redrive.rules.dead_letters.campaign import CANARIES, FEW, GOING, State
from redrive.rules.dead_letters.obstacles import Allow
from redrive.rules.dead_letters.terms import Terms, usual_canaries
from redrive.rules.payloads.limits import check_name
from redrive.rules.rows import Row

ENV = "REDRIVE_REDRIVE"


_what_options = (
    option(
        ENV,
        "--all",
        "everything",
        is_flag=True,
        help="Redrive every open dead letter, if no filter is given.",
    ),
    option(
        ENV,
        "--rate",
        type=TermType("rate"),
        metavar="PER_SECOND",
        help=RATE_HELP,
    ),
    option(
        ENV,
        "--canaries",
        type=TermType("canaries"),
        metavar="N",
        help=f"Run this many first. [default: {CANARIES} of more than {FEW} dead"
        " letters; none of ids]",
    ),
    option(
        ENV,
        "--max-redrives",
        type=click.IntRange(1),
        default=MAX_REDRIVES,
        metavar="N",
        show_default=True,
        help=MAX_REDRIVES_HELP,
    ),
    option(
        ENV,
        "--to-queue",
        metavar="NAME",
        help=TO_QUEUE_HELP,
    ),
)
"""Further options for the selection and the speed."""


@click.command("redrive")
@filter_options(ENV, states=("open",), takes_ids=True)
@partial(with_options, _what_options)
@allow_options(ENV)
@run_options(ENV)
@json_option
def redrive_dead_letters(
    chosen: Filter,
    everything: bool,
    rate: float | None,
    canaries: int | None,
    max_redrives: int,
    allow: Allow,
    to_queue: str | None,
    run: Run,
) -> int:
    """Redrive dead letters, by id or by filters.

    \b
    redrive dlq redrive 17 18 --why 'customer fixed the address'
    redrive dlq redrive --kind invoice.charge --since 2h --rate 5 --why 'provider is back'

    The command plans and starts a campaign. It shows the plan and asks, unless you give --yes.
    Without a terminal and without --yes it only shows the plan. It ends when every dead letter is
    processed. If you stop it, or if no worker runs the first jobs, workers drive the campaign later
    (`redrive campaign`).

    Some dead letters stay, and the command says why and what to do: their job has succeeded since,
    they were redriven too often, their payload is invalid, or they are quarantined. A quarantined
    one is redriven if you give its id. A job whose handler says repeatable=False is redriven only
    by its id, with --repeat or after you type 'repeat'.

    Exit code 4: the campaign aborted, because too many died again. Every option except --repeat is
    also an environment variable, for Jobs and CronJobs: REDRIVE_REDRIVE_KIND, ...,
    REDRIVE_REDRIVE_YES=true.
    """
    is_vague = not chosen.narrows() and not everything
    _check(run, allow, chosen, to_queue, is_vague=is_vague)
    may_act = not is_vague and _may_act(run)
    found = None

    with database(run.settings) as conn:
        make = partial(_plan, conn, chosen, run, max_redrives, may_act=may_act)
        planned = make(allow)
        if not wants_json():
            _preview(conn, planned, rate, to_queue)

        if may_act and _confirms_repeat(planned, chosen, run):
            # The first plan has left these jobs out, so it is made again with them.
            planned = make(replace(allow, repeat=True))

        _say_unknown(conn, planned, chosen)
        if may_act:
            terms = _terms(planned, chosen, rate, canaries, to_queue)
            found = _redrive(conn, planned, chosen, run, terms)

    _show(planned, found, run, is_vague=is_vague)
    return _exit(planned, chosen, found)


def _may_act(run: Run) -> bool:
    """Return True if the run is confirmed, or can ask for it."""
    return not run.dry_run and (run.yes or is_watched())


def _plan(
    conn: Connection,
    chosen: Filter,
    run: Run,
    max_redrives: int,
    allow: Allow,
    *,
    may_act: bool,
) -> Plan:
    """Freeze the dead letters, or preview them if the run may not act."""
    actor = None
    if may_act:
        actor = run.settings.who()

    return plan(
        conn,
        chosen,
        actor=actor,
        max_redrives=max_redrives,
        allow=allow,
    )


def _say_unknown(conn: Connection, planned: Plan, chosen: Filter) -> None:
    """Name kinds and queues that do not exist, if nothing matched."""
    if planned.matched:
        return
    say_unknown(conn, kind=chosen.kind, queue=chosen.queue)


def _terms(
    planned: Plan,
    chosen: Filter,
    rate: float | None,
    canaries: int | None,
    to_queue: str | None,
) -> Terms:
    if canaries is None:
        are_named = bool(chosen.ids)
        canaries = usual_canaries(planned.matched, are_named=are_named)

    return Terms(rate, canaries, to_queue=to_queue)


def _preview(
    conn: Connection,
    planned: Plan,
    rate: float | None,
    to_queue: str | None,
) -> None:
    """Show the plan, and which queue the jobs go to, if it is another one."""
    show_plan(planned, rate)
    for remark in remarks(conn, to_queue, planned.kinds):
        click.echo(remark)


def _check(
    run: Run, allow: Allow, chosen: Filter, to_queue: str | None, *, is_vague: bool
) -> None:
    """Refuse to act without a selection or a reason, or to an impossible queue."""
    require_ids(allow, chosen)
    if to_queue is not None:
        check_name("--to-queue", to_queue)

    if is_vague and run.yes:
        raise click.UsageError(
            "give ids or a filter, or --all for every open dead letter"
        )

    if run.yes and not run.dry_run:
        require_why(run.why)


def _confirms_repeat(planned: Plan, chosen: Filter, run: Run) -> bool:
    """Ask whether jobs may run again whose handlers say that they must not."""
    n = planned.blocked.get("not_repeatable", 0)
    # --yes does not confirm this: it needs the ids, and --repeat or the word.
    if run.yes or not chosen.ids:
        return False
    if n == 0:
        return False

    jobs = counted(n, "job")
    return confirm(f"{jobs} must not run twice.", "repeat")


def _exit(planned: Plan, chosen: Filter, found: Row | None) -> Exit:
    code = exit_of(planned, chosen)
    if found is None or not _has_aborted(found):
        return code

    why = printable(found["said"])
    click.echo(f"redrive: campaign aborted: {why}", err=True)

    return Exit.ABORTED


def _has_aborted(found: Row) -> bool:
    return found["state"] == State.ABORTED


def _redrive(
    conn: Connection, planned: Plan, chosen: Filter, run: Run, terms: Terms
) -> Row | None:
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
        if _has_aborted(found):
            return found

    # A run that found nothing counts for the alert, too. One that aborted does not.
    if run.every is not None:
        mark_done(conn, "redrive", run.every)

    return found


def _carry_out(
    conn: Connection,
    planned: Plan,
    chosen: Filter,
    run: Run,
    terms: Terms,
    why: str,
) -> Row:
    """Start the campaign and wait until every dead letter is processed."""
    number = planned.plan
    assert number is not None  # noqa: S101 # it was planned to be started
    actor = run.settings.who()
    shown = shown_id(number)

    with _lock(chosen, run), progress("redriven", planned.matched) as advance:
        campaigns.start(
            conn,
            number,
            terms,
            actor=actor,
            why=why,
        )
        _say_first(conn, terms, shown)
        found = campaigns.feed(conn, number, progress=advance)

    if found["waiting"] and found["state"] in GOING:
        click.echo(_WAITS.format(shown), err=True)

    return found


def _lock(chosen: Filter, run: Run) -> AbstractContextManager[object]:
    """Keep two runs apart. Single dead letters need not wait for a scheduled run."""
    if chosen.ids:
        return nullcontext()
    return only_one(run.settings, "redrive")


def _say_first(conn: Connection, terms: Terms, shown: str) -> None:
    """Say what the campaign needs from workers before its next jobs."""
    if terms.canaries:
        first = counted(terms.canaries, "canary", "canaries")
        click.echo(f"campaign {shown}: waits until workers run {first}", err=True)

    is_driven = terms.rate or terms.canaries
    if is_driven and not alive(conn):
        click.echo(_NO_WORKER.format(shown), err=True)


_NO_WORKER = "no worker is alive: campaign {} waits until you start one: redrive worker"
_WAITS = (
    "campaign {0} waits for workers, which will drive it;"
    " to watch it: redrive campaign watch {0}"
)


def _report(planned: Plan, found: Row | None) -> Redriven:
    if not found:
        return Redriven(planned.matched, blocked=planned.blocked)

    done = found["redriven"]
    stayed = found["blocked"]

    return Redriven(
        matched=planned.matched,
        redriven=done,
        blocked=stayed,
        campaign=found["campaign"],
    )


def _show(
    planned: Plan,
    found: Row | None,
    run: Run,
    *,
    is_vague: bool,
) -> None:
    if wants_json():
        emit(asdict(_report(planned, found)))
        return

    if found:
        click.echo(_outcome(found))
        return
    if not planned.matched:
        return
    if is_vague and not run.dry_run:
        click.echo("nothing was changed; give ids or a filter, or --all")
        return

    click.echo(run.unchanged())


def _outcome(found: Row) -> str:
    """Return what a campaign has done so far."""
    text = f"{found['redriven']} redriven"
    for cause, n in sorted(found["blocked"].items()):
        text += f", {n} {cause}"

    campaign = shown_id(found["campaign"])
    return f"{text}, campaign {campaign}"
