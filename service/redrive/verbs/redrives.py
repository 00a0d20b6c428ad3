"""Redrives: preview, plan and start a campaign."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, NamedTuple

from redrive.database.rows import Connection, column, value
from redrive.dead_letters.campaigns import store as campaign
from redrive.dead_letters.campaigns.drive import drive_to_end
from redrive.dead_letters.campaigns.obstacles import stays
from redrive.dead_letters.campaigns.pace import CANARIES, State, exposure, total_rate
from redrive.dead_letters.campaigns.store import Plan
from redrive.dead_letters.campaigns.terms import Terms
from redrive.dead_letters.campaigns.unfit import Unfit, leave_out
from redrive.dead_letters.edited import edits_of
from redrive.dead_letters.filter import Filter
from redrive.errors import Busy
from redrive.jobs import destination
from redrive.rules.brief import counted
from redrive.rules.rows import Fields, Row
from redrive.verbs.campaigns import driven, found_in, number_of
from redrive.verbs.refusal import Conflict
from redrive.verbs.terms import (
    CONFIRMS,
    INPUTS,
    REDRIVES,
    allow_of,
    canaries_of,
    confirmations,
    estimate,
    least_seconds,
    most_redrives,
    terms_of,
)
from redrive.verbs.verb import (
    MOST,
    SAMPLE,
    Done,
    Opening,
    Order,
    Preview,
    Verb,
    as_seen,
    back,
    letters_of,
    refuse_other,
    refuse_vague,
    sentence,
    vague,
)

FREEZE_SECONDS = "60s"
"""Freezing a million dead letters takes about four seconds, more than pages may use."""

GROUP_COLUMNS = ("count", "kind", "error_class", "message", "group")

# ---------------------------------------------------------------------- planning


def _preview(conn: Connection, order: Order, *, canaries: int | None = None) -> Preview:
    """Preview a redrive.

    Args:
        canaries: number if nobody gives one; by default it depends on the selection.
    """
    chosen = letters_of(order)
    preview = Preview(
        matched=0,
        query=as_seen(chosen),
        obstacle=vague(chosen, 0),
        values={"canaries": str(canaries_of(chosen, 0))},
    )

    # A filter that selects everything is refused, so its rows are not counted.
    if not chosen.narrows():
        return preview

    seen, known = _looked_at(conn, order, chosen)
    if canaries is None:
        canaries = canaries_of(chosen, seen.matched)
    terms = terms_of(order.more, canaries)

    return replace(
        preview,
        rows=seen.groups[:SAMPLE],
        remarks=[*_remarks(conn, seen, known), *_others(conn, terms, seen.kinds)],
        obstacle=vague(chosen, seen.matched),
        missing=seen.missing,
        absent="has no open dead letter, or it does not match",
        two=_need_two_people(conn, seen.kinds),
        confirm=confirmations(chosen, seen.blocked),
        **_estimated(seen.matched, terms, seen.allowed, canaries),
    )


def _estimated(
    matched: int, terms: Terms, allowed: float | None, canaries: int
) -> dict[str, Any]:
    """Return the fields of a preview that its terms decide."""
    return {
        "matched": matched,
        "values": {"canaries": str(canaries)},
        "estimate": estimate(matched, terms, allowed),
        "allowed": allowed,
    }


def _looked_at(conn: Connection, order: Order, chosen: Filter) -> tuple[Plan, int]:
    """Return what a plan would hold, and how many of its dead letters were examined."""
    most, allow = most_redrives(order.more), allow_of(order.more, chosen)
    if order.most is not None:
        return campaign.preview(conn, _all(chosen), MOST, most, allow)

    seen = campaign.plan(conn, chosen, actor=None, max_redrives=most, allow=allow)
    return seen, seen.matched


def _others(conn: Connection, terms: Terms, kinds: Sequence[str]) -> list[str]:
    """Return sentences about the queue that the jobs go to."""
    return list(map(sentence, destination.remarks(conn, terms.to_queue, kinds)))


def _remarks(conn: Connection, seen: Plan, known: int) -> list[str]:
    """Return what the user should know about a selection.

    Args:
        known: number of dead letters, the oldest, that were looked at.
    """
    remarks: list[str] = []
    if seen.matched > known:
        text = f"Causes and exclusions below cover only the oldest {known:,}."
        remarks.append(text)

    remarks += _stay(seen.blocked)
    remarks += rates(seen.rates)

    if seen.acted:
        count = counted(seen.acted, "of them")
        remarks.append(
            f"{count} had side effects before they died; the page of a job lists them."
        )

    versions = destination.version_remarks(conn, seen.groups)
    return [*remarks, *map(sentence, versions)]


def rates(of_kinds: Mapping[str, float]) -> list[str]:
    """Return sentences about the rates of kinds, which all campaigns keep together."""
    return [
        f"{kind}: at most {rate:g} per second over all campaigns, by its handler."
        for kind, rate in sorted(of_kinds.items())
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


class _Frozen(NamedTuple):
    """Selection that is frozen as a plan, the plan's id, and what does not fit."""

    chosen: Filter
    made: Plan
    plan: int
    unfit: Unfit


