"""A change that a person can make: a preview that counts, then the change.

Previews share the helpers below: parsing, shell commands and limits.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from redrive.database.criteria import Criteria
from redrive.database.rows import Connection
from redrive.dead_letters.filter import Filter
from redrive.jobs.filter import JobFilter
from redrive.rules.payloads.limits import NAME
from redrive.rules.rows import Fields, Signed
from redrive.verbs.query import Query, command, pairs, parse, url
from redrive.verbs.refusal import Conflict, Invalid

if TYPE_CHECKING:
    from redrive.handlers import Handlers

Advance = Callable[[int], None]
Opening = Callable[[], AbstractContextManager[Connection]]
Selection = TypeVar("Selection", Filter, JobFilter)

MOST = 10_000
"""Dead letters or jobs that one request changes; for more there is the command line."""
SAMPLE = 10
WHY_LENGTH = 2000


@dataclass(frozen=True, slots=True)
class Input:
    """Value that a change takes besides the reason.

    Attributes:
        label: label in a form; help of an option.
        kind: JSON type in the API.
        is_required: the command line needs it.
        has_off: false differs from no value.
        takes_many: values with commas between them; an option that can be repeated.
        choices: the values that it may have; empty if it takes any text.
        word: word that confirms it in a form; the API sends true.
        asks: the command line asks for it if it is missing, and no variable sets it.
    """

    name: str
    label: str
    default: str = ""
    hint: str = ""
    kind: str = "string"
    is_required: bool = False
    has_off: bool = False
    takes_many: bool = False
    choices: Sequence[str] = ()
    word: str = ""
    asks: bool = False

    def flag(self, text: str) -> list[str]:
        """Return the flag of a boolean; none if nobody gave it."""
        word = text.lower()
        if word in {"", "false"} and not (word and self.has_off):
            return []
        return [f"--no-{self.name}" if word == "false" else f"--{self.name}"]

    def option(self, text: str, default: str) -> str:
        """Return the value of the option; empty if the default is right."""
        if text != default:
            return text
        return "..." if self.is_required and not text else ""

    @property
    def help(self) -> str:
        """Return the hint, the choices, or what confirms it."""
        if self.word:
            return f"type {self.word}"
        return self.hint or " or ".join(self.choices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """Preview of a change.

    `Verb.look` fills in what the verb declares: title, unit and shell, and the rest
    that its preview leaves empty.

    Attributes:
        matched: number of rows that the change affects.
        query: filter that selects the same rows when the form is sent.
        columns: columns of the sample.
        rows: sample of the affected rows.
        unit: noun for one affected row.
        verb: the verb that is previewed.
        shell: shell command that makes the same change.
        remarks: sentences that the user reads before the change.
        obstacle: reason why the change is impossible; None if it is possible.
        lifted_by: input that lifts the obstacle; empty if none does.
        ids: jobs that the change affects, if a filter selects them.
        missing: jobs that the filter names, and that are not among them.
        absent: what is said of these.
        values: values of inputs that are not their defaults.
        inputs: inputs with these values, for a form.
        estimate: expected duration and risk of a redrive.
        allowed: redrives per second that the handlers allow; None = any number.
        two: kinds that the user can only plan; another role must start the campaign.
        confirm: fields that confirm obstacles of a redrive, by a word of their own.
        repeats: side effects on record, which the change may repeat.
        report: what is reported if the change is not made; empty: the verb's `nothing`.
        found: what the preview has read; a command hands it to the action.
        is_held: the change would set what is set already.
    """

    matched: int = 1
    title: str = ""
    unit: str = ""
    verb: "Verb | None" = None
    shell: str = ""
    query: Query = ()
    columns: Sequence[str] = ()
    rows: Sequence[Fields] = ()
    remarks: Sequence[str] = ()
    obstacle: str | None = None
    lifted_by: str = ""
    ids: Sequence[int] = ()
    missing: Sequence[int] = ()
    absent: str = ""
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    inputs: Sequence[Input] = ()
    estimate: str = ""
    allowed: float | None = None
    two: Sequence[str] = ()
    confirm: Sequence[Input] = ()
    repeats: Sequence[str] = ()
    is_held: bool = False
    report: Fields = field(default_factory=dict[str, Any])
    found: Any = None


@dataclass(frozen=True, slots=True)
class Order:
    """A change to preview or to make.

    Attributes:
        query: what it affects: a filter, or the name of a thing.
        why: reason for the audit log; empty if the change needs none.
        actor: name of the user, for the audit log.
        more: inputs of the change, and what the form or the command adds.
        handlers: handlers that decode the payloads.
        is_whole: `more` has all inputs, so a preview refuses what the action would.
        most: rows that it may affect; None = any number.
        everything: a filter that selects everything is meant so.
        advance: called with a number of rows that are done.
        found: `found` of the preview; the action then changes just that.
    """

    query: Query
    why: str = ""
    actor: str = ""
    more: Mapping[str, str] = field(default_factory=dict[str, str])
    handlers: "Handlers | None" = None
    is_whole: bool = False
    most: int | None = field(default_factory=lambda: MOST)
    everything: bool = False
    advance: Advance | None = None
    found: Any = None

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
    is_in_vain: bool = False
    """Nothing could be changed; the command fails."""


@dataclass(frozen=True, slots=True)
class Verb:
    """A kind of change: a preview, which writes nothing, and the action.

    Attributes:
        what: description of the change.
        command: its command, with names of the query and of inputs in braces. Other
            inputs are options of it.
        label: text of the button.
        unit: noun for one affected row.
        remarks: sentences that the user reads before the change.
        columns: columns of the sample.
        of: class of the filter that selects rows; None if a name selects one.
        names: parameters of the query besides a filter.
        inputs: values that it takes besides the reason.
        confirms: inputs that a form has only if the preview asks for them.
        nothing: report of the action, besides `matched`, if nothing was changed.
        plans: the preview needs a login that may write, because others may not read
            its data.
        help: examples and details, for the help of its command; empty if a function
            of its own has the command.
        takes_several: its command takes several names.
        is_direct: ids and the reason are consent, so its command acts at once.
        asks_why: the change needs a reason.
        usual_why: reason if nobody gives one, as of a scheduled command.
        is_for_shell: only the command line offers it: what it deletes is lost for good.
        decodes: handlers decode the payloads, if the user or a setting names them.
    """

    what: str
    command: str
    label: str
    unit: str
    preview: Callable[[Connection, Order], Preview]
    do: Callable[[Opening, Order], Done]
    remarks: Sequence[str] = ()
    columns: Sequence[str] = ()
    of: type[Criteria] | None = None
    names: Sequence[str] = ()
    inputs: Sequence[Input] = ()
    confirms: Sequence[Input] = ()
    nothing: Fields = field(default_factory=dict[str, Any])
    plans: bool = False
    help: str = ""
    takes_several: bool = False
    is_direct: bool = False
    asks_why: bool = True
    usual_why: str | None = None
    is_for_shell: bool = False
    decodes: bool = False

    def look(self, conn: Connection, order: Order) -> Preview:
        """Return the preview, with the values of its inputs.

        Raises:
            Refused: the query is invalid.
        """
        seen = self.preview(conn, order)
        inputs = [
            replace(each, default=seen.values.get(each.name, each.default))
            for each in self.inputs
        ]
        return replace(
            seen,
            title=seen.title or self._title(order.query),
            unit=seen.unit or self.unit,
            verb=self,
            shell=seen.shell or self.shell(order, seen.values),
            query=seen.query or order.query,
            columns=seen.columns or self.columns,
            remarks=seen.remarks or self.remarks,
            inputs=inputs,
        )

    def _title(self, query: Query) -> str:
        mark = ":" if " " in self.label else ""
        names = " ".join(text for _, text in query) if self.names else ""
        things = f"{self.unit} {names}" if names else f"{self.unit}s"
        return f"{self.label}{mark} {things}"

    def has_place(self, name: str) -> bool:
        """Return True if a name is an argument of the command, and no option."""
        return f"{{{name}}}" in self.command

    @property
    def is_text(self) -> bool:
        """Return True if the reason is the text that the command takes."""
        return self.command.endswith("...")

    @property
    def fields(self) -> Sequence[Input]:
        """Return all inputs."""
        return (*self.inputs, *self.confirms)

    def shell(
        self, order: Order, usual: Mapping[str, str] = MappingProxyType({})
    ) -> str:
        """Return the shell command that makes the change.

        Args:
            usual: values that the command takes if nobody gives others.
        """
        given = {one.name: order.more.get(one.name, "").strip() for one in self.fields}
        words = self._words(order.query, given)
        chosen = (
            typed(self.of, order.query) if self.of and not self.has_place("id") else []
        )
        flags: list[str] = []
        for one in self.fields:
            text = given[one.name]
            if one.kind == "boolean":
                flags += one.flag(text)
            elif not self.has_place(one.name):
                default = usual.get(one.name, one.default)
                chosen.append((one.name, one.option(text, default)))

        if self.asks_why and not self.is_text:
            chosen.append(("why", "..."))
        return " ".join([command(words, chosen), *flags])

    def _words(self, query: Query, given: Mapping[str, str]) -> list[str]:
        """Return the command and its arguments; a missing one is its name in capitals."""
        places = dict(query)
        for name, text in given.items():
            places[name] = text or places.get(name, name.upper())

        words: list[str] = []
        for word in self.command.split():
            ids = [text for name, text in query if name == "id"]
            words += ids if word == "{id}" else [word.format_map(places)]
        return words

    def why(self, text: str) -> str:
        """Return the reason of a change; empty if the change needs none.

        Raises:
            Refused: a reason is needed, and it is missing or too long.
        """
        return why_of(text) if self.asks_why else ""


VAGUE = "Choose a filter first. To change everything, use the command line."


def refuse_vague(chosen: Criteria) -> None:
    """Refuse a filter that selects everything, because its preview is empty.

    Raises:
        Refused: the filter selects everything.
    """
    if not chosen.narrows():
        raise Invalid(VAGUE)


def vague(chosen: Criteria, matched: int) -> str | None:
    """Return why the filter cannot be used; None if it can."""
    if not chosen.narrows():
        return VAGUE
    return None if matched else "Nothing matches the filter."


def obstacle_of(chosen: Criteria, matched: int, most: int | None) -> str | None:
    """Return why one request cannot make the change; None if it can."""
    if most is not None and matched > most:
        return f"More than {most:,} match. Narrow the filter, or use the command line."
    return vague(chosen, matched)


def as_seen(chosen: Filter | JobFilter) -> Query:
    """Return a query that selects exactly these rows, also a minute later."""
    # Leave out the limit that `bounded` has set. It is set again when the form is sent.
    limit = chosen.limit
    if not limit or limit > MOST:
        limit = None
    return list(pairs(replace(chosen, limit=limit)))


def letters_of(order: Order, state: str = "open") -> Filter:
    """Parse the filter of a change, with the limits of `bounded`.

    Args:
        state: state of the dead letters that the change is for.

    Raises:
        Refused: the filter is invalid, or asks for another state.
    """
    chosen = parse(Filter, order.query, states=(state,))
    if tuple(chosen.state) != (state,):
        raise Invalid(f"state must be {state} for this change")
    return bounded(chosen, order)


def bounded(chosen: Selection, order: Order) -> Selection:
    """Select one row more than a request may change, and no rows that come later."""
    limit = chosen.limit
    if order.most is not None:
        limit = min(limit or order.most + 1, order.most + 1)

    until = chosen.until
    is_meant = chosen.narrows() or order.everything
    if not until and not chosen.ids and is_meant:
        until = datetime.now(UTC)
    return replace(chosen, limit=limit, until=until)


def typed(of: type[Criteria], query: Query) -> list[tuple[str, str]]:
    """Return a filter as a person types it, without what commands select by default."""
    asked = [pair for pair in query if tuple(pair) != ("state", "open")]
    return list(pairs(parse(of, asked)))


def one_of(rows: Sequence[Fields], what: str) -> Preview:
    """Return the preview of a change of the one thing with a name, if there is one."""
    return Preview(
        matched=len(rows), rows=rows, obstacle=None if rows else f"There is no {what}."
    )


def refuse_other(matched: int, order: Order) -> None:
    """Refuse a change whose selection is no longer what was previewed.

    Args:
        matched: number of rows that match now.

    Raises:
        Refused: the number of rows differs from the one in the form.
    """
    seen = order.more.get("seen")
    if seen is not None and seen != str(matched):
        raise Conflict(
            f"{matched:,} match now, but the preview showed {seen}; look at it again"
        )


def refuse_more(matched: int, order: Order) -> None:
    """Refuse to change more rows than one request may.

    Raises:
        Refused: too many rows match, or other ones than in the preview.
    """
    refuse_other(matched, order)
    if order.most is not None and matched > order.most:
        raise Conflict(f"more than {order.most:,} match; narrow the filter")


def back(chosen: Filter | JobFilter) -> str:
    """Return the page to show after a change: the job, or the list."""
    if len(chosen.ids) == 1:
        return f"/jobs/{chosen.ids[0]}"

    path = "/dead-letters" if isinstance(chosen, Filter) else "/jobs"
    return url(path, replace(chosen, limit=None, until=None))


def sentence(text: str) -> str:
    """Return a text with a capital and a full stop."""
    end = "" if text.endswith(("?", ".")) else "."
    return text[:1].upper() + text[1:] + end


def on_pause(
    name: str, word: str, remark: str, *, is_paused: bool
) -> tuple[list[str], str | None]:
    """Return remarks on a pause or its end, and why it would change nothing."""
    if word == "pause" and is_paused:
        return [f"{name} is paused already. This replaces the reason."], None
    if word == "resume" and not is_paused:
        return [remark], f"{name} is not paused."
    return [remark], None


def named(query: Query, name: str) -> str:
    """Return the value of the one parameter.

    Raises:
        Refused: the query lacks it, repeats it, or has other parameters.
    """
    values = [value.strip() for key, value in query if key == name]
    values = [value for value in values if value]
    has_others = any(key != name for key, _ in query)
    if len(values) != 1 or has_others:
        raise Invalid(f"{name} must be given exactly once, without other parameters")

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
        raise Invalid(
            f"{name} is {value!r}; it must match ^[A-Za-z][A-Za-z0-9_.-]{{0,62}}$"
        )

    return value


def why_of(text: str) -> str:
    """Return the reason of a change, without blanks around it.

    Raises:
        Refused: it is missing, is too long, or has a NUL.
    """
    why = text.strip()
    if not why:
        raise Invalid("why is missing; give the reason, which the audit log keeps")
    if len(why) > WHY_LENGTH or "\0" in why:
        raise Invalid(f"why must have at most {WHY_LENGTH} characters and no NUL")

    return why
