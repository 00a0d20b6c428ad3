"""Redrives: preview, plan and start a campaign; pause, resume and cancel it."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from redrive.console.actions.change import (
    MOST,
    SAMPLE,
    Change,
    Done,
    Input,
    Opening,
    Order,
    Preview,
    as_seen,
    back,
    counted,
    id_of,
    letters_of,
    named,
    refuse_other,
    refuse_vague,
    shell_of,
    vague,
)
from redrive.console.query import Query, command
from redrive.console.security.access import Refused
from redrive.database.rows import Connection, column, value
from redrive.dead_letters.campaigns import campaign
from redrive.dead_letters.campaigns.campaign import Plan
from redrive.dead_letters.campaigns.unfit import leave_out
from redrive.dead_letters.filter import Filter
from redrive.errors import Busy
from redrive.live_jobs.surroundings import destination
from redrive.rules.attempts.waiting import span
from redrive.rules.dead_letters.campaign import (
    ABORT_SHARE,
    CANARIES,
    GOING,
    State,
)
from redrive.rules.dead_letters.obstacles import Allow, stays
from redrive.rules.dead_letters.terms import TERM_NAMES, BadTerm, Terms, usual_canaries
from redrive.rules.rows import Fields, Row

DRIVE_SECONDS = 3.0
"""How long a request drives the campaign that it starts."""

FREEZE_SECONDS = "60s"
"""Freezing a million dead letters takes about four seconds, more than pages may use."""

GROUP_COLUMNS = ("count", "kind", "error_class", "message", "group")
CAMPAIGN_COLUMNS = (
    "campaign",
    "state",
    "matched",
    "redriven",
    "succeeded",
    "dead_again",
    "why",
)

PAUSABLE = GOING
RESUMABLE = frozenset({State.PAUSED, State.ABORTED})
ENDABLE = GOING | RESUMABLE | {State.PLANNED}


# ---------------------------------------------------------------------- terms

CONFIRMED = {"include-invalid": "include", "repeat": "repeat"}
"""Field of the form -> the word that confirms it; the API sends true."""

TERMS = (*TERM_NAMES, *CONFIRMED, "seen")
"""Fields of the form besides the reason."""


def _inputs(canaries: int) -> list[Input]:
    """Return the inputs of a start besides the reason."""
    return [
        Input(
            name="rate",
            label="Jobs per second",
            hint="empty: no fixed rate",
        ),
        Input(
            name="canaries",
            label="Canaries",
            default=str(canaries),
            hint="jobs to run first; 0 for none",
        ),
        Input(
            name="abort-share",
            label="Abort above",
            default=f"{ABORT_SHARE:g}",
            hint="share of jobs that die again",
        ),
        Input(
            name="not-before",
            label="Not before",
            hint="2h from now, or 2026-03-01T22:00Z",
        ),
        Input(
            name="when-breaker",
            label="While a breaker is",
            hint="smtp:closed",
        ),
        Input(
            name="when-version",
            label="Workers' version",
            hint=">=1.4.2",
        ),
        Input(
            name="to-queue",
            label="To another queue",
            hint="empty: where each died",
        ),
    ]


def terms_of(more: Mapping[str, str], canaries: int) -> Terms:
    """Parse the terms in a form.

    Args:
        more: fields of the form.
        canaries: number of canaries if the form gives none.

    Raises:
        Refused: a term is invalid; the message names the field.
    """
    try:
        return Terms.read(more, datetime.now(UTC), canaries)
    except BadTerm as error:
        raise Refused(400, str(error)) from None


def allow_of(more: Mapping[str, str], chosen: Filter) -> Allow:
    """Return what a form confirms.

    Raises:
        Refused: a field is invalid, or `repeat` is confirmed without ids.
    """
    invalid = _is_confirmed(more, "include-invalid")
    repeat = _is_confirmed(more, "repeat")
    if repeat and not chosen.ids:
        raise Refused(400, "repeat needs ids: name each job that may run again")

    return Allow(invalid=invalid, repeat=repeat)


def _is_confirmed(more: Mapping[str, str], name: str) -> bool:
    word = CONFIRMED[name]
    text = more.get(name, "").strip()
    if text.lower() in {"", "false"}:
        return False
    if text.lower() in {word, "true"}:
        return True

    raise Refused(400, f"{name} is {text!r}; type {word}, or leave it empty")


def _confirmations(chosen: Filter, blocked: Mapping[str, int]) -> list[Input]:
    """Return the inputs that confirm obstacles of a selection."""
    inputs: list[Input] = []
    if "invalid" in blocked:
        label = "Redrive invalid payloads that nobody has corrected"
        inputs.append(
            Input(
                name="include-invalid",
                label=label,
                hint="type include",
            )
        )

    # A filter cannot confirm this: each of these jobs must be named by its id.
    if "not_repeatable" in blocked and chosen.ids:
        label = "Run jobs again that must not run twice"
        inputs.append(
            Input(
                name="repeat",
                label=label,
                hint="type repeat",
            )
        )

    return inputs


def commands(
    word: str, query: Query, more: Mapping[str, str], matched: int
) -> list[str]:
    """Return the shell commands for the same redrive on the same terms.

    Args:
        word: word of the change; `dlq redrive` takes only rate, canaries and a queue.
        query: filter of the redrive.
        more: fields of the form; default values are left out.
        matched: number of dead letters that match.
    """
    # `campaign start` has a fixed number of canaries by default. For `dlq redrive`, it
    # depends on the selection.
    start_terms = _unusual(more, CANARIES)
    if word == "campaign-start":
        plan = str(_number_of(query))
        return [_start_command(plan, start_terms)]

    flags = _flags(more)
    canaries = _canaries(letters_of(query), matched)
    terms = _unusual(more, canaries)
    if terms.keys() <= {"rate", "canaries", "to-queue"}:
        shell = shell_of(
            ("dlq", "redrive"),
            query,
            Filter,
            **terms,
            why="...",
        )
        return [shell + flags]

    plan = shell_of(("campaign", "plan"), query, Filter)
    return [plan + flags, _start_command("PLAN", start_terms)]


def _flags(more: Mapping[str, str]) -> str:
    """Return the options for the obstacles that a form confirms."""
    flags = ""
    for name in CONFIRMED:
        text = more.get(name, "").strip()
        if text:
            flags += f" --{name}"
    return flags


def _unusual(more: Mapping[str, str], canaries: int) -> dict[str, str]:
    """Return the terms in a form that are not the defaults of the command."""
    usual = {
        "canaries": str(canaries),
        "abort-share": f"{ABORT_SHARE:g}",
    }
    given = {name: more.get(name, "").strip() for name in TERM_NAMES}
    return {
        name: text for name, text in given.items() if text and text != usual.get(name)
    }


def _start_command(plan: str, terms: Mapping[str, str]) -> str:
    return command(("campaign", "start", plan), None, **terms, why="...")


def estimate(matched: int, terms: Terms) -> str:
    """Estimate how long a redrive takes and what it risks, in a sentence.

    Args:
        matched: number of dead letters; the sentence is empty if it is 0.
    """
    if not matched:
        return ""

    lasts = "Runs without a fixed rate"
    if terms.rate:
        seconds = math.ceil(matched / terms.rate)
        lasts = f"Takes {span(seconds)} at least"

    if not terms.canaries:
        return f"{lasts}. There are no canaries, so all jobs may die again."

    return f"{lasts}. {terms.risk(matched)}."


# ---------------------------------------------------------------------- planning


def _preview(conn: Connection, query: Query) -> Preview:
    chosen = letters_of(query)
    preview = Preview(
        title="Redrive dead letters",
        matched=0,
        unit="open dead letter",
        verb="Redrive",
        shell=shell_of(("dlq", "redrive"), query, Filter, why="..."),
        query=as_seen(chosen),
        columns=GROUP_COLUMNS,
        obstacle=vague(chosen, 0),
        inputs=_inputs(_canaries(chosen, 0)),
    )

    # A filter that selects everything is refused, so its rows are not counted.
    if not chosen.narrows():
        return preview

    seen, known = campaign.look(conn, _all(chosen), MOST)
    canaries = _canaries(chosen, seen.matched)

    return replace(
        preview,
        matched=seen.matched,
        rows=seen.groups[:SAMPLE],
        remarks=_remarks(seen, known),
        obstacle=vague(chosen, seen.matched),
        inputs=_inputs(canaries),
        estimate=estimate(seen.matched, Terms(None, canaries)),
        two=_need_two_people(conn, seen.kinds),
        confirm=_confirmations(chosen, seen.blocked),
    )


def _remarks(seen: Plan, known: int) -> list[str]:
    """Return what the user should know about a selection.

    Args:
        known: number of dead letters, the oldest, that were looked at.
    """
    remarks: list[str] = []
    if seen.matched > known:
        text = f"Causes and exclusions below cover only the oldest {known:,}."
        remarks.append(text)

    remarks += _stay(seen.blocked)
    remarks += _rates(seen.rates)

    if seen.acted:
        count = counted(seen.acted, "of them")
        remarks.append(
            f"{count} had side effects before they died; the page of a job lists them."
        )

    return remarks


def _rates(rates: Mapping[str, float]) -> list[str]:
    return [
        f"{kind}: at most {rate:g} per second over all campaigns, by its handler."
        for kind, rate in sorted(rates.items())
    ]


def _stay(
    blocked: Mapping[str, int], invalid: Mapping[str, int] | None = None
) -> list[str]:
    stay: list[str] = []
    for cause, n in blocked.items():
        words = stays(cause)
        stay.append(f"{n:,} will stay: {words}.")

    for fault, n in (invalid or {}).items():
        stay.append(f"{n:,} will stay, invalid: {fault}.")

    return stay


def _need_two_people(conn: Connection, kinds: list[str]) -> list[str]:
    """Return the kinds whose redrive needs two people."""
    query = "select kind from redrive.approvals where kind = any (%s) order by kind"
    return column(conn, query, kinds)


def _all(chosen: Filter) -> Filter:
    """Remove the bound of a single request: a campaign takes any number."""
    if chosen.limit == MOST + 1:
        return replace(chosen, limit=None)
    return chosen


def _canaries(chosen: Filter, matched: int) -> int:
    """Return the number of canaries, chosen as the command line does."""
    return usual_canaries(matched, are_named=bool(chosen.ids))


class _Frozen(NamedTuple):
    """Selection that is frozen as a plan, and the plan's id."""

    chosen: Filter
    made: Plan
    plan: int


