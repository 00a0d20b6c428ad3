"""Bring the schema up to date, beside busy workers.

Migration goes forward only, and is safe to repeat and to kill.

Migrations change tables and are applied once, by number, each in its own transaction. A
migration first locks all its tables, within LOCK_WAIT_SECONDS. If it cannot, it
releases them, rests and tries again. So it never holds a table during a long wait. No
worker or producer can deadlock with it, whatever order they lock tables in.

Functions are versioned by name (claim_v1), so older and newer pods find their own. All
their files are applied again if the text of one has changed, and they lock no table. If
the schema is newer than this program, the program refuses it before it writes anything.
The exception is a schema that says it serves this program too.
"""

import contextlib
import hashlib
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, LiteralString, cast

import psycopg
from psycopg import errors, sql

from redrive.database.connections.connect import SEARCH_PATH
from redrive.database.rows import Connection, column, first_record, value
from redrive.database.schema import foreign
from redrive.database.schema.blockers import Waiting
from redrive.errors import SchemaError, SchemaTooNew

LOCK_KEY = 0x72656472  # 'redr'
OLDEST_SERVER = 14_00_00
LOCK_WAIT_SECONDS = 0.3
"""How long a migration waits for all its tables.

Workers and producers queue behind it for that time. It is below deadlock_timeout (1 s),
after which Postgres cancels one of two sessions that wait for each other.
"""
LOCK_REST_SECONDS = 0.5
"""Seconds between two tries."""
PATIENCE_SECONDS = 600.0
"""Seconds after which a migration that waits for a lock gives up."""

FIRST_WITH_SET = 16_00_00
"""Server version since which membership of a role and becoming it are separate rights.
"""

ROLES = (
    "redrive_owner",
    "redrive_producer",
    "redrive_worker",
    "redrive_operator",
    "redrive_viewer",
    "redrive_encryptor",
    "redrive_agent",
    "redrive_console",
)

UNRELEASED = (
    "the schema redrive in this database is older than the first release and cannot be"
    " upgraded; create a new database and run redrive migrate there; to keep jobs, first"
    " let the old workers finish them; to discard them all and stay in this database,"
    " run: drop schema redrive cascade"
)

