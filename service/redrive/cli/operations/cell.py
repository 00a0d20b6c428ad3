"""redrive cell: move a key from one cell to another."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from redrive.cli.operations import give_up
from redrive.cli.support.connection import database, only_one
from redrive.cli.support.options import (
    InOrder,
    Run,
    actor_option,
    json_option,
    settings_of_cells,
    why_option,
)
from redrive.cli.support.output import answer, counted, wants_json
from redrive.cli.support.terminal import progress
from redrive.database.rows import Connection
from redrive.database.schema import migrate
from redrive.errors import SchemaError
from redrive.live_jobs.cell_moves import moves
from redrive.live_jobs.cell_moves.moves import Done, Move, Plan
from redrive.rules.rows import Row

if TYPE_CHECKING:
    from redrive.settings import Settings

STAYS = {
    "running": "running",
    "batch": "in a batch, or with the ordering key of such a job",
    "campaign": "in a campaign, or with the ordering key of such a job",
}


@click.group(cls=InOrder)
def cell() -> None:
    """Move keys between the cells of REDRIVE_DATABASES."""


@cell.command("move")
@click.option(
    "--key",
    metavar="KEY",
    required=True,
    help="Key that selects the cell, which jobs have as their tenant.",
)
@click.option(
    "--from",
    "origin",
    metavar="CELL",
    required=True,
    help="Cell to leave.",
)
@click.option(
    "--to",
    metavar="CELL",
    required=True,
    help="Cell to go to.",
)
@why_option("required to act")
@actor_option
@click.option(
    "--give-up",
    "gives_up",
    is_flag=True,
    help="End a move that cannot continue, and put back the jobs that are on the way.",
)
@click.option(
    "--destination-lost",
    "is_lost",
    is_flag=True,
    help="With --give-up: the cell of --to will never come back.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would move.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
def move_key(
    key: str,
    origin: str,
    to: str,
    why: str | None,
    actor: str | None,
    gives_up: bool,
    is_lost: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Move a key's waiting jobs and dead letters to another cell.

    \b
    redrive cell move --key customer-17 --from eu --to us
    redrive cell move --key customer-17 --from eu --to us --yes --why 'us has room'

    Idempotency keys that have succeeded and limits of the key are copied. Running
    jobs, jobs of batches and campaigns, and ended jobs stay. Workers and producers
    may run meanwhile. You can stop the command and start it again: no job is lost, and
    none is in two cells. Then let the producers enqueue the key in the other cell, and
    run the command again for jobs that came in between.

    --give-up returns the jobs that a stopped run has taken out to the cell of --from,
    unless the other cell has them. Jobs that have moved stay there. If the other cell does
    not answer, this is refused, because its jobs could run twice. Add --destination-lost
    only if the other cell is lost for good.

    The command shows what moves and asks, unless you give --yes. Without a terminal
    and without --yes it only shows it.
    """
    if is_lost and not gives_up:
        raise click.UsageError("--destination-lost is for --give-up, which is missing")
    if origin == to:
        raise click.UsageError(f"--from and --to are both {to}; name two cells")

    cells = settings_of_cells(None, actor=actor)
    source = _named(cells, "--from", origin)
    run = Run(
        settings=source,
        why=why,
        every=None,
        dry_run=dry_run,
        yes=yes,
    )
    move = Move(
        key=key,
        origin=origin,
        to=to,
        actor=source.who(),
        # It is given when the user consents.
        why="",
    )

    # A cell that is lost for good may be gone from the settings, too.
    is_configured = any(settings.cell == to for settings in cells)
    there = None
    if is_configured or not is_lost:
        there = _named(cells, "--to", to)

    if gives_up:
        give_up.end_move(run, there, move, is_lost=is_lost)
    else:
        assert there is not None  # noqa: S101 # --destination-lost was refused
        _show_and_move(run, there, move)


def _show_and_move(run: Run, there: "Settings", move: Move) -> None:
    done = None
    with database(run.settings) as conn, database(there) as other:
        _require_equal(conn, other, move.origin, move.to)

        plan = moves.look(conn, other, move.key)
        if not wants_json():
            _show(plan, move.to)

        question = f"Move {move.key} from {move.origin} to {move.to}?"
        reason = run.consent(question, move.key)
        if reason is not None:
            agreed = move._replace(why=reason)
            done = _move(
                conn,
                other=other,
                source=run.settings,
                move=agreed,
                plan=plan,
            )

    text = _summary(done, move.to) if done else run.unchanged()
    answer(_fields(plan) | _counts(done), text)


