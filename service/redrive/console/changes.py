"""What the console can change: each with a preview that counts first, and one way to do it.

Pages and the JSON API go through here, and from here to the functions that the command line calls.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import LiteralString

from redrive.console.access import Refused
from redrive.console.campaigns import CAMPAIGNS
from redrive.console.change import (
    MOST,
    SAMPLE,
    Change,
    Connection,
    Done,
    Input,
    Opening,
    Order,
    Preview,
    as_seen,
    back,
    called,
    counted,
    id_of,
    letters_of,
    name_in,
    named,
    obstacle_of,
    refuse_more,
    refuse_vague,
    rows_of,
    shell_of,
    until_of,
)
from redrive.console.query import Query, command, parse, url
from redrive.dead_letters import find as letters
from redrive.dead_letters import groups, triage
from redrive.dead_letters.filter import Filter
from redrive.live_jobs import control
from redrive.live_jobs.filter import JobFilter
from redrive.live_jobs.find import find, ids
from redrive.rules.instants import seconds

CHUNK = 1000

LETTER_COLUMNS = ("id", "kind", "queue", "reason", "error_class", "message", "died_at")
JOB_COLUMNS = ("id", "kind", "queue", "state", "attempt", "run_at", "waiting_for")


# ---------------------------------------------------------------------- dead letters


def _preview_letters(
    conn: Connection, query: Query, *, verb: str, state: str, remark: str
) -> Preview:
    chosen = letters_of(query, state)
    found = letters.find(conn, chosen) if chosen.narrows() else []
    return Preview(
        f"{verb} dead letters",
        len(found),
        f"{state} dead letter",
        verb,
        shell_of(("dlq", verb.lower()), query, Filter, why="..."),
        as_seen(chosen),
        LETTER_COLUMNS,
        found[:SAMPLE],
        (remark,),
        obstacle_of(chosen, len(found)),
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
        matched = [row["id"] for row in letters.find(conn, chosen)]
        refuse_more(len(matched), order)
        done: list[int] = []
        for start in range(0, len(matched), CHUNK):
            chunk = matched[start : start + CHUNK]
            done += act(conn, chunk, why=order.why, actor=order.actor)
    text = f"{counted(len(done), 'dead letter')} {word}."
    return Done(text, {"matched": len(matched), word: done}, back(chosen))


def _preview_reopen(conn: Connection, query: Query) -> Preview:
    named(query, "id")
    seen = _preview_letters(
        conn, query, verb="Reopen", state="dismissed", remark="They can be redriven again then."
    )
    return replace(seen, shell=command(("dlq", "reopen", str(id_of(query))), why="..."))


def _preview_note(conn: Connection, query: Query) -> Preview:
    job = id_of(query)
    found = letters.show(conn, job)
    return Preview(
        f"Note on job {job}",
        1 if found else 0,
        "dead letter",
        "Note",
        command(("dlq", "note", str(job), "...")),
        query,
        remarks=("What you write below is the note, for whoever looks next.",),
        obstacle=None if found else f"Job {job} has no dead letter.",
    )


def _note(opening: Opening, order: Order) -> Done:
    job = id_of(order.query)
    with opening() as conn:
        if not triage.note(conn, job, order.why, actor=order.actor):
            raise Refused(404, f"job {job} has no dead letter")
    return Done("Noted.", {"id": job}, f"/jobs/{job}")


# ---------------------------------------------------------------------- live jobs


def _jobs(query: Query) -> JobFilter:
    chosen = parse(JobFilter, query)
    limit = min(chosen.limit or MOST + 1, MOST + 1)
    return replace(chosen, limit=limit, until=until_of(chosen))


def _preview_jobs(conn: Connection, query: Query, *, verb: str, word: str, remark: str) -> Preview:
    chosen = _jobs(query)
    matched = ids(conn, chosen) if chosen.narrows() else []
    shown = list(find(conn, JobFilter(ids=matched[:SAMPLE]))) if matched else []
    return Preview(
        f"{verb}: live jobs",
        len(matched),
        "live job",
        verb,
        shell_of(("job", word), query, JobFilter, why="..."),
        as_seen(chosen),
        JOB_COLUMNS,
        shown,
        (remark,),
        obstacle_of(chosen, len(matched)),
    )


def _cancel(opening: Opening, order: Order) -> Done:
    chosen = _jobs(order.query)
    refuse_vague(chosen)
    with opening() as conn:
        matched = ids(conn, chosen)
        refuse_more(len(matched), order)
        done = control.cancel(conn, matched, why=order.why, actor=order.actor)
    text = f"{counted(done.cancelled, 'job')} cancelled, {done.asked:,} that run were told."
    return Done(text, {"matched": len(matched), **done._asdict()}, _to_jobs(chosen))


def _now(opening: Opening, order: Order) -> Done:
    chosen = _jobs(order.query)
    refuse_vague(chosen)
    with opening() as conn:
        matched = ids(conn, chosen)
        refuse_more(len(matched), order)
        due = control.run_now(conn, matched, why=order.why, actor=order.actor)
    text = f"{counted(due, 'job')} due at once."
    return Done(text, {"matched": len(matched), "due": due}, _to_jobs(chosen))


def _to_jobs(chosen: JobFilter) -> str:
    if len(chosen.ids) == 1:
        return f"/jobs/{chosen.ids[0]}"
    return url("/jobs", replace(chosen, limit=None, until=None))


# ---------------------------------------------------------------------- others


_DEPTH: LiteralString = """
    select queue, ready, scheduled, retrying, running, dead, paused
    from redrive.depths_v1() where queue = %s"""


def _preview_queue(conn: Connection, query: Query, *, verb: str, word: str) -> Preview:
    name = name_in(query, "queue")
    rows = rows_of(conn, _DEPTH, name)
    is_paused = bool(rows and rows[0]["paused"])
    obstacle = None
    if not rows:
        obstacle = f"No job has been in a queue {name} yet."
    elif is_paused == (word == "pause"):
        obstacle = f"{name} is paused already." if is_paused else f"{name} is not paused."
    remark = (
        "Workers stop claiming from it within a second; jobs that run go on."
        if word == "pause"
        else "Workers claim from it again."
    )
    columns = tuple(rows[0])[:-1] if rows else ()
    shell = command(("queue", word, name), why="...")
    return Preview(
        f"{verb} queue {name}",
        len(rows),
        "queue",
        verb,
        shell,
        query,
        columns,
        rows,
        (remark,),
        obstacle,
    )


def _pause(opening: Opening, order: Order) -> Done:
    name = name_in(order.query, "queue")
    with opening() as conn:
        if not rows_of(conn, _DEPTH, name):
            raise Refused(404, f"no job has been in a queue {name} yet")
        called(conn, "select redrive.pause_v1(%s, %s, %s)", name, order.actor, order.why)
    return Done(f"{name} is paused.", {"queue": name, "paused": True}, "/queues")


def _resume(opening: Opening, order: Order) -> Done:
    name = name_in(order.query, "queue")
    with opening() as conn:
        if not called(conn, "select redrive.resume_v1(%s, %s, %s)", name, order.actor, order.why):
            raise Refused(409, f"{name} was not paused")
    return Done(f"{name} is resumed.", {"queue": name, "paused": False}, "/queues")


_FORCED = {
    "open": "Jobs that need it are released, without an attempt, until somebody resets it.",
    "closed": "Jobs that need it run, whatever becomes of them, until somebody resets it.",
    None: "It is closed, and goes by what it sees again.",
}


def _preview_breaker(conn: Connection, query: Query, *, verb: str, state: str | None) -> Preview:
    name = name_in(query, "name")
    rows = rows_of(
        conn, "select name, state, failures, successes from redrive.breakers where name = %s", name
    )
    words = ("breaker", "force", name, state) if state else ("breaker", "reset", name)
    return Preview(
        f"{verb}: breaker {name}",
        len(rows),
        "breaker",
        verb,
        command(words, why="..."),
        query,
        ("name", "state", "failures", "successes"),
        rows,
        (_FORCED[state],),
        None if rows else f"There is no breaker {name}.",
    )


def _force(opening: Opening, order: Order, *, state: str | None) -> Done:
    name = name_in(order.query, "name")
    with opening() as conn:
        query: LiteralString = "select redrive.force_breaker_v1(%s, %s, %s, %s)"
        if not called(conn, query, name, state, order.actor, order.why):
            raise Refused(404, f"there is no breaker {name}")
    text = f"{name} is held {state}." if state else f"{name} goes by what it sees again."
    return Done(text, {"name": name, "forced": state}, "/breakers")


def _preview_mute(conn: Connection, query: Query, *, verb: str) -> Preview:
    name = named(query, "group")
    group = groups.show(conn, name)
    words = ("dlq", "mute", name, *(("--off",) if verb == "Unmute" else ()))
    shell = command(words, why="...")
    return Preview(
        f"{verb} a group",
        1 if group else 0,
        "group",
        verb,
        shell,
        query,
        ("kind", "error_class", "message", "open"),
        [group] if group else [],
        ("Redrives leave a muted group out.",),
        None if group else "There is no such group, or more than one begins so.",
        [Input("for", "For how long (2h, 1d)", "1d")] if verb == "Mute" else (),
    )


def _mute(opening: Opening, order: Order, *, is_muted: bool) -> Done:
    name = named(order.query, "group")
    length = seconds(order.more.get("for") or "1d")
    if length is None or not 0 < length <= 366 * 86_400:
        raise Refused(400, f"for is {order.more.get('for')!r}; write 30d, 12h, 5m or 10s")
    until = datetime.now(UTC) + timedelta(seconds=length) if is_muted else None
    with opening() as conn:
        group = groups.show(conn, name)
        if group is None:
            raise Refused(404, "there is no such group, or more than one begins so")
        groups.mute(conn, group["group"], until, actor=order.actor, why=order.why)
    text = "The group is muted." if is_muted else "The group is no longer muted."
    report = {"group": group["group"], "muted_until": until}
    return Done(text, report, f"/groups/{group['group']}")


CHANGES: Mapping[str, Change] = {
    **CAMPAIGNS,
    "dismiss": Change(
        "Close dead letters that will not be fixed.",
        partial(
            _preview_letters,
            verb="Dismiss",
            state="open",
            remark="They are closed and purged later; until then they can be reopened.",
        ),
        partial(_triage, state="open", act=triage.dismiss, word="dismissed"),
        Filter,
    ),
    "reopen": Change(
        "Open dismissed dead letters again.",
        _preview_reopen,
        partial(_triage, state="dismissed", act=triage.reopen, word="reopened"),
        names=("id",),
    ),
    "note": Change("Write a note on a dead letter.", _preview_note, _note, names=("id",)),
    "cancel": Change(
        "End jobs that are no longer wanted.",
        partial(
            _preview_jobs,
            verb="Cancel",
            word="cancel",
            remark="Those that wait end at once; those that run are told.",
        ),
        _cancel,
        JobFilter,
    ),
    "now": Change(
        "Let jobs run now that wait for their time.",
        partial(
            _preview_jobs,
            verb="Run now",
            word="now",
            remark="Only scheduled and retrying ones change; what waits for a key goes on waiting.",
        ),
        _now,
        JobFilter,
    ),
    "pause": Change(
        "Claim nothing more from a queue.",
        partial(_preview_queue, verb="Pause", word="pause"),
        _pause,
        names=("queue",),
    ),
    "resume": Change(
        "Claim from a paused queue again.",
        partial(_preview_queue, verb="Resume", word="resume"),
        _resume,
        names=("queue",),
    ),
    "hold-open": Change(
        "Hold a breaker open.",
        partial(_preview_breaker, verb="Hold open", state="open"),
        partial(_force, state="open"),
        names=("name",),
    ),
    "hold-closed": Change(
        "Hold a breaker closed.",
        partial(_preview_breaker, verb="Hold closed", state="closed"),
        partial(_force, state="closed"),
        names=("name",),
    ),
    "reset": Change(
        "Let a breaker go by what it sees again.",
        partial(_preview_breaker, verb="Reset", state=None),
        partial(_force, state=None),
        names=("name",),
    ),
    "mute": Change(
        "Leave a group out of redrives for a while.",
        partial(_preview_mute, verb="Mute"),
        partial(_mute, is_muted=True),
        names=("group",),
    ),
    "unmute": Change(
        "Let redrives take a group again.",
        partial(_preview_mute, verb="Unmute"),
        partial(_mute, is_muted=False),
        names=("group",),
    ),
}
"""The word of each in addresses -> what it is."""