def _freeze(conn: Connection, order: Order) -> _Frozen:
    """Freeze the previewed dead letters as a plan, except invalid ones."""
    chosen = letters_of(order.query)
    refuse_vague(chosen)

    with conn.transaction():
        # `true` limits the setting to this transaction.
        conn.execute(
            "select set_config('statement_timeout', %s, true)",
            (FREEZE_SECONDS,),
        )
        allow = allow_of(order.more, chosen)
        made = campaign.plan(
            conn,
            _all(chosen),
            actor=order.actor,
            allow=allow,
        )
        # Within the transaction, so that a refused plan is not kept.
        refuse_other(made.matched, order)

    if made.plan is None:
        raise Refused(409, "no dead letter matches now; look at the preview again")

    if order.handlers and made.matched <= MOST:
        leave_out(conn, made.plan, order.handlers)

    return _Frozen(chosen, made, made.plan)


def _plan(opening: Opening, order: Order) -> Done:
    """Freeze the selection as a plan that another user can start."""
    with opening() as conn:
        _, made, plan = _freeze(conn, order)

    text = f"Planned as campaign {plan}. The plan is deleted after one day if nobody starts it."
    return Done(
        text=text,
        report={"plan": plan, "matched": made.matched},
        path=f"/campaigns/{plan}",
    )