def _freeze(conn: Connection, order: Order) -> _Frozen:
    """Freeze the previewed dead letters as a plan, except invalid ones."""
    chosen = letters_of(order)
    refuse_vague(chosen)

    with conn.transaction():
        # `true` limits the setting to this transaction.
        conn.execute(
            "select set_config('statement_timeout', %s, true)", (FREEZE_SECONDS,)
        )
        made = campaign.plan(
            conn,
            _all(chosen),
            actor=order.actor,
            max_redrives=most_redrives(order.more),
            allow=allow_of(order.more, chosen),
        )
        # Within the transaction, so that a refused plan is not kept.
        refuse_other(made.matched, order)

    if made.plan is None:
        raise Conflict("no dead letter matches now; look at the preview again")

    unfit = Unfit()
    if order.handlers and (order.most is None or made.matched <= MOST):
        unfit = leave_out(conn, made.plan, order.handlers, progress=order.advance)

    return _Frozen(chosen, made, made.plan, unfit)


def _plan(opening: Opening, order: Order) -> Done:
    """Freeze the selection as a plan that another user can start."""
    with opening() as conn:
        chosen, made, plan, unfit = _freeze(conn, order)
        versions = destination.version_remarks(conn, made.groups)

    terms = terms_of(order.more, canaries_of(chosen, made.matched))
    more = {
        "seconds": least_seconds(made.matched, terms, made.allowed),
        "stops_after": exposure(CANARIES),
        "remarks": versions,
    }
    text = f"Planned as campaign {plan}. The plan is deleted after one day if nobody starts it."
    return Done(
        text=" ".join([text, *_unfit_remarks(unfit)]),
        report=asdict(made) | asdict(unfit) | more,
        path=f"/campaigns/{plan}",
    )


def _unfit_remarks(unfit: Unfit) -> Iterator[str]:
    for cause, n in sorted(unfit.invalid.items()):
        yield f"{n:,} will stay, invalid: {cause}."
    for cause, n in sorted(unfit.unchecked.items()):
        yield f"{n:,} not checked: {cause}."


# ---------------------------------------------------------------------- starting


def _redrive(opening: Opening, order: Order) -> Done:
    """Freeze the selection and start the campaign; workers drive it from then on."""
    # Refuse wrong terms before anything is frozen. The default number of canaries is
    # known only after that.
    terms_of(order.more, 0)

    with opening() as conn:
        chosen, made, plan, _ = _freeze(conn, order)
        terms = terms_of(order.more, canaries_of(chosen, made.matched))
        begin(conn, plan, terms, order)
        others = _others(conn, terms, made.kinds)
        if order.advance:
            done = drive_to_end(conn, plan, progress=order.advance)
        else:
            done = driven(conn, plan)

    path = back(chosen) if chosen.ids else f"/campaigns/{plan}"
    return _redriven(done, path, others)


def begin(conn: Connection, plan: int, terms: Terms, order: Order) -> None:
    """Start the plan, unless a concurrent request started the same redrive.

    A form may be sent twice. A scheduled command comes again on purpose, and leaves what
    an earlier campaign has.
    """
    if order.most is None:
        campaign.start(conn, plan, terms, **order.signed)
        return
    try:
        campaign.start_alone(conn, plan, terms, **order.signed)
    except Busy as error:
        raise Conflict(str(error)) from None


