"""What the console can change: each with a preview that counts first, and one way to do it.

Pages and the JSON API go through here, and from here to the functions that the command line calls.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from redrive.console.access import Refused
from redrive.console.order import (
    Change,
    Connection,
    Done,
    Input,
    Opening,
    Order,
    Preview,
    counted,
    named,
)
from redrive.console.query import Query, command, pairs, parse, url
from redrive.console.switches import SWITCHES
from redrive.database.criteria import Criteria
from redrive.dead_letters import campaign, triage
from redrive.dead_letters import find as letters
from redrive.dead_letters.filter import Filter
from redrive.errors import Busy
from redrive.live_jobs import control
from redrive.live_jobs.filter import JobFilter
from redrive.live_jobs.find import find, ids
from redrive.live_jobs.reveal import reveal
from redrive.live_jobs.show import show as story
from redrive.rules.campaign import CANARIES, FEW

MOST = 10_000
"""Dead letters or jobs that one request changes; for more there is the command line."""
DRIVE_SECONDS = 3.0
"""For which a request carries on the campaign that it starts."""
SAMPLE = 10
CHUNK = 1000

LETTER_COLUMNS = ("id", "kind", "queue", "reason", "error_class", "message", "died_at")
JOB_COLUMNS = ("id", "kind", "queue", "state", "attempt", "run_at", "waiting_for")
GROUP_COLUMNS = ("count", "kind", "error_class", "message", "group")

STAYS = {
    "succeeded": "their work has succeeded since",
    "max_redrives": "they were redriven too often already",
    "muted": "their group is muted",
    "conflict": "a live job has their idempotency key",
}
"""Why a dead letter would stay, in words."""


def _vague(chosen: Criteria, matched: int) -> str | None:
    if not chosen.narrows():
        return "Choose a filter first. For all there are, use the command line."
    return None if matched else "Nothing matches: there is nothing to do."


def _obstacle(chosen: Criteria, matched: int) -> str | None:
    if matched > MOST:
        return f"More than {MOST:,} match. Narrow the filter, or use the command line."
    return _vague(chosen, matched)


def _until(chosen: Filter | JobFilter) -> datetime | None:
    """So that what comes after somebody has looked is not meant."""
    return chosen.until or (None if chosen.ids or not chosen.narrows() else datetime.now(UTC))


def _as_seen(chosen: Filter | JobFilter) -> Query:
    limit = chosen.limit if (chosen.limit or MOST + 1) <= MOST else None
    return list(pairs(replace(chosen, limit=limit)))


# ---------------------------------------------------------------------- dead letters


def _letters(query: Query, state: str = "open") -> Filter:
    chosen = parse(Filter, query, states=(state,))
    if tuple(chosen.state) != (state,):
        raise Refused(400, f"state: only dead letters that are {state} can be changed so")
    limit = min(chosen.limit or MOST + 1, MOST + 1)
    return replace(chosen, limit=limit, until=_until(chosen))


def _shell(words: Sequence[str], query: Query, of: type[Criteria], **more: str) -> str:
    """As somebody would type it: without the instant at which they looked."""
    asked = [(name, value) for name, value in query if (name, value) != ("state", "open")]
    return command(words, parse(of, asked), **more)


def _preview_redrive(conn: Connection, query: Query) -> Preview:
    chosen = _letters(query)
    seen = campaign.plan(conn, _all(chosen), actor=None) if chosen.narrows() else None
    matched, blocked = (seen.matched, seen.blocked) if seen else (0, {})
    remarks = [f"{n:,} will stay: {STAYS.get(cause, cause)}." for cause, n in blocked.items()]
    if seen and seen.acted:
        remarks.append(
            f"{counted(seen.acted, 'of them')} had side effects before they died;"
            " the page of a job lists them."
        )
    if canaries := _canaries(chosen, matched):
        remarks.append(f"{canaries} go first; the others when these have gone well.")
    return Preview(
        "Redrive dead letters",
        matched,
        "open dead letter",
        "Redrive",
        _shell(("dlq", "redrive"), query, Filter, why="..."),
        _as_seen(chosen),
        GROUP_COLUMNS,
        seen.groups[:SAMPLE] if seen else (),
        remarks,
        _vague(chosen, matched),
        [Input("rate", "Jobs per second (empty: as fast as they end)")],
    )


def _all(chosen: Filter) -> Filter:
    """Without our own bound: a campaign takes as many as there are."""
    return replace(chosen, limit=None) if chosen.limit == MOST + 1 else chosen


def _canaries(chosen: Filter, matched: int) -> int:
    """As the command line has it."""
    return 0 if chosen.ids or matched <= FEW else CANARIES


def _redrive(opening: Opening, order: Order) -> Done:
    """Freeze what was looked at, and start it; whoever is alive carries it on from then."""
    chosen, rate = _letters(order.query), _rate(order.more.get("rate"))
    with opening() as conn:
        planned = campaign.plan(conn, _all(chosen), actor=order.actor)
        _refuse_other(planned.matched, order)
        if planned.plan is None or not planned.matched:
            raise Refused(409, "nothing matches by now")
        terms = campaign.Terms(rate, _canaries(chosen, planned.matched))
        try:
            campaign.start_alone(conn, planned.plan, terms, actor=order.actor, why=order.why)
        except Busy as error:
            raise Refused(409, str(error)) from None
        return _redriven(chosen, _driven(conn, planned.plan))


def _redriven(chosen: Filter, done: Mapping[str, Any]) -> Done:
    stayed = "".join(f"; {n:,} stayed: {STAYS.get(c, c)}" for c, n in done["blocked"].items())
    count = counted(done["redriven"], "dead letter")
    text = f"{count} redriven by campaign {done['campaign']}{stayed}"
    text += f"; {done['waiting']:,} have their turn later." if done["waiting"] else "."
    keys = ("matched", "redriven", "blocked", "campaign", "state")
    return Done(text, {key: done[key] for key in keys}, _back(chosen))


def _driven(conn: Connection, number: int) -> dict[str, Any]:
    """Carry a campaign on for a moment; a small one is through by then, also without a worker."""
    give_up_at = time.monotonic() + DRIVE_SECONDS
    while time.monotonic() < give_up_at:
        step = campaign.drive(conn, number)
        if step is None or not step.feed:
            break
    found = campaign.show(conn, number)
    if found is None:
        raise Refused(404, f"there is no campaign {number}")
    return found


def _refuse_other(matched: int, order: Order) -> None:
    """What was seen is what is done."""
    seen = order.more.get("seen")
    if seen is not None and seen != str(matched):
        raise Refused(409, f"{matched:,} match now, you saw {seen}: look again")


def _refuse_more(matched: int, order: Order) -> None:
    """As many as one request may change."""
    _refuse_other(matched, order)
    if matched > MOST:
        raise Refused(409, f"more than {MOST:,} match: narrow the filter")


def _rate(text: str | None) -> float | None:
    if not (text or "").strip():
        return None
    try:
        rate = float(text or "")
    except ValueError:
        rate = 0.0
    if not 0 < rate < 1e9:  # noqa: PLR2004 # infinity is none, either
        raise Refused(400, f"rate is {text!r}; it must be jobs per second, more than 0")
    return rate


def _back(chosen: Filter) -> str:
    """Where to look after a change: the one job, or the list."""
    if len(chosen.ids) == 1:
        return f"/jobs/{chosen.ids[0]}"
    return url("/dead-letters", replace(chosen, limit=None, until=None))


def _preview_letters(
    conn: Connection, query: Query, *, verb: str, state: str, remark: str
) -> Preview:
    chosen = _letters(query, state)
    matched = letters.ids(conn, chosen) if chosen.narrows() else []
    return Preview(
        f"{verb} dead letters",
        len(matched),
        f"{state} dead letter",
        verb,
        _shell(("dlq", verb.lower()), query, Filter, why="..."),
        _as_seen(chosen),
        LETTER_COLUMNS,
        letters.find(conn, Filter(ids=matched[:SAMPLE])) if matched else (),
        (remark,),
        _obstacle(chosen, len(matched)),
    )


def _triage(
    opening: Opening,
    order: Order,
    *,
    state: str,
    act: Callable[..., list[int]],
    word: str,
) -> Done:
    chosen = _letters(order.query, state)
    with opening() as conn:
        matched = letters.ids(conn, chosen)
        _refuse_more(len(matched), order)
        done: list[int] = []
        for start in range(0, len(matched), CHUNK):
            chunk = matched[start : start + CHUNK]
            done += act(conn, chunk, why=order.why, actor=order.actor)
    text = f"{counted(len(done), 'dead letter')} {word}."
    return Done(text, {"matched": len(matched), word: done}, _back(chosen))


def _id(query: Query) -> int:
    return int(parse(Filter, [("id", named(query, "id"))]).ids[0])


def _preview_reopen(conn: Connection, query: Query) -> Preview:
    named(query, "id")
    seen = _preview_letters(
        conn, query, verb="Reopen", state="dismissed", remark="They can be redriven again then."
    )
    return replace(seen, shell=command(("dlq", "reopen", str(_id(query))), why="..."))


def _preview_note(conn: Connection, query: Query) -> Preview:
    job = _id(query)
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
    job = _id(order.query)
    with opening() as conn:
        if not triage.note(conn, job, order.why, actor=order.actor):
            raise Refused(404, f"job {job} has no dead letter")
    return Done("Noted.", {"id": job}, f"/jobs/{job}")


def _preview_reveal(conn: Connection, query: Query) -> Preview:
    job = _id(query)
    found = story(conn, job)
    is_kept = found is not None and found["payload"] is not None
    return Preview(
        f"Reveal the payload of job {job}",
        int(is_kept),
        "payload",
        "Reveal",
        command(("job", "reveal", str(job)), why="..."),
        query,
        remarks=("It is shown once, with its secrets.",),
        obstacle=None if is_kept else f"Nothing is kept of job {job}.",
    )


def _reveal(opening: Opening, order: Order) -> Done:
    job = _id(order.query)
    with opening() as conn:
        found = reveal(conn, job, actor=order.actor, why=order.why)
    if found is None:
        raise Refused(404, f"nothing is kept of job {job}")
    return Done(f"Payload of job {job}", found, f"/jobs/{job}", is_shown=True)


# ---------------------------------------------------------------------- live jobs


def _jobs(query: Query) -> JobFilter:
    chosen = parse(JobFilter, query)
    limit = min(chosen.limit or MOST + 1, MOST + 1)
    return replace(chosen, limit=limit, until=_until(chosen))


def _preview_jobs(conn: Connection, query: Query, *, verb: str, word: str, remark: str) -> Preview:
    chosen = _jobs(query)
    matched = ids(conn, chosen) if chosen.narrows() else []
    shown = list(find(conn, JobFilter(ids=matched[:SAMPLE]))) if matched else []
    return Preview(
        f"{verb}: live jobs",
        len(matched),
        "live job",
        verb,
        _shell(("job", word), query, JobFilter, why="..."),
        _as_seen(chosen),
        JOB_COLUMNS,
        shown,
        (remark,),
        _obstacle(chosen, len(matched)),
    )


def _cancel(opening: Opening, order: Order) -> Done:
    chosen = _jobs(order.query)
    with opening() as conn:
        matched = ids(conn, chosen)
        _refuse_more(len(matched), order)
        done = control.cancel(conn, matched, why=order.why, actor=order.actor)
    text = f"{counted(done.cancelled, 'job')} cancelled, {done.asked:,} that run were told."
    return Done(text, {"matched": len(matched), **done._asdict()}, _to_jobs(chosen))


def _now(opening: Opening, order: Order) -> Done:
    chosen = _jobs(order.query)
    with opening() as conn:
        matched = ids(conn, chosen)
        _refuse_more(len(matched), order)
        due = control.run_now(conn, matched, why=order.why, actor=order.actor)
    text = f"{counted(due, 'job')} due at once."
    return Done(text, {"matched": len(matched), "due": due}, _to_jobs(chosen))


def _to_jobs(chosen: JobFilter) -> str:
    if len(chosen.ids) == 1:
        return f"/jobs/{chosen.ids[0]}"
    return url("/jobs", replace(chosen, limit=None, until=None))


CHANGES: Mapping[str, Change] = {
    "redrive": Change(
        "Put dead letters back to work.", _preview_redrive, _redrive, Filter, plans=True
    ),
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
    "reveal": Change(
        "Show the payload of a job with its secrets.", _preview_reveal, _reveal, names=("id",)
    ),
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
    **SWITCHES,
}
"""The word of each in addresses -> what it is."""
