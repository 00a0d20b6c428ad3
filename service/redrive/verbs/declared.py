"""Values that a deployment declares: owners, objectives, retention, limits on names.

Each stands at a place, such as a queue. A command can set many, and then leaves out
values that are set already.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from redrive.database import retention
from redrive.database.rows import Connection
from redrive.dead_letters.groups import objectives, owners
from redrive.dead_letters.groups.objectives import (
    DEFAULTS,
    MEANINGS,
    OF_KINDS,
    Objective,
)
from redrive.dead_letters.groups.owners import (
    ANY,
    MAX_CONTACT,
    NAME,
    Owner,
    Pattern,
    parse_pattern,
)
from redrive.errors import InvalidJob
from redrive.jobs import names
from redrive.rules.instants import seconds, typed
from redrive.rules.rows import Row
from redrive.verbs.query import not_a_choice
from redrive.verbs.refusal import Invalid, Missing
from redrive.verbs.verb import Done, Input, Opening, Order, Preview, Verb, named


class _Value(NamedTuple):
    """A value to set.

    Attributes:
        text: what holds afterwards, as a sentence.
        held: what is set now.
        wanted: what is set afterwards.
        put: sets it.
    """

    text: str
    held: Row
    wanted: Row
    put: Callable[..., None]


Read = Callable[[Connection, Order], _Value]


def _preview(conn: Connection, order: Order, *, read: Read) -> Preview:
    value = read(conn, order)
    is_held = order.is_whole and value.held == value.wanted
    return Preview(
        title=f"Set: {value.text.removesuffix('.')}",
        columns=tuple(value.held),
        rows=[value.held],
        remarks=("It is so already.",) if is_held else (f"Set: {value.text}",),
        is_held=is_held,
    )


def _set(opening: Opening, order: Order, *, read: Read) -> Done:
    with opening() as conn:
        value = read(conn, replace(order, is_whole=True))
        value.put(conn, **order.signed)

    return Done(text=value.text, report=value.wanted, path="/audit")


def _verb(
    what: str, command: str, read: Read, name: str, *inputs: Input, details: str = ""
) -> Verb:
    preview, do = partial(_preview, read=read), partial(_set, read=read)
    return Verb(
        what,
        command,
        "Set",
        "value",
        preview,
        do,
        names=(name,),
        inputs=inputs,
        help=details,
    )


def _given(order: Order, name: str, fault: str) -> str:
    """Return an input. Raises Invalid if it is missing and the order must have it."""
    text = order.more.get(name, "").strip()
    if order.is_whole and not text:
        raise Invalid(f"{name} is missing; {fault}")
    return text


# ---------------------------------------------------------------------- owners

OWNED = "the owner has 1 to 63 letters, digits, or any of _.@-"


def _pattern(order: Order) -> Pattern:
    try:
        return parse_pattern(named(order.query, "pattern"))
    except InvalidJob as error:
        raise Invalid(str(error)) from None


def _held_by(conn: Connection, pattern: Pattern) -> Owner | None:
    return next((row for row in owners.find(conn) if row.pattern == pattern), None)


def _owner(conn: Connection, order: Order) -> _Value:
    pattern = _pattern(order)
    name = _given(order, "owner", OWNED)
    if name and not NAME.match(name):
        raise Invalid(f"owner is {name!r}; {OWNED}")

    contact = order.more.get("contact", "").strip() or None
    if contact and (len(contact) > MAX_CONTACT or not contact.isprintable()):
        rule = f"must be one line of at most {MAX_CONTACT} characters"
        raise Invalid(f"contact of {pattern} {rule}")

    wanted = Owner(*pattern, name, contact)
    held = _held_by(conn, pattern) or Owner(*pattern, None)

    return _Value(
        text=f"{pattern} belongs to {name}.",
        held=held._asdict(),
        wanted=wanted._asdict(),
        put=partial(owners.set_owner, wanted=wanted),
    )


def _no_owner(conn: Connection, order: Order) -> _Value:
    pattern = _pattern(order)
    held = _held_by(conn, pattern)
    if not held:
        raise Missing(f"{pattern} has no owner of its own; see redrive owner ls")

    wanted = Owner(*pattern, None)

    return _Value(
        text=f"{pattern} has no owner of its own.",
        held=held._asdict(),
        wanted=wanted._asdict(),
        put=partial(owners.set_owner, wanted=wanted),
    )


# ---------------------------------------------------------------------- objectives

TO_DEFAULT = "default"


def _objective(conn: Connection, order: Order) -> _Value:
    pattern = _pattern(order)
    name = _given(order, "objective", f"it is one of: {', '.join(MEANINGS)}")
    if name:
        _check_objective(pattern, name)

    threshold = _threshold(_given(order, "value", "give a number, or default"))
    if threshold is None and pattern == DEFAULTS and order.is_whole:
        raise Invalid("value: the values of '*' are the defaults; give a number")

    wanted = Objective(*pattern, name, threshold)
    known = {row[:-1]: row for row in objectives.find(conn)}
    held = known.get(wanted[:-1]) or wanted._replace(value=None)
    shown = TO_DEFAULT if threshold is None else f"{threshold:g}"

    return _Value(
        text=f"{pattern} {name} is {shown}.",
        held=held._asdict(),
        wanted=wanted._asdict(),
        put=partial(objectives.set_objective, wanted=wanted),
    )


def _check_objective(pattern: Pattern, name: str) -> None:
    """Refuse an objective that there is not, or that a kind cannot have."""
    if name not in MEANINGS:
        raise not_a_choice("objective", name, MEANINGS)
    if pattern.kind == ANY:
        return
    if pattern.queue == ANY:
        rule = f"objectives of a kind need its queue; write QUEUE/{pattern.kind}"
        raise Invalid(f"pattern is {pattern}: {rule}")
    if name not in OF_KINDS:
        known = ", ".join(OF_KINDS)
        raise Invalid(
            f"{pattern}: a kind cannot have {name}; it must be one of {known}"
        )


def _threshold(text: str) -> float | None:
    """Return a threshold; None for the default."""
    if text in {"", TO_DEFAULT}:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value < math.inf:
        raise Invalid(f"value is {text!r}; it must be a number from 0 on, or default")
    return value


# ---------------------------------------------------------------------- retention


def _retention(conn: Connection, order: Order) -> _Value:
    what = _one_of(order, retention.MEANINGS)
    kept = dict(retention.read(conn))[what]
    text = _given(order, "for", "write 30d, or 12h")
    length = seconds(text) if text else kept
    least = retention.LEAST_SECONDS[what]
    if length is None:
        raise Invalid(f"for is {text!r}, which is not a duration; write 30d, or 12h")
    if length < least:
        raise Invalid(f"{what} must be kept for at least {typed(least)}")

    return _Value(
        text=f"{what}: kept for {typed(length)}.",
        held={"what": what, "seconds": kept},
        wanted={"what": what, "seconds": length},
        put=partial(retention.put, kept=(what, length)),
    )


def _names(conn: Connection, order: Order) -> _Value:
    what = _one_of(order, names.COUNTED)
    (held,) = [row for row in names.used(conn) if row["what"] == what]
    rule = f"a whole number from 1 to {names.MOST_NAMES}"
    text = _given(order, "at-most", f"give {rule}") or str(held["at_most"])
    if not re.fullmatch("[0-9]{1,9}", text) or not 1 <= int(text) <= names.MOST_NAMES:
        raise Invalid(f"at-most is {text!r}; it must be {rule}")

    return _Value(
        text=f"{what}: at most {int(text)}.",
        held=held,
        wanted=held | {"at_most": int(text)},
        put=partial(names.limit, what=what, at_most=int(text)),
    )


def _one_of(order: Order, known: Mapping[str, str]) -> str:
    what = named(order.query, "what")
    if what not in known:
        raise not_a_choice("what", what, known)
    return what


DECLARED: Mapping[str, Verb] = {
    "set-owner": _verb(
        "Set the owner of a queue, a kind, or both.",
        "owner set {pattern} {owner}",
        _owner,
        "pattern",
        Input("owner", "Owner", is_required=True),
        Input("contact", "Contact of the owner", hint="#payments"),
        details="""
            \b
            redrive owner set payments team-money --contact '#money' --why 'their service'
            redrive owner set '*/mail.send' team-mail --why 'they run the mail servers'
        """,
    ),
    "remove-owner": _verb(
        "Remove the owner of a pattern.",
        "owner rm {pattern}",
        _no_owner,
        "pattern",
        details="""
            \b
            redrive owner rm payments --why 'the queue is gone'
        """,
    ),
    "set-objective": _verb(
        "Set a threshold of the alerts on a queue, or on a kind of a queue.",
        "objective set {pattern} {objective} {value}",
        _objective,
        "pattern",
        Input("objective", "Objective", choices=tuple(MEANINGS), is_required=True),
        Input("value", "Threshold", hint="a number, or default", is_required=True),
        details="""
            \b
            redrive objective set payments page_on_first_dead_letter 1 --why 'each one is money'
            redrive objective set payments page_on_first_dead_letter default --why 'too loud'
            redrive objective set payments/charge.card dlq_added_5m 3 --why 'the checkout'

            The value `default` removes the queue's own.
        """,
    ),
    "set-retention": _verb(
        "Set how long data other than dead letters is kept.",
        "retention set {what}={for}",
        _retention,
        "what",
        Input("for", "How long it is kept", hint="30d, 12h", is_required=True),
    ),
    "limit-names": _verb(
        "Limit the numbers of queues and kinds that producers may use.",
        "queue limit {what}={at-most}",
        _names,
        "what",
        Input("at-most", "How many", kind="integer", is_required=True),
    ),
}
"""Word in the address -> change."""
