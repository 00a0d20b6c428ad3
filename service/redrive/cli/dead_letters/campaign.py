"""redrive campaign: planned redrives with canaries, a rate and an automatic abort."""

import functools
import math
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import psycopg

from redrive import handlers as registry
from redrive.cli.dead_letters.redrive import show_plan
from redrive.cli.support.connection import database
from redrive.cli.support.exits import Exit
from redrive.cli.support.filters import filter_options
from redrive.cli.support.options import (
    Change,
    Command,
    InOrder,
    Run,
    acting_options,
    actor_option,
    database_option,
    json_option,
    pager_option,
    run_options,
    settings_for,
    with_options,
)
from redrive.cli.support.output import (
    counted,
    emit,
    listing,
    not_found,
    paged,
    printable,
    printable_fields,
)
from redrive.cli.support.terminal import confirm, is_watched, progress
from redrive.dead_letters import campaign as campaigns
from redrive.dead_letters.campaign import MAX_REDRIVES, Plan
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.unfit import Unfit, leave_out
from redrive.handlers import Handlers
from redrive.rules.dead_letters.campaign import (
    ABORT_SHARE,
    CANARIES,
    State,
    exposure,
)
from redrive.rules.dead_letters.heal import worded
from redrive.rules.dead_letters.terms import TERM_NAMES, BadTerm, Terms
from redrive.settings import Settings

if TYPE_CHECKING:
    from redrive.dry_run.tries import Tried

MANY = 1000
"""Number of dead letters above which `start` needs a time: now, or off hours."""

COLUMNS = (
    "campaign",
    "state",
    "matched",
    "redriven",
    "succeeded",
    "dead_again",
    "waiting",
    "rate",
    "actor",
    "why",
)
HEAL_COLUMNS = ("group", "kind", "open", "version", "why")
_NUMBERS = (
    "campaign",
    "matched",
    "redriven",
    "succeeded",
    "dead_again",
    "waiting",
    "rate",
)
_SHOWN = """\
{title}  {state}{said}
{redriven} of {matched} redriven: {succeeded} succeeded, {dead_again} dead again, \
{cancelled} cancelled, {in_flight} in flight
{waiting} waiting, blocked: {blocked}
rate {rate}, {canaries} canaries, aborts above {abort_share}
planned by {planned_by} ({planned_login}), {created_at}
started by {actor} ({login}), {started_at}: {why}"""

_WATCHED = (
    "{state}: {succeeded} succeeded, {dead_again} dead again, {in_flight} in flight"
)


def _terms_options(command: Command) -> Command:
    """Add options for the terms; the command gets them as `terms`."""

    @functools.wraps(command)
    def choose(**options: Any) -> object:
        given = {n: options.pop(n.replace("-", "_")) or "" for n in TERM_NAMES}
        given["when-breaker"] = ",".join(given["when-breaker"])
        try:
            terms = Terms.read(given, datetime.now(UTC))
        except BadTerm as error:
            raise click.UsageError(f"--{error}") from None
        return command(terms=terms, **options)

    options = [
        click.option(
            "--rate",
            metavar="PER_SECOND",
            help="At most this many jobs per second.",
        ),
        click.option(
            "--canaries",
            default=str(CANARIES),
            metavar="N",
            show_default=True,
            help="Run N jobs first and wait for their results;"
            " 0 = no canaries and no ramp-up.",
        ),
        click.option(
            "--abort-share",
            default=f"{ABORT_SHARE:g}",
            metavar="SHARE",
            show_default=True,
            help="Abort if more than this share die again.",
        ),
        click.option(
            "--not-before",
            metavar="TIME",
            help="Do not start before: an instant, or 2h from now.",
        ),
        click.option(
            "--when-breaker",
            metavar="NAME:STATE",
            multiple=True,
            help="Run only while the breaker has this state: smtp:closed.",
        ),
        click.option(
            "--when-version",
            metavar="VERSIONS",
            help="Run only while all workers of its kinds have such a version:"
            " '>=1.4'.",
        ),
    ]
    return with_options(options, choose)


@click.group(cls=InOrder)
def campaign() -> None:
    """Planned redrives: plan, start, watch, pause, cancel."""


