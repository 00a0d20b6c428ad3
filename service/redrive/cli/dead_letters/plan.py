"""redrive campaign plan: freeze the dead letters of a campaign, and check them."""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from redrive import handlers as registry
from redrive.cli.support.connection import database
from redrive.cli.support.exits import Exit
from redrive.cli.support.filters import filter_options
from redrive.cli.support.options import (
    Command,
    Decorator,
    actor_option,
    json_option,
    option,
    settings_options,
    with_options,
)
from redrive.cli.support.output import (
    counted,
    emit,
    listing,
    no_letter,
    not_found,
    printable,
    shown_id,
    wants_json,
)
from redrive.cli.support.terminal import progress
from redrive.database.rows import Connection
from redrive.dead_letters.campaigns import campaign as campaigns
from redrive.dead_letters.campaigns.campaign import MAX_REDRIVES, Plan
from redrive.dead_letters.campaigns.unfit import Unfit, leave_out
from redrive.dead_letters.filter import Filter
from redrive.handlers import Handlers
from redrive.rules.dead_letters.campaign import CANARIES, exposure, pace
from redrive.rules.dead_letters.obstacles import Allow, stays
from redrive.rules.dead_letters.terms import BadTerm, read_term
from redrive.rules.rows import Row
from redrive.settings import Settings

if TYPE_CHECKING:
    from redrive.dry_run.tries import Tried

GROUPS_SHOWN = 10
GROUP_COLUMNS = ("count", "group", "kind", "error_class", "message")

MAX_REDRIVES_HELP = "Leave out dead letters that were redriven this often already."
QUARANTINED_HELP = "Include quarantined dead letters: they died again after a redrive."
INVALID_HELP = (
    "Include invalid payloads that nobody has corrected, without a newer version."
)
REPEAT_HELP = (
    "Run jobs again whose handlers say repeatable=False. Give their ids with it."
)
TO_QUEUE_HELP = "Let the jobs run in this queue, and not in the one where each died."
RATE_HELP = "At most this many jobs per second."


