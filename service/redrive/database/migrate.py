"""Bring the schema up to date: forward only, one transaction, under a lock, safe to repeat and to
kill.

Migrations make tables and are applied once, by number. Functions are versioned by name (claim_v1),
so older and newer pods find their own; their files are applied whenever their text changed. A
schema newer than this program is refused before anything is written.
"""

import contextlib
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, LiteralString, cast

import psycopg
from psycopg import sql

from redrive.errors import SchemaError, SchemaTooNew

LOCK_KEY = 0x72656472  # 'redr'
ROLES = (
    "redrive_owner",
    "redrive_producer",
    "redrive_worker",
    "redrive_operator",
    "redrive_viewer",
)


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file."""

    version: int
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a run found and did. `without_roles` says why no roles were made, or is None."""

    before: int
    after: int
    applied: list[str]
    without_roles: str | None


def _root() -> Traversable:
    return files("redrive") / "sql"


@cache
def migrations() -> list[Migration]:
    """All migrations this program knows, in order."""
    found = [
        Migration(int(f.name[:4]), f.name.removesuffix(".sql"), f.read_text())
        for f in (_root() / "migrations").iterdir()
        if f.name.endswith(".sql")
    ]
    return sorted(found, key=lambda m: m.version)


@cache
def functions() -> dict[str, str]:
    """The files of functions and views by name, in the order in which they are applied."""
    texts = {
        file.name.removesuffix(".sql"): file.read_text()
        for folder in (_root() / "functions").iterdir()
        for file in folder.iterdir()
    }
    return dict(sorted(texts.items()))


def latest() -> int:
    """The newest version this program knows."""
    return migrations()[-1].version


def _checksum() -> str:
    everything = "".join(functions().values()) + (_root() / "roles.sql").read_text()
    return hashlib.sha256(everything.encode()).hexdigest()


def installed(conn: psycopg.Connection[Any]) -> int:
    """The version of the schema in this database; 0 when there is none."""
    # Not to_regclass: after a wait for the lock it answers from a cache that does not know yet what
    # the other one made.
    found = conn.execute(
        "select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where n.nspname = 'redrive' and c.relname = 'migrations')"
    ).fetchone()
    if not (found and found[0]):
        return 0
    row = conn.execute("select coalesce(max(version), 0) from redrive.migrations").fetchone()
    return int(row[0]) if row else 0


def require(conn: psycopg.Connection[Any]) -> None:
    """Refuse to work on a schema this program does not know.

    Raises:
        SchemaError: it is missing, too old or too new; the text says what to do.
    """
    found = installed(conn)
    if found == 0:
        msg = "the database has no redrive schema; run: redrive migrate"
        raise SchemaError(msg)
    if found < latest():
        msg = f"the schema has version {found} and this program needs {latest()}; run: redrive migrate"
        raise SchemaError(msg)
    if found > latest():
        msg = f"the schema has version {found} and this program knows only {latest()}; run a newer redrive"
        raise SchemaTooNew(msg)


def migrate(conn: psycopg.Connection[Any]) -> Report:
    """Apply what is missing, in one transaction.

    Args:
        conn: autocommit, of a user who may create a schema and, for the roles, has CREATEROLE.

    Raises:
        SchemaError: the schema is newer than this program, or the database is not UTF-8. Nothing
            was written.
    """
    # here because roles are made outside the transaction, and again under the lock
    _refuse_unfit(conn)
    without_roles = _ensure_roles(conn)
    with conn.transaction():
        conn.execute("set local lock_timeout = '30s'")
        conn.execute("set local statement_timeout = 0")
        conn.execute("select pg_advisory_xact_lock(%s)", (LOCK_KEY,))
        conn.execute("set local lock_timeout = '5s'")
        _refuse_unfit(conn)
        before = installed(conn)
        if without_roles is None:
            _act_as_owner(conn)
        conn.execute("create schema if not exists redrive")
        conn.execute(
            "create table if not exists redrive.migrations (version int primary key, name text not null,"
            " applied_at timestamptz not null default clock_timestamp(), functions text not null default '')"
        )
        applied = [m for m in migrations() if m.version > before]
        for migration in applied:
            _run(conn, migration.text)
            conn.execute(
                "insert into redrive.migrations (version, name) values (%s, %s)",
                (migration.version, migration.name),
            )
        row = conn.execute(
            "select functions from redrive.migrations where version = %s", (latest(),)
        ).fetchone()
        checksum = _checksum() + ("" if without_roles else "+roles")
        if row is None or row[0] != checksum:
            # Each body is checked once all are there (tests/sql/test_headers.py), so that their
            # order does not matter: pg_dump does the same.
            conn.execute("set local check_function_bodies = off")
            for text in functions().values():
                _run(conn, text)
            if without_roles is None:
                _run(conn, (_root() / "roles.sql").read_text())
            conn.execute(
                "update redrive.migrations set functions = %s where version = %s",
                (checksum, latest()),
            )
    return Report(before, latest(), [m.name for m in applied], without_roles)