# ---------------------------------------------------------------------- starting


def _redrive(opening: Opening, order: Order) -> Done:
    """Freeze the selection and start the campaign; workers drive it from then on."""
    # Refuse wrong terms before anything is frozen. The default number of canaries is
    # known only after that.
    terms_of(order.more, 0)

    with opening() as conn:
        chosen, made, plan = _freeze(conn, order)
        canaries = _canaries(chosen, made.matched)
        terms = terms_of(order.more, canaries)
        _begin(conn, plan, terms, order)
        others = destination.remarks(conn, terms.to_queue, made.kinds)
        done = _driven(conn, plan)

    path = back(chosen) if chosen.ids else None
    return _redriven(done, path, others)


def _begin(conn: Connection, plan: int, terms: Terms, order: Order) -> None:
    """Start the plan, unless a concurrent request started the same redrive."""
    try:
        campaign.start_alone(conn, plan, terms, **order.signed)
    except Busy as error:
        raise Refused(409, str(error)) from None


def as_sentence(remark: str) -> str:
    """Return a remark that begins with a capital and ends with a stop."""
    first = remark[:1].upper()
    return f"{first}{remark[1:]}."


def _redriven(
    done: Fields, path: str | None = None, others: Sequence[str] = ()
) -> Done:
    """Say what a redrive did; `others` are remarks on where the jobs went."""
    number = done["campaign"]
    keys = ("matched", "redriven", "blocked", "campaign", "state")
    report = {key: done[key] for key in keys}
    sentences = (_first_sentence(done), *map(as_sentence, others))

    return Done(
        text=" ".join(sentences),
        report=report,
        path=path or f"/campaigns/{number}",
    )


