"""redrive campaign: planned redrives with canaries, a rate and an automatic abort."""

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from redrive.cli.dead_letters.heal import heal
from redrive.cli.dead_letters.plan import plan_campaign, rate_remarks, stayed
from redrive.cli.dead_letters.terms import terms_options
from redrive.cli.dead_letters.together import (
    ENDS,
    by_cell,
    follow,
    led_by,
    led_campaign,
    print_cells,
    together,
    without_option,
)
from redrive.cli.support.connection import database, say_away
from redrive.cli.support.exits import Exit, NotFound
from redrive.cli.support.options import (
    Change,
    Id,
    InOrder,
    Run,
    acting_options,
    conn_options,
    id_argument,
    json_option,
    pager_option,
    run_options,
    settings_options,
)
from redrive.cli.support.output import (
    answer,
    counted,
    emit,
    listing,
    printable,
    printable_fields,
    shown_id,
    wants_json,
)
from redrive.cli.support.terminal import confirm, is_watched, progress
from redrive.database.rows import Connection
from redrive.dead_letters.campaigns import campaign as campaigns
from redrive.dead_letters.campaigns.together import Together, View
from redrive.live_jobs.surroundings.destination import remarks
from redrive.rules.dead_letters.campaign import (
    State,
    pace,
)
from redrive.rules.dead_letters.terms import Terms
from redrive.rules.rows import Row

