"""redrive breaker."""

import click

from redrive.cli.common import (
    acting_options,
    database,
    database_option,
    emit,
    json_option,
    require_why,
    settings_for,
    table,
)

COLUMNS = (
    "name",
    "state",
    "failures",
    "successes",
    "opened",
    "opened_at",
    "open_until",
    "forced_by",
    "forced_why",
)


@click.group()
def breaker() -> None:
    """Dependencies the fleet has noticed, and whether jobs that need them run."""


@breaker.command("ls")
@database_option
@json_option
def list_breakers(database_url: str | None, as_json: bool) -> None:
    """Show them."""
    with database(settings_for(database_url)) as conn:
        rows = conn.execute(
            "select name, state, failures, successes, opened, opened_at, open_until, forced_by, forced_why"
            " from redrive.breakers order by name"
        ).fetchall()
    if as_json:
        for row in rows:
            emit(dict(zip(COLUMNS, row, strict=True)))
    else:
        table(
            COLUMNS,
            rows,
            right=("failures", "successes", "opened"),
            empty="no dependency has been reported yet",
        )


@breaker.command()
@click.argument("name")
@click.argument("state", type=click.Choice(["open", "closed"]))
@acting_options
@database_option
def force(
    name: str, state: str, why: str | None, actor: str | None, database_url: str | None
) -> int:
    """Hold a breaker open or closed, whatever is seen, until it is reset."""
    return _force(name, state, why, actor, database_url)


@breaker.command()
@click.argument("name")
@acting_options
@database_option
def reset(name: str, why: str | None, actor: str | None, database_url: str | None) -> int:
    """Close a breaker and let it go by what is seen again."""
    return _force(name, None, why, actor, database_url)


def _force(
    name: str, state: str | None, why: str | None, actor: str | None, database_url: str | None
) -> int:
    reason = require_why(why)
    settings = settings_for(database_url, actor=actor)
    with database(settings) as conn:
        row = conn.execute(
            "select redrive.force_breaker_v1(%s, %s, %s, %s)", (name, state, settings.who(), reason)
        ).fetchone()
    if not (row and row[0]):
        click.echo(f"redrive: there is no breaker {name}", err=True)
        return 2
    click.echo(f"{name} is held {state}" if state else f"{name} is closed and goes by what is seen")
    return 0
