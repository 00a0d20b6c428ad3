"""Changes in the console: a preview that counts, then the change.

Previews share the helpers below: parsing, shell commands and limits.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeVar

from redrive.console.query import Query, command, pairs, parse, url
from redrive.console.security.access import Refused
from redrive.database.criteria import Criteria
from redrive.database.rows import Connection
from redrive.dead_letters.filter import Filter
from redrive.handlers import Handlers
from redrive.live_jobs.filter import JobFilter
from redrive.rules.payloads.limits import NAME
from redrive.rules.rows import Fields, Signed

Opening = Callable[[], AbstractContextManager[Connection]]
Selection = TypeVar("Selection", Filter, JobFilter)

MOST = 10_000
"""Dead letters or jobs that one request changes; for more there is the command line."""
SAMPLE = 10
WHY_LENGTH = 2000


@dataclass(frozen=True, slots=True)
class Input:
    """A field of a form besides the reason."""

    name: str
    label: str
    default: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """Preview of a change.

    Attributes:
        matched: number of rows that the change affects.
        unit: noun for one affected row.
        verb: text of the button.
        shell: shell command that makes the same change.
        query: filter that selects the same rows when the form is sent.
        columns: columns of the sample.
        rows: sample of the affected rows.
        remarks: sentences that the user reads before the change.
        obstacle: reason why the change is impossible; None if it is possible.
        estimate: expected duration and risk of a redrive.
        two: kinds that the user can only plan; another role must start the campaign.
        confirm: fields that confirm obstacles of a redrive, by a word of their own.
    """

    title: str
    matched: int
    unit: str
    verb: str
    shell: str
    query: Query
    columns: Sequence[str] = ()
    rows: Sequence[Fields] = ()
    remarks: Sequence[str] = ()
    obstacle: str | None = None
    inputs: Sequence[Input] = ()
    estimate: str = ""
    two: Sequence[str] = ()
    confirm: Sequence[Input] = ()


@dataclass(frozen=True, slots=True)
class Order:
    """A change to make.

    Attributes:
        why: reason for the audit log; empty if the change needs none.
        actor: name of the user, for the audit log.
        more: fields of the form besides the reason, or of the API's body.
        handlers: handlers that decode the payloads.
    """

    query: Query
    why: str
    actor: str
    more: Mapping[str, str] = field(default_factory=dict[str, str])
    handlers: Handlers | None = None

    @property
    def signed(self) -> Signed:
        """Return who makes the change, and why."""
        return Signed(actor=self.actor, why=self.why)


@dataclass(frozen=True, slots=True)
class Done:
    """Result of a change: a sentence, the same as a report, and the next page."""

    text: str
    report: Fields
    path: str
    is_shown: bool = False
    """Show the report in the response, because no other page may show it."""


@dataclass(frozen=True, slots=True)
class Change:
    """A kind of change: a preview, which writes nothing, and the action.

    Attributes:
        what: description of the change, for the API.
        of: class of the filter that selects rows; None if a name selects one.
        names: parameters of the query besides a filter.
        plans: the preview needs a login that may write, because others may not read
            its data.
        asks_why: the change needs a reason.
    """

    what: str
    preview: Callable[[Connection, Query], Preview]
    do: Callable[[Opening, Order], Done]
    of: type[Criteria] | None = None
    names: Sequence[str] = ()
    plans: bool = False
    asks_why: bool = True

    def why(self, text: str) -> str:
        """Return the reason of a change; empty if the change needs none.

        Raises:
            Refused: a reason is needed, and it is missing or too long.
        """
        return why_of(text) if self.asks_why else ""


def counted(n: int, one: str) -> str:
    """Format a number with its noun."""
    noun = one if n == 1 else f"{one}s"
    return f"{n:,} {noun}"


VAGUE = "Choose a filter first. To change everything, use the command line."


def refuse_vague(chosen: Criteria) -> None:
    """Refuse a filter that selects everything, because its preview is empty.

    Raises:
        Refused: the filter selects everything.
    """
    if not chosen.narrows():
        raise Refused(400, VAGUE)


def vague(chosen: Criteria, matched: int) -> str | None:
    """Return why the filter cannot be used; None if it can."""
    if not chosen.narrows():
        return VAGUE
    return None if matched else "Nothing matches the filter."


def obstacle_of(chosen: Criteria, matched: int) -> str | None:
    """Return why one request cannot make the change; None if it can."""
    if matched > MOST:
        return f"More than {MOST:,} match. Narrow the filter, or use the command line."
    return vague(chosen, matched)


def until_of(chosen: Filter | JobFilter) -> datetime | None:
    """Return the end of the time filter, to leave out later dead letters."""
    if chosen.until or chosen.ids or not chosen.narrows():
        return chosen.until
    return datetime.now(UTC)


def as_seen(chosen: Filter | JobFilter) -> Query:
    """Return a query that selects exactly these rows, also a minute later."""
    # Leave out the limit that `bounded` has set. It is set again when the form is sent.
    limit = chosen.limit
    if not limit or limit > MOST:
        limit = None
    return list(pairs(replace(chosen, limit=limit)))


def letters_of(query: Query, state: str = "open") -> Filter:
    """Parse the filter of a change, with the limits of `bounded`.

    Args:
        state: state of the dead letters that the change is for.

    Raises:
        Refused: the filter is invalid, or asks for another state.
    """
    chosen = parse(Filter, query, states=(state,))
    if tuple(chosen.state) != (state,):
        raise Refused(400, f"state must be {state} for this change")
    return bounded(chosen)


def bounded(chosen: Selection) -> Selection:
    """Select one row more than a request may change, and no rows that come later."""
    limit = min(chosen.limit or MOST + 1, MOST + 1)
    return replace(chosen, limit=limit, until=until_of(chosen))


def shell_of(
    words: Sequence[str], query: Query, of: type[Criteria], **more: str
) -> str:
    """Return the shell command as a person types it, without the preview's instant."""
    # The commands select open dead letters by default.
    usual = ("state", "open")
    asked = [pair for pair in query if tuple(pair) != usual]
    return command(words, parse(of, asked), **more)