def _run(conn: psycopg.Connection[Any], text: str) -> None:
    # The files of our own package are the one SQL that is not a literal in the source.
    conn.execute(cast("LiteralString", text))


def _refuse_unfit(conn: psycopg.Connection[Any]) -> None:
    found = installed(conn)
    if found > latest():
        msg = f"the schema has version {found} and this program knows only {latest()}; run a newer redrive migrate"
        raise SchemaError(msg)
    encoding = conn.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        msg = f"the database is encoded in {encoding}; payloads need UTF8"
        raise SchemaError(msg)
    if conn.info.server_version < 140000:  # noqa: PLR2004 # as the server counts
        msg = "Postgres 14 or newer is needed"
        raise SchemaError(msg)


def _ensure_roles(conn: psycopg.Connection[Any]) -> str | None:
    """Create the roles of the cluster that are missing. Returns why it could not, or None.

    Roles belong to the cluster and not to the database, so several databases may be at it: losing
    that race is fine.
    """
    rows = conn.execute(
        "select rolname from pg_roles where rolname = any (%s)", (list(ROLES),)
    ).fetchall()
    existing = {name for (name,) in rows}
    for role in ROLES:
        if role in existing:
            continue
        try:
            conn.execute(sql.SQL("create role {} nologin").format(sql.Identifier(role)))
        except (psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
            continue
        except psycopg.errors.InsufficientPrivilege:
            statements = "; ".join(f"create role {name} nologin" for name in ROLES)
            return f"this user may not create roles; have somebody run: {statements}"
    try:
        # Since 16 who creates a role is a member that may not become it, until it is granted in so
        # many words.
        may_become = "set" if conn.info.server_version >= 160000 else "member"  # noqa: PLR2004 # as the server counts
        row = conn.execute(
            "select current_database(), current_user, pg_has_role(current_user, 'redrive_owner', %s),"
            " has_database_privilege('redrive_owner', current_database(), 'create')",
            (may_become,),
        ).fetchone()
        database, user, is_member, may_create = row or ("", "", False, False)
        if not is_member:
            conn.execute(sql.SQL("grant redrive_owner to {}").format(sql.Identifier(user)))
        if not may_create:
            conn.execute(
                sql.SQL("grant create on database {} to redrive_owner").format(
                    sql.Identifier(database)
                )
            )
        # without it long transactions are not seen
        with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
            conn.execute("grant pg_read_all_stats to redrive_owner")
    except psycopg.errors.InsufficientPrivilege as error:
        return f"this user may not act as redrive_owner: {error.diag.message_primary}"
    except (psycopg.errors.InternalError, psycopg.errors.UniqueViolation):
        # another migrate granted the same
        pass
    return None


def _act_as_owner(conn: psycopg.Connection[Any]) -> None:
    """Make everything belong to a role that cannot log in: what a definer function may do is then
    bounded.
    """
    row = conn.execute(
        "select nspowner::regrole::text from pg_namespace where nspname = 'redrive'"
    ).fetchone()
    if row is None or row[0] == "redrive_owner":
        conn.execute("set local role redrive_owner")
