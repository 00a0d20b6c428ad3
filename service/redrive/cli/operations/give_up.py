"""redrive cell move --give-up: return the jobs of a move that cannot continue."""

from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING
from uuid import UUID

import click
import psycopg

from redrive.cli.support.connection import database, only_one
from redrive.cli.support.options import Run
from redrive.cli.support.output import answer, counted, wants_json
from redrive.database.rows import Connection
from redrive.live_jobs.cell_moves import give_up
from redrive.live_jobs.cell_moves.give_up import Returned
from redrive.live_jobs.cell_moves.moves import Move

if TYPE_CHECKING:
    from redrive.settings import Settings


def end_move(run: Run, there: "Settings | None", move: Move, *, is_lost: bool) -> None:
    """Show what returns, ask, and end the move.

    Args:
        there: settings of the destination; None = it is not configured.
        is_lost: the destination need not answer, because it will never come back.

    Raises:
        click.UsageError: no such move is open.
        psycopg.OperationalError: the destination does not answer, and is not lost.
    """
    done = None
    with database(run.settings) as conn, ExitStack() as stack:
        other = _destination(stack, there, move, is_lost=is_lost)
        number = _open(conn, move)
        plan = give_up.look(conn, other, number)
        if not wants_json():
            _show(plan, move, is_lost=other is None)

        question = f"Give up the move of {move.key} to {move.to}?"
        reason = run.consent(question, move.key)
        if reason is not None:
            agreed = move._replace(why=reason)
            # A mover takes the same lock, so a move and its end do not run at once.
            with only_one(run.settings, "move"):
                # Each report has the totals so far, so the last one is the result.
                *_, done = give_up.run(conn, other, agreed, number)

    text = _summary(done, move) if done else run.unchanged()
    answer(asdict(done or plan), text)


def _open(conn: Connection, move: Move) -> UUID:
    """Return the id of the move. Raises click.UsageError if it is not open."""
    number = give_up.find(conn, move)
    if number is None:
        way = f"from {move.origin} to {move.to}"
        raise click.UsageError(f"no move of {move.key} {way} is open")
    return number


def _destination(
    stack: ExitStack, there: "Settings | None", move: Move, *, is_lost: bool
) -> Connection | None:
    """Connect to the destination; return None if it is lost."""
    if there is None:
        return None

    try:
        return stack.enter_context(database(there))
    except psycopg.OperationalError:
        if is_lost:
            return None

        click.echo(
            f"{move.to} must say which jobs it has; only if it is lost for good, add"
            " --destination-lost",
            err=True,
        )
        raise


def _show(plan: Returned, move: Move, *, is_lost: bool) -> None:
    jobs = counted(plan.put_back, "job or dead letter", "jobs and dead letters")
    click.echo(f"returns {jobs} to {move.origin}, with the old ids")
    if is_lost:
        click.echo(
            f"warning {move.to} is not asked; if it comes back, a job that it has runs"
            " twice"
        )
    elif plan.there:
        click.echo(f"drops   {plan.there} more, because {move.to} has them")

    click.echo(f"stays   everything that has come to {move.to}")


def _summary(done: Returned, move: Move) -> str:
    parts = [f"{done.put_back} put back into {move.origin}"]
    if done.known:
        jobs = counted(done.known, "job")
        parts.append(f"{jobs} left out, because {move.origin} has their keys")

    parts.append(f"{done.there} are in {move.to}")
    return "; ".join(parts)
