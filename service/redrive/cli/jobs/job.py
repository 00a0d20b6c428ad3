"""redrive job: show live jobs, explain why they wait, and control them."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

import click
import psycopg

from redrive.cli.support.connection import database
from redrive.cli.support.exits import Exit
from redrive.cli.support.filters import filter_options
from redrive.cli.support.names import say_unknown
from redrive.cli.support.options import (
    Change,
    Duration,
    InOrder,
    Run,
    acting_options,
    database_option,
    json_option,
    pager_option,
    run_options,
    settings_for,
)
from redrive.cli.support.output import (
    counted,
    emit,
    listing,
    not_found,
    paged,
    printable,
    printable_fields,
)
from redrive.cli.support.terminal import progress
from redrive.live_jobs import control
from redrive.live_jobs.filter import ENDED, LIVE, JobFilter
from redrive.live_jobs.find import FAILURE, find, ids, listed
from redrive.live_jobs.history import PLACE, PLACES, find_ended
from redrive.live_jobs.reveal import reveal
from redrive.live_jobs.show import show
from redrive.results import UNKNOWN, Ended

Came = TypeVar("Came")

COLUMNS = (
    "id",
    "kind",
    "queue",
    "state",
    "attempt",
    "run_at",
    "worker",
    "waiting_for",
    "error_class",
    "message",
)
SHOWN = 10
"""Number of jobs in a preview."""

PAGE = 100
"""Default number of jobs in a list."""

_WAITED = {
    "succeeded": Exit.DONE,
    control.LIVE: Exit.NOTHING_MATCHED,
    UNKNOWN: Exit.UNKNOWN,
}
"""Exit code of `job wait` by outcome; all others are failures."""

_GONE = "{title}  {state}\n{why}"
_SUMMARY = """\
{title}  {kind}  queue {queue}  {state}
{why}
{facts}"""


class _Place(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] # older versions take none
    name = "place"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        if not PLACES.fullmatch(str(value)):
            self.fail(
                f"{value!r} is no place; take the one that the page before ended with",
                param,
                ctx,
            )
        return str(value)


class _Seconds(Duration):
    """Duration; a bare number is seconds."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        return super().convert(
            f"{value}s" if str(value).isdigit() else value, param, ctx
        )


@click.group(cls=InOrder)
def job() -> None:
    """Live jobs: list, show, ask why one waits, cancel, run now."""


@job.command("ls")
@filter_options(of=JobFilter)
@click.option(
    "--after", type=_Place(), metavar="PLACE", help="Go on where a page ended."
)
@database_option
@json_option
@pager_option
def list_jobs(
    chosen: JobFilter, after: str | None, database_url: str | None, as_json: bool
) -> None:
    """List live jobs, in each lane in the order in which they run.

    \b
    redrive job ls --state running,retrying
    redrive job ls --queue mail --tenant acme --limit 1000

    Those that have ended come newest first, of queues with a history: --state completed,cancelled.
    100 jobs unless --limit says otherwise; where the list was cut, the last line says how to go
    on.
    """
    limit = chosen.limit or PAGE
    with database(settings_for(database_url)) as conn:
        found = _found(conn, replace(chosen, limit=limit + 1), after)
        shown = list(islice(found, limit))
        is_cut = next(found, None) is not None
        if not shown:
            say_unknown(conn, kind=chosen.kind, queue=chosen.queue)
    with paged():
        listing(
            map(listed if as_json else _for_people, shown),
            COLUMNS,
            as_json=as_json,
            right=("id", "attempt"),
            empty="no live job",
        )
    if is_cut:
        click.echo(f"there are more: --after {shown[-1]['place']}", err=True)


def _found(
    conn: psycopg.Connection[Any], chosen: JobFilter, after: str | None
) -> Iterator[dict[str, Any]]:
    """Yield live jobs, then ended ones, as far as these states are requested."""
    is_past_live = after is not None and after.startswith(PLACE)
    live = tuple(state for state in chosen.state if state in LIVE)
    if not is_past_live and (live or not chosen.state):
        yield from find(conn, replace(chosen, state=live), after)
        after = None
    yield from find_ended(conn, chosen, after)


def _for_people(row: dict[str, Any]) -> dict[str, Any]:
    failure: dict[str, Any] = row["last_failure"] or {}
    state = row["state"] + (
        f" {row['progress']['share']:.0%}" if row["progress"] else ""
    )
    return row | {"state": state} | {name: failure.get(name) for name in FAILURE[:2]}