class TermType(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] # older versions take none
    """Type of an option that is a term of a campaign, with the term's own rule."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,  # noqa: ARG002 # of the interface
        ctx: click.Context | None,
    ) -> Any:
        """Parse the value as `redrive campaign start` does.

        Raises:
            click.UsageError: the term's rule does not allow the value.
        """
        if not isinstance(value, str):
            return value

        try:
            return read_term(self.name, value, datetime.now(UTC))
        except BadTerm as error:
            raise click.UsageError(f"--{error}", ctx) from None


rate_option = click.option(
    "--rate",
    type=TermType("rate"),
    metavar="PER_SECOND",
    help=RATE_HELP,
)


def allow_options(prefix: str | None = None) -> Decorator:
    """Add options that confirm obstacles; the command gets them as `allow`.

    No variable confirms --repeat, because no scheduled run may do so.
    """
    options = [
        option(
            prefix,
            "--include-quarantined",
            is_flag=True,
            help=QUARANTINED_HELP,
        ),
        option(
            prefix,
            "--include-invalid",
            is_flag=True,
            help=INVALID_HELP,
        ),
        option(
            None,
            "--repeat",
            is_flag=True,
            help=REPEAT_HELP,
        ),
    ]

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def choose(
            include_quarantined: bool, include_invalid: bool, repeat: bool, **more: Any
        ) -> object:
            allow = Allow(
                quarantined=include_quarantined,
                invalid=include_invalid,
                repeat=repeat,
            )
            return command(allow=allow, **more)

        return with_options(options, choose)

    return decorate


class _Checked(NamedTuple):
    """Plan, and what the handlers say about it."""

    plan: Plan
    unfit: Unfit
    tried: "Tried | None"
    rate: float | None


@click.command("plan")
@filter_options(states=("open",))
@rate_option
@click.option(
    "--max-redrives",
    type=click.IntRange(1),
    default=MAX_REDRIVES,
    metavar="N",
    show_default=True,
    help=MAX_REDRIVES_HELP,
)
@allow_options()
@click.option(
    "--handlers",
    metavar="MODULE:ATTRIBUTE",
    help="Leave out payloads that these handlers refuse. [env: REDRIVE_HANDLERS]",
)
@click.option(
    "--try",
    "tries",
    type=click.IntRange(1, 100),
    metavar="N",
    help="Run the handlers on N dead letters, in a process that can send nothing.",
)
@actor_option
@settings_options("actor", "handlers")
@json_option
def plan_campaign(
    chosen: Filter,
    rate: float | None,
    max_redrives: int,
    allow: Allow,
    tries: int | None,
    settings: Settings,
) -> int:
    """Freeze the dead letters that a campaign would redrive.

    \b
    redrive campaign plan --kind invoice.charge --where payload.currency=XAU --rate 5
    redrive campaign plan --group 5f2c --handlers app.jobs:jobs --try 5

    Nothing else changes. With --handlers, the handlers read and check the payloads, and payloads
    that they refuse are left out. With --try, the handlers also run on some of the dead letters, in
    a process that cannot open a connection or change a file. A plan is deleted after one day if
    nobody starts it.
    """
    require_ids(allow, chosen)
    if tries and not settings.handlers:
        raise click.UsageError("--try needs --handlers MODULE:ATTRIBUTE")

    registered = _load(settings)
    with database(settings) as conn:
        plan = campaigns.plan(
            conn,
            chosen,
            actor=settings.who(),
            max_redrives=max_redrives,
            allow=allow,
        )

        unfit = _leave_out(conn, plan, registered)
        tried = _try(conn, plan, registered, settings, tries)

    _show(_Checked(plan, unfit, tried, rate))
    return exit_of(plan, chosen)


def require_ids(allow: Allow, chosen: Filter) -> None:
    """Refuse to repeat jobs without their ids.

    Raises:
        click.UsageError: --repeat is given, and no id is.
    """
    if allow.repeat and not chosen.ids:
        raise click.UsageError("--repeat needs ids: name each job that may run again")


def exit_of(plan: Plan, chosen: Filter) -> Exit:
    """Name the requested dead letters that are missing; return the exit code."""
    for missed in plan.missing:
        not_found(no_letter(missed, "no open dead letter, or it does not match"))

    if chosen.ids and not plan.matched:
        return Exit.NOTHING_MATCHED
    return Exit.DONE


def _load(settings: Settings) -> Handlers | None:
    if not settings.handlers:
        return None
    return registry.load(settings.handlers, settings.name_of("handlers"))


def _leave_out(conn: Connection, plan: Plan, handlers: Handlers | None) -> Unfit:
    """Leave payloads that the handlers refuse out of a plan; count them."""
    if handlers is None or plan.plan is None:
        return Unfit()

    with progress("read", plan.matched) as advance:
        return leave_out(
            conn,
            plan.plan,
            handlers,
            progress=advance,
        )


def _try(
    conn: Connection,
    plan: Plan,
    handlers: Handlers | None,
    settings: Settings,
    count: int | None,
) -> "Tried | None":
    """Run the handlers on some dead letters of a plan; None if not requested."""
    if not count or handlers is None or plan.plan is None:
        return None

    from redrive.dry_run.tries import try_some  # noqa: PLC0415 # it brings the worker

    target = settings.handlers or ""
    with progress("tried", min(count, plan.matched)) as advance:
        return try_some(
            conn,
            plan,
            handlers,
            target,
            count,
            progress=advance,
        )


def _show(checked: _Checked) -> None:
    if wants_json():
        emit(_fields(checked))
        return

    show_plan(checked.plan, checked.rate)
    for line in _unfit_remarks(checked.unfit):
        click.echo(line)

    for line in _tried_remarks(checked.tried):
        click.echo(line)

    number = checked.plan.plan
    if number is None:
        return

    shown = shown_id(number)
    click.echo(f"plan {shown}; start it with: redrive campaign start {shown}")


def _fields(checked: _Checked) -> Row:
    plan = checked.plan
    fields = asdict(plan) | asdict(checked.unfit)
    fields["seconds"] = seconds_of(plan, checked.rate)
    fields["stops_after"] = exposure(CANARIES)

    if checked.tried:
        fields["tried"] = asdict(checked.tried)

    return fields


def show_plan(plan: Plan, rate: float | None) -> None:
    """Print the content of a plan."""
    if not plan.matched:
        click.echo("nothing matched")
        return

    letters = counted(plan.matched, "open dead letter")
    groups = counted(plan.group_count, "group")
    click.echo(f"{letters} in {groups}")

    shown = plan.groups[:GROUPS_SHOWN]
    listing(shown, GROUP_COLUMNS, right=("count",))

    for remark in _remarks(plan, rate):
        click.echo(remark)


def _remarks(plan: Plan, rate: float | None) -> Iterator[str]:
    """Yield warnings about the dead letters before they are redriven."""
    sample = ", ".join(map(shown_id, plan.sample))
    yield f"for example: {sample}"

    for cause, count in sorted(plan.blocked.items()):
        words = stayed(cause, plan.sample)
        yield f"{count} will stay: {words}"

    if plan.acted:
        yield f"{plan.acted} have side effects on record; see dlq show"

    yield from rate_remarks(plan.rates)
    yield from _pace_remarks(plan, rate)


def _pace_remarks(plan: Plan, rate: float | None) -> Iterator[str]:
    """Yield how long the plan takes at least, if anything limits its rate."""
    seconds = seconds_of(plan, rate)
    if not seconds:
        return

    fastest = pace(rate, plan.rates, len(plan.kinds))
    yield f"at {fastest:g} per second this takes {seconds} s"


def stayed(cause: str, ids: Sequence[int] = ()) -> str:
    """Return a cause with its words; name the job if it is the only one."""
    is_only_one = len(ids) == 1
    words = stays(cause, ids[0] if is_only_one else "ID")
    if words == cause:
        return printable(cause)

    return printable(f"{cause}: {words}")


def rate_remarks(rates: Mapping[str, float]) -> Iterator[str]:
    """Yield the rates of kinds, which all campaigns keep together."""
    for kind, rate in sorted(rates.items()):
        yield _KIND_RATE.format(printable(kind), rate)


_KIND_RATE = (
    "{}: at most {:g} per second over all campaigns (redrive_rate of its handler)"
)


def seconds_of(plan: Plan, rate: float | None) -> int | None:
    """Return how long a plan takes at least; None if nothing limits its rate."""
    fastest = pace(rate, plan.rates, len(plan.kinds))
    if fastest is None:
        return None

    return math.ceil(plan.matched / fastest)


def _unfit_remarks(found: Unfit) -> Iterator[str]:
    for cause, count in sorted(found.invalid.items()):
        shown = printable(cause)
        yield f"{count} will stay, invalid: {shown}"

    for cause, count in sorted(found.unchecked.items()):
        shown = printable(cause)
        yield f"{count} not checked: {shown}"


def _tried_remarks(tried: "Tried | None") -> Iterator[str]:
    """Yield remarks on a trial.

    How far a handler gets in it does not predict the outcome.
    """
    if tried is None:
        return

    failed = sum(tried.failed.values())
    yield (
        f"tried in isolation: {tried.returned} returned, {failed} failed,"
        f" {tried.stopped_at_call} reached an outgoing call, {tried.timed_out} timed out"
    )

    for cause, count in sorted(tried.failed.items()):
        yield f"{count} failed when tried: {printable(cause)}"

    if tried.again:
        yield f"{tried.again} failed with the same error as before"
    if tried.stopped_at_call:
        yield "a trial ends at an outgoing call; the canaries show what happens after it"
