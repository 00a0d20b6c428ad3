"""redrive migrate: safe to repeat, to race, to kill, and honest about what it cannot do."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

import psycopg
import pytest

from redrive.cli.support.connection import wait_for_schema
from redrive.database.connections.address import Address
from redrive.database.connections.connect import OwnConnection
from redrive.database.schema.migrate import (
    LOCK_KEY,
    ROLES,
    installed,
    latest,
    migrate,
    migrations,
    require,
)
from redrive.errors import SchemaError
from tests.factories import claim_one, complete, complete_next, make_job, make_worker
from tests.flow.harness import wait_for, workers_on
from tests.postgres import Server
from tests.sql.upgrades import (
    INDEX,
    NAMES,
    TABLES,
    TODAY,
    install_before,
    install_today,
    release_next,
)

pytestmark = pytest.mark.every_version
on_one_server = pytest.mark.xdist_group("fresh_server")
"""In one process: each would start a server of its own."""

# Everything a migration could have written, each row with the transaction that did.
FINGERPRINT = """
    select 'class', oid::regclass::text, xmin::text from pg_class
        where relnamespace = to_regnamespace('redrive')
    union all select 'function', oid::regprocedure::text, xmin::text from pg_proc
        where pronamespace = to_regnamespace('redrive')
    union all select 'namespace', nspname, xmin::text from pg_namespace where nspname = 'redrive'
    union all select 'role', rolname, '' from pg_roles where rolname like 'redrive%'
    union all select 'database', datacl::text, xmin::text from pg_database
        where datname = current_database()
    union all select 'default', oid::text, xmin::text from pg_default_acl
    order by 1, 2, 3
"""

RELEASED = 1
"""The version of the schema of the last release. The first release came with the baseline."""


def connect(url: str, **options: Any) -> OwnConnection:
    return OwnConnection.connect(url, autocommit=True, **options)


def snapshot(conn: OwnConnection) -> list[tuple[Any, ...]]:
    return conn.execute(FINGERPRINT).fetchall()


def objects(conn: OwnConnection) -> set[tuple[str, str]]:
    """Return what is in the schema, whenever and however it came there."""
    return {(sort, name) for sort, name, _ in snapshot(conn) if sort != "default"}


def works(conn: OwnConnection) -> bool:
    """Whether a job can live its life."""
    job_id = make_job(conn)
    worker = make_worker(conn)
    return complete_next(conn, worker) == {job_id}


def test_each_migration_has_a_number_of_its_own() -> None:
    """The second one of a number would reach no database that has the first one."""
    numbers = [migration.version for migration in migrations()]

    assert numbers == [*range(1, len(numbers) + 1)]


def test_an_empty_database_gets_all_migrations(url: str) -> None:
    with connect(url) as conn:
        assert installed(conn) == 0
        report = migrate(conn)

        assert (report.before, report.after, report.without_roles) == (
            0,
            latest(),
            None,
        )
        assert report.applied == [m.name for m in migrations()]
        require(conn)
        assert works(conn)


def test_a_second_run_writes_nothing(url: str) -> None:
    with connect(url) as conn:
        migrate(conn)
        before = snapshot(conn)
        report = migrate(conn)

        assert (report.before, report.applied) == (latest(), [])
        assert snapshot(conn) == before


def test_a_function_whose_text_changed_is_applied_again(url: str) -> None:
    with connect(url) as conn:
        migrate(conn)
        conn.execute("update redrive.migrations set functions = 'of an older program'")
        conn.execute("drop function redrive.claim_v1")
        migrate(conn)

        assert works(conn)
        assert conn.execute(
            "select has_function_privilege('redrive_worker', oid, 'execute') from pg_proc"
            " where proname = 'claim_v1'"
        ).fetchall() == [(True,)]


OTHER_RESULT = """
    drop function redrive.claims_of_v1;
    create function redrive.claims_of_v1(workers int[], ids bigint[])
        returns text language sql return 'x';
    alter function redrive.claims_of_v1 owner to redrive_owner"""


def test_a_function_of_an_unreleased_commit_with_another_result_is_replaced(
    url: str,
) -> None:
    """The upgrade could never end, and no program accepted what it left."""
    with connect(url) as conn:
        migrate(conn)
        conn.execute("update redrive.migrations set functions = 'of an older program'")
        conn.execute(OTHER_RESULT)
        migrate(conn)

        assert works(conn)


def test_a_function_that_others_use_is_not_replaced_by_one_with_another_result(
    url: str,
) -> None:
    with connect(url) as conn:
        migrate(conn)
        conn.execute("update redrive.migrations set functions = 'of an older program'")
        conn.execute(OTHER_RESULT)
        conn.execute(
            "create view public.of_others as select redrive.claims_of_v1('{}', '{}') as x"
        )
        with pytest.raises(
            SchemaError, match=r"claims_of_v1.*public\.of_others|view of_others"
        ):
            migrate(conn)


def test_the_schema_of_the_release_before_is_upgraded(
    url: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job lives through it, and the result is what the next release installs."""
    with connect(url) as conn:
        install_today(conn)
        worker, job = make_worker(conn), make_job(conn)
        waiting = make_job(conn)
        held = claim_one(conn, worker)
    release_next(monkeypatch)
    with connect(url) as conn:
        report = migrate(conn)
        require(conn)

        assert (report.before, report.after) == (TODAY[-1].version, latest())
        assert report.applied == NAMES
        assert migrate(conn).applied == []
        assert complete(conn, worker, held) == {job}
        assert claim_one(conn, worker).id == waiting
        assert works(conn)
        upgraded = objects(conn)
    with server.empty() as other, connect(other) as conn:
        migrate(conn)
        assert objects(conn) == upgraded


