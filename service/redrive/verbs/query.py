"""Conversion of filters: from query strings, and to query strings or shell commands.

The names come from the filter classes, so pages and commands accept the same filters.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlencode

from redrive.database.criteria import Criteria, Criterion
from redrive.dead_letters.filter import CONDITION
from redrive.jobs.history import PLACES
from redrive.rules.instants import instant
from redrive.verbs.refusal import Invalid, Refused

if TYPE_CHECKING:
    from redrive.dead_letters.find import Place

ANY = "any"
NAMES = {"ids": "id", "holds": "where"}
"""Field -> its name in options and query strings, if that differs."""

NUMBERS = ("ids", "limit")
TIMES = ("since", "until")
MOST_NUMBER = 2**63 - 1
MOST_DIGITS = 50
MOST_TEXT = 1000

Query = Sequence[tuple[str, str]]
F = TypeVar("F", bound=Criteria)
Chosen = Criteria | Query | None
"""A filter, as its class or as the parameters of an address."""


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
    given: dict[str, list[Any]] = {"state": [*states]} if states else {}
    given |= _by_field(of.criteria(), query)
    if ANY in given.get("state", ()):
        del given["state"]

    many = fields_of_many(of)
    values: dict[str, Any] = {
        field: tuple(found) if field in many else found[-1]
        for field, found in given.items()
    }
    return of(**values)


def _by_field(criteria: Mapping[str, Criterion], query: Query) -> dict[str, list[Any]]:
    """Return the parsed values of each field that the query sets."""
    fields_by_name = {name_of(field): field for field in criteria}

    given: dict[str, list[Any]] = {}
    for name, text in query:
        field = fields_by_name.get(name)
        if field is None:
            raise no_filter(name, fields_by_name)

        if value := text.strip():
            found = given.setdefault(field, [])
            found += _values(field, criteria[field], value)

    return given


def no_filter(name: str, known: Iterable[str]) -> Refused:
    """Return the refusal of an unknown filter; it lists the known ones."""
    return Invalid(f"there is no filter {name!r}; there are: {', '.join(known)}")


def fields_of_many(of: type[Criteria]) -> set[str]:
    """Return the fields that take several values."""
    return {each.name for each in fields(of) if each.default == ()}  # type: ignore[arg-type] # a dataclass


def _values(field: str, criterion: Criterion, text: str) -> Sequence[Any]:
    _check_text(name_of(field), text)
    if field in NUMBERS:
        return [_number(field, part) for part in text.split(",")]
    if field in TIMES:
        return [_time(field, text)]
    if field == "holds":
        return [_condition(text)]
    if criterion.choices:
        choices = choices_of(field, criterion)
        return _choices(name_of(field), text, choices)

    return [text]


def _check_text(name: str, text: str) -> None:
    if len(text) > MOST_TEXT or "\0" in text:
        rule = f"at most {MOST_TEXT} characters and no NUL"
        raise Invalid(f"{name} must have {rule}")


def choices_of(field: str, criterion: Criterion) -> Sequence[str]:
    """Return the values that a field may have; empty if it takes any text."""
    if field == "state":
        return (*criterion.choices, ANY)
    return criterion.choices


def _time(field: str, text: str) -> datetime:
    try:
        return instant(text, datetime.now(UTC))
    except ValueError as error:
        raise Invalid(f"{field}: {error}") from None


def _condition(text: str) -> str:
    if not CONDITION.match(text):
        raise Invalid(f"where is {text!r}; write payload.currency=XAU")
    return text


def _choices(name: str, text: str, allowed: Sequence[str]) -> Sequence[str]:
    chosen = [part.strip() for part in text.split(",")]
    for part in chosen:
        if part not in allowed:
            raise not_a_choice(name, part, allowed)
    return chosen


def not_a_choice(name: str, text: str, allowed: Iterable[str]) -> Refused:
    """Return the refusal of a value that is not allowed; it lists the allowed ones."""
    known = ", ".join(allowed)
    return Invalid(f"{name} is {text!r}; it must be one of: {known}")


def _number(field: str, text: str) -> int:
    digits = text.strip()
    # isdigit() also accepts superscripts, which int() cannot read.
    if len(digits) < MOST_DIGITS and digits.isascii() and digits.isdigit():
        number = int(digits)
        if is_job_id(number):
            return number

    rule = "it must be a whole number above 0"
    raise Invalid(f"{name_of(field)} is {text!r}; {rule}")


def pairs(chosen: Criteria) -> Iterator[tuple[str, str]]:
    """Yield the filter's set fields by name, one value at a time."""
    for field, value in chosen.described().items():
        name = name_of(field)
        for text in texts(value):
            yield name, text


def texts(value: Any) -> list[str]:
    """Return the values of a field as texts, one of each."""
    if isinstance(value, list):
        many = cast("list[Any]", value)
    else:
        many = [value]

    return [str(one) for one in many]


def url(path: str, chosen: Chosen = None, /, **more: str | None) -> str:
    """Return the address of a page with a filter in its query string.

    Args:
        more: other parameters; None and empty texts are left out.
    """
    parameters = _parameters(chosen, more)
    if parameters:
        return f"{path}?{urlencode(parameters)}"
    return path


def command(
    words: Iterable[str], chosen: Chosen = None, /, **options: str | None
) -> str:
    """Return the shell command with the same filter, quoted for a shell.

    Args:
        words: words after `redrive`.
        options: other options; None and empty texts are left out.
    """
    flags: list[str] = []
    for name, value in _parameters(chosen, options):
        flags += _flag(name, value)
    return shlex.join(["redrive", *words, *flags])


def _parameters(
    chosen: Chosen, more: Mapping[str, str | None]
) -> list[tuple[str, str]]:
    """Return the set fields of a filter, then the other parameters that are set."""
    if isinstance(chosen, Criteria):
        given = pairs(chosen)
    else:
        given = chosen or ()

    both = (*given, *more.items())
    return [(name, value) for name, value in both if value]


def _flag(name: str, value: str) -> Sequence[str]:
    # The command line would take such a value for an option.
    if value.startswith("-"):
        return [f"--{name}={value}"]
    return [f"--{name}", value]


def is_job_id(number: int) -> bool:
    """Return True if Postgres can hold a number as the id of a job."""
    return 0 < number <= MOST_NUMBER


def place_of(at: datetime, job: int) -> str:
    """Return the position of a dead letter in a list, for the next page's address."""
    return f"{at.isoformat()}/{job}"


def dead_letter_place(text: str | None) -> "Place | None":
    """Parse the position of a dead letter, as `place_of` writes it.

    Raises:
        Refused: it is invalid.
    """
    if not text:
        return None

    at, _, digits = text.rpartition("/")

    try:
        found = datetime.fromisoformat(at)
    except ValueError:
        raise _no_place(text) from None

    # A time without a zone is UTC, as in the filters.
    in_utc = found if found.tzinfo else found.replace(tzinfo=UTC)
    return in_utc, _number("ids", digits)


def job_place(text: str | None) -> str | None:
    """Return the position of a job in a list; None begins the list.

    Raises:
        Refused: it is invalid.
    """
    if text and not PLACES.fullmatch(text):
        raise _no_place(text)
    return text or None


def _no_place(text: str) -> Refused:
    return Invalid(f"after is {text!r}; use the link on the previous page")
