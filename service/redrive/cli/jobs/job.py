"""redrive job: show live jobs, explain why they wait, and control them."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import click

from redrive.cli.jobs.replay import replay
from redrive.cli.support.connection import database
from redrive.cli.support.exits import Exit, NotFound
from redrive.cli.support.filters import filter_options
from redrive.cli.support.names import say_unknown
from redrive.cli.support.options import (
    Change,
    Duration,
    InOrder,
    Run,
    acting_options,
    conn_options,
    id_argument,
    json_option,
    pager_option,
    run_options,
)
from redrive.cli.support.output import (
    answer,
    counted,
    emit,
    listing,
    not_found,
    printable,
    printable_fields,
    shown_id,
    wants_json,
)
from redrive.cli.support.terminal import progress
from redrive.database.rows import Connection
from redrive.live_jobs import control
from redrive.live_jobs.filter import ENDED, JobFilter
from redrive.live_jobs.find import FAILURE, find, ids, listed
from redrive.live_jobs.history import PLACES, find_ended, live_part
from redrive.live_jobs.reveal import reveal
from redrive.live_jobs.show import show
from redrive.results import UNKNOWN, Ended
from redrive.rules.rows import Row

Counts = dict[str, int]
"""Results of a change by name."""

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
            hint = "give the one at the end of the last page"
            self.fail(f"{value!r} is not a place; {hint}", param, ctx)
        return str(value)


class _Seconds(Duration):
    """Duration; a bare number is seconds."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        text = f"{value}s" if str(value).isdigit() else value
        return super().convert(text, param, ctx)


@click.group(cls=InOrder)
def job() -> None:
    """Jobs: list, show, explain, cancel, run now."""


@job.command("ls")
@filter_options(of=JobFilter)
@click.option(
    "--after",
    type=_Place(),
    metavar="PLACE",
    help="Continue where a page ended.",
)
@conn_options
@json_option
@pager_option
def list_jobs(chosen: JobFilter, after: str | None, conn: Connection) -> None:
    """List live jobs, in each lane in the order in which they run.

    \b
    redrive job ls --state running,retrying
    redrive job ls --queue mail --tenant acme --limit 1000

    --state completed,cancelled lists ended jobs of queues with a history, newest first. Without
    --limit, the list has at most 100 jobs. If there are more, the last line says how to continue.
    """
    limit = chosen.limit or PAGE
    # One job more than shown tells whether there are more.
    found = _found(conn, replace(chosen, limit=limit + 1), after)
    shown = list(islice(found, limit))
    is_cut = next(found, None) is not None
    if not shown:
        say_unknown(conn, kind=chosen.kind, queue=chosen.queue)

    _print_jobs(shown)

    if is_cut:
        click.echo(f"there are more: --after {shown[-1]['place']}", err=True)


def _print_jobs(jobs: Iterable[Row]) -> None:
    listing(
        map(listed, jobs) if wants_json() else jobs,
        COLUMNS,
        for_people=_for_people,
        right=("id", "attempt"),
        empty="no live job",
    )


def _found(conn: Connection, chosen: JobFilter, after: str | None) -> Iterator[Row]:
    """Yield live jobs, then ended ones, if these states are requested."""
    live = live_part(chosen, after)
    if live is not None:
        yield from find(conn, live, after)
        # The page of ended jobs that follows begins with the newest.
        after = None

    yield from find_ended(conn, chosen, after)


def _for_people(row: Row) -> Row:
    failure: Row = row["last_failure"] or {}
    shown: Row = row | {name: failure.get(name) for name in FAILURE[:2]}
    if row["progress"]:
        shown["state"] += f" {row['progress']['share']:.0%}"

    return shown


@job.command("show")
@id_argument
@conn_options
@json_option
def show_job(which: int, conn: Connection) -> None:
    """Show the history of a job, and why it does not run.

    \b
    redrive job show 17

    The job may be live, dead, ended, or known only from the audit log. Secrets in payloads are
    redacted.
    """
    found = show(conn, which)
    # Without time to wait, this only reads how the job has ended.
    ended = None if found else control.wait(conn, which, 0)
    if found is None:
        raise NotFound(_nothing_kept(which, ended))

    answer(found, "\n\n".join(_sections(found)))


