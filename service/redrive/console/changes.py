"""What the console can change: each with a preview that counts first, and one way to do it.

Pages and the JSON API go through here, and from here to the functions that the command line calls.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row, scalar_row

from redrive.console.access import Refused
from redrive.console.query import Query, command, pairs, parse, url
from redrive.database.criteria import Criteria
from redrive.dead_letters import campaign, groups, triage
from redrive.dead_letters import find as letters
from redrive.dead_letters.filter import Filter
from redrive.live_jobs import control
from redrive.live_jobs.filter import JobFilter
from redrive.live_jobs.find import find, ids
from redrive.rules.campaign import CANARIES, FEW
from redrive.rules.instants import seconds
from redrive.rules.limits import NAME

Connection = psycopg.Connection[Any]
Opening = Callable[[], AbstractContextManager[Connection]]

MOST = 10_000
"""Dead letters or jobs that one request changes; for more there is the command line."""
DRIVE_SECONDS = 3.0
"""For which a request carries on the campaign that it starts."""
SAMPLE = 10
CHUNK = 1000
WHY_LENGTH = 2000

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


@dataclass(frozen=True, slots=True)
class Input:
    """Something more that a form asks for."""

    name: str
    label: str
    default: str = ""


@dataclass(frozen=True, slots=True)
class Preview:
    """What a change is about, before it is done.

    Attributes:
        matched: how many it would change.
        unit: what these are.
        verb: what the button says.
        shell: the same on the command line.
        query: what stands for exactly this, also a minute later.
        columns: of the rows that are shown of it.
        remarks: what to know before.
        obstacle: why it cannot be done from here; None = it can.
    """

    title: str
    matched: int
    unit: str
    verb: str
    shell: str
    query: Query
    columns: Sequence[str] = ()
    rows: Sequence[Mapping[str, Any]] = ()
    remarks: Sequence[str] = ()
    obstacle: str | None = None
    inputs: Sequence[Input] = ()


@dataclass(frozen=True, slots=True)
class Order:
    """A change as somebody wants it done."""

    query: Query
    why: str
    actor: str
    more: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a change: a sentence, the same as a report, and the page to go on with."""

    text: str
    report: Mapping[str, Any]
    path: str


@dataclass(frozen=True, slots=True)
class Change:
    """A change there is: a preview, which changes nothing, and the doing.

    `plans`: the preview asks for what only a login that may change it is told.
    """

    what: str
    preview: Callable[[Connection, Query], Preview]
    do: Callable[[Opening, Order], Done]
    of: type[Criteria] | None = None
    names: Sequence[str] = ()
    plans: bool = False


def _counted(n: int, one: str) -> str:
    return f"{n:,} {one}" if n == 1 else f"{n:,} {one}s"


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
            f"{_counted(seen.acted, 'of them')} had side effects before they died;"
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
        campaign.start(conn, planned.plan, terms, actor=order.actor, why=order.why)
        return _redriven(chosen, _driven(conn, planned.plan))


