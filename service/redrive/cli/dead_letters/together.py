"""redrive campaign together: one campaign over all cells of REDRIVE_DATABASES."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import click

from redrive.cli.dead_letters.plan import allow_options, require_ids, stayed
from redrive.cli.dead_letters.terms import terms_options
from redrive.cli.support.connection import database, explain, say_away
from redrive.cli.support.exits import Exit
from redrive.cli.support.filters import filter_options
from redrive.cli.support.options import Run, json_option, require_why, run_options
from redrive.cli.support.output import counted, emit, listing, printable, wants_json
from redrive.cli.support.terminal import Advance, is_watched, progress
from redrive.database.rows import Connection
from redrive.dead_letters.campaigns import campaign as campaigns
from redrive.dead_letters.campaigns import together as driver
from redrive.dead_letters.campaigns.campaign import Plan
from redrive.dead_letters.campaigns.together import Cells, Together, View
from redrive.dead_letters.filter import Filter
from redrive.rules.dead_letters import together as rules
from redrive.rules.dead_letters.campaign import State
from redrive.rules.dead_letters.obstacles import Allow
from redrive.rules.dead_letters.terms import Terms
from redrive.rules.rows import Fields, Row
from redrive.rules.scheduling.cells import id_in_cell, parted

if TYPE_CHECKING:
    from redrive.settings import Settings

ENDS = {State.DONE: Exit.DONE, State.ABORTED: Exit.ABORTED}
IN_CELL = (
    *("campaign", "state", "said", "matched", "redriven", "succeeded", "dead_again"),
    *("cancelled", "waiting", "in_flight", "rate"),
)
"""Fields of a cell's campaign in the JSON of all."""
COUNTS = ("matched", "redriven", "succeeded", "dead_again", "waiting")
COLUMNS = ("campaign", "state", *COUNTS, "rate", "said")
_SUMS = (*COUNTS, "cancelled", "in_flight")
AWAY = "away"
_WATCHED = (
    "{state}: {succeeded} succeeded, {dead_again} dead again, {in_flight} in flight"
)

without_option = click.option(
    "--without",
    metavar="CELL",
    multiple=True,
    help="Leave out this cell of REDRIVE_DATABASES.",
)


@click.command()
@filter_options(states=("open",))
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Redrive every open dead letter, if no filter is given.",
)
@without_option
@terms_options
@allow_options()
@run_options(of_cells=True)
@json_option
def together(
    chosen: Filter,
    everything: bool,
    without: tuple[str, ...],
    terms: Terms,
    allow: Allow,
    run: Run,
) -> int:
    """Redrive one cause in all cells, as one campaign.

    \b
    redrive campaign together --group 3f9a51c07de2b846 --rate 30 --why 'fixed in 1.4.2'

    The cell with the most dead letters leads. The other cells start after its canaries have
    succeeded, each with one canary of its own. The rate is the rate of all cells together. If too
    many die again in one cell, all stop.

    The command drives the campaigns until they end. If you stop it, start it again, or use
    `redrive campaign watch` with the id of the leading campaign. Without a driver, no other cell
    starts. `pause`, `resume`, `cancel` and `show` of the leading campaign are for all cells.
    A cell that does not answer starts later. --without leaves it out.
    """
    is_vague = not (chosen.narrows() or everything)
    _check(chosen, allow, run, is_vague=is_vague)
    cells = cells_of(run.settings, without)
    code = Exit.DONE

    # Look in all cells: one that --without leaves out may lead the campaign already.
    leader = driver.find(cells_of(run.settings), chosen, allow)
    if leader is None:
        plans = driver.preview(cells, chosen, allow)
        code = say_away(plans.away)
        leader = _start(cells, plans.found, chosen, terms, allow, run)
    else:
        click.echo(_FOUND.format(leader), err=True)
        # A run that may only show a plan does not drive the campaign that it found.
        if run.dry_run or not (run.yes or is_watched()):
            return code

    if leader is None:
        return code

    led = _led(leader, run.settings, without)
    return follow(led)