def refuse_other(matched: int, order: Order) -> None:
    """Refuse a change whose selection is no longer what was previewed.

    Args:
        matched: number of rows that match now.

    Raises:
        Refused: the number of rows differs from the one in the form.
    """
    seen = order.more.get("seen")
    if seen is not None and seen != str(matched):
        raise Refused(
            409,
            f"{matched:,} match now, but the preview showed {seen}; look at it again",
        )


def refuse_more(matched: int, order: Order) -> None:
    """Refuse to change more rows than one request may.

    Raises:
        Refused: too many rows match, or other ones than in the preview.
    """
    refuse_other(matched, order)
    if matched > MOST:
        raise Refused(409, f"more than {MOST:,} match; narrow the filter")


def back(chosen: Filter | JobFilter) -> str:
    """Return the page to show after a change: the job, or the list."""
    if len(chosen.ids) == 1:
        return f"/jobs/{chosen.ids[0]}"

    path = "/dead-letters" if isinstance(chosen, Filter) else "/jobs"
    return url(path, replace(chosen, limit=None, until=None))


def named(query: Query, name: str) -> str:
    """Return the value of the one parameter.

    Raises:
        Refused: the query lacks it, repeats it, or has other parameters.
    """
    values = [value.strip() for key, value in query if key == name]
    values = [value for value in values if value]
    has_others = any(key != name for key, _ in query)
    if len(values) != 1 or has_others:
        raise Refused(
            400,
            f"{name} must be given exactly once, without other parameters",
        )

    return values[0]


def id_of(query: Query) -> int:
    """Return the one id.

    Raises:
        Refused: it is missing or invalid, or there are other parameters.
    """
    text = named(query, "id")
    ids = parse(Filter, [("id", text)]).ids
    return int(ids[0])


def name_in(query: Query, name: str) -> str:
    """Return the one name of a queue or a breaker.

    Args:
        name: parameter that holds it.

    Raises:
        Refused: it is missing or invalid, or there are other parameters.
    """
    value = named(query, name)
    if not NAME.fullmatch(value):
        raise Refused(
            400,
            f"{name} is {value!r}; it must match ^[a-z][a-z0-9_.-]{{0,62}}$",
        )

    return value


def why_of(text: str) -> str:
    """Return the reason of a change, without blanks around it.

    Raises:
        Refused: it is missing, is too long, or has a NUL.
    """
    why = text.strip()
    if not why:
        raise Refused(400, "why is missing; give a reason, which the audit log keeps")
    if len(why) > WHY_LENGTH or "\0" in why:
        raise Refused(400, f"why must have at most {WHY_LENGTH} characters and no NUL")

    return why