def _redriven(done: Fields, path: str, others: Sequence[str]) -> Done:
    """Say what a redrive did; `others` are remarks on where the jobs went."""
    keys = ("matched", "redriven", "blocked", "campaign", "state")
    report = {key: done[key] for key in keys}
    return Done(
        text=" ".join([_first_sentence(done), *others]), report=report, path=path
    )


def _first_sentence(done: Fields) -> str:
    """Say how many dead letters a campaign redrove, and how many stayed."""
    waiting = done["waiting"]
    if waiting == done["matched"]:
        count = counted(waiting, "dead letter")
        return f"Campaign {done['campaign']} has started; workers redrive {count}."

    count = counted(done["redriven"], "dead letter")
    text = f"{count} redriven by campaign {done['campaign']}"

    for cause, n in done["blocked"].items():
        words = stays(cause)
        text += f"; {n:,} stayed: {words}"

    if waiting:
        text += f"; {waiting:,} follow later"

    return f"{text}."


def _preview_start(conn: Connection, order: Order) -> Preview:
    terms = terms_of(order.more, CANARIES)
    found = found_in(conn, number_of(order.query))
    number = found["campaign"]
    allowed = total_rate(found["rates"], len(found["kinds"]))
    effects = campaign.side_effects(conn, number)
    edits, are_all = edits_of(conn, number)
    remarks = [*_start_remarks(found, effects), *edits]
    remarks += _others(conn, terms, found["kinds"])
    versions = destination.version_remarks_of(conn, number)

    return Preview(
        unit="dead letter",
        remarks=[*remarks, *map(sentence, versions)],
        obstacle=_not_to_start(conn, found, are_all_shown=are_all),
        repeats=[effect for effect, _ in effects],
        **_estimated(found["matched"], terms, allowed, CANARIES),
    )


def _start_remarks(found: Row, effects: Sequence[tuple[str, int]]) -> list[str]:
    """Return what the user should know about a plan, and about its side effects."""
    planner = found["planned_by"]
    remarks = [
        f"{planner} planned it. Exactly the dead letters of the plan are redriven."
    ]
    remarks += _stay(found["blocked"], found["invalid"])
    remarks += rates(found["rates"])

    for effect, n in effects:
        remarks.append(f"{n:,} jobs already had this side effect: {effect}.")

    return remarks


def _not_to_start(
    conn: Connection, found: Fields, *, are_all_shown: bool
) -> str | None:
    """Return why this user cannot start the campaign; None if they can.

    Args:
        are_all_shown: the preview shows all edits of its dead letters.
    """
    if found["state"] != State.PLANNED:
        return f"Campaign {found['campaign']} is {found['state']}."

    if not are_all_shown and _need_two_people(conn, found["kinds"]):
        return "Its dead letters have too many different edits to be read here: plan fewer at once."

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
    number = number_of(order.query)
    terms = terms_of(order.more, CANARIES)

    with opening() as conn:
        kinds = found_in(conn, number)["kinds"]
        begin(conn, number, terms, order)
        others = _others(conn, terms, kinds)
        done = driven(conn, number)

    return _redriven(done, f"/campaigns/{number}", others)


REDRIVE: Mapping[str, Verb] = {
    "redrive": Verb(
        "Put dead letters back to work.",
        "dlq redrive",
        "Redrive",
        "open dead letter",
        _preview,
        _redrive,
        columns=GROUP_COLUMNS,
        of=Filter,
        inputs=(*INPUTS, REDRIVES),
        confirms=CONFIRMS,
        nothing={"redriven": 0, "blocked": {}, "campaign": None, "state": None},
        plans=True,
    ),
    "campaign-plan": Verb(
        "Plan a redrive that another user can start.",
        "campaign plan",
        "Plan",
        "open dead letter",
        partial(_preview, canaries=CANARIES),
        _plan,
        columns=GROUP_COLUMNS,
        of=Filter,
        inputs=(INPUTS[0], REDRIVES),
        confirms=CONFIRMS,
        nothing={"plan": None},
        plans=True,
        asks_why=False,
        decodes=True,
    ),
    "campaign-start": Verb(
        "Start a planned redrive.",
        "campaign start {campaign}",
        "Start",
        "campaign",
        _preview_start,
        _start,
        names=("campaign",),
        inputs=INPUTS,
    ),
}
"""Word in the address -> change."""
