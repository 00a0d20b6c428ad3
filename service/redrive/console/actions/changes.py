"""Registry of the console's changes: each has a preview that counts and one way to do
it.

Pages and the JSON API go through here, and from here to the functions that the command
line calls.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from redrive.console.actions.campaigns import CAMPAIGNS
from redrive.console.actions.change import (
    SAMPLE,
    Change,
    Done,
    Opening,
    Order,
    Preview,
    as_seen,
    back,
    bounded,
    counted,
    id_of,
    letters_of,
    named,
    obstacle_of,
    refuse_more,
    refuse_vague,
    shell_of,
)
from redrive.console.actions.proposals import PROPOSALS
from redrive.console.actions.resolutions import RESOLUTIONS
from redrive.console.actions.switches import SWITCHES
from redrive.console.query import Query, command, parse
from redrive.console.security.access import Refused
from redrive.database.rows import Connection
from redrive.dead_letters import find as letters
from redrive.dead_letters import triage
from redrive.dead_letters.filter import Filter
from redrive.live_jobs import control
from redrive.live_jobs.filter import JobFilter
from redrive.live_jobs.find import find, ids
from redrive.live_jobs.reveal import reveal
from redrive.live_jobs.show import show as story
from redrive.rules.rows import Row

LETTER_COLUMNS = ("id", "kind", "queue", "reason", "error_class", "message", "died_at")
NO_LETTER = "has no dead letter; its page shows its state"
JOB_COLUMNS = ("id", "kind", "queue", "state", "attempt", "run_at", "waiting_for")


# ---------------------------------------------------------------------- dead letters


def _preview_letters(
    conn: Connection, query: Query, *, verb: str, state: str, remark: str
) -> Preview:
    chosen = letters_of(query, state)
    matched: Sequence[int] = ()
    if chosen.narrows():
        matched = letters.ids(conn, chosen)

    rows: Sequence[Row] = ()
    if matched:
        rows = letters.find(conn, Filter(ids=matched[:SAMPLE]))

    return Preview(
        title=f"{verb} dead letters",
        matched=len(matched),
        unit=f"{state} dead letter",
        verb=verb,
        shell=shell_of(
            ("dlq", verb.lower()),
            query,
            Filter,
            why="...",
        ),
        query=as_seen(chosen),
        columns=LETTER_COLUMNS,
        rows=rows,
        remarks=(remark,),
        obstacle=obstacle_of(chosen, len(matched)),
    )


def _triage(
    opening: Opening,
    order: Order,
    *,
    state: str,
    act: Callable[..., list[int]],
    word: str,
) -> Done:
    chosen = letters_of(order.query, state)
    refuse_vague(chosen)

    with opening() as conn:
        matched = letters.ids(conn, chosen)
        refuse_more(len(matched), order)
        # The action takes the ids and not the filter, so it changes what was counted.
        done = act(conn, matched, **order.signed)

    text = f"{counted(len(done), 'dead letter')} {word}."

    return Done(
        text=text,
        report={"matched": len(matched), word: done},
        path=back(chosen),
    )


def _preview_reopen(conn: Connection, query: Query) -> Preview:
    named(query, "id")
    seen = _preview_letters(
        conn,
        query,
        verb="Reopen",
        state="dismissed",
        remark="After this they can be redriven again.",
    )
    words = ("dlq", "reopen", str(id_of(query)))

    return replace(seen, shell=command(words, why="..."))


def _preview_note(conn: Connection, query: Query) -> Preview:
    job = id_of(query)
    found = letters.show(conn, job)

    return Preview(
        title=f"Note on job {job}",
        matched=1 if found else 0,
        unit="dead letter",
        verb="Note",
        shell=command(("dlq", "note", str(job), "...")),
        query=query,
        remarks=("The text below becomes a note on the dead letter.",),
        obstacle=None if found else f"Job {job} {NO_LETTER}.",
    )


def _note(opening: Opening, order: Order) -> Done:
    job = id_of(order.query)

    with opening() as conn:
        if not triage.note(conn, job, order.why, actor=order.actor):
            raise Refused(404, f"job {job} {NO_LETTER}")

    return Done(
        text="Noted.",
        report={"id": job},
        path=f"/jobs/{job}",
    )


def _preview_reveal(conn: Connection, query: Query) -> Preview:
    job = id_of(query)
    found = story(conn, job)
    is_kept = found is not None and found["payload"] is not None

    return Preview(
        title=f"Reveal the payload of job {job}",
        matched=int(is_kept),
        unit="payload",
        verb="Reveal",
        shell=command(("job", "reveal", str(job)), why="..."),
        query=query,
        remarks=("The payload is shown once, with its secrets.",),
        obstacle=None if is_kept else f"No payload of job {job} is kept.",
    )


def _reveal(opening: Opening, order: Order) -> Done:
    job = id_of(order.query)

    with opening() as conn:
        found = reveal(conn, job, **order.signed)

    if found is None:
        raise Refused(404, f"no payload of job {job} is kept")

    return Done(
        f"Payload of job {job}",
        found,
        f"/jobs/{job}",
        is_shown=True,
    )


# ---------------------------------------------------------------------- live jobs


def _jobs(query: Query) -> JobFilter:
    return bounded(parse(JobFilter, query))


def _preview_jobs(
    conn: Connection, query: Query, *, verb: str, word: str, remark: str
) -> Preview:
    chosen = _jobs(query)
    matched = ids(conn, chosen) if chosen.narrows() else []
    sample = JobFilter(ids=matched[:SAMPLE])
    shown = list(find(conn, sample)) if matched else []

    return Preview(
        title=f"{verb}: live jobs",
        matched=len(matched),
        unit="live job",
        verb=verb,
        shell=shell_of(("job", word), query, JobFilter, why="..."),
        query=as_seen(chosen),
        columns=JOB_COLUMNS,
        rows=shown,
        remarks=(remark,),
        obstacle=obstacle_of(chosen, len(matched)),
    )


def _cancel(opening: Opening, order: Order) -> Done:
    chosen = _jobs(order.query)
    refuse_vague(chosen)

    with opening() as conn:
        matched = ids(conn, chosen)
        refuse_more(len(matched), order)
        done = control.cancel(conn, matched, **order.signed)

    cancelled = counted(done.cancelled, "job")
    text = f"{cancelled} cancelled, {done.asked:,} running jobs asked to stop."

    return Done(
        text=text,
        report={"matched": len(matched), **done._asdict()},
        path=back(chosen),
    )


def _now(opening: Opening, order: Order) -> Done:
    chosen = _jobs(order.query)
    refuse_vague(chosen)

    with opening() as conn:
        matched = ids(conn, chosen)
        refuse_more(len(matched), order)
        due = control.run_now(conn, matched, **order.signed)

    text = f"{counted(due, 'job')} due at once."

    return Done(
        text=text,
        report={"matched": len(matched), "due": due},
        path=back(chosen),
    )


CHANGES: Mapping[str, Change] = {
    **CAMPAIGNS,
    "dismiss": Change(
        "Close dead letters that will not be fixed.",
        partial(
            _preview_letters,
            verb="Dismiss",
            state="open",
            remark="They are closed now and purged later. Until then they can be reopened.",
        ),
        partial(
            _triage,
            state="open",
            act=triage.dismiss,
            word="dismissed",
        ),
        Filter,
    ),
    "reopen": Change(
        "Open dismissed dead letters again.",
        _preview_reopen,
        partial(
            _triage,
            state="dismissed",
            act=triage.reopen,
            word="reopened",
        ),
        names=("id",),
    ),
    "note": Change(
        "Write a note on a dead letter.",
        _preview_note,
        _note,
        names=("id",),
    ),
    "reveal": Change(
        "Show the payload of a job with its secrets.",
        _preview_reveal,
        _reveal,
        names=("id",),
    ),
    "cancel": Change(
        "End jobs that are no longer wanted.",
        partial(
            _preview_jobs,
            verb="Cancel",
            word="cancel",
            remark="Waiting jobs end at once. Running jobs are asked to stop.",
        ),
        _cancel,
        JobFilter,
    ),
    "now": Change(
        "Run scheduled and retrying jobs now.",
        partial(
            _preview_jobs,
            verb="Run now",
            word="now",
            remark="Only scheduled and retrying jobs change. Jobs that wait for a key still wait.",
        ),
        _now,
        JobFilter,
    ),
    **PROPOSALS,
    **RESOLUTIONS,
    **SWITCHES,
}
"""Word in the address -> change."""