def _redriven(chosen: Filter, done: Mapping[str, Any]) -> Done:
    stayed = "".join(f"; {n:,} stayed: {STAYS.get(c, c)}" for c, n in done["blocked"].items())
    count = _counted(done["redriven"], "dead letter")
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
    found = letters.find(conn, chosen) if chosen.narrows() else []
    return Preview(
        f"{verb} dead letters",
        len(found),
        f"{state} dead letter",
        verb,
        _shell(("dlq", verb.lower()), query, Filter, why="..."),
        _as_seen(chosen),
        LETTER_COLUMNS,
        found[:SAMPLE],
        (remark,),
        _obstacle(chosen, len(found)),
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
        matched = [row["id"] for row in letters.find(conn, chosen)]
        _refuse_more(len(matched), order)
        done: list[int] = []
        for start in range(0, len(matched), CHUNK):
            chunk = matched[start : start + CHUNK]
            done += act(conn, chunk, why=order.why, actor=order.actor)
    text = f"{_counted(len(done), 'dead letter')} {word}."
    return Done(text, {"matched": len(matched), word: done}, _back(chosen))


def _preview_reopen(conn: Connection, query: Query) -> Preview:
    _named(query, "id")
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
    text = f"{_counted(done.cancelled, 'job')} cancelled, {done.asked:,} that run were told."
    return Done(text, {"matched": len(matched), **done._asdict()}, _to_jobs(chosen))


def _now(opening: Opening, order: Order) -> Done:
    chosen = _jobs(order.query)
    with opening() as conn:
        matched = ids(conn, chosen)
        _refuse_more(len(matched), order)
        due = control.run_now(conn, matched, why=order.why, actor=order.actor)
    text = f"{_counted(due, 'job')} due at once."
    return Done(text, {"matched": len(matched), "due": due}, _to_jobs(chosen))


def _to_jobs(chosen: JobFilter) -> str:
    if len(chosen.ids) == 1:
        return f"/jobs/{chosen.ids[0]}"
    return url("/jobs", replace(chosen, limit=None, until=None))


# ---------------------------------------------------------------------- others


def _named(query: Query, name: str) -> str:
    """The one value that a change without a filter is about."""
    values = [value.strip() for key, value in query if key == name and value.strip()]
    if len(values) != 1 or any(key != name for key, _ in query):
        raise Refused(400, f"{name} is missing: say which, once, and nothing else")
    return values[0]


def _id(query: Query) -> int:
    return int(parse(Filter, [("id", _named(query, "id"))]).ids[0])


def _name(query: Query, name: str) -> str:
    value = _named(query, name)
    if not NAME.fullmatch(value):
        raise Refused(400, f"{name} is {value!r}; it must match ^[a-z][a-z0-9_.-]{{0,62}}$")
    return value


def _rows(conn: Connection, query: LiteralString, *values: Any) -> list[dict[str, Any]]:
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, values).fetchall()


def _called(conn: Connection, query: LiteralString, *values: Any) -> Any:
    with conn.cursor(row_factory=scalar_row) as cursor:
        return cursor.execute(query, values).fetchone()


_DEPTH: LiteralString = """
    select queue, ready, scheduled, retrying, running, dead, paused
    from redrive.depths_v1() where queue = %s"""


def _preview_queue(conn: Connection, query: Query, *, verb: str, word: str) -> Preview:
    name = _name(query, "queue")
    rows = _rows(conn, _DEPTH, name)
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
    name = _name(order.query, "queue")
    with opening() as conn:
        if not _rows(conn, _DEPTH, name):
            raise Refused(404, f"no job has been in a queue {name} yet")
        _called(conn, "select redrive.pause_v1(%s, %s, %s)", name, order.actor, order.why)
    return Done(f"{name} is paused.", {"queue": name, "paused": True}, "/queues")


def _resume(opening: Opening, order: Order) -> Done:
    name = _name(order.query, "queue")
    with opening() as conn:
        if not _called(conn, "select redrive.resume_v1(%s, %s, %s)", name, order.actor, order.why):
            raise Refused(409, f"{name} was not paused")
    return Done(f"{name} is resumed.", {"queue": name, "paused": False}, "/queues")


_FORCED = {
    "open": "Jobs that need it are released, without an attempt, until somebody resets it.",
    "closed": "Jobs that need it run, whatever becomes of them, until somebody resets it.",
    None: "It is closed, and goes by what it sees again.",
}


def _preview_breaker(conn: Connection, query: Query, *, verb: str, state: str | None) -> Preview:
    name = _name(query, "name")
    rows = _rows(
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
    name = _name(order.query, "name")
    with opening() as conn:
        query: LiteralString = "select redrive.force_breaker_v1(%s, %s, %s, %s)"
        if not _called(conn, query, name, state, order.actor, order.why):
            raise Refused(404, f"there is no breaker {name}")
    text = f"{name} is held {state}." if state else f"{name} goes by what it sees again."
    return Done(text, {"name": name, "forced": state}, "/breakers")


def _preview_mute(conn: Connection, query: Query, *, verb: str) -> Preview:
    name = _named(query, "group")
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
    name = _named(order.query, "group")
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


def why_of(text: str) -> str:
    """The why of a change. Raises Refused where there is none."""
    why = text.strip()
    if not why:
        raise Refused(400, "why is missing: say why, the audit log keeps it")
    if len(why) > WHY_LENGTH or "\0" in why:
        raise Refused(400, f"why: at most {WHY_LENGTH} characters, and no NUL")
    return why
