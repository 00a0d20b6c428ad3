"""redrive campaign plan: freeze the dead letters of a campaign, and check them."""

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import psycopg

from redrive import handlers as registry
from redrive.cli.support.connection import database
from redrive.cli.support.exits import Exit
from redrive.cli.support.filters import filter_options
from redrive.cli.support.options import (
    actor_option,
    database_option,
    json_option,
    settings_for,
)
from redrive.cli.support.output import (
    counted,
    emit,
    listing,
    not_found,
    printable,
    shown_id,
)
from redrive.cli.support.terminal import progress
from redrive.dead_letters import campaign as campaigns
from redrive.dead_letters.campaign import MAX_REDRIVES, Plan
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.unfit import Unfit, leave_out
from redrive.handlers import Handlers
from redrive.rules.dead_letters.campaign import CANARIES, exposure
from redrive.settings import Settings

if TYPE_CHECKING:
    from redrive.dry_run.tries import Tried

GROUPS_SHOWN = 10
GROUP_COLUMNS = ("count", "group", "kind", "error_class", "message")

MAX_REDRIVES_HELP = "Leave out dead letters that were redriven this often already."
QUARANTINED_HELP = "Include quarantined dead letters: they died again after a redrive."
TO_QUEUE_HELP = "Let the jobs run in this queue, and not in the one where each died."
RATE_HELP = "At most this many jobs per second."

rate_option = click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    metavar="PER_SECOND",
    help=RATE_HELP,
)


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
@click.option(
    "--include-quarantined",
    "with_quarantined",
    is_flag=True,
    help=QUARANTINED_HELP,
)
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
@database_option
@json_option
def plan_campaign(
    chosen: Filter,
    rate: float | None,
    max_redrives: int,
    with_quarantined: bool,
    handlers: str | None,
    tries: int | None,
    actor: str | None,
    database_url: str | None,
    as_json: bool,
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
    settings = settings_for(database_url, actor=actor, handlers=handlers)
    if tries and not settings.handlers:
        raise click.UsageError("--try needs --handlers MODULE:ATTRIBUTE")
    registered = _load(settings)
    with database(settings) as conn:
        plan = campaigns.plan(
            conn,
            chosen,
            actor=settings.who(),
            max_redrives=max_redrives,
            with_quarantined=with_quarantined,
        )
        unfit = _leave_out(conn, plan, registered)
        tried = _try(conn, plan, registered, settings, tries)
    _show(_Checked(plan, unfit, tried, rate), as_json=as_json)
    return exit_of(plan, chosen)


def exit_of(plan: Plan, chosen: Filter) -> Exit:
    """Name the requested dead letters that are missing; return the exit code."""
    for missed in plan.missing:
        not_found(f"job {missed} has no open dead letter, or it does not match")
    return Exit.NOTHING_MATCHED if chosen.ids and not plan.matched else Exit.DONE


def _load(settings: Settings) -> Handlers | None:
    if not settings.handlers:
        return None
    return registry.load(settings.handlers, settings.name_of("handlers"))


def _leave_out(
    conn: psycopg.Connection[Any], plan: Plan, handlers: Handlers | None
) -> Unfit:
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
    conn: psycopg.Connection[Any],
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


def _show(checked: _Checked, *, as_json: bool) -> None:
    if as_json:
        emit(_fields(checked))
        return
    show_plan(checked.plan, checked.rate)
    for line in (*_unfit_remarks(checked.unfit), *_tried_remarks(checked.tried)):
        click.echo(line)
    number = checked.plan.plan
    if number is not None:
        shown = shown_id(number)
        click.echo(f"plan {shown}; start it with: redrive campaign start {shown}")


def _fields(checked: _Checked) -> dict[str, Any]:
    plan, rate = checked.plan, checked.rate
    seconds = math.ceil(plan.matched / rate) if rate else None
    tried = {"tried": asdict(checked.tried)} if checked.tried else {}
    return {
        **asdict(plan),
        **asdict(checked.unfit),
        "seconds": seconds,
        "stops_after": exposure(CANARIES),
        **tried,
    }


def show_plan(plan: Plan, rate: float | None) -> None:
    """Print the content of a plan."""
    if not plan.matched:
        click.echo("nothing matched")
        return
    letters = counted(plan.matched, "open dead letter")
    click.echo(f"{letters} in {counted(plan.group_count, 'group')}")
    shown = plan.groups[:GROUPS_SHOWN]
    listing(shown, GROUP_COLUMNS, as_json=False, right=("count",))
    for remark in _remarks(plan, rate):
        click.echo(remark)


def _remarks(plan: Plan, rate: float | None) -> Iterator[str]:
    """Yield warnings about the dead letters before they are redriven."""
    yield "for example: " + ", ".join(map(shown_id, plan.sample))
    for cause, count in sorted(plan.blocked.items()):
        is_quarantined = cause == "quarantined"
        hint = "; see them, or add --include-quarantined" if is_quarantined else ""
        yield f"{count} will stay: {cause}{hint}"
    if plan.acted:
        yield f"{plan.acted} have side effects on record; see dlq show"
    if rate:
        seconds = math.ceil(plan.matched / rate)
        yield f"at {rate:g} per second this takes {seconds} s"


def _unfit_remarks(found: Unfit) -> Iterator[str]:
    for cause, count in sorted(found.invalid.items()):
        yield f"{count} will stay, invalid: {printable(cause)}"
    for cause, count in sorted(found.unchecked.items()):
        yield f"{count} not checked: {printable(cause)}"


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
