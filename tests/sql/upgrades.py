"""A release that does not exist: today's program with two more migrations."""

from contextlib import suppress
from dataclasses import replace

import pytest
from psycopg.errors import UndefinedColumn, UndefinedTable

from redrive.database.connections.connect import OwnConnection
from redrive.database.schema import migrate
from redrive.database.schema.migrate import Migration

TODAY = migrate.migrations()
"""The migrations of today's program."""

TABLES = Migration(
    TODAY[-1].version + 1,
    "next_tables",
    f"""-- serves: {TODAY[-1].version}
alter table redrive.jobs add column next_note text;
alter table redrive.completions add column next_note text;
alter table redrive.audit add column next_note text;
create table redrive.next_things (id bigint primary key);
insert into redrive.next_things (id) select j.id from redrive.jobs j;
drop function if exists redrive.dropped_v1();
""",
)
"""Changes tables that workers and producers use, and drops a function."""

INDEX = Migration(
    TODAY[-1].version + 2,
    "next_index",
    f"""-- concurrently: a table of any size is read for it
-- serves: {TODAY[-1].version}
drop index concurrently if exists redrive.jobs_next_idx;
create index concurrently jobs_next_idx on redrive.jobs (kind, next_note);
""",
)
"""Builds an index beside busy workers."""

NAMES = [TABLES.name, INDEX.name]


def release_next(monkeypatch: pytest.MonkeyPatch, *, serves: int | None = None) -> None:
    """Make this process a program of the next release; other processes stay at today's.

    Args:
        serves: the oldest program that its schema serves, unless it is today's.
    """
    added = [TABLES, INDEX]
    if serves is not None:
        old, new = f"-- serves: {TODAY[-1].version}", f"-- serves: {serves}"
        added = [replace(one, text=one.text.replace(old, new)) for one in added]
    monkeypatch.setattr(migrate, "migrations", lambda: [*TODAY, *added])


def install_before(
    conn: OwnConnection, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Install the schema as it was before a migration, with the functions that fit it."""
    names = [migration.name for migration in TODAY]
    older = TODAY[: names.index(name)]

    def apply_what_fits(conn: OwnConnection, **_: bool) -> None:
        conn.execute("set local check_function_bodies = off")
        for text in migrate.functions().values():
            with suppress(UndefinedTable, UndefinedColumn), conn.transaction():
                conn.execute(text.encode())

    with monkeypatch.context() as patch:
        patch.setattr(migrate, "migrations", lambda: older)
        patch.setattr(migrate, "_apply_functions", apply_what_fits)
        migrate.migrate(conn)


def install_today(conn: OwnConnection) -> None:
    """Install today's release, with a function that the next one drops."""
    migrate.migrate(conn)
    conn.execute("set role redrive_owner")
    conn.execute(
        "create function redrive.dropped_v1() returns int language sql return 1"
    )
    conn.execute("reset role")