_KEEP_ENDED = "redrive queue set QUEUE --history 7d"


def _nothing_kept(which: int, ended: Ended | None) -> str:
    """Return the text about a job that left no trace."""
    if ended is None:
        return f"there is no job {shown_id(which)}"

    if ended.outcome == UNKNOWN:
        return (
            f"nothing is left of job {shown_id(which)}: it succeeded, its enqueue was rolled back, or its"
            f" dead letter was purged ({_KEEP_ENDED} keeps jobs that end)"
        )

    text = (
        f"job {shown_id(which)} has ended: {ended.outcome}; nothing else of it is kept"
        f" ({_KEEP_ENDED} keeps jobs that end from then on)"
    )
    if ended.result is not None:
        text += f"; redrive job wait {shown_id(which)} shows what it returned"

    return text


def _sections(found: Row) -> Iterator[str]:
    """Format a job for people, section by section."""
    is_known = found["kind"] is not None  # known beyond the audit log
    template = _SUMMARY if is_known else _GONE

    words = {
        "title": _bold(f"job {shown_id(found['id'])}"),
        "why": _bold(printable(found["why"]["text"])),
        "facts": "; ".join(_facts(found)),
    }
    yield template.format_map(printable_fields(found) | words)
    if is_known:
        yield f"{_bold('payload')}  {_json(found['payload'])}"

    yield from _notes(found)
    yield "\n".join((_bold("story"), *map(_step, found["story"])))


def _bold(text: str) -> str:
    return click.style(text, bold=True)


def _json(value: Any) -> str:
    return printable(json.dumps(value, ensure_ascii=False))


def _facts(found: Row) -> Iterator[str]:
    """Format the numbers of a job; some are unknown once it is gone."""
    if found["attempt"] is not None:
        deliveries = counted(found["deliveries"] or 0, "delivery", "deliveries")
        yield f"attempt {found['attempt']}, {deliveries}"
    if found["priority"] is not None:
        yield f"priority {found['priority']}"
    if found["created_at"] is not None:
        yield f"created {printable(found['created_at'])}"


def _notes(found: Row) -> Iterator[str]:
    """Format the progress and the checkpoint that a handler reported."""
    progress = found["progress"]
    checkpoint = found["checkpoint"]
    if progress is not None:
        text = "{share:.0%}  {text}, at {at:%H:%M:%S}".format_map(progress)
        yield f"{_bold('progress')}  {printable(text)}"

    if checkpoint is not None:
        yield f"{_bold('checkpoint')}  {_json(checkpoint['data'])}"


def _step(step: Row) -> str:
    """Format one line of the story."""
    shown = printable_fields(step)
    by = f"  by {shown['by']}" if step["by"] else ""
    why = f": {shown['why']}" if step["why"] else ""

    return f"  {shown['at']}  {shown['what']}{by}{why}"


def _changed(
    verb: str,
    chosen: JobFilter,
    run: Run,
    change: Callable[..., Counts],
) -> int:
    """Change the matching jobs after confirmation; print the result."""
    _check_narrows(chosen)
    with database(run.settings) as conn:
        matched = ids(conn, chosen)
        n = len(matched)
        if not wants_json():
            _preview(conn, matched)

        jobs = counted(n, "job")
        why = run.consent(f"{verb} {jobs}?", str(n)) if matched else None

        with progress(verb, n) as advance:
            counts = change(
                conn,
                # Without consent nothing is changed, and the report has zeros.
                matched if why else [],
                why=why or "",
                actor=run.settings.who(),
                progress=advance,
            )

    text = _counts(counts) if why else run.unchanged()
    answer({"matched": n} | counts, text if matched else None)

    return _name_missed(chosen, matched)


def _counts(counts: Counts) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _name_missed(chosen: JobFilter, matched: Sequence[int]) -> Exit:
    """Name the requested jobs that do not match; return the exit code."""
    for missed in sorted(set(chosen.ids).difference(matched)):
        shown = shown_id(missed)
        not_found(f"job {shown} is not live, or it does not match")

    if chosen.ids and not matched:
        return Exit.NOTHING_MATCHED
    return Exit.DONE