_FOUND = (
    "campaign {0} has this filter already, and keeps its rate and terms;"
    " to start another one: redrive campaign cancel {0}"
)


def _check(chosen: Filter, allow: Allow, run: Run, *, is_vague: bool) -> None:
    """Refuse what has no meaning in several cells, and a start without a reason."""
    if chosen.ids:
        rule = "an id belongs to one cell; give a filter, such as --group"
        raise click.UsageError(rule)

    if chosen.limit:
        raise click.UsageError("--limit is for one cell; leave it out")

    require_ids(allow, chosen)
    if is_vague:
        raise click.UsageError("give a filter, or --all for every open dead letter")

    if run.yes and not run.dry_run:
        require_why(run.why)


def cells_of(settings: "Settings", without: tuple[str, ...] = ()) -> Cells:
    """Return how to open each cell of REDRIVE_DATABASES.

    Raises:
        click.UsageError: there are no cells, or a cell to leave out does not exist.
    """
    # Also the cells that --cell does not name.
    every = settings.model_copy(update={"cell": None})
    names = [cell.name for cell in every.cells()]

    if not names:
        raise click.UsageError("set REDRIVE_DATABASES to the file of all cells")

    for name in without:
        if name not in names:
            known = ", ".join(names)
            raise click.UsageError(f"--without is {name!r}; there are: {known}")

    return {
        name: partial(database, settings.model_copy(update={"cell": name}))
        for name in names
        if name not in without
    }


def led_by(
    settings: "Settings",
    found: Fields | None,
    without: tuple[str, ...] = (),
) -> Together | None:
    """Return the campaigns of all cells if this one leads them; else None.

    Args:
        found: the campaign; None = it does not exist.
        without: cells to leave out.

    Raises:
        click.UsageError: a cell to leave out does not exist, or it leads.
    """
    if found is None or not driver.leads(found):
        return None

    if settings.databases is None:
        text = (
            "it leads campaigns of other cells; to change them, set REDRIVE_DATABASES"
        )
        click.echo(f"redrive: campaign {found['campaign']}: {text}", err=True)
        return None

    leader = id_in_cell(found["campaign"], settings.cells()[0].name)
    return _led(leader, settings, without)


def _led(leader: str, settings: "Settings", without: tuple[str, ...]) -> Together:
    cell, number = parted(leader)
    assert cell is not None  # noqa: S101 # a leader is of a cell
    if cell in without:
        raise click.UsageError(f"--without is {cell!r}; {leader} leads the campaign")

    cells = cells_of(settings, without)
    return Together(
        cells=cells,
        cell=cell,
        campaign=int(number),
        actor=settings.who(),
        without=frozenset(without),
    )


def _start(
    cells: Cells,
    plans: Mapping[str, Plan],
    chosen: Filter,
    terms: Terms,
    allow: Allow,
    run: Run,
) -> str | None:
    """Show the plan of all cells, ask, and start the leading campaign."""
    counts = _counts(cells, plans)
    if not wants_json():
        for line in _remarks(plans, counts, terms):
            click.echo(line)

    matched = sum(plan.matched for plan in plans.values())
    if not matched:
        return None

    question = f"Redrive {counted(matched, 'dead letter')}?"
    why = run.consent(question, str(matched))
    if why is None:
        if not wants_json():
            click.echo(run.unchanged())

        return None

    actor = run.settings.who()
    return driver.start(
        cells,
        chosen,
        counts,
        terms,
        allow=allow,
        actor=actor,
        why=why,
    )


def _counts(cells: Cells, plans: Mapping[str, Plan]) -> dict[str, int | None]:
    """Return what each cell has planned; None if it does not answer."""
    counts: dict[str, int | None] = dict.fromkeys(cells)
    for cell, plan in plans.items():
        counts[cell] = plan.matched

    return counts