@job.command("show")
@click.argument("which", metavar="ID", type=click.INT)
@database_option
@json_option
def show_job(which: int, database_url: str | None, as_json: bool) -> int:
    """Show what happened to a job, and why it does not run.

    \b
    redrive job show 17

    Live, dead, ended, or known from the audit log alone. Secrets in payloads are redacted.
    """
    with database(settings_for(database_url)) as conn:
        found = show(conn, which)
        ended = None if found else control.wait(conn, which, 0)
    if found is None:
        return not_found(_nothing_kept(which, ended))
    if as_json:
        emit(found)
    else:
        click.echo("\n\n".join(_sections(found)))
    return Exit.DONE


def _nothing_kept(which: int, ended: Ended | None) -> str:
    """Return the text about a job that left no trace."""
    if ended is None:
        return f"there is no job {which}"
    if ended.outcome == UNKNOWN:
        return (
            f"nothing is left of job {which}: it succeeded, its enqueue was rolled back, or its"
            " dead letter was purged (redrive queue set QUEUE --history 7d keeps jobs that end)"
        )
    returned = (
        ""
        if ended.result is None
        else f"; redrive job wait {which} has what it returned"
    )
    return (
        f"job {which} has ended: {ended.outcome}; nothing else of it is kept"
        f" (redrive queue set QUEUE --history 7d keeps those that end from then on){returned}"
    )


def _sections(found: dict[str, Any]) -> Iterator[str]:
    """Format a job for people, section by section."""
    is_known = found["kind"] is not None  # known beyond the audit log
    yield (_SUMMARY if is_known else _GONE).format_map(
        printable_fields(found)
        | {
            "title": click.style(f"job {found['id']}", bold=True),
            "why": click.style(printable(found["why"]["text"]), bold=True),
            "facts": "; ".join(_facts(found)),
        }
    )
    if is_known:
        payload = printable(json.dumps(found["payload"], ensure_ascii=False))
        yield f"{click.style('payload', bold=True)}  {payload}"
    yield from _notes(found)
    yield "\n".join((click.style("story", bold=True), *map(_step, found["story"])))


def _facts(found: dict[str, Any]) -> Iterator[str]:
    """Format the numbers of a job; some are unknown once it is gone."""
    if found["attempt"] is not None:
        deliveries = counted(found["deliveries"] or 0, "delivery", "deliveries")
        yield f"attempt {found['attempt']}, {deliveries}"
    if found["priority"] is not None:
        yield f"priority {found['priority']}"
    if found["created_at"] is not None:
        yield f"created {printable(found['created_at'])}"


def _notes(found: dict[str, Any]) -> Iterator[str]:
    """Format the progress and the checkpoint that a handler reported."""
    if (progress := found["progress"]) is not None:
        said = (
            f"{progress['share']:.0%}  {progress['text']}, at {progress['at']:%H:%M:%S}"
        )
        yield f"{click.style('progress', bold=True)}  {printable(said)}"
    if (checkpoint := found["checkpoint"]) is not None:
        data = printable(json.dumps(checkpoint["data"], ensure_ascii=False))
        yield f"{click.style('checkpoint', bold=True)}  {data}"


def _step(step: dict[str, Any]) -> str:
    """Format one line of the story."""
    shown = printable_fields(step)
    by = f"  by {shown['by']}" if step["by"] else ""
    why = f": {shown['why']}" if step["why"] else ""
    return f"  {shown['at']}  {shown['what']}{by}{why}"


def _changed(
    verb: str,
    chosen: JobFilter,
    run: Run,
    change: Callable[..., Came],
    report: Callable[[Came], dict[str, int]],
    *,
    as_json: bool,
) -> int:
    """Change the matching jobs after confirmation; print the result.

    `change` is a verb of `control`. `report` names its results.
    """
    _check_narrows(chosen)
    with database(run.settings) as conn:
        matched = ids(conn, chosen)
        if not as_json:
            _preview(conn, matched)
        n = len(matched)
        why = run.consent(f"{verb} {counted(n, 'job')}?", str(n)) if matched else None
        with progress(verb, n) as advance:
            agreed = matched if why else []
            came = change(
                conn, agreed, why=why or "", actor=run.settings.who(), progress=advance
            )
    if as_json:
        emit({"matched": n} | report(came))
    elif why:
        click.echo(", ".join(f"{count} {name}" for name, count in report(came).items()))
    elif matched:
        click.echo(
            "nothing was changed" + ("" if run.dry_run else "; add --yes to do it")
        )
    for missed in sorted(set(chosen.ids) - set(matched)):
        not_found(f"job {missed} is not live, or does not match")
    return Exit.NOTHING_MATCHED if chosen.ids and not matched else Exit.DONE


