"""Warnings about requested names that no job has had, which are usually typos."""

from collections.abc import Mapping, Sequence
from typing import LiteralString

import click

from redrive.database.rows import Connection, column
from redrive.rules.nearest import suggestion
from redrive.rules.payloads.escape import escaped

_KNOWN: Mapping[str, tuple[LiteralString, str]] = {
    "kind": ("select distinct kind from redrive.totals", "of a kind"),
    "queue": ("select queue from redrive.depths_v1()", "in a queue"),
}


def unknown(conn: Connection, what: str, name: str) -> str | None:
    """Return a warning about a name that no job has had; otherwise None.

    Args:
        what: kind or queue.
    """
    query, had = _KNOWN[what]
    known = column(conn, query)
    if name in known:
        return None

    return f"no job has been {had} {name!r} yet{suggestion(name, known)}"


def say_unknown(conn: Connection, **names: Sequence[str]) -> None:
    """Warn on stderr about requested names that no job has had.

    Commands call this when they found nothing.
    """
    for what, given in names.items():
        for name in given:
            if warning := unknown(conn, what, name):
                click.echo(f"redrive: {escaped(warning)}", err=True)