def _first_sentence(done: Fields) -> str:
    """Say how many dead letters a campaign redrove, and how many stayed."""
    count = counted(done["redriven"], "dead letter")
    text = f"{count} redriven by campaign {done['campaign']}"

    for cause, n in done["blocked"].items():
        words = stays(cause)
        text += f"; {n:,} stayed: {words}"

    waiting = done["waiting"]
    if waiting:
        text += f"; {waiting:,} follow later"

    return f"{text}."


def _driven(conn: Connection, number: int) -> Row:
    """Drive a campaign for a moment, so that a small one ends without a worker."""
    give_up_at = time.monotonic() + DRIVE_SECONDS
    while time.monotonic() < give_up_at:
        step = campaign.drive(conn, number)
        if step is None or not step.feed:
            break
    return found_in(conn, number)


def found_in(conn: Connection, number: int) -> Row:
    """Return a campaign as `campaign show` prints it.

    Raises:
        Refused: there is no such campaign.
    """
    # The query would fail if Postgres cannot hold the number as a bigint.
    found = None
    if 0 < number < 2**63:
        found = campaign.show(conn, number)
    if found is None:
        raise Refused(404, f"there is no campaign {number}")
    return found


def _number_of(query: Query) -> int:
    return id_of([("id", named(query, "campaign"))])


def _preview_of(
    conn: Connection, query: Query, *, verb: str, states: frozenset[State], remark: str
) -> Preview:
    """Preview a change of one campaign, which must be in one of `states`."""
    found = found_in(conn, _number_of(query))
    number = found["campaign"]
    obstacle = None
    if found["state"] not in states:
        obstacle = f"Campaign {number} is {found['state']}."

    return Preview(
        title=f"{verb} campaign {number}",
        matched=found["matched"],
        unit="dead letter",
        verb=verb,
        shell=command(("campaign", verb.lower(), str(number)), why="..."),
        query=query,
        columns=CAMPAIGN_COLUMNS,
        rows=[found],
        remarks=[remark] if remark else [],
        obstacle=obstacle,
    )


def _preview_start(conn: Connection, query: Query) -> Preview:
    found = found_in(conn, _number_of(query))
    number = found["campaign"]
    matched = found["matched"]

    return Preview(
        title=f"Start campaign {number}",
        matched=matched,
        unit="dead letter",
        verb="Start",
        shell=command(("campaign", "start", str(number)), why="..."),
        query=query,
        remarks=_start_remarks(found, campaign.side_effects(conn, number)),
        obstacle=_not_to_start(conn, found),
        inputs=_inputs(CANARIES),
        estimate=estimate(matched, Terms()),
    )


