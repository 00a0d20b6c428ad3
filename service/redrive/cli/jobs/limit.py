"""redrive limit."""

import click

from redrive.cli.support.connection import database
from redrive.cli.support.exits import NotFound
from redrive.cli.support.options import (
    Change,
    acting_options,
    conn_options,
    json_option,
)
from redrive.cli.support.output import listing, printable
from redrive.database.rows import Connection
from redrive.live_jobs.flow_control import limits
from redrive.rules.payloads.escape import escaped
from redrive.rules.scheduling.concurrency import NAME, of_rate, per_second

COLUMNS = {
    "limit": "name",
    "running": "used",
    "at once": "concurrency",
    "rate": "rate",
    "waiting": "waiting",
}
MOST_AT_ONCE = 1_000_000


class _Name(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] # older versions take none
    name = "name"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        if not NAME.match(value):
            self.fail("must be like emails, customer:17 or customer:*", param, ctx)
        return value


class _Rate(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] # as above
    name = "n/time"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            return per_second(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.group()
def limit() -> None:
    """Limit how many jobs run at once, or start in a period."""


@limit.command("ls")
@conn_options
@json_option
def list_limits(conn: Connection) -> None:
    """List the limits, and the jobs that run and wait under each.

    \b
    redrive limit ls
    """
    rows = limits.find(conn)

    listing(
        rows,
        COLUMNS,
        right=("running", "at once", "waiting"),
        empty="there are no limits",
    )


@limit.command("set")
@click.argument("name", type=_Name())
@click.option(
    "--concurrency",
    type=click.IntRange(0, MOST_AT_ONCE),
    help="Jobs that run at once, at most.",
)
@click.option(
    "--rate", type=_Rate(), help="Jobs that start in a period, at most: 20/1m, 100/s."
)
@acting_options
def set_limit(
    name: str, concurrency: int | None, rate: float | None, change: Change
) -> None:
    """Limit the jobs that count under a name, from now on.

    \b
    redrive limit set emails --concurrency 20 --why 'the provider allows 20 connections'
    redrive limit set 'customer:*' --concurrency 2 --rate 20/1m --why 'one customer took all'

    NAME is one of a handler's limits=. A name such as customer:* limits each key, and a key can
    have a limit of its own. An option that you leave out sets no limit. Running jobs continue. The
    command warns you if no handler has the name yet.
    """
    if concurrency is None and rate is None:
        raise click.UsageError("give --concurrency, --rate or both")

    parts = [f"{concurrency} at once"] * (concurrency is not None)
    parts += [of_rate(rate)] if rate is not None else []

    limited = f"{printable(name)}: {', '.join(parts)}"
    change.agree(f"Limit {limited}")

    _set(name, concurrency, rate, change)
    click.echo(limited)


@limit.command("rm")
@click.argument("name", type=_Name())
@acting_options
def remove_limit(name: str, change: Change) -> None:
    """Remove a limit; jobs that wait for it can run.

    \b
    redrive limit rm emails --why 'the new provider has none'
    """
    change.agree(f"Remove the limit {printable(name)}")
    if not _set(name, concurrency=None, rate=None, change=change):
        raise NotFound(f"there is no limit {printable(name)}")
    click.echo(f"{printable(name)} is no longer limited")


def _set(
    name: str, concurrency: int | None, rate: float | None, change: Change
) -> bool:
    with database(change.settings) as conn:
        if concurrency is not None or rate is not None:
            warning = limits.unused(conn, name)
            if warning is not None:
                click.echo(escaped(f"redrive: {warning}"), err=True)

        return limits.put(conn, name, concurrency, rate, **change.signed)