def _remarks(
    plans: Mapping[str, Plan], counts: Mapping[str, int | None], terms: Terms
) -> Iterator[str]:
    """Yield what would happen in each cell."""
    leader = rules.who_leads(counts)
    if leader is None:
        yield "nothing matched"
        return

    shares = rules.shares(counts, terms.rate)
    for cell, plan in plans.items():
        for remark in _remarks_of(plan, shares.get(cell)):
            yield f"{cell}: {remark}"

    canaries = counted(terms.canaries, "canary", "canaries")
    yield f"{leader} leads: its {canaries} go first"


def _remarks_of(plan: Plan, share: float | None) -> Iterator[str]:
    """Yield what would happen in one cell."""
    matched = counted(plan.matched, "open dead letter")
    yield f"{matched}, {_rate(share)} per second" if share else matched

    for cause, count in sorted(plan.blocked.items()):
        yield f"{count} will stay: {stayed(cause)}"

    if plan.acted:
        yield f"{plan.acted} have side effects on record; see dlq show"


def follow(led: Together) -> int:
    """Drive all campaigns until they are over, and show their progress."""
    with progress(f"campaign {led.leader}", None) as advance:
        shown = _Shown(advance)
        for view in led.watch():
            shown.show(view)

    view = led.look()
    if not wants_json():
        print_cells(view)

    return ENDS.get(rules.outcome(view.seen), Exit.FAILED)


@dataclass(slots=True)
class _Shown:
    """Progress of all cells as it was shown last; only changes are shown again."""

    advance: Advance
    latest: Row | None = None
    away: Mapping[str, str] = field(default_factory=dict[str, str])
    ended: int = 0

    def show(self, view: View) -> None:
        """Show a look at all cells."""
        self._say_away(view.away)

        now = whole(view)
        if wants_json() and now != self.latest:
            emit(now)

        ended = now["succeeded"] + now["dead_again"] + now["cancelled"]
        self.advance(ended - self.ended, _WATCHED.format_map(now))
        self.latest = now
        self.ended = ended

    def _say_away(self, away: Mapping[str, Exception]) -> None:
        """Report the cells that do not answer, unless they were reported so."""
        texts = {cell: explain(error)[1] for cell, error in away.items()}
        changed = texts.items() - self.away.items()

        say_away({cell: away[cell] for cell, _ in sorted(changed)})
        self.away = texts


def whole(view: View) -> Row:
    """Return the sums of all cells and each cell's campaign, for JSON."""
    leader = view.seen.leading
    cell, number = parted(view.seen.leader)
    rows = view.campaigns.values()

    return {
        "cell": cell,
        "campaign": int(number),
        "state": leader.state.value if leader else AWAY,
        **{name: sum(row[name] for row in rows) for name in _SUMS},
        "cells": by_cell(view),
    }


def by_cell(view: View) -> dict[str, Row]:
    """Return each cell's campaign; a cell that is away or has not started says so."""
    return {cell: _in_cell(view, cell) for cell in sorted(view.seen.cells)}


def _in_cell(view: View, cell: str) -> Row:
    row = view.campaigns.get(cell)
    if row is not None:
        return {name: row[name] for name in IN_CELL}
    if cell not in view.seen.members:
        return {"campaign": None, "state": AWAY}

    is_empty = view.seen.members[cell] is not None
    return {"campaign": None, "state": "empty" if is_empty else "not started"}


def print_cells(view: View) -> None:
    """Print a line for each cell."""
    rows = [_printed(cell, row) for cell, row in by_cell(view).items()]
    listing(rows, COLUMNS, right=(*COUNTS, "rate"))


def _printed(cell: str, row: Fields) -> Row:
    """Return the row of a cell as it is printed."""
    campaign = row["campaign"]
    return {
        **dict.fromkeys(COLUMNS, ""),
        **row,
        "campaign": id_in_cell(campaign, cell) if campaign else cell,
        "said": printable(row.get("said") or ""),
        "rate": _rate(row.get("rate")),
    }


def _rate(rate: float | None) -> str:
    return f"{rate:.3g}" if rate else ""


def led_campaign(conn: Connection, settings: "Settings", which: int) -> Together | None:
    """Return the campaigns of all cells if this campaign leads them; else None."""
    return led_by(settings, campaigns.show(conn, which))