@campaign.command("plan")
@filter_options(states=("open",))
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    metavar="PER_SECOND",
    help="At most so many jobs a second.",
)
@click.option(
    "--max-redrives",
    type=click.IntRange(1),
    default=MAX_REDRIVES,
    metavar="N",
    show_default=True,
    help="Leave out what was redriven this often already.",
)
@click.option(
    "--include-quarantined",
    "with_quarantined",
    is_flag=True,
    help="Also what died once more of the same.",
)
@click.option(
    "--handlers",
    metavar="MODULE:ATTRIBUTE",
    help="Leave out what these cannot take. [env: REDRIVE_HANDLERS]",
)
@click.option(
    "--try",
    "tries",
    type=click.IntRange(1, 100),
    metavar="N",
    help="Let --handlers run N of them where nothing can leave: how far do they come?",
)
@click.option(
    "--heal",
    "is_heal",
    is_flag=True,
    help="Say which groups the running version is to try by itself, and why not the others.",
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
    is_heal: bool,
    actor: str | None,
    database_url: str | None,
    as_json: bool,
) -> int:
    """Freeze which dead letters would go back; nothing else changes.

    \b
    redrive campaign plan --kind invoice.charge --where payload.currency=XAU --rate 5
    redrive campaign plan --group 5f2c --handlers app.jobs:jobs --try 5
    redrive campaign plan --heal

    With --handlers they read the payloads, as their version and model want them, and what they
    cannot take is left out. With --try they also run, on some of them, in a process that cannot
    open a connection or change a file. A plan that nobody starts is forgotten after a day.
    """
    if is_heal and (chosen.narrows() or tries):
        raise click.UsageError(
            "--heal looks at all groups; leave the filters out, and --try"
        )
    settings = settings_for(database_url, actor=actor, handlers=handlers)
    if tries and not settings.handlers:
        raise click.UsageError(
            "--try runs handlers; say --handlers MODULE:ATTRIBUTE, too"
        )
    if is_heal:
        return _healing(settings, as_json=as_json)
    registered = None
    if settings.handlers:
        registered = registry.load(settings.handlers, settings.name_of("handlers"))
    with database(settings) as conn:
        made = campaigns.plan(
            conn,
            chosen,
            actor=settings.who(),
            max_redrives=max_redrives,
            with_quarantined=with_quarantined,
        )
        found = _unfit(conn, made, registered)
        tried = _tried(conn, made, registered, settings, tries)
    _show_plan(made, found, tried, rate, as_json=as_json)
    for missed in made.missing:
        not_found(f"job {missed} has no open dead letter, or it does not match")
    return Exit.NOTHING_MATCHED if chosen.ids and not made.matched else Exit.DONE


def _show_plan(
    made: Plan,
    found: Unfit,
    tried: "Tried | None",
    rate: float | None,
    *,
    as_json: bool,
) -> None:
    if as_json:
        seconds = math.ceil(made.matched / rate) if rate else None
        more = {"seconds": seconds, "stops_after": exposure(CANARIES)}
        emit(
            asdict(made)
            | asdict(found)
            | more
            | ({"tried": asdict(tried)} if tried else {})
        )
        return
    show_plan(made, rate)
    for line in (*_unfit_remarks(found), *_tried_remarks(tried)):
        click.echo(line)
    if made.plan is not None:
        click.echo(
            f"plan {made.plan}; start it with: redrive campaign start {made.plan}"
        )


def _healing(settings: Settings, *, as_json: bool) -> int:
    """Print the groups that heal, and those that do not; freezes nothing."""
    with database(settings) as conn:
        found = campaigns.healing(conn)
    if not as_json:
        found = [
            group | {"why": worded(group["why"], group["version"])} for group in found
        ]
    empty = "no group of bugs or invalid payloads is open"
    listing(found, HEAL_COLUMNS, as_json=as_json, right=("open",), empty=empty)
    return Exit.DONE


def _unfit(
    conn: psycopg.Connection[Any], made: Plan, handlers: Handlers | None
) -> Unfit:
    """Leave dead letters that the handlers cannot take out of a plan; count them."""
    if handlers is None or made.plan is None:
        return Unfit()
    with progress("read", made.matched) as advance:
        return leave_out(conn, made.plan, handlers, progress=advance)


def _tried(
    conn: psycopg.Connection[Any],
    made: Plan,
    handlers: Handlers | None,
    settings: Settings,
    count: int | None,
) -> "Tried | None":
    """Run the handlers on some dead letters of a plan; None if not requested."""
    if not count or handlers is None or made.plan is None:
        return None
    from redrive.dry_run.tries import try_some  # noqa: PLC0415 # it brings the worker

    with progress("tried", min(count, made.matched)) as advance:
        return try_some(
            conn, made, handlers, settings.handlers or "", count, progress=advance
        )


