"""redrive campaign: planned redrives with canaries, a rate and an automatic abort."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import click

from redrive.cli.dead_letters.heal import heal
from redrive.cli.dead_letters.plan import plan_campaign
from redrive.cli.support.exits import Exit, NotFound
from redrive.cli.support.options import (
    InOrder,
    conn_options,
    id_argument,
    json_option,
    pager_option,
)
from redrive.cli.support.output import (
    bold,
    emit,
    listing,
    printable,
    printable_fields,
    shown_id,
    wants_json,
)
from redrive.cli.support.terminal import progress
from redrive.cli.support.verbs import Asked, add_verbs, verb_options
from redrive.database.rows import Connection
from redrive.dead_letters.campaigns import drive
from redrive.dead_letters.campaigns import store as campaigns
from redrive.dead_letters.campaigns.pace import State, again
from redrive.rules.rows import Row
from redrive.verbs.campaigns import CAMPAIGNS
from redrive.verbs.redrives import REDRIVE, rates
from redrive.verbs.verb import Done

COLUMNS = (
    "campaign",
    "state",
    "matched",
    "redriven",
    "succeeded",
    "again",
    "waiting",
    "rate",
    "actor",
    "why",
)
ENDS = {State.DONE: Exit.DONE, State.ABORTED: Exit.ABORTED}
_NUMBERS = ("campaign", "matched", "redriven", "succeeded", "again", "waiting", "rate")
_SHOWN = """\
{title}  {state}{said}
{redriven} of {matched} {done}: {succeeded} succeeded, {dead_again} {again}, \
{cancelled} cancelled, {in_flight} in flight
{waiting} waiting, blocked: {blocked}
rate {rate}
planned by {planned_by} ({planned_login}), {created_at}"""
_STARTED = "started by {actor} ({login}), {started_at}: {why}"

_WATCHED = "{state}: {succeeded} succeeded, {dead_again} {again}, {in_flight} in flight"


@click.group(cls=InOrder)
def campaign() -> None:
    """Planned redrives: plan, start, watch, pause, cancel."""


campaign.add_command(plan_campaign)


@campaign.command()
@verb_options(REDRIVE["campaign-start"])
def start(asked: Asked) -> int:
    """Start a plan; workers drive the campaign from then on.

    \b
    redrive campaign start 12 --why 'fixed in 1.4.2' --rate 5 --not-before 8h
    redrive campaign start 12 --why 'fixed' --when-breaker smtp:closed --when-version '>=1.4.2'

    The canaries run first, and the campaign waits for their results. Then it redrives
    twice as many each time, up to the rate. It aborts if too many die again. It waits
    while a breaker of its kinds is open. The command shows the plan and asks, unless
    you give --yes. It asks again if side effects are on record. Without a terminal and
    without --yes it only shows the plan.
    """
    return asked.perform(then=_watchable)


def _watchable(_conn: Connection, done: Done) -> Done:
    shown = shown_id(done.report["campaign"])
    state = done.report["state"]
    text = (
        f"{done.text}\ncampaign {shown}: {state}; see: redrive campaign watch {shown}"
    )
    return replace(done, text=text)


@campaign.command("ls")
@click.option(
    "--state",
    type=click.Choice([state.value for state in State]),
    multiple=True,
    help="Only this state. Plans are listed only with --state planned.",
)
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True)
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
        for_people=lambda row: row | {"again": again(row)},
        right=_NUMBERS,
        empty="no campaign",
    )


@campaign.command()
@id_argument
@conn_options
@json_option
def show(which: int, conn: Connection) -> None:
    """Show the progress of a campaign, and who started it.

    \b
    redrive campaign show 12
    """
    _print_campaign(_campaign(conn, which))


def _campaign(conn: Connection, which: int) -> Row:
    """Return a campaign. Raises NotFound."""
    found = campaigns.show(conn, which)
    if found is None:
        raise NotFound(f"there is no campaign {shown_id(which)}")
    return found


def _print_campaign(found: Row) -> None:
    if wants_json():
        emit(found)
        return

    for line in _described(found):
        click.echo(line)


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
        "title": bold(f"campaign {campaign}"),
        "said": said,
        "blocked": _blocked(found),
        "rate": _rate(found),
        "again": _again(found),
        "done": "retried" if found["is_retry"] else "redriven",
    }


def _again(found: Row) -> str:
    """Return what the jobs of a campaign did that count as dead."""
    return "failed again" if found["is_retry"] else "dead again"


def _rate(found: Row) -> str:
    """Return the terms of a campaign, and the rates of its kinds below them."""
    limit = "unlimited"
    rate = found["rate"]
    if rate:
        limit = f"{rate:g} per second"

    terms = _TERMS.format_map(found)
    lines = [f"{limit}, {terms}"]
    lines.extend(rates(found["rates"]))

    return "\n".join(lines)


_TERMS = "{canaries} canaries, aborts above {abort_share:.0%}"


def _blocked(found: Row) -> str:
    """Return the numbers of dead letters that stay, by cause."""
    lines = [_by_cause(found["blocked"])]
    for why, n in found["invalid"].items():
        shown = printable(why)
        lines.append(f"{n} invalid: {shown}")

    return "\n".join(lines)


def _by_cause(blocked: Mapping[str, int]) -> str:
    counts: list[str] = []
    for cause, n in sorted(blocked.items()):
        shown = printable(cause)
        counts.append(f"{n} {shown}")

    return ", ".join(counts) or "none"


@campaign.command()
@id_argument
@conn_options
@json_option
def watch(which: int, conn: Connection) -> int:
    """Watch a campaign until it ends, and drive it meanwhile.

    \b
    redrive campaign watch 12

    --json prints a line for each change. Exit code 4: the campaign aborted, because too many died again. Exit
    code 1: it was paused or cancelled.
    """
    found = follow(conn, _campaign(conn, which))
    if not wants_json():
        _print_campaign(found)

    return ENDS.get(found["state"], Exit.FAILED)


def follow(conn: Connection, known: Row, *, emits: bool = True) -> Row:
    """Show the progress of a campaign; return its last state.

    Args:
        emits: with --json, print a line for each change.
    """
    which = known["campaign"]
    latest: Row | None = None
    ended = 0

    with progress(f"campaign {which}", known["matched"]) as advance:
        for seen in drive.watch(conn, which):
            if emits and wants_json() and seen != latest:
                emit(seen)

            # The progress bar takes what has ended since the last look.
            now_ended = seen["matched"] - seen["waiting"] - seen["in_flight"]
            advance(
                now_ended - ended, _WATCHED.format_map(seen | {"again": _again(seen)})
            )
            latest = seen
            ended = now_ended

    return latest or known


add_verbs(campaign, CAMPAIGNS)
campaign.add_command(heal)