DROP_FUNCTION = re.compile(r"^drop function .*?;$", re.MULTILINE | re.DOTALL)
OTHER_RESULT = re.compile(r"DROP FUNCTION (redrive\..*) first")
"""Hint of Postgres if a function that exists has another result."""
TRIGGER = re.compile(r"^create or replace trigger .*?;$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"--.*$", re.MULTILINE)
DEFINES = re.compile(r"\s*(?:alter|create|drop|truncate|lock|do)\b")
NAMED = re.compile(r"\bredrive\.(\w+)")


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file.

    A file that begins with `-- concurrently:` contains only indexes, which affect
    nothing but speed. They are built after everything else and outside a transaction,
    so that they block no other session.
    """

    version: int
    name: str
    text: str

    @property
    def serves(self) -> int:
        """Return the oldest program that this schema serves.

        Its version is that of the newest migration it knows.
        """
        found = re.search(r"^-- serves: (\d+)$", self.text, re.MULTILINE)
        return int(found[1]) if found else self.version

    @property
    def is_concurrent(self) -> bool:
        """Return True if the migration builds indexes while others write."""
        return self.text.startswith("-- concurrently:")

    @property
    def at_once(self) -> str:
        """Return the text for a transaction that no other session can disturb."""
        return self.text.replace(" concurrently", "")

    @property
    def tables(self) -> str:
        """Return the text without the functions it drops.

        They are dropped when their successors are made.
        """
        return DROP_FUNCTION.sub("", self.at_once)

    @property
    def drops(self) -> list[str]:
        """Return the statements that drop functions."""
        return DROP_FUNCTION.findall(self.text)

    @property
    def locks(self) -> set[str]:
        """Return the names of tables and indexes that the file's statements define."""
        code = COMMENT.sub("", self.tables)
        names: set[str] = set()

        for statement in code.split(";\n"):
            if DEFINES.match(statement):
                names.update(NAMED.findall(statement))

        return names


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a run.

    `without_roles` is the reason why no roles were made, or None.
    """

    before: int
    after: int
    applied: list[str]
    without_roles: str | None


def _root() -> Traversable:
    return files("redrive") / "sql"


@cache
def migrations() -> list[Migration]:
    """Return all migrations this program knows, in order."""
    found = [
        Migration(
            version=int(f.name[:4]),
            name=f.name.removesuffix(".sql"),
            text=f.read_text(encoding="utf-8"),
        )
        for f in (_root() / "migrations").iterdir()
        if f.name.endswith(".sql")
    ]
    return sorted(found, key=lambda m: m.version)


@cache
def functions() -> dict[str, str]:
    """Return the files of functions and views by name, as they are applied."""
    texts = {
        file.name.removesuffix(".sql"): file.read_text(encoding="utf-8")
        for folder in (_root() / "functions").iterdir()
        for file in folder.iterdir()
    }
    return dict(sorted(texts.items()))


def latest() -> int:
    """Return the newest version this program knows."""
    return migrations()[-1].version


def _checksum(*, with_roles: bool) -> str:
    roles = (_root() / "roles.sql").read_text(encoding="utf-8")
    everything = "".join(functions().values()) + roles
    digest = hashlib.sha256(everything.encode()).hexdigest()

    return digest + "+roles" if with_roles else digest


def _is_installed(conn: Connection) -> bool:
    # Not to_regclass: after a wait for the lock, its cache does not know yet what the
    # previous holder of the lock created.
    return bool(
        value(
            conn,
            "select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace"
            " where n.nspname = 'redrive' and c.relname = 'migrations')",
        )
    )


def installed(conn: Connection) -> int:
    """Return the version of the schema in this database; 0 if it has no schema."""
    if not _is_installed(conn):
        return 0
    return int(value(conn, "select coalesce(max(version), 0) from redrive.migrations"))


def require_or_close(conn: Connection) -> None:
    """Refuse a schema as `require` does, and close the connection to it."""
    try:
        require(conn)
    except BaseException:
        conn.close()
        raise


def require(conn: Connection) -> None:
    """Refuse a schema that this program does not know and that does not serve it.

    Raises:
        SchemaError: the schema is missing, too old or too new; the text says what to
            do.
    """
    found = _refuse_unfit_schema(conn)
    if found == 0:
        msg = "the database has no redrive schema; run: redrive migrate"
        raise SchemaError(msg)

    if found < latest():
        needed = f"and this program needs {latest()}; run: redrive migrate"
        msg = f"the schema has version {found} {needed}"
        raise SchemaError(msg)

    # A run records the functions at its end.
    if not value(
        conn, "select functions from redrive.migrations where version = %s", latest()
    ):
        msg = f"the migration to version {latest()} has not ended; run: redrive migrate"
        raise SchemaError(msg)


def migrate(conn: Connection, *, patience: float = PATIENCE_SECONDS) -> Report:
    """Apply what is missing.

    Args:
        conn: autocommit connection of a user who may create a schema and, for the
            roles, has CREATEROLE.
        patience: seconds after which a wait for a lock is given up. Meanwhile the
            logger `redrive.migrate` names the blocking session every 10 s.

    Raises:
        SchemaError: nothing was written because the schema is newer than this program
            or has foreign objects, the database is not UTF-8, or the server is too old
            or CockroachDB. It is also raised if a table stayed locked all the time;
            then all earlier steps are kept.
        ValueError: the connection is not in autocommit.
    """
    if not conn.autocommit:
        msg = (
            "migrate(conn): conn must be in autocommit: each migration is a transaction"
        )
        raise ValueError(msg)

    _refuse_unfit_server(conn)
    # Checked here because roles are made outside the transaction, and again under the
    # lock.
    _refuse_foreign(conn)
    before = _refuse_unfit_schema(conn)
    if before > latest():  # and it serves us: a release was rolled back
        return Report(before=before, after=before, applied=[], without_roles=None)

    without_roles = _ensure_roles(conn)
    with Waiting(conn, patience) as waiting:
        run = _Run(conn=conn, with_roles=without_roles is None, waiting=waiting)
        found, applied = run.step(
            partial(_install, conn, with_roles=without_roles is None)
        )
        if found:
            applied = _upgrade(run)

    # `found` differs from `before` if another run installed the schema meanwhile.
    return Report(
        before=before or found,
        after=latest(),
        applied=applied,
        without_roles=without_roles,
    )


@dataclass(slots=True)
class _Run:
    """One run of migrate: its steps, each in a transaction of its own."""

    conn: Connection
    with_roles: bool
    waiting: Waiting
    first: list[str] = field(default_factory=list[str])
    """Tables that timed out in earlier tries, to be locked first.

    Their holders were waiting for a table of ours.
    """

    def step(self, act: Callable[[], Any], locks: Sequence[str] = ()) -> Any:
        """Do one thing in a transaction, after its locks; repeat until it succeeds.

        Raises:
            SchemaError: the patience has run out.
        """
        while True:
            try:
                with self.conn.transaction():
                    self._begin()
                    self._lock(locks)
                    return act()
            except (errors.LockNotAvailable, errors.DeadlockDetected) as error:
                if self.waiting.is_over:
                    raise self.waiting.gave_up() from error

                # The transaction has ended, so no session waits behind us now.
                time.sleep(LOCK_REST_SECONDS)
            except errors.QueryCanceled as error:
                raise self.waiting.meaning(error) from error

    def _begin(self) -> None:
        conn = self.conn
        # A user with rights on `public` could put a function there that fits better
        # than ours, and have it built into a view.
        conn.execute("select set_config('search_path', %s, true)", (SEARCH_PATH,))
        _refuse_foreign(conn)

        _act_as_owner(conn, may_begin=self.with_roles)
        self.waiting.pid = value(conn, "select pg_backend_pid()")

        # A migration of a large table may take longer than our other statements may.
        conn.execute("set local statement_timeout = 0")
        _wait_for_locks(conn, LOCK_WAIT_SECONDS)
        _exclude_other_runs(conn)
        # Again, because another run may have upgraded the schema during the wait.
        _refuse_unfit_schema(conn)

    def _lock(self, names: Sequence[str]) -> None:
        """Lock tables before anything else is done with them.

        Autovacuum does not yield to a session that waits for less than
        deadlock_timeout. The first lock mode therefore waits longer. Only autovacuum
        and other changes of the schema wait behind that mode.
        """
        tables = _tables(self.conn, names)
        if not tables:
            return

        self.conn.execute(
            "select set_config('lock_timeout', (extract(epoch from"
            " current_setting('deadlock_timeout')::interval) * 1000 + 500)::int::text, true)"
        )

        for table in tables:
            self.conn.execute(_lock_table(table, "share update exclusive"))

        # One deadline for all tables, because workers queue behind the first ones.
        until = time.monotonic() + LOCK_WAIT_SECONDS
        for table in sorted(tables, key=self._rank):
            _wait_for_locks(self.conn, until - time.monotonic())
            try:
                self.conn.execute(_lock_table(table, "access exclusive"))
            except errors.LockNotAvailable:
                self.first = [table, *(name for name in self.first if name != table)]
                raise

        # The migration's own statements get the full time again for their locks.
        _wait_for_locks(self.conn, LOCK_WAIT_SECONDS)

    def _rank(self, table: str) -> int:
        if table in self.first:
            return self.first.index(table)
        return len(self.first)


def _wait_for_locks(conn: Connection, seconds: float) -> None:
    milliseconds = max(1, int(seconds * 1000))  # 0 would mean no limit
    conn.execute("select set_config('lock_timeout', %s, true)", (str(milliseconds),))


def _lock_table(name: str, mode: LiteralString) -> sql.Composed:
    table = sql.Identifier("redrive", name)
    return sql.SQL("lock table {} in {} mode").format(table, sql.SQL(mode))


def _tables(conn: Connection, names: Sequence[str]) -> list[str]:
    """Return the tables among these names, and the tables of the indexes among them.

    The oldest comes first, which is redrive.jobs. Workers and producers begin with it
    too.
    """
    return column(
        conn,
        "select t.relname from pg_class c left join pg_index i on i.indexrelid = c.oid"
        " join pg_class t on t.oid = coalesce(i.indrelid, c.oid) and t.relkind in ('r', 'p')"
        " where c.relnamespace = to_regnamespace('redrive') and c.relname = any (%s)"
        " group by t.oid, t.relname order by t.oid",
        list(names),
    )


def _exclude_other_runs(conn: Connection) -> None:
    """Let one migrate work at a time.

    Once our migrations table exists, it is the lock. Any user who can connect could
    take an advisory lock. Other sessions can still read the table.
    """
    if not _is_installed(conn):
        conn.execute("select pg_advisory_xact_lock(%s)", (LOCK_KEY,))
    if _is_installed(conn):  # perhaps by the previous holder of that lock
        _refuse_foreign(conn)
        conn.execute("lock table redrive.migrations in share row exclusive mode")


def _install(conn: Connection, *, with_roles: bool) -> tuple[int, list[str]]:
    """Install everything if nothing is installed.

    Returns the version before, and the names of the applied migrations.
    """
    found = installed(conn)
    if found:
        return found, []

    _ensure_schema(conn)
    applied = _apply(conn, migrations())
    _apply_functions(conn, with_roles=with_roles)

    for _, trigger in _triggers_that_differ(conn):
        _run(conn, trigger)

    _record_functions(conn, with_roles=with_roles)
    return 0, applied


def _upgrade(run: _Run) -> list[str]:
    """Upgrade an existing schema; return the names of the applied migrations."""
    applied: list[str] = []
    missing = _missing(run.conn, migrations())

    for migration in missing:
        if not migration.is_concurrent:
            act = partial(_apply, run.conn, [migration])
            applied += run.step(act, sorted(migration.locks))

    _finish(run)
    concurrent = [migration for migration in missing if migration.is_concurrent]
    built = [
        name for migration in concurrent for name in _build_indexes(run, migration)
    ]

    # Functions are recorded with the newest version, which may be among these.
    if built:
        _finish(run)

    return applied + built


def _finish(run: _Run) -> None:
    """Apply functions, views, grants and triggers if their text has changed.

    If a run is killed in between, the next run begins with them again.
    """
    conn = run.conn
    with_roles = run.with_roles
    query = "select functions from redrive.migrations where version = %s"
    if value(conn, query, latest()) == _checksum(with_roles=with_roles):
        return

    run.step(partial(_apply_functions, conn, with_roles=with_roles))

    # A trigger locks its table, so each one is a step of its own.
    for table, trigger in run.step(partial(_triggers_that_differ, conn)):
        run.step(partial(_run, conn, trigger), [table])

    run.step(partial(_record_functions, conn, with_roles=with_roles))


def _ensure_schema(conn: Connection) -> None:
    conn.execute("create schema if not exists redrive")
    conn.execute(
        "create table if not exists redrive.migrations (version int primary key,"
        " name text not null, applied_at timestamptz not null default clock_timestamp(),"
        " functions text not null default '', serves int not null)"
    )


def _apply(conn: Connection, wanted: list[Migration]) -> list[str]:
    """Apply the missing ones of these migrations. Returns their names."""
    missing = _missing(conn, wanted)
    for migration in missing:
        _run(conn, migration.tables)
        _record(conn, migration)
    return [migration.name for migration in missing]


def _missing(conn: Connection, wanted: list[Migration]) -> list[Migration]:
    known = set(column(conn, "select version from redrive.migrations"))
    return [migration for migration in wanted if migration.version not in known]


def _record(conn: Connection, migration: Migration) -> None:
    # `serves` is written here and not at the end of the run, so that an old program can
    # restart in the middle.
    conn.execute(
        "insert into redrive.migrations (version, name, serves) values (%s, %s, %s)"
        " on conflict do nothing",
        (migration.version, migration.name, migration.serves),
    )


def _build_indexes(run: _Run, migration: Migration) -> list[str]:
    """Apply a concurrent migration if it is missing.

    Returns its name if it was applied. If a run is killed half-way, the next one starts
    over: the first statements drop what the others make.

    Raises:
        SchemaError: the patience ran out while a statement waited for a transaction.
    """
    conn = run.conn
    if not _missing(conn, [migration]):
        return []

    for statement in migration.text.split(";\n"):
        try:
            # A plain cursor, because the statement may not share a round trip with
            # settings.
            psycopg.Cursor(conn).execute(cast("LiteralString", statement))
        except errors.QueryCanceled as error:
            raise run.waiting.meaning(error) from error

    _record(conn, migration)
    return [migration.name]


def _apply_functions(conn: Connection, *, with_roles: bool) -> None:
    """Drop functions that are in the way; recreate all functions, views and grants."""
    # Bodies are checked once all exist (tests/sql/test_headers.py), so their order does
    # not matter. pg_dump does the same.
    conn.execute("set local check_function_bodies = off")
    for drop in _drops(conn):
        _run(conn, drop)

    for text in functions().values():
        _replace(conn, TRIGGER.sub("", text))

    if with_roles:
        _run(conn, (_root() / "roles.sql").read_text(encoding="utf-8"))


def _replace(conn: Connection, text: str) -> None:
    """Create functions. Drop a function first if its result is of another type.

    Only commits between two releases have such functions. Their programs no longer work
    then, and every other program does.

    Raises:
        SchemaError: such a function is in use by an object that is not ours.
    """
    try:
        with conn.transaction():
            _run(conn, text)
    except errors.InvalidFunctionDefinition as error:
        other = OTHER_RESULT.search(error.diag.message_hint or "")
        if other is None:
            raise
    else:
        return

    try:
        with conn.transaction():
            _run(conn, f"drop function {other[1]}")
    except errors.DependentObjectsStillExist as error:
        msg = (
            f"function {other[1]} changes its result, and other objects use it:"
            f" {error.diag.message_detail}; drop these, and run redrive migrate again"
        )
        raise SchemaError(msg) from error

    _replace(conn, text)


def _drops(conn: Connection) -> list[str]:
    """Return the functions that newer migrations than the installed functions drop."""
    newest = (
        "select coalesce(max(version), 0) from redrive.migrations where functions <> ''"
    )
    made = int(value(conn, newest))
    return [drop for m in migrations() if m.version > made for drop in m.drops]


def _record_functions(conn: Connection, *, with_roles: bool) -> None:
    """Record that these functions have been applied."""
    conn.execute(
        "update redrive.migrations set functions = %s where version = %s",
        (_checksum(with_roles=with_roles), latest()),
    )


def _triggers_that_differ(conn: Connection) -> list[tuple[str, str]]:
    """Return the triggers to make, each with the table that it locks."""
    definitions = column(
        conn,
        "select pg_get_triggerdef(t.oid) from pg_trigger t join pg_class c on c.oid = t.tgrelid"
        " where c.relnamespace = 'redrive'::regnamespace and not t.tgisinternal",
    )
    there = set(map(_normal, definitions))
    wanted = (
        trigger for text in functions().values() for trigger in TRIGGER.findall(text)
    )

    return [
        (re.findall(r"\bon redrive\.(\w+)", trigger)[0], trigger)
        for trigger in wanted
        if _normal(trigger) not in there
    ]


def _normal(trigger: str) -> str:
    """Return the definition of a trigger in a canonical form."""
    words = trigger.lower().replace("or replace ", "").rstrip(";")
    return " ".join(re.sub(r"[()]", " ", words).split())


def _run(conn: Connection, text: str) -> None:
    # Files of our own package are the only SQL that is not a literal in the source.
    conn.execute(cast("LiteralString", text))


def _refuse_unfit_schema(conn: Connection) -> int:
    """Return the version of the schema, unless this program must not touch it.

    Raises:
        SchemaError: it was made before the first release, and its migrations had the
            same numbers as ours and other contents; or it is too new.
    """
    found = installed(conn)
    if not found:
        return 0

    first = "select name from redrive.migrations where version = 1"
    if value(conn, first) not in (None, migrations()[0].name):
        raise SchemaError(UNRELEASED)

    newer = "select max(serves) from redrive.migrations where version > %s"
    if found > latest() and value(conn, newer, latest()) > latest():
        known = f"and this program knows only {latest()}; run a newer redrive"
        msg = f"the schema has version {found} {known}"
        raise SchemaTooNew(msg)

    return found


def _refuse_unfit_server(conn: Connection) -> None:
    """Refuse a server that cannot hold our schema, before any statement is sent."""
    info = conn.info
    if crdb := info.parameter_status("crdb_version"):
        msg = f"the server is CockroachDB ({crdb}); Postgres 14 or newer is needed"
        raise SchemaError(msg)

    encoding = info.parameter_status("server_encoding")
    if encoding != "UTF8":
        msg = f"the database is encoded in {encoding}; payloads need UTF8"
        raise SchemaError(msg)

    if info.server_version < OLDEST_SERVER:
        msg = "Postgres 14 or newer is needed"
        raise SchemaError(msg)


def _refuse_foreign(conn: Connection) -> None:
    """Refuse a schema whose first owner could have added a trigger to it."""
    found = foreign.find(conn)
    if found is not None:
        thing, owner = found
        msg = (
            f"{thing} belongs to {owner}, who could do with it whatever you may; drop it, or if you"
            f" trust {owner}, run as a superuser: reassign owned by {owner} to redrive_owner"
        )
        raise SchemaError(msg)


# ---------------------------------------------------------------------- roles


@dataclass(frozen=True, slots=True)
class _Standing:
    """Rights of the user who migrates.

    The fields tell whether the user is a member of redrive_owner, and whether that role
    may create.
    """

    database: str
    user: str
    is_member: bool
    may_create: bool


def _ensure_roles(conn: Connection) -> str | None:
    """Create the missing roles, and let us act as the owner.

    Returns the reason if it could not, or None. Roles belong to the cluster, not to the
    database. Another migrate may create or grant the same at the same time; losing that
    race is fine.
    """
    existing = column(
        conn, "select rolname from pg_roles where rolname = any (%s)", list(ROLES)
    )
    missing = [role for role in ROLES if role not in existing]
    try:
        _create_roles(conn, missing)
    except errors.InsufficientPrivilege:
        statements = "; ".join(f"create role {name} nologin" for name in missing)
        return (
            f"this user may not create roles; ask an administrator to run: {statements}"
        )

    try:
        _grant_ownership(conn)
    except errors.InsufficientPrivilege as error:
        return f"this user may not act as redrive_owner: {error.diag.message_primary}"
    except (errors.InternalError, errors.UniqueViolation):
        pass  # another migrate granted the same

    return None


def _create_roles(conn: Connection, missing: list[str]) -> None:
    for role in missing:
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
        conn.execute(
            sql.SQL("grant create on database {} to redrive_owner").format(database)
        )

    # Without this grant, long transactions are not visible.
    with contextlib.suppress(errors.InsufficientPrivilege):
        conn.execute("grant pg_read_all_stats to redrive_owner")


def _standing(conn: Connection) -> _Standing:
    # Since 16 the creator of a role is a member that may not become it without an
    # explicit grant.
    may_become = "set" if conn.info.server_version >= FIRST_WITH_SET else "member"
    standing = first_record(
        conn,
        _Standing,
        "select current_database() as database, current_user as user,"
        " pg_has_role(current_user, 'redrive_owner', %s) as is_member,"
        " has_database_privilege('redrive_owner', current_database(), 'create') as may_create",
        may_become,
    )
    assert standing is not None  # noqa: S101 # a select without from

    return standing


def _act_as_owner(conn: Connection, *, may_begin: bool) -> None:
    """Make a role without login the owner of everything.

    This limits the rights of security definer functions. Existing ownership stays, even
    if a new role is still missing.
    """
    owner = value(
        conn,
        "select nspowner::regrole::text from pg_namespace where nspname = 'redrive'",
    )
    if owner == "redrive_owner" or (owner is None and may_begin):
        conn.execute("set local role redrive_owner")
