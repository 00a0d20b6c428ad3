"""Find publications of our tables, and tables without a replica identity.

If a published table has no replica identity, it refuses every update and delete
(55000).
"""

from typing import LiteralString

from redrive.database.rows import Connection, column

_PUBLISHING: LiteralString = (
    "select distinct pubname::text from pg_catalog.pg_publication_tables"
    " where schemaname = 'redrive' order by 1"
)
_WITHOUT_IDENTITY: LiteralString = """
    select c.oid::regclass::text from pg_catalog.pg_class c
    where c.relnamespace = 'redrive'::regnamespace and c.relkind in ('r', 'p')
      and c.relpersistence = 'p'
      and not case c.relreplident
              when 'f' then true
              when 'd' then exists (select from pg_catalog.pg_index i
                                    where i.indrelid = c.oid and i.indisprimary)
              when 'i' then exists (select from pg_catalog.pg_index i
                                    where i.indrelid = c.oid and i.indisreplident)
              else false end
    order by 1"""


def publishing(conn: Connection) -> list[str]:
    """Return the publications that include one of our tables."""
    return column(conn, _PUBLISHING)


def without_identity(conn: Connection) -> list[str]:
    """Return our tables, including partitions, that have no replica identity."""
    return column(conn, _WITHOUT_IDENTITY)