def _check_narrows(chosen: JobFilter) -> None:
    """Refuse to change all jobs, or jobs that are no longer live."""
    if not (chosen.narrows() or chosen.state):
        raise click.UsageError("name ids or a filter")
    if over := sorted(ENDED & set(chosen.state)):
        raise click.UsageError(f"--state {', '.join(over)}: those have ended")


def _preview(conn: psycopg.Connection[Any], matched: Sequence[int]) -> None:
    """Print how many jobs a change concerns, and the first of them."""
    if not matched:
        click.echo("nothing matched")
        return
    click.echo(counted(len(matched), "live job"))
    shown = find(conn, JobFilter(ids=matched[:SHOWN]))
    listing(map(_for_people, shown), COLUMNS, as_json=False, right=("id", "attempt"))


@job.command("reveal")
@click.argument("which", metavar="ID", type=click.INT)
@acting_options
def reveal_payload(which: int, change: Change) -> int:
    """Print the payload of a job with its secrets, as JSON.

    \b
    redrive job reveal 17 --why 'the bank asks for the account' --yes

    Wherever the job is: live, dead or in the history. The audit log keeps who saw it, and why.
    """
    change.agree(f"Show the payload of job {which} with its secrets")
    with database(change.settings) as conn:
        found = reveal(conn, which, actor=change.settings.who(), why=change.why)
    if found is None:
        return not_found(f"nothing is kept of job {which}")
    emit(found["payload"])
    return Exit.DONE


@job.command()
@click.argument("jobs", metavar="[ID]...", nargs=-1, type=click.INT)
@filter_options(of=JobFilter)
@run_options()
@json_option
def cancel(jobs: tuple[int, ...], chosen: JobFilter, run: Run, as_json: bool) -> int:
    """End jobs that are no longer wanted, by id or by filters.

    \b
    redrive job cancel 17 --why 'the order was withdrawn' --yes
    redrive job cancel --kind report.build --state ready,scheduled --why 'the model is wrong'

    Those that wait end at once. Those that run are told: `job.cancelled` is true, an async handler
    is cancelled; a handler that does not heed it is killed some seconds later. Shows first what it
    would do; then asks, unless --yes. Without a terminal and without --yes it only shows.
    """
    chosen = replace(chosen, ids=(*jobs, *chosen.ids))
    report = control.Cancelled._asdict
    return _changed("Cancel", chosen, run, control.cancel, report, as_json=as_json)


@job.command("now")
@click.argument("jobs", metavar="[ID]...", nargs=-1, type=click.INT)
@filter_options(of=JobFilter)
@run_options()
@json_option
def run_now(jobs: tuple[int, ...], chosen: JobFilter, run: Run, as_json: bool) -> int:
    """Let jobs run now that wait for their time, by id or filters.

    \b
    redrive job now --kind invoice.charge --state retrying --why 'the bank is back'

    Scheduled and retrying ones; what waits for another job, or on a paused queue, goes on waiting.
    Shows first what it would do; then asks, unless --yes. Without a terminal and without --yes it
    only shows.
    """
    chosen = replace(chosen, ids=(*jobs, *chosen.ids))
    return _changed(
        "Run now",
        chosen,
        run,
        control.run_now,
        lambda due: {"due": due},
        as_json=as_json,
    )


@job.command()
@click.argument("which", metavar="ID", type=click.INT)
@click.option(
    "--timeout",
    type=_Seconds(),
    default="30",
    metavar="SECONDS",
    show_default=True,
    help="How long to wait: seconds, or 5m.",
)
@database_option
@json_option
def wait(which: int, timeout: float, database_url: str | None, as_json: bool) -> int:
    """Wait for a job's end.

    \b
    redrive job wait 17 --timeout 5m

    Exit code 0: it has succeeded; 1: it has ended otherwise; 2: it has not ended in time, or there
    is no such job; 3: unknown. The outcome is unknown if the job had ended before this command
    began, and no result, dead letter or history of it is kept: it may have succeeded, or its
    enqueue was rolled back, or its dead letter was purged. Shows what the handler returned, with
    secrets redacted, while that is kept.
    """
    with database(settings_for(database_url)) as conn:
        ended = control.wait(conn, which, timeout)
    if ended is None:
        return not_found(f"there is no job {which}")
    outcome, result = ended.outcome, ended.result
    if as_json:
        emit({"id": which, "outcome": outcome, "result": result})
    else:
        returned = (
            "" if result is None else "  " + json.dumps(result, ensure_ascii=False)
        )
        click.echo(printable(outcome + returned))
    return _WAITED.get(outcome, Exit.FAILED)