if TYPE_CHECKING:
    from redrive.settings import Settings

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
rate {rate}
planned by {planned_by} ({planned_login}), {created_at}"""
_STARTED = "started by {actor} ({login}), {started_at}: {why}"

_WATCHED = (
    "{state}: {succeeded} succeeded, {dead_again} dead again, {in_flight} in flight"
)


@click.group(cls=InOrder)
def campaign() -> None:
    """Planned redrives: plan, start, watch, pause, cancel."""


campaign.add_command(plan_campaign)
campaign.add_command(together)


@campaign.command()
@click.argument("plan", type=Id())
@terms_options
@click.option(
    "--now",
    "at_once",
    is_flag=True,
    help=f"Start at once, even with more than {MANY} dead letters.",
)
@run_options()
@json_option
def start(plan: int, terms: Terms, at_once: bool, run: Run) -> None:
    """Start a plan; workers drive the campaign from then on.

    \b
    redrive campaign start 12 --why 'fixed in 1.4.2' --rate 5 --not-before 8h
    redrive campaign start 12 --why 'fixed' --when-breaker smtp:closed --when-version '>=1.4.2'

    The canaries run first, and the campaign waits for their results. Then it redrives twice as many
    each time, up to the rate. It aborts if too many die again. It waits while a breaker of its kinds
    is open.
    The command shows the plan and asks, unless you give --yes. It asks again if side effects
    are on record. Without a terminal and without --yes it only shows the plan. Without a terminal,
    more than 1000 dead letters need --not-before or --now.
    """
    with database(run.settings) as conn:
        found = campaigns.show(conn, plan)
        if found is None:
            raise NotFound(f"there is no plan {shown_id(plan)}")

        _check_time(found["matched"], has_time=bool(terms.not_before or at_once))
        why = _agreed(conn, found, terms, run)
        if why is not None:
            campaigns.start(conn, plan, terms, **run.signed(why))
            # Take the first step now, and do not wait for a worker to do it.
            campaigns.drive(conn, plan)
            found = campaigns.show(conn, plan) or found

    state = found["state"]
    text = _DRIVEN.format(shown_id(plan), state) if why else run.unchanged()
    answer({"campaign": plan, "state": state}, text)


_DRIVEN = "campaign {0}: {1}; see: redrive campaign watch {0}"


def _check_time(matched: int, *, has_time: bool) -> None:
    """Require a time to start many dead letters, if nobody can be asked."""
    if matched > MANY and not (has_time or is_watched()):
        n = counted(matched, "dead letter")
        raise click.UsageError(f"{n}: add --not-before TIME, or --now")


def _agreed(
    conn: Connection,
    found: Row,
    terms: Terms,
    run: Run,
) -> str | None:
    """Return the reason for the start after consent.

    The user consents to the start and to repeated side effects.
    """
    effects = campaigns.side_effects(conn, found["campaign"])
    matched = found["matched"]
    if not wants_json():
        destination = remarks(conn, terms.to_queue, found["kinds"])
        for line in _remarks(found, terms, effects, destination):
            click.echo(line)

    dead_letters = counted(matched, "dead letter")
    why = run.consent(f"Redrive {dead_letters}?", str(matched))
    # With --yes, the user has agreed to repeated side effects, too.
    if run.yes or not effects:
        return why
    if why is None or not _confirms_effects(effects):
        return None

    return why


def _confirms_effects(effects: list[tuple[str, int]]) -> bool:
    names = (printable(what) for what, _ in effects)
    named = ", ".join(names)
    return confirm(f"This may repeat: {named}.", "again")


def _remarks(
    found: Row,
    terms: Terms,
    effects: list[tuple[str, int]],
    destination: list[str],
) -> Iterator[str]:
    """Yield remarks that the user should read before the campaign starts."""
    yield counted(found["matched"], "dead letter")
    yield from _stay_remarks(found)

    for what, n in effects:
        shown = printable(what)
        yield f"{n} have done this already: {shown}"

    yield from rate_remarks(found["rates"])
    yield from destination
    yield from _remarks_on(terms, found)


def _stay_remarks(found: Row) -> Iterator[str]:
    """Yield the numbers of dead letters that stay, by cause."""
    for cause, n in sorted(found["blocked"].items()):
        words = stayed(cause)
        yield f"{n} will stay: {words}"

    for cause, n in sorted(found["invalid"].items()):
        shown = printable(cause)
        yield f"{n} will stay, invalid: {shown}"


def _remarks_on(terms: Terms, found: Row) -> Iterator[str]:
    fastest = pace(terms.rate, found["rates"], len(found["kinds"]))
    if fastest:
        seconds = math.ceil(found["matched"] / fastest)
        yield f"takes at least {seconds} s"

    if terms.canaries:
        yield terms.risk(found["matched"])


@campaign.command("ls")
@click.option(
    "--state",
    type=click.Choice([state.value for state in State]),
    multiple=True,
    help="Only this state. Plans are listed only with --state planned.",
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=100,
    show_default=True,
)
@conn_options
@json_option
@pager_option
def list_campaigns(state: tuple[str, ...], limit: int, conn: Connection) -> None:
    """List campaigns, the newest first.

    \b
    redrive campaign ls --state running
    """
    found = campaigns.find(conn, state, limit)
    listing(
        found,
        COLUMNS,
        right=_NUMBERS,
        empty="no campaign",
    )


@campaign.command()
@id_argument
@settings_options()
@json_option
def show(which: int, settings: "Settings") -> int:
    """Show the progress of a campaign, and who started it.

    \b
    redrive campaign show 12
    """
    with database(settings) as conn:
        found = _campaign(conn, which)

    led = led_by(settings, found)
    return _print_campaign(found, led and led.look())


def _campaign(conn: Connection, which: int) -> Row:
    """Return a campaign. Raises NotFound."""
    found = campaigns.show(conn, which)
    if found is None:
        raise NotFound(f"there is no campaign {shown_id(which)}")
    return found


def _print_campaign(found: Row, view: View | None = None) -> int:
    """Print a campaign, and the campaigns of all cells if it leads them."""
    code = say_away(view.away) if view else Exit.DONE
    if wants_json():
        emit(found | {"cells": by_cell(view)} if view else found)
        return code

    for line in _described(found):
        click.echo(line)

    if view is not None:
        print_cells(view)

    return code


def _described(found: Row) -> Iterator[str]:
    """Yield what people read about a campaign."""
    words = printable_fields(found) | _worded(found)
    yield _SHOWN.format_map(words)

    if found["started_at"]:
        yield _STARTED.format_map(words)
    if found["to_queue"]:
        yield f"to the queue {words['to_queue']}"
    if found["proposed_by"]:
        yield f"proposed by {words['proposed_by']}"


def _worded(found: Row) -> dict[str, str]:
    """Return the fields of a campaign that are displayed as words."""
    campaign = shown_id(found["campaign"])
    said = ""
    if found["said"]:
        said = f": {printable(found['said'])}"

    return {
        "title": click.style(f"campaign {campaign}", bold=True),
        "said": said,
        "blocked": _blocked(found),
        "rate": _rate(found),
    }


def _rate(found: Row) -> str:
    """Return the terms of a campaign, and the rates of its kinds below them."""
    rate = found["rate"]
    limit = f"{rate:g} per second" if rate else "unlimited"
    terms = _TERMS.format_map(found)
    kinds = rate_remarks(found["rates"])

    return "\n".join((f"{limit}, {terms}", *kinds))


_TERMS = "{canaries} canaries, aborts above {abort_share:.0%}"


def _blocked(found: Row) -> str:
    """Return the numbers of dead letters that stay, by cause."""
    causes = sorted(found["blocked"].items())
    counts = (f"{n} {printable(cause)}" for cause, n in causes)
    lines = [", ".join(counts) or "none"]

    for why, n in found["invalid"].items():
        shown = printable(why)
        lines.append(f"{n} invalid: {shown}")

    return "\n".join(lines)


@campaign.command()
@id_argument
@without_option
@settings_options()
@json_option
def watch(which: int, without: tuple[str, ...], settings: "Settings") -> int:
    """Watch a campaign until it ends, and drive it meanwhile.

    \b
    redrive campaign watch 12

    --json prints a line for each change. Exit code 4: the campaign aborted, because too many died again. Exit
    code 1: it was paused or cancelled.
    """
    with database(settings) as conn:
        known = _campaign(conn, which)
        led = led_by(settings, known, without)
        if led:
            return follow(led)

        found = _follow(conn, known)

    if not wants_json():
        _print_campaign(found)

    return ENDS.get(found["state"], Exit.FAILED)


def _follow(conn: Connection, known: Row) -> Row:
    """Drive a campaign and show its progress; return its last state."""
    which = known["campaign"]
    latest: Row | None = None
    ended = 0

    with progress(f"campaign {which}", known["matched"]) as advance:
        for seen in campaigns.watch(conn, which):
            if wants_json() and seen != latest:
                emit(seen)

            # The progress bar takes what has ended since the last look.
            now_ended = seen["matched"] - seen["waiting"] - seen["in_flight"]
            advance(now_ended - ended, _WATCHED.format_map(seen))
            latest = seen
            ended = now_ended

    return latest or known


@campaign.command()
@id_argument
@acting_options
@json_option
def pause(which: int, change: Change) -> int:
    """Pause a campaign; jobs that it has redriven still run.

    \b
    redrive campaign pause 12 --why 'the bank asks us to'
    """
    change.agree(f"Pause campaign {shown_id(which)}")
    return _act(which, change, Together.pause, campaigns.pause)


def _act(
    which: int,
    change: Change,
    together: Callable[[Together, str], View],
    alone: Callable[..., object],
    *,
    drives: bool = False,
) -> int:
    """Change a campaign, with its followers if it leads, and print it.

    `drives`: take its next step at once.
    """
    view: View | None = None
    with database(change.settings) as conn:
        led = led_campaign(conn, change.settings, which)
        if led is not None:
            view = together(led, change.why)
        else:
            alone(conn, which, **change.signed)

        if drives:
            campaigns.drive(conn, which)

        found = _campaign(conn, which)

    return _print_campaign(found, view)


@campaign.command()
@id_argument
@acting_options
@json_option
def resume(which: int, change: Change) -> int:
    """Resume a campaign that was paused or has aborted: canaries first.

    \b
    redrive campaign resume 12 --why 'the bank is ready'
    """
    change.agree(f"Resume campaign {shown_id(which)}")
    return _act(which, change, Together.resume, campaigns.resume, drives=True)


@campaign.command()
@id_argument
@run_options()
@json_option
def cancel(which: int, run: Run) -> int:
    """End a campaign, and take back jobs that have not started.

    \b
    redrive campaign cancel 12 --why 'wrong filter'

    A job that is taken back is an open dead letter again, with its history. A job that is running,
    or was tried already, ends as usual.
    """
    with database(run.settings) as conn:
        found = _campaign(conn, which)
        led = led_by(run.settings, found)
        view = led and led.look()

        why = _consent_to_cancel(_left(found, view), run)
        if why is None:
            if not wants_json():
                click.echo(run.unchanged())
        elif led:
            view = led.cancel(why)
        else:
            campaigns.cancel(conn, which, **run.signed(why))

        found = _campaign(conn, which)

    return _print_campaign(found, view)


def _left(found: Row, view: View | None) -> int:
    """Return how many jobs have not ended, in all cells of a leading campaign."""
    rows = view.campaigns.values() if view else [found]
    return sum(row["waiting"] + row["in_flight"] for row in rows)


def _consent_to_cancel(left: int, run: Run) -> str | None:
    jobs = counted(left, "job")
    return run.consent(f"Cancel it, with {jobs} left?", str(left))


campaign.add_command(heal)