def _tried_remarks(tried: "Tried | None") -> Iterator[str]:
    """Yield remarks on a trial.

    How far a handler gets in it does not predict the outcome.
    """
    if tried is None:
        return
    failed = sum(tried.failed.values())
    yield (
        f"tried where nothing can leave: {tried.returned} returned, {failed} failed,"
        f" {tried.stopped_at_call} came as far as an outgoing call, {tried.timed_out} timed out"
    )
    for cause, count in sorted(tried.failed.items()):
        yield f"{count} failed when tried: {printable(cause)}"
    if tried.again:
        yield f"{tried.again} failed of what they died of"
    if tried.stopped_at_call:
        yield "what comes after an outgoing call nobody knows: its canaries will tell"


def _unfit_remarks(found: Unfit) -> Iterator[str]:
    for cause, count in sorted(found.invalid.items()):
        yield f"{count} will stay, invalid: {printable(cause)}"
    for cause, count in sorted(found.unchecked.items()):
        yield f"{count} not checked: {printable(cause)}"


@campaign.command()
@click.argument("plan", type=click.INT)
@_terms_options
@click.option(
    "--now", "at_once", is_flag=True, help=f"At once, though it is more than {MANY}."
)
@run_options()
@json_option
def start(plan: int, terms: Terms, at_once: bool, run: Run, as_json: bool) -> int:
    """Start what was planned; workers carry it on from now on.

    \b
    redrive campaign start 12 --why 'fixed in 1.4.2' --rate 5 --not-before 8h
    redrive campaign start 12 --why 'fixed' --when-breaker smtp:closed --when-version '>=1.4.2'

    Canaries go first, and what becomes of them is awaited; then twice as many each time, up to the
    rate. It aborts by itself when too many die again or a breaker of its kinds opens. Shows first
    what it would do; then asks, unless --yes, and once more where side effects are on record.
    Without a terminal and without --yes it only shows; more than 1000 want --not-before or --now
    then.
    """
    with database(run.settings) as conn:
        found = campaigns.show(conn, plan)
        if found is None:
            return not_found(f"there is no plan {plan}")
        if found["matched"] > MANY and not (
            terms.not_before or at_once or is_watched()
        ):
            n = counted(found["matched"], "dead letter")
            raise click.UsageError(
                f"{n}: say --not-before TIME for the off hours, or --now"
            )
        why = _agreed(conn, found, terms, run, as_json=as_json)
        if why is not None:
            campaigns.start(conn, plan, terms, actor=run.settings.who(), why=why)
            campaigns.drive(conn, plan)
            found = campaigns.show(conn, plan) or found
    if as_json:
        emit({"campaign": plan, "state": found["state"]})
    else:
        click.echo(
            f"campaign {plan}: {found['state']}; see: redrive campaign watch {plan}"
            if why is not None
            else "nothing was changed" + ("" if run.dry_run else "; add --yes to do it")
        )
    return Exit.DONE


def _agreed(
    conn: psycopg.Connection[Any],
    found: dict[str, Any],
    terms: Terms,
    run: Run,
    *,
    as_json: bool,
) -> str | None:
    """Return the reason for the start after consent.

    The user consents to the start and to repeated side effects.
    """
    effects = campaigns.side_effects(conn, found["campaign"])
    if not as_json:
        for line in _remarks(found, terms, effects):
            click.echo(line)
    question = f"Put {counted(found['matched'], 'dead letter')} back to work?"
    why = run.consent(question, str(found["matched"]))
    if why is None or run.yes or not effects:
        return why
    named = ", ".join(printable(what) for what, _ in effects)
    return why if confirm(f"This may repeat: {named}.", "again") else None


def _remarks(
    found: dict[str, Any], terms: Terms, effects: list[tuple[str, int]]
) -> list[str]:
    """Return remarks that the user should read before the campaign starts."""
    said = [counted(found["matched"], "dead letter")]
    for why, held in (("", found["blocked"]), (", invalid", found["invalid"])):
        said += [
            f"{n} will stay{why}: {printable(cause)}"
            for cause, n in sorted(held.items())
        ]
    said += [f"{n} have done this already: {printable(what)}" for what, n in effects]
    if terms.rate:
        said.append(f"takes {math.ceil(found['matched'] / terms.rate)} s at least")
    if terms.canaries:
        said.append(terms.risk(found["matched"]))
    return said


@campaign.command("ls")
@click.option(
    "--state",
    type=click.Choice([*(state.value for state in State), "interrupted"]),
    multiple=True,
    help="Only these; plans are shown only so.",
)
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True)
@database_option
@json_option
@pager_option
def list_campaigns(
    state: tuple[str, ...], limit: int, database_url: str | None, as_json: bool
) -> None:
    """List campaigns, the newest first.

    \b
    redrive campaign ls --state running
    """
    with database(settings_for(database_url)) as conn:
        found = campaigns.find(conn, state, limit)
    with paged():
        listing(found, COLUMNS, as_json=as_json, right=_NUMBERS, empty="no campaign")


