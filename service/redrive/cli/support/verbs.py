"""Commands of verbs: what one would do, the consent, the change and what it says.

A verb declares its selection, its inputs and its words. Each of these commands shows
the preview and asks, unless the user gave --yes. Without a terminal and without --yes
it only shows the preview, and exits with 0. --why is needed to act, and not for a
preview.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
import msgspec

from redrive.cli.support.completion import Known
from redrive.cli.support.connection import database, only_one, wait_for_schema
from redrive.cli.support.exits import Exit, NotFound
from redrive.cli.support.filters import filter_options
from redrive.cli.support.names import say_unknown
from redrive.cli.support.options import (
    Command,
    Decorator,
    Id,
    Run,
    json_option,
    option,
    plain_run_options,
    run_options,
    with_options,
)
from redrive.cli.support.output import (
    answer,
    emit,
    listing,
    not_found,
    printable,
    shown_id,
    wants_json,
)
from redrive.cli.support.terminal import confirm, progress
from redrive.database.rows import Connection
from redrive.errors import InvalidJob
from redrive.rules.brief import counted
from redrive.rules.payloads.escape import escaped_lines
from redrive.rules.payloads.limits import check_keys
from redrive.verbs.query import Query, pairs
from redrive.verbs.refusal import Invalid, Refused
from redrive.verbs.verb import Done, Input, Order, Preview, Verb

if TYPE_CHECKING:
    from redrive.handlers import Handlers

T = TypeVar("T")

IDS = {"id", "campaign", "proposal"}
"""Names of things that have numbers."""
COMPLETED = {
    "queue": "queue",
    "group": "group",
    "schedule": "schedule",
    "in": "version",
}
"""Parameter -> the names that a shell completes."""
METAVARS = {"number": "NUMBER", "integer": "N", "array": "JSON"}
COLOURS = {"+": "green", "-": "red", "@": "cyan"}
"""Colour of a line of a diff, by its first character."""
NOTHING: Mapping[str, str] = {}


Look = tuple[Order, Preview]
Then = Callable[[Connection, Done], Done]
"""What a command adds to a change that is made; it returns what is printed."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A verb as a user typed it.

    Attributes:
        orders: what it affects: a filter, or each of the things that were named.
        target: registry of the handlers that the user or a setting names.
        has_options: its inputs are options and arguments, and not pairs or JSON.
    """

    verb: Verb
    orders: Sequence[Order]
    run: Run
    target: str = ""
    has_options: bool = True

    def alone(self, name: str) -> AbstractContextManager[object]:
        """Keep two runs apart. Single dead letters need not wait for a scheduled run."""
        if self.run.acts and not _are_ids(self.orders):
            return only_one(self.run.settings, name)
        return nullcontext()

    def perform(self, verb: Verb | None = None, then: Then | None = None) -> Exit:
        """Show the preview, ask, make the change and print the result.

        Args:
            verb: another one than the verb whose options the command has.
            then: called after each change, before its result is printed.

        Raises:
            click.UsageError: an input is invalid, or the reason is missing.
            NotFound: there is no such thing, or it cannot be changed now.
        """
        verb = verb or self.verb
        try:
            if self.run.acts:
                verb.why(self.run.why or "")
            with database(self.run.settings) as conn:
                return self._perform(conn, verb, then)
        except Invalid as refused:
            raise click.UsageError(self._as_typed(verb, refused.text)) from None
        except Refused as refused:
            raise NotFound(refused.text) from None

    def _as_typed(self, verb: Verb, fault: str) -> str:
        """Return the fault of an input with the name that the user typed."""
        name = fault.split(" ", maxsplit=1)[0].rstrip(":")
        typed = {"why": "TEXT" if verb.is_text else "--why"}
        if self.has_options:
            typed |= {one.name: _typed(verb, one) for one in verb.fields}
        return fault.replace(name, typed.get(name, name), 1)

    def _perform(self, conn: Connection, verb: Verb, then: Then | None) -> Exit:
        looks = [(order, verb.look(conn, order)) for order in self.orders]
        code = self._name_missed(conn, looks) if verb.of else _name_obstacles(looks)
        agreed = [look for look in looks if _is_possible(look[1])]
        if not agreed:
            _say_unchanged(verb, looks)
            return code

        previews = [seen for _, seen in agreed]
        self._show(verb, previews)
        agreed = [(self._confirmed(*look), look[1]) for look in agreed]
        why = self._consent(verb, previews)
        if why is None:
            _say_unchanged(verb, agreed, self.run.unchanged())
            return code

        for order, seen in agreed:
            done = _make(conn, verb, replace(order, why=why), seen)
            code = max(code, _say(then(conn, done) if then else done))
        return code

    def _name_missed(self, conn: Connection, looks: Sequence[Look]) -> Exit:
        """Name what does not exist or cannot be changed; return the exit code."""
        is_possible = not all(seen.obstacle for _, seen in looks)
        ((order, seen), *_) = looks
        for job in seen.missing:
            shown = shown_id(job)
            look = f"redrive job show {shown} shows what happened to it"
            not_found(f"job {shown} {seen.absent}; {look}")

        if seen.matched and not (_is_possible(seen) or wants_json()):
            _show_remarks([seen])
        if is_possible:
            return Exit.DONE
        if seen.matched:
            return Exit.FAILED
        if not (seen.missing or wants_json()):
            click.echo("nothing matched")

        named = {
            name: [text for key, text in order.query if key == name]
            for name in ("id", "kind", "queue")
        }
        ids = named.pop("id")
        # A scheduled run may name a kind that has had no job yet.
        is_unknown = say_unknown(conn, **named) and self.run.every is None
        return Exit.NOTHING_MATCHED if ids or is_unknown else Exit.DONE

    def _show(self, verb: Verb, seen: Sequence[Preview]) -> None:
        """Show people what they agree to. With --yes they have agreed already."""
        if wants_json() or (self.run.yes and verb.asks_why):
            return

        first = seen[0]
        if verb.of is not None:
            click.echo(counted(first.matched, first.unit))

        rows = [dict(row) for each in seen for row in each.rows]
        if rows:
            listing(rows, first.columns)

        _show_remarks(seen)

    def _consent(self, verb: Verb, seen: Sequence[Preview]) -> str | None:
        """Return the reason of a change after consent; None without it."""
        if not verb.asks_why:
            return ""

        if verb.of is None:
            titles = ", ".join(each.title for each in seen)
            why = self.run.consent(f"{titles}?", "yes")
        else:
            (one,) = seen
            question = f"{verb.label} {counted(one.matched, one.unit)}?"
            why = self.run.consent(question, str(one.matched))

        repeated = ", ".join(printable(what) for each in seen for what in each.repeats)
        # With --yes, the user has agreed to repeated side effects, too.
        if why is None or self.run.yes or not repeated:
            return why
        return why if confirm(f"This may repeat: {repeated}.", "again") else None

    def _confirmed(self, order: Order, seen: Preview) -> Order:
        """Return an order with what the user confirms at a terminal."""
        if self.run.yes or self.run.dry_run:
            return order

        more = dict(order.more)
        if not seen.ids and self.verb.of:
            more["seen"] = str(seen.matched)
        for each in seen.confirm:
            is_asked = each.asks and not more.get(each.name)
            if is_asked and confirm(f"{each.label}?", each.word):
                more[each.name] = "true"
        return replace(order, more=more)


def _are_ids(orders: Iterable[Order]) -> bool:
    return {name for order in orders for name, _ in order.query} == {"id"}


def orders_of(
    verb: Verb,
    run: Run,
    queries: Iterable[Query],
    more: Mapping[str, str] = NOTHING,
    handlers: str | None = None,
) -> list[Order]:
    """Return an order for each query, with all its inputs and for any number of rows.

    Args:
        handlers: registry that the user names.
    """
    order = Order(
        query=(),
        actor=run.settings.who(),
        more=more,
        handlers=load_handlers(run, handlers) if verb.decodes else None,
        is_whole=True,
        most=None,
        everything=True,
    )
    return [replace(order, query=query) for query in queries]


def load_handlers(run: Run, given: str | None) -> "Handlers | None":
    """Return the handlers that the user or a setting names."""
    from redrive import handlers  # noqa: PLC0415 # few commands need them

    target = given or run.settings.handlers
    name = "--handlers" if given else "REDRIVE_HANDLERS"
    return handlers.load(target, name) if target else None


def read_wanted(text: str, shape: type[T], what: str) -> T:
    """Read what `set_each` is to set, as JSON.

    Args:
        what: what the JSON holds, with an example.

    Raises:
        click.UsageError: it has another shape, or a key twice.
    """
    try:
        wanted = msgspec.json.decode(text, type=shape)
        check_keys("JSON", text)
    except (msgspec.DecodeError, InvalidJob) as error:
        raise click.UsageError(f"JSON must hold {what}: {error}") from None

    return wanted


def set_each(
    verb: Verb, run: Run, wanted: Iterable[tuple[str, Mapping[str, str]]]
) -> Exit:
    """Set the values that differ, after consent. Waits for the schema, as a worker does.

    Args:
        wanted: what is set -> its inputs.
    """
    wait_for_schema(run.settings.address(), run.settings.startup_timeout)
    (name,) = verb.names
    orders = [
        order
        for place, more in wanted
        for order in orders_of(verb, run, [[(name, place)]], more)
    ]
    return Asked(verb, orders, run, has_options=False).perform()


def set_options(command: Command) -> Command:
    """Add the options of a command that calls `set_each`; the command gets `run`."""
    return with_options([run_options(), json_option], command)


def pairs_argument(verb: Verb) -> Decorator:
    """Add pairs such as audit=800d for the one input of a verb."""
    (name,), (one,) = verb.names, verb.inputs

    def read(
        _context: click.Context, _: click.Parameter, given: tuple[str, ...]
    ) -> list[tuple[str, Mapping[str, str]]]:
        parted = (text.partition("=") for text in given)
        return [(place, {one.name: value}) for place, _, value in parted]

    return click.argument(
        "wanted",
        metavar=f"{name.upper()}=VALUE...",
        nargs=-1,
        required=True,
        callback=read,
    )


def _show_remarks(seen: Sequence[Preview]) -> None:
    # Previews of several things have most of their remarks in common.
    for remark in dict.fromkeys(_remarks(seen)):
        lines = escaped_lines(remark).split("\n")
        is_diff = len(lines) > 1
        for line in lines:
            click.secho(line, fg=COLOURS.get(line[:1]) if is_diff else None)


def _make(conn: Connection, verb: Verb, order: Order, seen: Preview) -> Done:
    query = seen.query
    if seen.ids:
        # Change the rows that were shown, and not others that match meanwhile.
        states = [pair for pair in query if pair[0] == "state"]
        query = [*states, *(("id", str(job)) for job in seen.ids)]

    with progress(verb.label, seen.matched) as advance:
        wanted = replace(order, query=query, advance=advance, found=seen.found)
        return verb.do(lambda: nullcontext(conn), wanted)


def _say_unchanged(verb: Verb, looks: Sequence[Look], text: str | None = None) -> None:
    report = {"matched": sum(seen.matched for _, seen in looks), **verb.nothing}
    for _, seen in looks:
        report |= seen.report

    if all(seen.is_held for _, seen in looks):
        text = "nothing to do"
    answer(report, text)


def _is_possible(seen: Preview) -> bool:
    """Return True if the change can be made, and would change something."""
    return seen.obstacle is None and not seen.is_held


def _name_obstacles(looks: Sequence[Look]) -> Exit:
    """Name the things that cannot be changed; return the exit code."""
    for _, seen in looks:
        if seen.obstacle:
            hint = f" (--{seen.lifted_by} allows it)" if seen.lifted_by else ""
            first, rest = seen.obstacle[0], seen.obstacle[1:].removesuffix(".")
            not_found(first.lower() + rest + hint)

    are_all = all(seen.obstacle for _, seen in looks)
    return Exit.NOTHING_MATCHED if are_all else Exit.DONE


def _remarks(seen: Sequence[Preview]) -> Iterator[str]:
    for each in seen:
        yield from each.remarks
        yield from filter(None, [each.estimate])


def _say(done: Done) -> Exit:
    """Print what a change did; return the exit code. A payload is printed alone."""
    if done.is_shown:
        emit(done.report["payload"])
    else:
        answer(done.report, done.text.removesuffix("."))
    return Exit.FAILED if done.is_in_vain else Exit.DONE


handlers_option: Decorator = click.option(
    "--handlers",
    metavar="MODULE:ATTRIBUTE",
    help="Check payloads with these handlers. [env: REDRIVE_HANDLERS]",
)


def add_verbs(group: click.Group, verbs: Mapping[str, Verb]) -> None:
    """Add the commands of a group that need nothing but the declaration of their verb."""
    for verb in verbs.values():
        of_group, *names = verb.command.split()
        if verb.help and of_group == group.name:
            act = verb_options(verb)(_perform)
            group.command(names[0], help=f"{verb.what}\n{verb.help}")(act)


def _perform(asked: Asked) -> int:
    return asked.perform()


def verb_options(
    verb: Verb, *, everything: bool = False, prefix: str | None = None
) -> Decorator:
    """Add the arguments and options of a verb; the command gets it as `asked`.

    Args:
        everything: without a filter it selects everything.
        prefix: prefix of the environment variables for the options.
    """
    options = _selection(verb, prefix)
    options += [option_of(verb, each, prefix) for each in verb.fields]
    if prefix and not everything:
        text = "Select everything, if no filter is given."
        options.append(option(prefix, "--all", "everything", is_flag=True, help=text))
    options += _run_options(verb, prefix)

    def add(command: Command) -> Command:
        @functools.wraps(command)
        def start(*, run: Run, **given: Any) -> object:
            asked = _asked(verb, run, given, everything)
            return command(asked=asked, **given)

        return with_options(options, start)

    return add


def _run_options(verb: Verb, prefix: str | None) -> Iterator[Decorator]:
    if verb.decodes:
        yield handlers_option

    reason = click.argument("why", metavar="TEXT") if verb.is_text else None
    run = run_options(prefix, why=verb.usual_why, reason=reason)
    yield run if verb.asks_why else plain_run_options
    yield json_option


def _asked(verb: Verb, run: Run, given: dict[str, Any], everything: bool) -> Asked:
    """Take what the user asks for from the given values."""
    more = {one.name: _text(given.pop(_safe(one))) for one in verb.fields}
    hint = ", or --all" if "everything" in given else ""
    queries = _selected(verb, given, given.pop("everything", everything), hint)
    handlers = given.pop("handlers", None)
    orders = orders_of(verb, run, queries, more, handlers)

    is_given = run.why is not None and not run.dry_run
    if verb.is_direct and is_given and _are_ids(orders):
        run = replace(run, yes=True)
    return Asked(verb, orders, run, handlers or run.settings.handlers or "")


def _selection(verb: Verb, prefix: str | None) -> list[Decorator]:
    if verb.of is not None and not verb.has_place("id"):
        return [filter_options(prefix, of=verb.of, takes_ids=True)]
    if verb.of is not None:
        return [
            click.argument("ids", metavar="ID...", type=Id(), nargs=-1, required=True)
        ]

    (name,) = verb.names
    shown = name.upper() + ("..." if verb.takes_several else "")
    kind = Id() if name in IDS else _text_of(name, verb.unit)
    count = -1 if verb.takes_several else 1

    return [click.argument(name, metavar=shown, type=kind, nargs=count, required=True)]


def _selected(
    verb: Verb, given: dict[str, Any], is_all: bool, hint: str
) -> list[Query]:
    """Take the selection from the given values, as queries."""
    if "ids" in given:
        return [[("id", str(job)) for job in given.pop("ids")]]
    if verb.of is not None:
        chosen = given.pop("chosen")
        if not chosen.narrows() and not is_all:
            raise click.UsageError(f"give ids or a filter{hint}")
        return [list(pairs(chosen))]

    (name,) = verb.names
    named = given.pop(name)
    each: Sequence[Any] = (named,)
    if isinstance(named, tuple):
        each = cast("tuple[Any, ...]", named)

    return [[(name, str(one))] for one in dict.fromkeys(each)]


def _typed(verb: Verb, each: Input) -> str:
    """Return the name of an input on the command line: OWNER, or --contact."""
    return each.name.upper() if verb.has_place(each.name) else f"--{each.name}"


def option_of(verb: Verb, each: Input, prefix: str | None = None) -> Decorator:
    """Return the argument or option of an input."""
    kind = click.Choice(each.choices) if each.choices else _text_of(each.name)
    flag = _typed(verb, each)
    if verb.has_place(each.name):
        return click.argument(_safe(each), metavar=flag, type=kind)

    text = f"{each.label}."
    if each.kind == "boolean":
        prefix = None if each.asks else prefix
        flag += f"/--no-{each.name}" if each.has_off else ""
        return option(prefix, flag, _safe(each), help=text, is_flag=True, default=None)

    return option(
        prefix,
        flag,
        _safe(each),
        help=f"{each.label}: {each.hint}." if each.hint else text,
        type=kind,
        metavar=None if each.choices else METAVARS.get(each.kind, "TEXT"),
        multiple=each.takes_many,
        required=each.is_required and not each.asks,
        default=each.default or None,
        show_default=bool(each.default),
    )


def _text_of(name: str, unit: str = "") -> click.ParamType[Any]:
    """Return the type of a text, which a shell completes if it knows the names."""
    what = COMPLETED.get(name) or COMPLETED.get(unit)
    return Known(what) if what else click.STRING


def _safe(each: Input) -> str:
    """Return the name of a parameter, which is no keyword of Python."""
    return "input_" + each.name.replace("-", "_")


def _text(value: Any) -> str:
    """Return the value of an option as a form sends it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ", ".join(cast("tuple[str, ...]", value))
    return str(value)
