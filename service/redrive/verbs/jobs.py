"""Changes of jobs: cancel, run now, reveal a payload."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from redrive.database.rows import Connection
from redrive.jobs import control
from redrive.jobs.filter import ENDED, JobFilter
from redrive.jobs.find import find, ids
from redrive.jobs.reveal import reveal
from redrive.jobs.show import show as story
from redrive.rules.brief import counted
from redrive.rules.rows import Row
from redrive.verbs.query import parse
from redrive.verbs.refusal import Invalid, Missing
from redrive.verbs.verb import (
    SAMPLE,
    Done,
    Opening,
    Order,
    Preview,
    Verb,
    as_seen,
    back,
    bounded,
    id_of,
    obstacle_of,
    refuse_more,
    refuse_vague,
)

COLUMNS = ("id", "kind", "queue", "state", "attempt", "run_at", "waiting_for")


def _chosen(order: Order) -> JobFilter:
    chosen = parse(JobFilter, order.query)
    ended = sorted(ENDED & set(chosen.state))
    if ended:
        states = ", ".join(ended)
        raise Invalid(f"state is {states}; these jobs have ended")

    return bounded(chosen, order)


def _preview(conn: Connection, order: Order) -> Preview:
    chosen = _chosen(order)
    matched = ids(conn, chosen) if chosen.narrows() else []
    shown = find(conn, JobFilter(ids=matched[:SAMPLE])) if matched else ()

    return Preview(
        matched=len(matched),
        query=as_seen(chosen),
        rows=list(shown),
        ids=matched,
        missing=sorted(set(chosen.ids).difference(matched)),
        absent="is not live, or it does not match",
        obstacle=obstacle_of(chosen, len(matched), order.most),
    )


def _change(
    opening: Opening,
    order: Order,
    *,
    act: Callable[..., Row],
    words: Callable[..., str],
) -> Done:
    """Change the jobs in chunks. `act` returns the counts, and `words` tell them."""
    chosen = _chosen(order)
    refuse_vague(chosen)
    more = {"progress": order.advance} if order.advance else {}

    with opening() as conn:
        matched = ids(conn, chosen)
        refuse_more(len(matched), order)
        counts = act(conn, matched, **order.signed, **more)

    return Done(
        text=words(**counts),
        report={"matched": len(matched), **counts},
        path=back(chosen),
    )


def _cancel(conn: Connection, jobs: list[int], **how: Any) -> Row:
    return control.cancel(conn, jobs, **how)._asdict()


def _cancelled(cancelled: int, asked: int) -> str:
    return (
        f"{counted(cancelled, 'job')} cancelled, {asked:,} running jobs asked to stop."
    )


def _now(conn: Connection, jobs: list[int], **how: Any) -> Row:
    return {"due": control.run_now(conn, jobs, **how)}


def _due(due: int) -> str:
    return f"{counted(due, 'job')} due at once."


def _preview_reveal(conn: Connection, order: Order) -> Preview:
    job = id_of(order.query)
    found = story(conn, job)
    is_kept = found is not None and found["payload"] is not None

    return Preview(
        title=f"Reveal the payload of job {job}",
        matched=int(is_kept),
        obstacle=None if is_kept else f"No payload of job {job} is kept.",
    )


def _reveal(opening: Opening, order: Order) -> Done:
    job = id_of(order.query)

    with opening() as conn:
        found = reveal(conn, job, **order.signed)

    if found is None:
        raise Missing(f"no payload of job {job} is kept")

    return Done(f"Payload of job {job}", found, f"/jobs/{job}", is_shown=True)


JOBS: Mapping[str, Verb] = {
    "reveal": Verb(
        "Show the payload of a job with its secrets.",
        "job reveal {id}",
        "Reveal",
        "payload",
        _preview_reveal,
        _reveal,
        remarks=("The payload is shown once, with its secrets.",),
        names=("id",),
        help="""
            \b
            redrive job reveal 17 --why 'the bank asks for the account' --yes

            The job may be live, dead, or in the history. The audit log keeps who saw
            the payload, and why.
        """,
    ),
    "cancel": Verb(
        "End jobs that are no longer wanted.",
        "job cancel",
        "Cancel",
        "live job",
        _preview,
        partial(_change, act=_cancel, words=_cancelled),
        remarks=("Waiting jobs end at once. Running jobs are asked to stop.",),
        columns=COLUMNS,
        of=JobFilter,
        nothing={"cancelled": 0, "asked": 0},
        help="""
            \b
            redrive job cancel 17 --why 'the order was withdrawn' --yes
            redrive job cancel --kind report.build --state ready,scheduled --why 'the model is wrong'

            Waiting jobs end at once. A running job is asked to end: `job.cancelled`
            becomes true, and an async handler is cancelled. A handler that does not end
            is killed some seconds later. The command shows the jobs and asks, unless
            you give --yes. Without a terminal and without --yes it only shows them.
        """,
    ),
    "now": Verb(
        "Run scheduled and retrying jobs now.",
        "job now",
        "Run now",
        "live job",
        _preview,
        partial(_change, act=_now, words=_due),
        remarks=(
            "Only scheduled and retrying jobs change. Jobs that wait for a key still wait.",
        ),
        columns=COLUMNS,
        of=JobFilter,
        nothing={"due": 0},
        help="""
            \b
            redrive job now --kind invoice.charge --state retrying --why 'the bank is back'

            A job that waits for another job or on a paused queue keeps waiting. The
            command shows the jobs and asks, unless you give --yes. Without a terminal
            and without --yes it only shows them.
        """,
    ),
}
"""Word in the address -> change."""
