"""The query string of a page as a filter, and a filter as a query string or a shell
command.

The names come from the filter classes, so pages and commands accept the same filters.
"""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, TypeVar, cast
from urllib.parse import urlencode

from redrive.console.security.access import Refused
from redrive.database.criteria import Criteria, Criterion
from redrive.dead_letters.filter import CONDITION
from redrive.dead_letters.find import Place
from redrive.live_jobs.history import PLACES
from redrive.rules.scheduling.instants import instant

ANY = "any"
NAMES = {"ids": "id", "holds": "where"}
"""Field -> its name in options and query strings, if that differs."""

NUMBERS = ("ids", "limit")
TIMES = ("since", "until")
MOST_NUMBER = 2**63 - 1
MOST_TEXT = 1000

Query = Sequence[tuple[str, str]]
F = TypeVar("F", bound=Criteria)


def name_of(field: str) -> str:
    """Return the name of a field in options and query strings."""
    return NAMES.get(field, field).replace("_", "-")


def parse(of: type[F], query: Query, *, states: Sequence[str] = ()) -> F:
    """Parse a query string into a filter; ignore empty values, which forms send.

    Args:
        states: states to select if the query names none; empty selects all.

    Raises:
        Refused: a name or value is unknown; the message lists the allowed ones.
    """
    criteria = of.criteria()
    names = {name_of(field): field for field in criteria}
    wanted: dict[str, list[Any]] = {}
    for name, text in query:
        if name not in names:
            raise Refused(
                400, f"there is no filter {name!r}; there are: {', '.join(names)}"
            )
        if text.strip():
            field = names[name]
            wanted.setdefault(field, []).extend(
                _values(field, criteria[field], text.strip())
            )
    state = wanted.pop("state", list(states))
    values = {field: _shaped(of, field, given) for field, given in wanted.items()}
    values["state"] = () if ANY in state else tuple(state)
    return of(**values)


def _shaped(of: type[Criteria], field: str, given: list[Any]) -> Any:
    is_many = next(f.default == () for f in fields(of) if f.name == field)  # type: ignore[arg-type]
    return tuple(given) if is_many else given[-1]


def _values(field: str, criterion: Criterion, text: str) -> Iterable[Any]:
    name = name_of(field)
    if len(text) > MOST_TEXT or "\0" in text:
        raise Refused(
            400, f"{name} must have at most {MOST_TEXT} characters and no NUL"
        )
    if field in NUMBERS:
        return [_number(field, part) for part in text.split(",")]
    if field in TIMES:
        return [_time(field, text)]
    if field == "holds":
        return [_condition(text)]
    if criterion.choices:
        extra = (ANY,) if field == "state" else ()
        return _choices(name, text, criterion.choices, extra)
    return [text]


def _time(field: str, text: str) -> datetime:
    try:
        return instant(text, datetime.now(UTC))
    except ValueError as error:
        raise Refused(400, f"{field}: {error}") from None


def _condition(text: str) -> str:
    if not CONDITION.match(text):
        raise Refused(400, f"where is {text!r}; write payload.currency=XAU")
    return text


def _choices(
    name: str, text: str, choices: Sequence[str], extra: Sequence[str]
) -> Sequence[str]:
    allowed = (*choices, *extra)
    chosen = [part.strip() for part in text.split(",")]
    for part in chosen:
        if part not in allowed:
            known = ", ".join(allowed)
            raise Refused(400, f"{name} is {part!r}; it must be one of: {known}")
    return chosen


def _number(field: str, text: str) -> int:
    digits = text.strip()
    if not (
        digits.isascii() and digits.isdigit() and 0 < int(digits[:20]) <= MOST_NUMBER
    ):
        raise Refused(
            400, f"{name_of(field)} is {text!r}; it must be a whole number above 0"
        )
    return int(digits)


def pairs(chosen: Criteria) -> Iterator[tuple[str, str]]:
    """Yield the filter's set fields by name, one value at a time."""
    for field, value in chosen.described().items():
        many: list[Any] = (
            cast("list[Any]", value) if isinstance(value, list) else [value]
        )
        yield from ((name_of(field), str(one)) for one in many)


def url(path: str, chosen: Criteria | None = None, /, **more: str | None) -> str:
    """Return the address of a page with a filter in its query string."""
    parameters = list(pairs(chosen)) if chosen else []
    parameters += [(name, value) for name, value in more.items() if value]
    return f"{path}?{urlencode(parameters)}" if parameters else path


def command(
    words: Iterable[str], chosen: Criteria | None = None, /, **options: str | None
) -> str:
    """Return the shell command with the same filter."""
    flags = [
        part
        for name, value in (pairs(chosen) if chosen else ())
        for part in _flag(name, value)
    ]
    flags += [
        part for name, value in options.items() if value for part in _flag(name, value)
    ]
    return shlex.join(["redrive", *words, *flags])


def _flag(name: str, value: str) -> tuple[str, ...]:
    return (f"--{name}={value}",) if value.startswith("-") else (f"--{name}", value)


def place_of(at: datetime, job: int) -> str:
    """Return the position of a dead letter in a list, for the address of the next
    page.
    """
    return f"{at.isoformat()}/{job}"


def dead_letter_place(text: str | None) -> Place | None:
    """Parse the position of a dead letter. Raises Refused if it is invalid."""
    if not text:
        return None
    at, _, digits = text.rpartition("/")
    try:
        found = datetime.fromisoformat(at)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)), _number(
            "ids", digits
        )
    except ValueError:
        raise Refused(
            400, f"after is {text!r}; take the link of the page before"
        ) from None


def job_place(text: str | None) -> str | None:
    """Return the position of a live job in the list. Raises Refused if the text is not
    a position.
    """
    if text and not PLACES.fullmatch(text):
        raise Refused(400, f"after is {text!r}; take the link of the page before")
    return text or None
