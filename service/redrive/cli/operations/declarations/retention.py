"""redrive retention."""

from collections.abc import Sequence
from functools import partial

import click

from redrive.cli.support.declared import set_differing
from redrive.cli.support.options import (
    Change,
    Duration,
    acting_options,
    conn_options,
    json_option,
)
from redrive.cli.support.output import listing
from redrive.database import retention as stored
from redrive.database.retention import Kept
from redrive.database.rows import Connection
from redrive.rules.rows import Row

DAY_SECONDS = 86_400
MEANINGS = {
    "audit": "lines of the audit log",
    "campaigns": "campaigns whose dead letters are purged",
    "groups": "groups without an open dead letter",
    "keys": "keys of succeeded jobs, ids of imported dead letters",
    "names": "counters and breakers that nobody uses",
}
LEAST_SECONDS = dict.fromkeys(MEANINGS, 3_600) | {"audit": 30 * DAY_SECONDS}


class _Pair(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] # older versions take none
    name = "what=duration"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> Kept:
        what, _, duration = value.partition("=")
        if what not in MEANINGS:
            self.fail(
                f"{what!r} has no retention; it must be one of {', '.join(MEANINGS)}",
                param,
                ctx,
            )

        seconds = Duration().convert(duration, param, ctx)
        if seconds < LEAST_SECONDS[what]:
            self.fail(
                f"{what} must be kept for at least {_shown(LEAST_SECONDS[what])}",
                param,
                ctx,
            )

        return what, seconds


@click.group()
def retention() -> None:
    """Set how long data other than dead letters is kept.

    Workers delete older data in the background. redrive purge deletes it at once.
    """


@retention.command("ls")
@conn_options
@json_option
def list_retention(conn: Connection) -> None:
    """List the kinds of data, and how long each is kept.

    \b
    redrive retention ls
    """
    held = stored.read(conn)
    rows = [{"what": what, "seconds": seconds} for what, seconds in held]
    columns = ("what", "kept", "of")
    listing(
        rows,
        columns,
        for_people=_for_people,
        right=("kept",),
    )


def _for_people(row: Row) -> Row:
    return row | {"kept": _shown(row["seconds"]), "of": MEANINGS[row["what"]]}


@retention.command("set")
@click.argument(
    "kept",
    metavar="WHAT=DURATION...",
    nargs=-1,
    required=True,
    type=_Pair(),
)
@acting_options
def set_retention(kept: Sequence[Kept], change: Change) -> None:
    """Set the retentions that differ; the others stay.

    \b
    redrive retention set audit=800d keys=14d --why 'the auditors ask for two years'

    Waits for the schema, as a worker does.
    """
    put = partial(stored.put, **change.signed)
    set_differing(
        change,
        kept,
        read=stored.read,
        put=put,
        describe=_said,
    )


def _said(kept: Kept) -> str:
    what, seconds = kept
    shown = _shown(seconds)
    return f"{what}: kept for {shown}"


def _shown(seconds: float) -> str:
    """Format a duration as users write it: 30d, 12h."""
    days = seconds / DAY_SECONDS
    hours = seconds / 3_600
    if days >= 1:
        return f"{days:g}d"

    return f"{hours:g}h"
