"""Objects that other users made in our schema.

Their code would run with the caller's rights.
"""

from typing import LiteralString

from psycopg.rows import tuple_row

from redrive.database.rows import Connection

_FOREIGN: LiteralString = """
    with ours as (
        select r.oid from pg_catalog.pg_roles r
        where r.rolname operator(pg_catalog.=) 'redrive_owner' or r.rolsuper
           or r.rolname operator(pg_catalog.=) any (array[current_user, session_user])),
    schema as (
        select n.oid, n.nspowner from pg_catalog.pg_namespace n
        where n.nspname operator(pg_catalog.=) 'redrive'),
    found as (
        select 1 as place, 'schema redrive' as object, s.nspowner as owner from schema s
        union all
        select 2, case c.relkind when 'v' then 'view ' when 'S' then 'sequence ' else 'table ' end
                  operator(pg_catalog.||) 'redrive.' operator(pg_catalog.||) c.relname::text,
               c.relowner
        from pg_catalog.pg_class c join schema s on s.oid operator(pg_catalog.=) c.relnamespace
        where c.relkind operator(pg_catalog.=) any (array['r', 'p', 'v', 'm', 'f', 'S']::"char"[])
        union all
        select 3, 'function ' operator(pg_catalog.||) p.oid::pg_catalog.regprocedure::text,
               p.proowner
        from pg_catalog.pg_proc p join schema s on s.oid operator(pg_catalog.=) p.pronamespace
        union all
        select 4, 'type redrive.' operator(pg_catalog.||) t.typname::text, t.typowner
        from pg_catalog.pg_type t join schema s on s.oid operator(pg_catalog.=) t.typnamespace
        where t.typcategory operator(pg_catalog.<>) 'A'
        union all
        select 5, 'trigger ' operator(pg_catalog.||) t.tgname::text
                  operator(pg_catalog.||) ' of redrive.' operator(pg_catalog.||) c.relname::text,
               p.proowner
        from pg_catalog.pg_trigger t
        join pg_catalog.pg_class c on c.oid operator(pg_catalog.=) t.tgrelid
        join schema s on s.oid operator(pg_catalog.=) c.relnamespace
        join pg_catalog.pg_proc p on p.oid operator(pg_catalog.=) t.tgfoid)
    select f.object, pg_catalog.pg_get_userbyid(f.owner)::text from found f
    where not exists (select from ours o where o.oid operator(pg_catalog.=) f.owner)
    order by f.place, f.object limit 1"""
"""Query for one foreign object and its owner.

It runs before anything else, on any search_path.
"""


def find(conn: Connection) -> tuple[str, str] | None:
    """Return an object in our schema with a foreign owner, and that owner.

    Objects of the schema's owner, of this user and of superusers are not foreign.
    """
    with conn.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(_FOREIGN).fetchone()
