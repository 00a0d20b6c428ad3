"""redrive purge."""

from typing import Any

import click

from redrive.cli.common import (
    Duration,
    confirm,
    database,
    database_option,
    emit,
    filter_from,
    filter_options,
    json_option,
    progress,
    settings_for,
)
from redrive.dead_letters import redrive as dead_letters

ENV = "REDRIVE_PURGE"


@click.command()
@filter_options(ENV)
@click.option(
    "--older-than",
    type=Duration(),
    default="30d",
    show_default=True,
    help="Ended, or for open ones died, longer ago than this.",
    envvar=f"{ENV}_OLDER_THAN",
)
@click.option(
    "--keys-older-than",
    type=Duration(),
    default="30d",
    show_default=True,
    help="Also forget idempotency keys that succeeded longer ago than this.",
    envvar=f"{ENV}_KEYS_OLDER_THAN",
)
@click.option(
    "--why",
    metavar="TEXT",
    default="retention",
    show_default=True,
    help="Why; the audit log keeps it.",
    envvar=f"{ENV}_WHY",
)
@click.option("--actor", metavar="NAME", help="Who. [env: REDRIVE_ACTOR]")
@click.option(
    "--every",
    type=Duration(),
    metavar="DURATION",
    help="How often this is scheduled: an alert speaks up when it stops.",
    envvar=f"{ENV}_EVERY",
)
@click.option("--dry-run", is_flag=True, help="Only count.", envvar=f"{ENV}_DRY_RUN")
@click.option("--yes", is_flag=True, help="Do not ask.", envvar=f"{ENV}_YES")
@database_option
@json_option
def purge(
    older_than: float,
    keys_older_than: float,
    every: float | None,
    why: str,
    actor: str | None,
    dry_run: bool,
    yes: bool,
    database_url: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Delete dead letters past their retention for good, with their history.

    Resolved, dismissed and redriven ones; open ones only with --state open. Shows the count first;
    then asks, unless --yes. Without a terminal and without --yes it only counts.
    """
    chosen = filter_from(options)
    settings = settings_for(database_url, actor=actor)
    purged = 0
    with database(settings) as conn:
        selected = dead_letters.purgeable(conn, chosen, older_than)
        acts = not dry_run
        if not as_json:
            click.echo(f"{len(selected)} dead letters ended more than {_days(older_than)} ago")
        if acts:
            acts = confirm("Delete them for good?", str(len(selected)), yes=yes)
        if acts:
            with (
                database(settings) as holder,
                holder.transaction(),
                progress("purged", len(selected)) as advance,
            ):
                dead_letters.hold_lock(holder, "purge")
                purged = dead_letters.purge(
                    conn, chosen, selected, why=why, actor=settings.who(), progress=advance
                )
                dead_letters.done_chore(conn, "purge", every)
                forgotten = dead_letters.forget_keys(conn, keys_older_than)
            if not as_json:
                click.echo(f"{purged} purged, {forgotten} idempotency keys forgotten")
        elif not as_json:
            click.echo("nothing was changed" + ("" if dry_run else "; add --yes to do it"))
    if as_json:
        emit({"matched": len(selected), "purged": purged})


def _days(length: float) -> str:
    return f"{length / 86_400:g} days"