def _check_narrows(chosen: JobFilter) -> None:
    """Refuse to change all jobs, or jobs that are no longer live."""
    if not (chosen.narrows() or chosen.state):
        raise click.UsageError("give ids or a filter")

    over = sorted(ENDED & set(chosen.state))
    if over:
        raise click.UsageError(f"--state {', '.join(over)}: these jobs have ended")


def _preview(conn: Connection, matched: Sequence[int]) -> None:
    """Print how many jobs a change concerns, and the first of them."""
    if not matched:
        click.echo("nothing matched")
        return

    click.echo(counted(len(matched), "live job"))
    _print_jobs(find(conn, JobFilter(ids=matched[:SHOWN])))


@job.command("reveal")
@id_argument
@acting_options
def reveal_payload(which: int, change: Change) -> None:
    """Print the payload of a job with its secrets, as JSON.

    \b
    redrive job reveal 17 --why 'the bank asks for the account' --yes

    The job may be live, dead, or in the history. The audit log keeps who saw the payload, and why.
    """
    change.agree(f"Show the payload of job {shown_id(which)} with its secrets")
    with database(change.settings) as conn:
        found = reveal(conn, which, **change.signed)

    if found is None:
        raise NotFound(f"nothing is kept of job {shown_id(which)}")

    emit(found["payload"])


@job.command()
@filter_options(of=JobFilter, takes_ids=True)
@run_options()
@json_option
def cancel(chosen: JobFilter, run: Run) -> int:
    """Cancel jobs, by id or by filters.

    \b
    redrive job cancel 17 --why 'the order was withdrawn' --yes
    redrive job cancel --kind report.build --state ready,scheduled --why 'the model is wrong'

    Waiting jobs end at once. A running job is asked to end: `job.cancelled` becomes true, and an
    async handler is cancelled. A handler that does not end is killed some seconds later. The
    command shows the jobs and asks, unless you give --yes. Without a terminal and without --yes it
    only shows them.
    """
    return _changed("Cancel", chosen, run, _cancel)


def _cancel(conn: Connection, jobs: Sequence[int], **how: Any) -> Counts:
    return control.cancel(conn, jobs, **how)._asdict()


@job.command("now")
@filter_options(of=JobFilter, takes_ids=True)
@run_options()
@json_option
def run_now(chosen: JobFilter, run: Run) -> int:
    """Run scheduled and retrying jobs now, by id or by filters.

    \b
    redrive job now --kind invoice.charge --state retrying --why 'the bank is back'

    A job that waits for another job or on a paused queue keeps waiting. The command shows the jobs
    and asks, unless you give --yes. Without a terminal and without --yes it only shows them.
    """
    return _changed("Run now", chosen, run, _run_now)


def _run_now(conn: Connection, jobs: Sequence[int], **how: Any) -> Counts:
    return {"due": control.run_now(conn, jobs, **how)}


@job.command()
@id_argument
@click.option(
    "--timeout",
    type=_Seconds(),
    default="30",
    metavar="SECONDS",
    show_default=True,
    help="How long to wait: seconds, or 5m.",
)
@conn_options
@json_option
def wait(which: int, timeout: float, conn: Connection) -> int:
    """Wait for the end of a job.

    \b
    redrive job wait 17 --timeout 5m

    Exit code 0: it succeeded. 1: it ended in another way. 2: it did not end in time, or there is
    no such job. 3: the outcome is unknown. The outcome is unknown if the job ended before this
    command began, and no result, dead letter or history of it is kept. Then it succeeded, its
    enqueue was rolled back, or its dead letter was purged. The command prints the return value of
    the handler while it is kept, with secrets redacted.
    """
    ended = control.wait(conn, which, timeout)
    if ended is None:
        raise NotFound(f"there is no job {shown_id(which)}")

    report = {
        "id": which,
        "outcome": ended.outcome,
        "result": ended.result,
    }
    answer(report, _outcome(ended))

    return _WAITED.get(ended.outcome, Exit.FAILED)


def _outcome(ended: Ended) -> str:
    text = printable(ended.outcome)
    if ended.result is None:
        return text
    return f"{text}  {_json(ended.result)}"


job.add_command(replay)
