"""Names from the database that a shell completes: kinds, queues, groups and others."""

from collections.abc import Mapping
from typing import LiteralString

import click
from click.shell_completion import CompletionItem
from psycopg.conninfo import make_conninfo

from redrive.database.connections.connect import connect
from redrive.database.rows import column

CELL = "redrive.cell"
"""Key in a command's context: the cell that --cell or an id such as eu:17 names."""

_NAMES: Mapping[str, LiteralString] = {
    "kind": """
        select distinct kind from redrive.totals
        union select unnest(kinds) from redrive.workers where lost_at is null""",
    "queue": "select queue from redrive.depths_v1()",
    "group": "select fingerprint from redrive.grouped where open > 0",
    "schedule": "select name from redrive.schedules",
    "version": """
        select jsonb_object_keys(versions) from redrive.grouped
        union select version from redrive.workers where version <> ''""",
}
_MOST = 200


class Known(click.types.StringParamType):
    """Text that a shell completes with names from the database.

    Args:
        what: kind, queue, group, schedule or version.
    """

    def __init__(self, what: str) -> None:
        self.what = what

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 # of the interface
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the names that begin so; nothing if the database does not answer soon."""
        try:
            names = _read(ctx, self.what, incomplete)
        except Exception:  # noqa: BLE001 # a shell would show the error in the line that is typed
            return []

        return [CompletionItem(name) for name in names]


def _read(ctx: click.Context, what: str, beginning: str) -> list[str]:
    from redrive.settings import load  # noqa: PLC0415 # --help reads none

    url: str | None = ctx.params.get("database_url")
    address = load(database_url=url, cell=ctx.meta.get(CELL)).address()
    soon = make_conninfo(address.read(), connect_timeout="1")
    limits = {"statement_timeout": "1s", "lock_timeout": "1s"}

    query: LiteralString = (
        "select n from (" + _NAMES[what] + ") k(n) where starts_with(n, %s)"
        " order by n limit %s"
    )
    with connect(
        soon, name="redrive completion", **limits, **address.role_setting()
    ) as conn:
        return column(conn, query, beginning, _MOST)