def _named(cells: "Sequence[Settings]", option: str, name: str) -> "Settings":
    found = {settings.cell: settings for settings in cells if settings.cell}
    if not found:
        raise click.UsageError(f"{option} {name}: REDRIVE_DATABASES is not set")
    if name not in found:
        known = ", ".join(map(str, found))
        raise click.UsageError(f"{option} {name}: no such cell; there are: {known}")

    return found[name]


def _require_equal(conn: Connection, other: Connection, origin: str, to: str) -> None:
    """Raise SchemaError if the cells have different schemas: columns would be lost."""
    here = migrate.installed(conn)
    there = migrate.installed(other)
    if here != there:
        msg = (
            f"cell {origin} has schema {here}, and cell {to} has schema {there};"
            " run redrive migrate in both"
        )
        raise SchemaError(msg)


def _move(
    conn: Connection,
    other: Connection,
    source: "Settings",
    move: Move,
    plan: Plan,
) -> Done:
    done = Done()
    told = before = 0

    with only_one(source, "move"), progress("moved", plan.moving.total()) as advance:
        # Each report has the totals so far; the progress bar takes what was added.
        for done in moves.run(conn, other, move):
            advance(done.moved + done.known - before)
            before = done.moved + done.known

            if done.waiting and not told:
                told = done.waiting
                _say_waiting(told)

    return done


def _say_waiting(count: int) -> None:
    jobs = counted(count, "job")
    click.echo(f"{jobs} wait for running jobs of their ordering keys", err=True)


def _show(plan: Plan, to: str) -> None:
    for line in _lines(plan, to):
        click.echo(line)


def _lines(plan: Plan, to: str) -> Iterator[str]:
    """Yield what people read before a move."""
    yield from _moves(plan)
    yield from _copies(plan)

    for (what, why), n in sorted(plan.staying.items()):
        yield f"stays   {counted(n, what)}: {STAYS[why]}"

    yield from _warnings(plan, to)
    yield "stays   ended jobs, closed dead letters, campaigns, batches, schedules"
    yield _WAITS
    if plan.unknown_until is not None:
        yield _SKIPS.format(plan.unknown_until)

    yield f"then    let producers enqueue the key in {to}, and run this again"


def _moves(plan: Plan) -> Iterator[str]:
    jobs = counted(plan.moving["job"], "waiting job")
    dead = counted(plan.moving["dead letter"], "dead letter")
    yield f"moves   {jobs}, {dead}"

    if plan.taken:
        taken = counted(plan.taken, "job")
        yield f"moves   {taken} that a stopped run has taken out"


def _copies(plan: Plan) -> Iterator[str]:
    keys = counted(plan.keys, "idempotency key")
    yield f"copies  {keys} that succeeded"

    for name, concurrency, rate in plan.limits:
        yield f"copies  the limit {name} (concurrency {concurrency}, rate {rate})"


_WAITS = (
    "waits   an enqueue with the idempotency key of a job that is being moved,"
    " while its chunk is taken out"
)
_SKIPS = (
    "skips   idempotency keys that succeeded before the upgrade, because their tenant is"
    " unknown; the last one is forgotten at {:%Y-%m-%d %H:%M}"
)


def _warnings(plan: Plan, to: str) -> Iterator[str]:
    for queue, kind, n in plan.unhandled:
        jobs = counted(n, "job")
        yield (
            f"warning no live worker in {to} handles {kind} in queue {queue}:"
            f" {jobs} will wait for one"
        )


def _fields(plan: Plan) -> Row:
    # Every reason has a number in the JSON, even if nothing stays for it.
    staying = dict.fromkeys(STAYS, 0)
    for (_, reason), n in plan.staying.items():
        staying[reason] += n

    return {
        "jobs": plan.moving["job"],
        "dead_letters": plan.moving["dead letter"],
        "taken_out": plan.taken,
        "keys": plan.keys,
        "limits": [limit._asdict() for limit in plan.limits],
        "staying": staying,
        "unhandled": [kind._asdict() for kind in plan.unhandled],
        "keys_complete_at": plan.unknown_until,
    }


def _counts(done: Done | None) -> Row:
    """Return what a move has done, for JSON; nothing if it was only shown."""
    if done is None:
        return {}

    return {
        "moved": done.moved,
        "known": done.known,
        "keys_copied": done.keys,
        "limits_copied": done.limits,
    }


def _summary(done: Done, to: str) -> str:
    known = ""
    if done.known:
        jobs = counted(done.known, "job")
        known = f"; {jobs} left out, because {to} has their keys"

    keys = counted(done.keys, "key")
    limits = counted(done.limits, "limit")

    return f"{done.moved} moved to {to}{known}; {keys} and {limits} copied"