def test_workers_of_the_release_before_go_on_during_an_upgrade(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They claim, run and complete jobs before, during and after it, each job once."""
    jobs = list[int]()
    done = threading.Event()

    def produce() -> None:
        with connect(url) as conn:
            while not done.wait(0.003):
                jobs.append(make_job(conn, "work.sync"))

    with connect(url) as conn, workers_on(url, tmp_path) as workers:
        install_today(conn)
        worker = workers().wait_ready()
        with ThreadPoolExecutor(1) as pool:
            producing = pool.submit(produce)
            try:
                wait_for(lambda: len(workers.ledger()) > 10)
                release_next(monkeypatch)
                assert migrate(conn).applied == NAMES
                before = len(workers.ledger())
                wait_for(lambda: len(workers.ledger()) > before + 10)
            finally:
                done.set()
            producing.result(60)
        assert worker.stop()[0] == 0
        workers.run()
        started = [one.job for one in workers.ledger() if one.phase == "start"]

        assert sorted(started) == jobs


def test_a_rollback_of_the_programs_needs_none_of_the_schema(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The release before works with the newer schema, and its migrate changes nothing."""
    with connect(url) as conn:
        install_today(conn)
        with monkeypatch.context() as patch:
            release_next(patch)
            assert migrate(conn).applied == NAMES
        before = snapshot(conn)

        assert migrate(conn).applied == []
        require(conn)
        assert snapshot(conn) == before
        assert works(conn)
        job = make_job(conn, "work.sync")
    with workers_on(url, tmp_path) as workers:
        workers.run()
        assert [entry.job for entry in workers.starts(job)] == [job]
    with connect(url) as conn:
        release_next(monkeypatch)
        assert migrate(conn).applied == [], "the upgrade is repeated"
        require(conn)


def test_a_rollback_to_a_release_that_is_not_served_is_refused(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(url) as conn:
        install_today(conn)
        with monkeypatch.context() as patch:
            release_next(patch, serves=TODAY[-1].version + 1)
            migrate(conn)
        for act in (require, migrate):
            with pytest.raises(SchemaError, match="run a newer redrive"):
                act(conn)


def test_an_old_worker_restarts_in_the_middle_of_an_upgrade(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its schema is newer already, and the functions of the next release are not there yet."""
    with connect(url) as conn:
        install_today(conn)
        job = make_job(conn, "work.sync")
        with monkeypatch.context() as patch:
            release_next(patch)
            patch.setattr("redrive.database.schema.migrate._finish", killed)
            with pytest.raises(KeyboardInterrupt):
                migrate(conn)
        assert installed(conn) == TABLES.version
        with workers_on(url, tmp_path) as workers:
            workers.run()
            assert [entry.job for entry in workers.starts(job)] == [job]

        release_next(monkeypatch)
        with pytest.raises(SchemaError, match="run: redrive migrate"):
            require(conn)
        assert migrate(conn).applied == [INDEX.name]
        require(conn)
        dropped = "select to_regprocedure('redrive.dropped_v1()')"
        assert conn.execute(dropped).fetchone() == (None,)


def test_a_new_worker_waits_for_the_series_and_then_records_only_what_is_new(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What was counted before the upgrade happened in no minute that is recorded."""
    counts = (
        "select sum(enqueued)::int, sum(completed)::int from redrive.series"
        " where span = 1 and queue = '' and kind = ''"
    )
    with connect(url) as conn, workers_on(url, tmp_path) as workers:
        install_before(conn, monkeypatch, "0006_series")
        assert not table_exists(conn, "series")
        old = make_job(conn, "work.sync")
        conn.execute("select redrive.fold_v1()")
        worker = workers(redrive_startup_timeout=600)
        wait_for(lambda: "run: redrive migrate" in worker.log.read_text())

        migrate(conn)
        new = make_job(conn, "work.sync")
        worker.wait_ready()
        wait_for(lambda: conn.execute(counts).fetchone() == (1, 2))
        assert {entry.job for entry in workers.ledger()} == {old, new}
        assert worker.get("/livez")[0] == 200
        assert not [e for e in worker.events() if "failed" in str(e.get("event"))]


@on_one_server
def test_a_login_is_waited_for_until_it_is_a_member_of_its_role(
    fresh_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Its pod was restarted before, again and again."""
    login(fresh_server, "late", "")
    with (
        fresh_server.empty() as url,
        connect(url) as conn,
        ThreadPoolExecutor() as pool,
    ):
        migrate(conn)
        of_late = Address(psycopg.conninfo.make_conninfo(url, user="late"))
        waiting = pool.submit(wait_for_schema, of_late, 60)
        refusal = "permission denied for schema redrive (42501)"
        wait_for(lambda: f"{refusal}; docs/roles.md" in caplog.text)
        assert "cannot be reached" not in caplog.text

        conn.execute("grant redrive_worker to late")
        waiting.result(timeout=30)


def table_exists(conn: OwnConnection, name: str) -> bool:
    """Return whether a table is in the schema."""
    found = conn.execute("select to_regclass(%s)", (f"redrive.{name}",)).fetchone()
    return found != (None,)


def killed(*_: object) -> NoReturn:
    """Stand for the end of the process."""
    raise KeyboardInterrupt


def test_jobs_that_are_between_two_cells_are_not_dropped(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = (
        "insert into redrive.moved_jobs (id, move, queue, data)"
        " values (17, gen_random_uuid(), 'mail', '{}')"
    )
    with connect(url) as conn:
        install_before(conn, monkeypatch, "0014_no_moves")
        conn.execute(moved)
        with pytest.raises(psycopg.errors.RaiseException, match="in no cell"):
            migrate(conn)

        conn.execute("update redrive.moved_jobs set data = null")
        assert "0014_no_moves" in migrate(conn).applied
        assert works(conn)


@pytest.mark.parametrize("newest", [1, 15, 51])
def test_a_schema_of_before_the_first_release_is_refused_without_a_write(
    url: str, newest: int
) -> None:
    """Its migrations had the same numbers and other contents."""
    with connect(url) as conn:
        migrate(conn)
        conn.execute("delete from redrive.migrations")
        conn.execute("alter table redrive.migrations drop column serves")
        conn.execute(
            "insert into redrive.migrations (version, name)"
            " select n, lpad(n::text, 4, '0') || '_jobs' from generate_series(1, %s) n",
            (newest,),
        )
        before = snapshot(conn)
        for act in (migrate, require):
            with pytest.raises(SchemaError, match="older than the first release"):
                act(conn)

        assert snapshot(conn) == before


def test_eight_at_once_converge(url: str) -> None:
    def act(_: int) -> int:
        with connect(url) as conn:
            return migrate(conn).before

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(act, range(8)))

    assert sorted(found) == [0] + [latest()] * 7, (
        "one did it, the others waited and found it done"
    )
    with connect(url) as conn:
        assert works(conn)


@on_one_server
def test_eight_databases_at_once_share_the_roles_of_the_cluster(
    fresh_server: Server,
) -> None:
    def act(url: str) -> bool:
        with connect(url) as conn:
            return migrate(conn).without_roles is None and works(conn)

    with ExitStack() as stack, ThreadPoolExecutor(4) as pool:
        urls = [stack.enter_context(fresh_server.empty()) for _ in range(4)]
        assert list(pool.map(act, urls)) == [True] * 4


def test_it_waits_for_another_one_that_is_at_it(url: str) -> None:
    with (
        connect(url) as first,
        connect(url) as second,
        connect(url) as watching,
        ThreadPoolExecutor(1) as pool,
    ):
        with first.transaction():
            first.execute("select pg_advisory_xact_lock(%s)", (LOCK_KEY,))
            waiting = pool.submit(migrate, second)
            while not watching.execute(
                "select from pg_locks where locktype = 'advisory' and not granted and pid = %s",
                (second.info.backend_pid,),
            ).fetchall():
                assert not waiting.done()
            assert installed(watching) == 0
        assert waiting.result(30).after == latest()


KILLED = """
import sys, psycopg
from redrive.database.schema import migrate
conn = psycopg.connect(sys.argv[1], autocommit=True)
left, run = int(sys.argv[2]), migrate._run
def counted(conn, text):
    global left
    if left == 0:
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    run(conn, text)
migrate._run = counted
migrate.migrate(conn)
print("done")
"""


def test_killed_before_any_of_its_files_it_leaves_nothing_or_all(url: str) -> None:
    for files in (0, 2, 9, 1000):
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, url, str(files)],
            capture_output=True,
            text=True,
            check=False,
        )
        with connect(url) as conn:
            is_there = conn.execute(
                "select to_regnamespace('redrive') is not null"
            ).fetchone() == (True,)

            assert is_there == (killed.stdout == "done\n"), killed.stderr
            assert installed(conn) == (latest() if is_there else 0)
            if is_there:
                assert works(conn)
                return
    pytest.fail("it never ended")


@pytest.mark.parametrize("round_no", range(3))
def test_a_server_that_drops_it_half_way_leaves_nothing(
    url: str, round_no: int
) -> None:
    with connect(url) as watching, ThreadPoolExecutor(1) as pool:
        conn = connect(url)
        running = pool.submit(migrate, conn)
        seen = 0
        while not running.done() and seen <= round_no * 5:
            seen += len(
                watching.execute(
                    "select from pg_locks where locktype = 'advisory' and granted and pid = %s",
                    (conn.info.backend_pid,),
                ).fetchall()
            )
        watching.execute("select pg_terminate_backend(%s)", (conn.info.backend_pid,))
        error = running.exception(30)
        conn.close()

        if error is not None:
            assert isinstance(error, psycopg.OperationalError)
        assert installed(watching) == (0 if error else latest())
        assert migrate(watching).after == latest()
        assert works(watching)


def test_a_newer_schema_is_refused_without_a_write(url: str) -> None:
    with connect(url) as conn:
        migrate(conn)
        conn.execute(
            "insert into redrive.migrations (version, name, serves)"
            " values (9999, 'from the future', 9999)"
        )
        before = snapshot(conn)
        with pytest.raises(
            SchemaError, match="has version 9999 and this program knows only"
        ):
            migrate(conn)
        with pytest.raises(SchemaError, match="run a newer redrive"):
            require(conn)

        assert snapshot(conn) == before
        assert conn.execute("select pg_current_xact_id_if_assigned()").fetchone() == (
            None,
        )


def test_an_older_or_missing_schema_is_named(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(url) as conn:
        with pytest.raises(
            SchemaError, match="has no redrive schema; run: redrive migrate"
        ):
            require(conn)
        migrate(conn)
        release_next(monkeypatch)
        with pytest.raises(
            SchemaError,
            match=f"has version {TODAY[-1].version} and this program needs {latest()}",
        ):
            require(conn)


def test_a_connection_without_autocommit_is_refused_without_a_write(url: str) -> None:
    """Its transaction would be the caller's to commit, who may not know."""
    with psycopg.connect(url) as conn, pytest.raises(ValueError, match="autocommit"):
        migrate(conn)
    with psycopg.connect(url) as conn:
        assert installed(conn) == 0


def test_a_database_that_is_not_utf8_is_refused_without_a_write(server: Server) -> None:
    with (
        server.empty("template template0 encoding 'SQL_ASCII' locale 'C'") as url,
        connect(url) as conn,
    ):
        before = snapshot(conn)
        with pytest.raises(SchemaError, match="encoded in SQL_ASCII"):
            migrate(conn)

        assert snapshot(conn) == before


def login(server: Server, name: str, options: str) -> None:
    with connect(server.url) as conn:
        conn.execute(f"create role {name} login {options}")  # type: ignore[arg-type]


@on_one_server
def test_a_user_who_may_not_create_roles_still_gets_a_working_schema(
    fresh_server: Server,
) -> None:
    login(fresh_server, "plain", "")
    with fresh_server.empty("owner plain") as url, connect(url, user="plain") as conn:
        report = migrate(conn)

        assert report.without_roles is not None
        assert "may not create roles" in report.without_roles
        assert works(conn)
        assert migrate(conn).applied == []


@on_one_server
def test_the_roles_come_later_when_somebody_made_them(fresh_server: Server) -> None:
    login(fresh_server, "plain", "")
    with fresh_server.empty("owner plain") as url:
        with connect(url, user="plain") as conn:
            migrate(conn)
        with connect(url) as conn:
            for role in ROLES:
                conn.execute(f"create role {role} nologin")  # type: ignore[arg-type]
            conn.execute("grant redrive_owner to plain")
        with connect(url, user="plain") as conn:
            assert migrate(conn).without_roles is None
            assert conn.execute(
                "select count(*) from pg_roles where rolname = any (%s)", (list(ROLES),)
            ).fetchone() == (len(ROLES),)
            assert conn.execute(
                "select has_function_privilege('redrive_worker', oid, 'execute') from pg_proc"
                " where proname = 'claim_v1'"
            ).fetchall() == [(True,)]
        with connect(url, user="plain") as conn:
            assert works(conn)


@on_one_server
def test_a_role_that_is_new_may_be_made_after_the_upgrade(fresh_server: Server) -> None:
    """By a login that may, where migrate may not; what is made meanwhile has the same owner."""
    login(fresh_server, "plain", "")
    owners = (
        "select distinct proowner::regrole::text from pg_proc"
        " where pronamespace = to_regnamespace('redrive')"
    )
    with fresh_server.empty("owner plain") as url:
        with connect(url) as conn:
            migrate(conn)
            conn.execute("grant redrive_owner to plain")
            conn.execute("drop owned by redrive_encryptor")
            conn.execute("drop role redrive_encryptor")
            conn.execute("drop function redrive.begin_run_v1")
            conn.execute(
                "update redrive.migrations set functions = 'of an older program'"
            )
        with connect(url, user="plain") as conn:
            report = migrate(conn)
            assert report.without_roles is not None
            assert report.without_roles.endswith(
                " run: create role redrive_encryptor nologin"
            )
            assert conn.execute(owners).fetchall() == [("redrive_owner",)]
        with connect(url) as conn:
            conn.execute("create role redrive_encryptor nologin")
        with connect(url, user="plain") as conn:
            assert migrate(conn).without_roles is None
            assert conn.execute(owners).fetchall() == [("redrive_owner",)]
            assert conn.execute(
                "select has_function_privilege('redrive_encryptor', oid, 'execute') from pg_proc"
                " where proname = 'begin_run_v1'"
            ).fetchall() == [(True,)]


def test_what_an_older_release_granted_is_taken_back(url: str) -> None:
    """Operators and producers cannot drop keys before their time."""
    closed = {
        "redrive_operator": "redrive.forget_completions_v1(interval, int)",
        "redrive_producer": "redrive.first_time_v1(text)",
    }
    with connect(url) as conn:
        migrate(conn)
        for role, function in closed.items():
            conn.execute(f"grant execute on function {function} to {role}")  # type: ignore[arg-type]
        conn.execute("grant select on redrive.audit to redrive_viewer")
        conn.execute("update redrive.migrations set functions = 'of an older program'")
        migrate(conn)

        for role, function in closed.items():
            query = "select has_function_privilege(%s, %s, 'execute')"
            assert conn.execute(query, (role, function)).fetchone() == (False,)
        query = (
            "select has_table_privilege('redrive_viewer', 'redrive.audit', 'select')"
        )
        assert conn.execute(query).fetchone() == (False,)


@on_one_server
def test_a_user_who_may_create_roles_needs_no_superuser(fresh_server: Server) -> None:
    login(fresh_server, "creator", "createrole")
    with (
        fresh_server.empty("owner creator") as url,
        connect(url, user="creator") as conn,
    ):
        report = migrate(conn)

        assert report.without_roles is None
        owner = (
            "select nspowner::regrole::text from pg_namespace where nspname = 'redrive'"
        )
        assert conn.execute(owner).fetchone() == ("redrive_owner",)
        assert migrate(conn).applied == []
    with connect(fresh_server.url) as conn:
        assert conn.execute(
            "select count(*) from pg_roles where rolname = any (%s)", (list(ROLES),)
        ).fetchone() == (len(ROLES),)


@on_one_server
def test_a_user_who_may_not_act_as_the_owner_is_told(fresh_server: Server) -> None:
    login(fresh_server, "plain", "")
    with fresh_server.empty() as url, connect(url) as conn:
        migrate(conn)
    with fresh_server.empty("owner plain") as url, connect(url, user="plain") as conn:
        report = migrate(conn)

        assert report.without_roles is not None
        assert "may not act as redrive_owner" in report.without_roles
        assert works(conn)
