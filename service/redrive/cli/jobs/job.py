"""redrive job: show live jobs, explain why they wait, and control them."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import click

from redrive.cli.support.exits import Exit, NotFound
from redrive.cli.support.filters import filter_options
from redrive.cli.support.lazy import LazyGroup
from redrive.cli.support.names import say_unknown
from redrive.cli.support.options import (
    Duration,
    conn_options,
    id_argument,
    json_option,
    pager_option,
)
from redrive.cli.support.output import (
    answer,
    bold,
    listing,
    printable,
    printable_facts,
    printable_fields,
    printable_json,
    shown_id,
    wants_json,
    warn,
)
from redrive.cli.support.verbs import add_verbs
from redrive.database.rows import Connection
from redrive.jobs import control
from redrive.jobs.filter import ENDED, JobFilter
from redrive.jobs.find import ENDED_NARROW, FAILURE, NARROW, NUMBERS, find, listed
from redrive.jobs.history import PLACES, find_ended, keeps_ended, live_part
from redrive.jobs.show import facts, show_with_letter
from redrive.results import UNKNOWN, Ended
from redrive.rules.brief import brief
from redrive.rules.rows import Row
from redrive.verbs.jobs import JOBS

_KEEP_ENDED = "redrive queue set QUEUE --history 7d"

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
{title}  {kind}  {state}
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
        # A number without a unit is in seconds.
        if str(value).isdigit():
            value = f"{value}s"

        return super().convert(value, param, ctx)


@click.group(cls=LazyGroup, prefix="job ")
def job() -> None:
    """Jobs: list, show, explain, cancel, run now."""


@job.command("ls")
@filter_options(of=JobFilter)
@click.option(
    "--after", type=_Place(), metavar="PLACE", help="Continue where a page ended."
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
    is_of_ended = bool(chosen.state) and ENDED.issuperset(chosen.state)
    if not shown:
        say_unknown(conn, kind=chosen.kind, queue=chosen.queue)
        if is_of_ended and not keeps_ended(conn, chosen.queue):
            warn(f"jobs that end are not kept; {_KEEP_ENDED} keeps them from then on")

    listing(
        map(listed, shown) if wants_json() else shown,
        ENDED_NARROW if is_of_ended else (*NARROW, *FAILURE[:2]),
        for_people=_for_people,
        right=("id", *NUMBERS),
        empty="no such job" if is_of_ended else "no live job",
    )

    if is_cut:
        click.echo(f"there are more: --after {shown[-1]['place']}", err=True)


def _found(conn: Connection, chosen: JobFilter, after: str | None) -> Iterator[Row]:
    """Yield live jobs, then ended ones, if these states are requested."""
    live = live_part(chosen, after)
    if live is not None:
        yield from find(conn, live, after)
        # The page of ended jobs that follows begins with the newest.
        after = None

    yield from find_ended(conn, chosen, after)


def _for_people(row: Row) -> Row:
    shown = dict(row)
    failure: Row = row["last_failure"] or {}
    for name in FAILURE[:2]:
        shown[name] = failure.get(name)

    progress = row["progress"]
    if progress:
        share = progress["share"]
        shown["state"] += f" {share:.0%}"

    return shown


@job.command("show")
@id_argument
@conn_options
@json_option
def show_job(which: int, conn: Connection) -> None:
    """Show the history of a job, and why it does not run.

    \b
    redrive job show 17

    The job may be live, dead, ended, or known only from the audit log. Secrets in
    payloads are redacted.
    """
    shown = show_with_letter(conn, which)
    if shown is None:
        # Without time to wait, this only reads how the job has ended.
        raise NotFound(_nothing_kept(which, control.wait(conn, which, 0)))

    answer(shown.job, "\n\n".join(_sections(*shown)))


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


def _sections(found: Row, letter: Row | None) -> Iterator[str]:
    """Format a job for people, section by section."""
    is_known = found["kind"] is not None  # known beyond the audit log
    template = _SUMMARY if is_known else _GONE

    yield template.format_map(_words(found, letter))
    if found["cause"]:
        cause = printable_fields(found["cause"])
        yield f"{bold('cause')}  {{text}}. See redrive dlq show {{group}}".format_map(
            cause
        )

    if is_known:
        payload = printable_json(found["payload"])
        yield f"{bold('payload')}  {payload}"

    yield from _notes(found)
    steps = map(_step, found["story"])
    yield "\n".join((bold("story"), *steps))


def _words(found: Row, letter: Row | None) -> dict[str, str]:
    """Return the words of a job's first section."""
    shown = shown_id(found["id"])
    why = printable(found["why"]["text"])

    return {
        **printable_fields(found),
        "title": bold(f"job {shown}"),
        "why": bold(why),
        "facts": printable_facts(facts(found, letter)),
    }


def _notes(found: Row) -> Iterator[str]:
    """Format the progress and the checkpoint that a handler reported."""
    progress = found["progress"]
    checkpoint = found["checkpoint"]
    if progress is not None:
        text = "{share:.0%}  {text}, at {at:%H:%M:%S}".format_map(progress)
        yield f"{bold('progress')}  {printable(text)}"

    if checkpoint is not None:
        data = printable_json(checkpoint["data"])
        yield f"{bold('checkpoint')}  {data}"


def _step(step: Row) -> str:
    """Format one line of the story."""
    shown = printable_fields(step)
    line = f"  {shown['at']}  {printable(brief(step['what']))}"
    if step["by"]:
        line += f"  by {shown['by']}"
    if step["why"]:
        line += f": {printable(brief(step['why']))}"

    return line


add_verbs(job, JOBS)


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

    Exit code 0: it succeeded. 1: it ended in another way. 2: it did not end in time, or
    there is no such job. 3: the outcome is unknown. The outcome is unknown if the job
    ended before this command began, and no result, dead letter or history of it is
    kept. Then it succeeded, its enqueue was rolled back, or its dead letter was purged.
    The command prints the return value of the handler while it is kept, with secrets
    redacted.
    """
    ended = control.wait(conn, which, timeout)
    if ended is None:
        raise NotFound(f"there is no job {shown_id(which)}")

    report = {"id": which, "outcome": ended.outcome, "result": ended.result}
    answer(report, _outcome(ended))

    return _WAITED.get(ended.outcome, Exit.FAILED)


def _outcome(ended: Ended) -> str:
    text = printable(ended.outcome)
    if ended.result is None:
        return text
    return f"{text}  {printable_json(ended.result)}"
