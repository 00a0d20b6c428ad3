"""Changes of limits: set or remove one."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from redrive.database.rows import Connection
from redrive.jobs import limits
from redrive.rules import concurrency
from redrive.rules.rows import Row
from redrive.verbs.query import Query
from redrive.verbs.refusal import Invalid, Missing
from redrive.verbs.verb import (
    Done,
    Input,
    Opening,
    Order,
    Preview,
    Verb,
    named,
    one_of,
    sentence,
)

MOST_AT_ONCE = 1_000_000
EXAMPLE_AT_ONCE = "20"
"""Concurrency in the shown command for a name that has no limit yet."""


def _limit(query: Query) -> str:
    name = named(query, "name")
    if not concurrency.NAME.match(name):
        raise Invalid(
            f"name is {name!r}; it must be like emails, customer:17 or customer:*"
        )

    return name


def _preview_set_limit(conn: Connection, order: Order) -> Preview:
    name = _limit(order.query)
    rows = _limits_named(conn, name)
    remarks = ["The limit applies at once. Running jobs continue."]
    if order.is_whole:
        remarks.insert(0, f"{name}: {_terms(order.more)}.")
    else:
        remarks.append("An empty field sets no limit.")

    values: dict[str, str] = {}
    for row in rows:  # at most one
        at_once = row["concurrency"]
        values["concurrency"] = "" if at_once is None else str(at_once)
        values["rate"] = row["rate"] or ""

    remarks += _sentences(limits.unused(conn, name))
    # The command sets no limit where it has no option, so it shows the limits of now.
    shown = {**values, **{key: text for key, text in order.more.items() if text}}
    shown = shown or {"concurrency": EXAMPLE_AT_ONCE}
    shell = LIMITS["set-limit"].shell(replace(order, more=shown))
    return Preview(rows=rows, remarks=remarks, values=values, shell=shell)


def _limits_named(conn: Connection, name: str) -> list[Row]:
    return [row for row in limits.find(conn) if row["name"] == name]


_LIMIT_COLUMNS = ("name", "used", "concurrency", "rate", "waiting")


class _Terms(NamedTuple):
    """Terms of a limit, as numbers and as text."""

    at_once: int | None
    rate: float | None

    def __str__(self) -> str:
        parts: list[str] = []
        if self.at_once is not None:
            parts.append(f"{self.at_once} at once")
        if self.rate is not None:
            parts.append(concurrency.of_rate(self.rate))

        return ", ".join(parts)


def _terms(more: Mapping[str, str]) -> _Terms:
    """Return the terms of a limit. Raises Refused if it has no terms."""
    at_once = _at_once(more.get("concurrency", "").strip())
    rate = _rate(more.get("rate", "").strip())
    if at_once is None and rate is None:
        raise Invalid("give concurrency, rate or both")

    return _Terms(at_once, rate)


def _set_limit(opening: Opening, order: Order) -> Done:
    name = _limit(order.query)
    terms = _terms(order.more)

    with opening() as conn:
        unused = limits.unused(conn, name)
        limits.put(conn, name, *terms, **order.signed)

    report = {
        "name": name,
        "concurrency": terms.at_once,
        "rate": order.more.get("rate", "").strip() or None,
        "warning": unused,
    }
    text = " ".join([f"{name}: {terms}.", *_sentences(unused)])

    return Done(text=text, report=report, path="/limits")


def _sentences(text: str | None) -> list[str]:
    return [] if text is None else [sentence(text)]


def _rate(text: str) -> float | None:
    if not text:
        return None
    try:
        # A call of the API gives a plain number of starts per second.
        return concurrency.per_second(text if "/" in text else f"{text}/s")
    except ValueError as error:
        raise Invalid(f"rate: {error}") from None


def _at_once(text: str) -> int | None:
    if not text:
        return None

    is_number = text.isascii() and text.isdigit()
    # 20 digits are enough to compare. int() fails if there are thousands.
    if not is_number or int(text[:20]) > MOST_AT_ONCE:
        raise Invalid(
            f"concurrency is {text!r}; it must be a whole number, 0 to 1000000"
        )

    return int(text)


def _preview_remove_limit(conn: Connection, order: Order) -> Preview:
    name = _limit(order.query)
    return one_of(_limits_named(conn, name), f"limit {name}")


def _remove_limit(opening: Opening, order: Order) -> Done:
    name = _limit(order.query)

    with opening() as conn:
        if not limits.put(conn, name=name, concurrency=None, rate=None, **order.signed):
            raise Missing(f"there is no limit {name}")

    return Done(
        text=f"The limit {name} is removed.",
        report={"name": name, "removed": True},
        path="/limits",
    )


LIMITS: Mapping[str, Verb] = {
    "set-limit": Verb(
        "Set a limit on the jobs that use a name.",
        "limit set {name}",
        "Set",
        "limit",
        _preview_set_limit,
        _set_limit,
        columns=_LIMIT_COLUMNS,
        names=("name",),
        inputs=(
            Input("concurrency", "Jobs that run at once, at most", kind="integer"),
            Input(
                "rate",
                "Jobs that start in a period, at most",
                hint="20/1m, 100/s",
                kind="number",
            ),
        ),
        help="""
            \b
            redrive limit set emails --concurrency 20 --why 'the provider allows 20 connections'
            redrive limit set 'customer:*' --concurrency 2 --rate 20/1m --why 'one customer took all'

            NAME is one of a handler's limits=. A name such as customer:* limits each
            key, and a key can have a limit of its own. An option that you leave out
            sets no limit. Running jobs continue. The command warns you if no handler
            has the name yet.
        """,
    ),
    "remove-limit": Verb(
        "Remove a limit.",
        "limit rm {name}",
        "Remove",
        "limit",
        _preview_remove_limit,
        _remove_limit,
        remarks=("Jobs that wait for this limit can run.",),
        columns=_LIMIT_COLUMNS,
        names=("name",),
        help="""
            \b
            redrive limit rm emails --why 'the new provider has none'
        """,
    ),
}
