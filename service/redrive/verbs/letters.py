"""Changes of dead letters: dismiss, reopen, assign, write a note, purge."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from redrive.database.rows import Connection
from redrive.dead_letters import find as letters
from redrive.dead_letters import purge, triage
from redrive.dead_letters.filter import Filter
from redrive.rules.brief import counted
from redrive.rules.instants import seconds, span
from redrive.rules.rows import Row
from redrive.verbs.query import parse
from redrive.verbs.refusal import Invalid, Missing
from redrive.verbs.verb import (
    SAMPLE,
    Done,
    Input,
    Opening,
    Order,
    Preview,
    Verb,
    as_seen,
    back,
    id_of,
    letters_of,
    obstacle_of,
    refuse_more,
    refuse_vague,
)

COLUMNS = ("id", "kind", "queue", "reason", "error_class", "message", "died_at")
NO_LETTER = "has no dead letter; its page shows its state"
MOST_OWNER = 255


def preview(conn: Connection, order: Order, *, state: str = "open") -> Preview:
    """Preview a change of the dead letters of a filter.

    Raises:
        Refused: the filter is invalid.
    """
    chosen = letters_of(order, state)
    matched: Sequence[int] = ()
    if chosen.narrows():
        matched = letters.ids(conn, chosen)

    rows: Sequence[Row] = ()
    if matched:
        rows = letters.find(conn, Filter(ids=matched[:SAMPLE]))

    return Preview(
        matched=len(matched),
        query=as_seen(chosen),
        rows=rows,
        ids=matched,
        missing=sorted(set(chosen.ids).difference(matched)),
        absent=f"has no {state} dead letter",
        obstacle=obstacle_of(chosen, len(matched), order.most),
    )


def _change(
    opening: Opening,
    order: Order,
    *,
    act: Callable[..., list[int]],
    word: str,
    state: str = "open",
    **values: str,
) -> Done:
    chosen = letters_of(order, state)
    refuse_vague(chosen)

    with opening() as conn:
        matched = letters.ids(conn, chosen)
        refuse_more(len(matched), order)
        # The action takes the ids and not the filter, so it changes what was counted.
        done = act(conn, matched, **values, **order.signed)

    return Done(
        text=f"{counted(len(done), 'dead letter')} {word}.",
        report={"matched": len(matched), word: done},
        path=back(chosen),
    )


def _preview_assign(conn: Connection, order: Order) -> Preview:
    _owner(order)
    return preview(conn, order)


def _owner(order: Order) -> str:
    owner = order.more.get("owner", "").strip()
    if len(owner) > MOST_OWNER or "\0" in owner:
        rule = f"at most {MOST_OWNER} characters and no NUL"
        raise Invalid(f"owner must have {rule}")

    return owner


def _assign(opening: Opening, order: Order) -> Done:
    owner = _owner(order)
    done = _change(opening, order, act=triage.assign, word="assigned", owner=owner)
    person = owner or "nobody"

    return Done(
        text=f"{done.text[:-1]} to {person}.",
        report=dict(done.report) | {"owner": owner or None},
        path=done.path,
    )


def _preview_note(conn: Connection, order: Order) -> Preview:
    job = id_of(order.query)
    found = letters.show(conn, job)

    return Preview(
        title=f"Note on job {job}",
        matched=1 if found else 0,
        obstacle=None if found else f"Job {job} {NO_LETTER}.",
    )


def _note(opening: Opening, order: Order) -> Done:
    job = id_of(order.query)

    with opening() as conn:
        if not triage.note(conn, job, order.why, actor=order.actor):
            raise Missing(f"job {job} {NO_LETTER}")

    return Done(text="Noted.", report={"id": job}, path=f"/jobs/{job}")


def _preview_purge(conn: Connection, order: Order) -> Preview:
    age = _age(order)
    found = purge.purgeable(conn, parse(Filter, order.query), age)

    return Preview(
        matched=len(found),
        remarks=(
            f"They ended more than {span(age)} ago. They are deleted for good.",
            "All other data past its retention is deleted, too.",
        ),
        found=found,
    )


def _age(order: Order) -> float:
    text = order.more.get(AGE.name, "") or AGE.default
    age = seconds(text)
    if age is None:
        raise Invalid(f"{AGE.name} is {text!r}; write {AGE.hint}")
    return age


def _purge(opening: Opening, order: Order) -> Done:
    with opening() as conn:
        n = purge.purge(
            conn,
            parse(Filter, order.query),
            order.found,
            progress=order.advance or (lambda _: None),
            **order.signed,
        )
        others = purge.forget(conn)

    return Done(
        text=f"{n} purged, {others} other rows past their retention.",
        report={"matched": len(order.found), "purged": n},
        path="/dead-letters",
    )


AGE = Input(
    "older-than",
    "Ended (if open: died) longer ago than this",
    default="30d",
    hint="30d, 12h, 5m or 10s",
)
LETTERS: Mapping[str, Verb] = {
    "dismiss": Verb(
        "Close dead letters that will not be fixed.",
        "dlq dismiss",
        "Dismiss",
        "open dead letter",
        preview,
        partial(_change, act=triage.dismiss, word="dismissed"),
        remarks=(
            "They are closed now and purged later. Until then they can be reopened.",
        ),
        columns=COLUMNS,
        of=Filter,
        nothing={"dismissed": []},
        help="""
            \b
            redrive dlq dismiss 19 --why 'the order was withdrawn'
            redrive dlq dismiss --group 3f9a --until 30d --why 'too late to matter'

            If you give only ids, and the reason, they are dismissed at once. With
            filters, the command shows how many match and asks, unless you give --yes.
            Without a terminal and without --yes it only shows them. To open them again:
            redrive dlq reopen.
        """,
        is_direct=True,
    ),
    "reopen": Verb(
        "Open dismissed dead letters again.",
        "dlq reopen",
        "Reopen",
        "dismissed dead letter",
        partial(preview, state="dismissed"),
        partial(_change, act=triage.reopen, word="reopened", state="dismissed"),
        remarks=("After this they can be redriven again.",),
        columns=COLUMNS,
        of=Filter,
        nothing={"reopened": []},
        help="""
            \b
            redrive dlq reopen 19 --why 'the customer wants it after all'
        """,
    ),
    "assign": Verb(
        "Set the owner of dead letters.",
        "dlq assign {id}",
        "Assign",
        "open dead letter",
        _preview_assign,
        _assign,
        remarks=("Groups that nobody has acknowledged are acknowledged by this.",),
        columns=COLUMNS,
        of=Filter,
        inputs=(Input("owner", "Owner", hint="empty: nobody", is_required=True),),
        nothing={"assigned": []},
        help="""
            \b
            redrive dlq assign 17 18 --owner ada --why 'she knows the bank'

            It also acknowledges their groups, unless somebody has already done so.
        """,
    ),
    "note": Verb(
        "Write a note on a dead letter.",
        "dlq note {id} ...",
        "Note",
        "dead letter",
        _preview_note,
        _note,
        remarks=("The text becomes a note on the dead letter.",),
        names=("id",),
        help="""
            \b
            redrive dlq note 17 'the bank confirms an outage from 14:00 to 14:20'

            It is written at once.
        """,
        is_direct=True,
    ),
    "purge": Verb(
        "Delete dead letters past their retention for good.",
        "purge",
        "Purge",
        "dead letter",
        _preview_purge,
        _purge,
        of=Filter,
        inputs=(AGE,),
        nothing={"purged": 0},
        usual_why="retention",
        is_for_shell=True,
    ),
}
"""Word in the address -> change."""