@campaign.command()
@click.argument("which", metavar="ID", type=click.INT)
@database_option
@json_option
def show(which: int, database_url: str | None, as_json: bool) -> int:
    """Show how far a campaign is, and who started it.

    \b
    redrive campaign show 12
    """
    with database(settings_for(database_url)) as conn:
        found = campaigns.show(conn, which)
    return _say(which, found, as_json=as_json)


def _say(which: int, found: dict[str, Any] | None, *, as_json: bool) -> int:
    if found is None:
        return not_found(f"there is no campaign {which}")
    if as_json:
        emit(found)
    else:
        click.echo(_SHOWN.format_map(printable_fields(found) | _worded(found)))
    return Exit.DONE


def _worded(found: dict[str, Any]) -> dict[str, str]:
    """Return the fields of a campaign that are displayed as words."""
    blocked = ", ".join(
        f"{n} {printable(cause)}" for cause, n in sorted(found["blocked"].items())
    )
    invalid = "".join(
        f"\n{n} invalid: {printable(why)}" for why, n in found["invalid"].items()
    )
    said = f": {printable(found['said'])}" if found["said"] else ""
    return {
        "title": click.style(f"campaign {found['campaign']}", bold=True),
        "said": said,
        "blocked": (blocked or "none") + invalid,
        "rate": f"{found['rate']:g} per second"
        if found["rate"]
        else "as fast as they end",
        "abort_share": f"{found['abort_share']:.0%}",
    }


@campaign.command()
@click.argument("which", metavar="ID", type=click.INT)
@database_option
@json_option
def watch(which: int, database_url: str | None, as_json: bool) -> int:
    """Watch a campaign until it ends, and carry it on meanwhile.

    \b
    redrive campaign watch 12

    With --json a line for each change. Exit code 1: it did not end well, or is paused.
    """
    found = None
    with database(settings_for(database_url)) as conn:
        known = campaigns.show(conn, which)
        if known is None:
            return not_found(f"there is no campaign {which}")
        with progress(f"campaign {which}", known["matched"]) as advance:
            ended = 0
            for seen in campaigns.watch(conn, which):
                if as_json and seen != found:
                    emit(seen)
                done = seen["matched"] - seen["waiting"] - seen["in_flight"]
                advance(done - ended, _WATCHED.format_map(seen))
                found, ended = seen, done
    if not as_json:
        _say(which, found, as_json=False)
    return Exit.DONE if found and found["state"] == State.DONE else Exit.FAILED


@campaign.command()
@click.argument("which", metavar="ID", type=click.INT)
@acting_options
@json_option
def pause(which: int, change: Change, as_json: bool) -> int:
    """Put nothing more back until it is resumed; what went, runs.

    \b
    redrive campaign pause 12 --why 'the bank asks us to'
    """
    change.agree(f"Pause campaign {which}")
    with database(change.settings) as conn:
        campaigns.pause(conn, which, actor=change.settings.who(), why=change.why)
        return _say(which, campaigns.show(conn, which), as_json=as_json)


@campaign.command()
@click.argument("which", metavar="ID", type=click.INT)
@acting_options
@json_option
def resume(which: int, change: Change, as_json: bool) -> int:
    """Go on with one that was paused or has aborted: canaries first.

    \b
    redrive campaign resume 12 --why 'the bank is ready'
    """
    change.agree(f"Go on with campaign {which}")
    with database(change.settings) as conn:
        campaigns.resume(conn, which, actor=change.settings.who(), why=change.why)
        campaigns.drive(conn, which)
        return _say(which, campaigns.show(conn, which), as_json=as_json)


@campaign.command()
@click.argument("which", metavar="ID", type=click.INT)
@run_options()
@json_option
def cancel(which: int, run: Run, as_json: bool) -> int:
    """End a campaign, and take back what has not begun.

    \b
    redrive campaign cancel 12 --why 'wrong filter'

    That is an open dead letter again, with its history; what runs, or was tried, ends as usual.
    """
    with database(run.settings) as conn:
        found = campaigns.show(conn, which)
        if found is None:
            return not_found(f"there is no campaign {which}")
        left = found["waiting"] + found["in_flight"]
        why = run.consent(f"Cancel it, with {counted(left, 'job')} to go?", str(left))
        if why is not None:
            campaigns.cancel(conn, which, actor=run.settings.who(), why=why)
            found = campaigns.show(conn, which)
        elif not as_json:
            click.echo(
                "nothing was changed" + ("" if run.dry_run else "; add --yes to do it")
            )
        return _say(which, found, as_json=as_json)
