"""Migrations beside sessions that work: they wait for nobody for long, and block nobody."""

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import LiteralString

import pytest
from psycopg import sql

from redrive.database.schema.migrate import (
    Migration,
    _ensure_schema,
    _tables,
    migrate,
    require,
)
from redrive.errors import SchemaError
from tests.flow.harness import wait_for
from tests.sql.test_migrations import connect, snapshot
from tests.sql.upgrades import INDEX, NAMES, TABLES, TODAY, install_today, release_next

pytestmark = pytest.mark.every_version


def test_an_upgrade_keeps_no_enqueue_waiting_whatever_transactions_are_open(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One producer's transaction stays open all the while; another still enqueues."""
    with connect(url) as conn:
        install_today(conn)
    release_next(monkeypatch)
    done, enqueued = threading.Event(), list[int]()
    waits = "select exists (select from pg_locks where not granted and mode = any (%s))"
    # What a migration asks for, and no enqueue does.
    modes = ["AccessExclusiveLock", "ShareRowExclusiveLock", "ShareLock"]

    def produce() -> None:
        with connect(url) as conn:
            while not done.wait(0.003):
                conn.execute("insert into redrive.jobs (kind) values ('a')")
                enqueued.append(1)

    def upgrade() -> list[str]:
        with connect(url) as conn:
            return migrate(conn).applied

    with connect(url) as holder, ThreadPoolExecutor(2) as pool:
        holder.execute("begin")
        holder.execute("insert into redrive.jobs (kind) values ('a')")
        producing, upgrading = pool.submit(produce), pool.submit(upgrade)
        try:
            with connect(url) as watch:
                # What needs the table to itself waits, in steps that keep nobody waiting.
                for _ in range(3):
                    wait_for(
                        lambda: watch.execute(waits, [modes]).fetchone() == (True,)
                    )
                    before = len(enqueued)
                    wait_for(lambda n=before: len(enqueued) > n + 9)
            assert not upgrading.done()
            holder.execute("commit")
            applied = upgrading.result(300)
        finally:
            done.set()

        assert applied == NAMES
        producing.result(60)


ORDERS = (("jobs", "completions", "audit"), ("audit", "completions", "jobs"))


@pytest.mark.parametrize("order", ORDERS, ids=["jobs first", "jobs last"])
def test_an_upgrade_goes_on_whatever_order_workers_lock_tables_in(
    url: str, order: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exchange held one table of a migration's and waited for the other, at each try."""
    with connect(url) as conn:
        install_today(conn)
        conn.execute("drop trigger jobs_parked on redrive.jobs")
    release_next(monkeypatch)
    done = threading.Event()

    def work() -> int:
        transactions = 0
        with connect(url) as conn:
            while not done.is_set():
                with conn.transaction():
                    for table in order:
                        name = sql.Identifier("redrive", table)
                        conn.execute(
                            sql.SQL("lock table {} in row exclusive mode").format(name)
                        )
                        time.sleep(0.003)
                transactions += 1
        return transactions

    with connect(url) as conn, ThreadPoolExecutor(3) as pool:
        working = [pool.submit(work) for _ in range(3)]
        try:
            applied = migrate(conn, patience=120).applied
        finally:
            done.set()

        assert applied == NAMES
        assert all(one.result(60) for one in working), "without a deadlock"


STRONG: LiteralString = """
    select c.relname from pg_locks l join pg_class c on c.oid = l.relation
    where l.pid = pg_backend_pid() and c.relnamespace = to_regnamespace('redrive')
        and c.relkind in ('r', 'p') and not c.relispartition
        and l.mode not in ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')
"""
TABLES_THERE: LiteralString = (
    "select relname from pg_class where relnamespace = to_regnamespace('redrive')"
)
INDEXES: LiteralString = r"""
    select i.indexrelid, c.relname,
           regexp_replace(pg_get_indexdef(i.indexrelid), 'INDEX \S+ ', 'INDEX ')
    from pg_index i join pg_class c on c.oid = i.indrelid
    where c.relnamespace = to_regnamespace('redrive')
"""
SMALL_TABLES = {"groups", "limit_slots", "replacements", "running_keys"}
"""Tables whose index is built within a fraction of a second.

`groups` has one row for each cause. `limit_slots` and `running_keys` have rows of the jobs that run
now, `replacements` of transactions that are open.
"""


@pytest.mark.parametrize(
    "known", [TODAY, [*TODAY, TABLES, INDEX]], ids=["today", "next"]
)
def test_a_migration_locks_no_table_that_it_has_not_locked_at_first(
    url: str, known: list[Migration]
) -> None:
    """Else it would hold one table while it waits for another."""
    with connect(url) as conn:
        _ensure_schema(conn)
        for migration in known:
            before = {name for (name,) in conn.execute(TABLES_THERE)}
            first = set(_tables(conn, sorted(migration.locks)))
            with conn.transaction():
                conn.execute(migration.tables)  # type: ignore[arg-type]
                locked = {name for (name,) in conn.execute(STRONG)}
            if not migration.is_concurrent:
                assert locked & before <= first, migration.name


def test_no_migration_blocks_a_large_table_or_builds_its_index_twice(url: str) -> None:
    """An index of `audit` blocked operators for 5.5 s; one of jobs was built twice."""
    built: set[str] = set()
    with connect(url) as conn:
        _ensure_schema(conn)
        for migration in TODAY:
            tables = {name for (name,) in conn.execute(TABLES_THERE)}
            before = set(conn.execute(INDEXES))
            conn.execute(migration.at_once)  # type: ignore[arg-type]
            new = set(conn.execute(INDEXES)) - before

            blocked = {table for _, table, _ in new} & tables - SMALL_TABLES
            assert not blocked or migration.is_concurrent, migration.name
            again = {definition for _, _, definition in new} & built
            assert not again, migration.name
            built |= {definition for _, _, definition in new}


def test_functions_that_changed_touch_no_table_and_no_trigger(url: str) -> None:
    """`create or replace trigger` would wait for every open producer, and all behind it."""
    with connect(url) as conn, connect(url) as holder:
        migrate(conn)
        triggers = "select tgname, xmin::text from pg_trigger where not tgisinternal order by 1"
        before = conn.execute(triggers).fetchall()
        conn.execute("update redrive.migrations set functions = 'of an older program'")
        with holder.transaction():
            holder.execute("insert into redrive.jobs (kind) values ('a')")
            migrate(conn)

        assert before
        assert conn.execute(triggers).fetchall() == before


def test_a_trigger_that_differs_is_made_again(url: str) -> None:
    with connect(url) as conn:
        migrate(conn)
        conn.execute("drop trigger jobs_parked on redrive.jobs")
        conn.execute("update redrive.migrations set functions = 'of an older program'")
        migrate(conn)

        assert conn.execute(
            "select count(*) from pg_trigger where tgname = 'jobs_parked'"
        ).fetchone() == (1,)


@pytest.mark.parametrize(("serves", "goes_on"), [(0, True), (1, True), (9998, False)])
def test_an_old_pod_goes_on_with_a_newer_schema_that_serves_it(
    url: str, serves: int, goes_on: bool
) -> None:
    """It used to end with 78 when it restarted after the migration."""
    with connect(url) as conn:
        migrate(conn)
        conn.execute(
            "insert into redrive.migrations (version, name, serves) values (9999, 'newer', %s)",
            (serves,),
        )
        before = snapshot(conn)
        for act in (require, migrate):
            with contextlib.nullcontext() if goes_on else pytest.raises(SchemaError):
                act(conn)

        assert snapshot(conn) == before, "nor does an old migrate undo what is newer"


def test_a_migration_that_did_not_end_is_named(url: str) -> None:
    with connect(url) as conn:
        migrate(conn)
        conn.execute("update redrive.migrations set functions = ''")
        with pytest.raises(SchemaError, match="has not ended; run: redrive migrate"):
            require(conn)