def _start_remarks(found: Row, effects: Sequence[tuple[str, int]]) -> list[str]:
    """Return what the user should know about a plan, and about its side effects."""
    planner = found["planned_by"]
    remarks = [
        f"{planner} planned it. Exactly the dead letters of the plan are redriven."
    ]
    remarks += _stay(found["blocked"], found["invalid"])
    remarks += _rates(found["rates"])

    for effect, n in effects:
        remarks.append(f"{n:,} jobs already had this side effect: {effect}.")

    return remarks


def _not_to_start(conn: Connection, found: Fields) -> str | None:
    """Return why this user cannot start the campaign; None if they can."""
    if found["state"] != State.PLANNED:
        return f"Campaign {found['campaign']} is {found['state']}."

    # Only the login that planned the campaign needs somebody else to start it.
    kinds = value(
        conn,
        "select array(select jsonb_array_elements_text(plan -> 'kinds')) from redrive.campaigns"
        " where id = %s and planned_login = session_user",
        found["campaign"],
    )
    needy = _need_two_people(conn, kinds or [])
    if not needy:
        return None

    names = ", ".join(needy)
    return f"{names} needs two people: a user in another role must start it."


def _start(opening: Opening, order: Order) -> Done:
    """Start a plan. The database refuses it if the kinds need a second role."""
    number = _number_of(order.query)
    terms = terms_of(order.more, CANARIES)

    with opening() as conn:
        kinds = found_in(conn, number)["kinds"]
        _begin(conn, number, terms, order)
        others = destination.remarks(conn, terms.to_queue, kinds)
        done = _driven(conn, number)

    return _redriven(done, None, others)


def _pause(opening: Opening, order: Order) -> Done:
    number = _number_of(order.query)
    with opening() as conn:
        campaign.pause(conn, number, **order.signed)
    return _stands("paused", number, "paused")


def _resume(opening: Opening, order: Order) -> Done:
    number = _number_of(order.query)
    with opening() as conn:
        campaign.resume(conn, number, **order.signed)
        state = _driven(conn, number)["state"]
    return _stands("resumed; its canaries run first", number, state)


def _cancel(opening: Opening, order: Order) -> Done:
    number = _number_of(order.query)

    with opening() as conn:
        taken = campaign.cancel(conn, number, **order.signed)

    return _stands(
        f"cancelled; {taken:,} jobs are dead letters again",
        number,
        "cancelled",
    )


def _stands(outcome: str, number: int, state: str) -> Done:
    report = {"campaign": number, "state": state}
    return Done(
        text=f"Campaign {number} is {outcome}.",
        report=report,
        path=f"/campaigns/{number}",
    )


CAMPAIGNS: Mapping[str, Change] = {
    "redrive": Change(
        "Put dead letters back to work.",
        _preview,
        _redrive,
        Filter,
        plans=True,
    ),
    "campaign-plan": Change(
        "Plan a redrive that another user can start.",
        _preview,
        _plan,
        Filter,
        plans=True,
        asks_why=False,
    ),
    "campaign-start": Change(
        "Start a planned redrive.",
        _preview_start,
        _start,
        names=("campaign",),
    ),
    "campaign-pause": Change(
        "Pause a campaign until it is resumed.",
        partial(
            _preview_of,
            verb="Pause",
            states=PAUSABLE,
            remark="No more dead letters are redriven until somebody resumes it. Redriven jobs"
            " continue.",
        ),
        _pause,
        names=("campaign",),
    ),
    "campaign-resume": Change(
        "Resume a campaign that was paused or has aborted.",
        partial(
            _preview_of,
            verb="Resume",
            states=RESUMABLE,
            remark="Its canaries run first again.",
        ),
        _resume,
        names=("campaign",),
    ),
    "campaign-cancel": Change(
        "Cancel a campaign, and take back the jobs that have not started.",
        partial(
            _preview_of,
            verb="Cancel",
            states=ENDABLE,
            remark="Jobs that have not started become open dead letters again. Running jobs end"
            " as usual.",
        ),
        _cancel,
        names=("campaign",),
    ),
}
"""Word in the address -> change."""
