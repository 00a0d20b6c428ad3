"""Bring the schema up to date: forward only, in one transaction, safe to repeat and to kill.

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
from psycopg import errors, sql
from psycopg.rows import class_row, scalar_row

from redrive.errors import SchemaError, SchemaTooNew

Connection = psycopg.Connection[Any]

LOCK_KEY = 0x72656472  # 'redr'
OLDEST_SERVER = 14_00_00
FIRST_WITH_SET = 16_00_00
"""Versions as the server counts them. Since 16 membership of a role and becoming it are two."""

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


def _scalar(conn: Connection, query: LiteralString, *parameters: object) -> Any:
    """The one value that a query returns; None when it returns no row."""
    with conn.cursor(row_factory=scalar_row) as cursor:
        return cursor.execute(query, parameters).fetchone()


def installed(conn: Connection) -> int:
    """The version of the schema in this database; 0 when there is none."""
    # Not to_regclass: after a wait for the lock it answers from a cache that does not know yet what
    # whoever had the lock made.
    has_schema = _scalar(
        conn,
        "select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where n.nspname = 'redrive' and c.relname = 'migrations')",
    )
    if not has_schema:
        return 0
    return int(_scalar(conn, "select coalesce(max(version), 0) from redrive.migrations"))


def require(conn: Connection) -> None:
    """Refuse to work on a schema this program does not know.

    Raises:
        SchemaError: it is missing, too old or too new; the text says what to do.
    """
    found = installed(conn)
    if found == 0:
        msg = "the database has no redrive schema; run: redrive migrate"
        raise SchemaError(msg)
    if found < latest():
        needed = f"and this program needs {latest()}; run: redrive migrate"
        msg = f"the schema has version {found} {needed}"
        raise SchemaError(msg)
    if found > latest():
        raise SchemaTooNew(_too_new(found))


def _too_new(found: int) -> str:
    known = f"and this program knows only {latest()}; run a newer redrive"
    return f"the schema has version {found} {known}"


def migrate(conn: Connection) -> Report:
    """Apply what is missing, in one transaction.

    Args:
        conn: autocommit, of a user who may create a schema and, for the roles, has CREATEROLE.

    Raises:
        SchemaError: the schema is newer than this program, the database is not UTF-8, or the server
            is too old. Nothing was written.
    """
    # here because roles are made outside the transaction, and again under the lock
    _refuse_unfit(conn)
    without_roles = _ensure_roles(conn)
    with conn.transaction():
        _lock(conn)
        _refuse_unfit(conn)
        before = installed(conn)
        if without_roles is None:
            _act_as_owner(conn)
        _ensure_schema(conn)
        applied = _apply_migrations(conn, before)
        _apply_functions(conn, with_roles=without_roles is None)
    return Report(before, latest(), applied, without_roles)


def _lock(conn: Connection) -> None:
    """One migrate at a time; the tables it changes are waited for more briefly than another run."""
    conn.execute("set local lock_timeout = '30s'")
    conn.execute("set local statement_timeout = 0")
    conn.execute("select pg_advisory_xact_lock(%s)", (LOCK_KEY,))
    conn.execute("set local lock_timeout = '5s'")


def _ensure_schema(conn: Connection) -> None:
    conn.execute("create schema if not exists redrive")
    conn.execute(
        "create table if not exists redrive.migrations (version int primary key,"
        " name text not null, applied_at timestamptz not null default clock_timestamp(),"
        " functions text not null default '')"
    )


def _apply_migrations(conn: Connection, before: int) -> list[str]:
    """Apply the migrations newer than version `before`. Returns their names."""
    missing = [migration for migration in migrations() if migration.version > before]
    for migration in missing:
        _run(conn, migration.text)
        conn.execute(
            "insert into redrive.migrations (version, name) values (%s, %s)",
            (migration.version, migration.name),
        )
    return [migration.name for migration in missing]


def _apply_functions(conn: Connection, *, with_roles: bool) -> None:
    """Apply functions, views and grants if their text differs from what was applied last."""
    checksum = _checksum() + ("+roles" if with_roles else "")
    query = "select functions from redrive.migrations where version = %s"
    if _scalar(conn, query, latest()) == checksum:
        return
    # Each body is checked once all are there (tests/sql/test_headers.py), so that their order does
    # not matter: pg_dump does the same.
    conn.execute("set local check_function_bodies = off")
    for text in functions().values():
        _run(conn, text)
    if with_roles:
        _run(conn, (_root() / "roles.sql").read_text())
    conn.execute(
        "update redrive.migrations set functions = %s where version = %s", (checksum, latest())
    )


def _run(conn: Connection, text: str) -> None:
    # The files of our own package are the one SQL that is not a literal in the source.
    conn.execute(cast("LiteralString", text))


def _refuse_unfit(conn: Connection) -> None:
    found = installed(conn)
    if found > latest():
        raise SchemaError(_too_new(found))
    encoding = conn.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        msg = f"the database is encoded in {encoding}; payloads need UTF8"
        raise SchemaError(msg)
    if conn.info.server_version < OLDEST_SERVER:
        msg = "Postgres 14 or newer is needed"
        raise SchemaError(msg)


# ---------------------------------------------------------------------- roles


@dataclass(frozen=True, slots=True)
class _Standing:
    """Who migrates; whether as a member of redrive_owner, and whether that role may create."""

    database: str
    user: str
    is_member: bool
    may_create: bool


def _ensure_roles(conn: Connection) -> str | None:
    """Create the roles that are missing, and let us act as the owner.

    Returns why it could not, or None. Roles belong to the cluster and not to the database, so
    another migrate may create or grant the same at the same time: losing that race is fine.
    """
    try:
        _create_roles(conn)
    except errors.InsufficientPrivilege:
        statements = "; ".join(f"create role {name} nologin" for name in ROLES)
        return f"this user may not create roles; ask an administrator to run: {statements}"
    try:
        _grant_ownership(conn)
    except errors.InsufficientPrivilege as error:
        return f"this user may not act as redrive_owner: {error.diag.message_primary}"
    except (errors.InternalError, errors.UniqueViolation):
        pass  # another migrate granted the same
    return None


def _create_roles(conn: Connection) -> None:
    rows = conn.execute("select rolname from pg_roles where rolname = any (%s)", (list(ROLES),))
    existing = {name for (name,) in rows}
    for role in ROLES:
        if role not in existing:
            statement = sql.SQL("create role {} nologin").format(sql.Identifier(role))
            with contextlib.suppress(errors.DuplicateObject, errors.UniqueViolation):
                conn.execute(statement)


def _grant_ownership(conn: Connection) -> None:
    standing = _standing(conn)
    if not standing.is_member:
        user = sql.Identifier(standing.user)
        conn.execute(sql.SQL("grant redrive_owner to {}").format(user))
    if not standing.may_create:
        database = sql.Identifier(standing.database)
        conn.execute(sql.SQL("grant create on database {} to redrive_owner").format(database))
    # without it long transactions are not seen
    with contextlib.suppress(errors.InsufficientPrivilege):
        conn.execute("grant pg_read_all_stats to redrive_owner")


def _standing(conn: Connection) -> _Standing:
    # Since 16 whoever creates a role is a member that may not become it, until it is granted in so
    # many words.
    may_become = "set" if conn.info.server_version >= FIRST_WITH_SET else "member"
    with conn.cursor(row_factory=class_row(_Standing)) as cursor:
        standing = cursor.execute(
            "select current_database() as database, current_user as user,"
            " pg_has_role(current_user, 'redrive_owner', %s) as is_member,"
            " has_database_privilege('redrive_owner', current_database(), 'create') as may_create",
            (may_become,),
        ).fetchone()
    assert standing is not None  # noqa: S101 # a select without from
    return standing


def _act_as_owner(conn: Connection) -> None:
    """Let everything belong to a role that cannot log in, which bounds what a definer may do."""
    owner = _scalar(
        conn, "select nspowner::regrole::text from pg_namespace where nspname = 'redrive'"
    )
    if owner in {None, "redrive_owner"}:
        conn.execute("set local role redrive_owner")
