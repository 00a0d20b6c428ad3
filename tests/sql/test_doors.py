"""What somebody with few rights, or none, tries at the database itself: shadows, foreign objects,
locks, instants.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString

import psycopg
import pytest

from redrive.database.connections.connect import connect
from redrive.database.schema.migrate import LOCK_KEY, installed, latest, migrate
from redrive.dead_letters.campaigns.drive import drive
from redrive.dead_letters.campaigns.store import cancel, plan, start_alone
from redrive.dead_letters.campaigns.terms import Terms
from redrive.dead_letters.filter import Filter
from redrive.errors import SchemaError
from redrive.worker import store
from tests.factories import (
    claim,
    make_dead_letter,
    make_dead_letters,
    make_job,
    make_worker,
)
from tests.postgres import Database, Server, Session

pytestmark = pytest.mark.every_version

Connection = psycopg.Connection[tuple[Any, ...]]

SECRET = "4111111111111111"


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    with server.empty() as url:
        yield url


@pytest.fixture
def attacker(url: str) -> Iterator[Connection]:
    """A login without a grant of ours, who may create in `public` and in the database."""
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(
            "do $$ begin create role redrive_attacker login;"
            " exception when duplicate_object or unique_violation then null; end $$"
        )
        conn.execute("grant create on schema public to public")
        conn.execute(f"grant create on database {conn.info.dbname} to redrive_attacker")  # type: ignore[arg-type]
        conn.execute("create table public.taken (what text, who text)")
        conn.execute("grant insert, select on public.taken to public")
        conn.execute("set session authorization redrive_attacker")
        yield conn


# Shadows: functions that fit better than ours, operators that fit exactly

TAKE = "insert into public.taken values ({}::text, current_user)"
SHADOWS: tuple[LiteralString, ...] = (
    (
        "create function public.keep(state text[], value text) returns text[] language plpgsql"
        " as $$ begin insert into public.taken values (value, current_user);"
        " return pg_catalog.array_append(state, value); end $$"
    ),
    "create aggregate public.array_agg(text) (sfunc = public.keep, stype = text[])",
    (
        "create function public.pair(state jsonb, key text, value timestamptz) returns jsonb"
        " language plpgsql as $$ begin insert into public.taken values (key, current_user);"
        " return pg_catalog.jsonb_set(coalesce(state, '{}'), array[key], to_jsonb(value)); end $$"
    ),
    (
        "create aggregate public.jsonb_object_agg(text, timestamptz)"
        " (sfunc = public.pair, stype = jsonb)"
    ),
    (
        "create function public.joined(text, bigint) returns text language plpgsql as $$ begin"
        " insert into public.taken values ($1, current_user);"
        " return pg_catalog.concat($1, $2); end $$"
    ),
    "create operator public.|| (leftarg = text, rightarg = bigint, function = public.joined)",
    (
        "create function public.format(text, text) returns text language plpgsql as $$ begin"
        " insert into public.taken values ($2, current_user); return $1; end $$"
    ),
    (
        "create function public.more(float8, int) returns boolean language plpgsql as $$ begin"
        " insert into public.taken values ($1::text, current_user); return true; end $$"
    ),
    "create operator public.> (leftarg = float8, rightarg = int, function = public.more)",
)


def look_around(url: str) -> None:
    """What operators and producers do every day, and what a migration builds is asked for."""
    with connect(url) as conn:
        make_dead_letter(conn, payload={"card": SECRET})
        make_job(conn, payload={"card": [SECRET] * 40})
        conn.execute("set session authorization redrive_operator")
        assert conn.execute("select message, versions from redrive.grouped").fetchall()
        conn.execute("select redrive.set_limit_v1('a', null, 1.5, 'ada', 'why')")
        conn.execute("select * from redrive.totals").fetchall()
        conn.execute("select redrive.stats_v1('0')")


@pytest.mark.parametrize("first", ["shadows", "migrate"])
def test_nothing_of_public_takes_the_place_of_what_we_call(
    url: str, attacker: Connection, first: str
) -> None:
    """An aggregate in `public`, then migrate, then `dlq groups`: the payload was taken."""

    def shadow() -> None:
        for statement in SHADOWS:
            attacker.execute(statement)

    def install() -> None:
        with psycopg.connect(url, autocommit=True) as conn:
            migrate(conn)

    steps = [shadow, install] if first == "shadows" else [install, shadow]
    for step in steps:
        step()
    look_around(url)

    assert attacker.execute("select what, who from public.taken").fetchall() == []


def test_nothing_of_ours_depends_on_what_somebody_else_made(
    url: str, attacker: Connection
) -> None:
    """No view, constraint, default or body that is parsed when it is made."""
    for statement in SHADOWS:
        attacker.execute(statement)
    with psycopg.connect(url, autocommit=True) as conn:
        migrate(conn)

        assert (
            conn.execute(
                "select pg_describe_object(d.classid, d.objid, d.objsubid),"
                " pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid) from pg_depend d"
                " where d.refobjid in ("
                "  select p.oid from pg_proc p where p.pronamespace = 'public'::regnamespace"
                "  union all select o.oid from pg_operator o"
                "            where o.oprnamespace = 'public'::regnamespace)"
                " and d.objid not in ("
                "  select p.oid from pg_proc p where p.pronamespace = 'public'::regnamespace"
                "  union all select o.oid from pg_operator o"
                "            where o.oprnamespace = 'public'::regnamespace)"
            ).fetchall()
            == []
        )


# Foreign objects

TRAP: LiteralString = (
    "create function redrive.trap() returns trigger language plpgsql as $$ begin"
    " insert into public.taken values ('migrate', current_user); return new; end $$"
)
OWN_MIGRATIONS: LiteralString = (
    "create table redrive.migrations (version int primary key, name text not null,"
    " applied_at timestamptz not null default clock_timestamp(),"
    " functions text not null default '')"
)


@pytest.mark.parametrize(
    ("statements", "named"),
    [
        (("create schema redrive",), "schema redrive"),
        (("create schema redrive", OWN_MIGRATIONS), "schema redrive"),
        (
            (
                "create schema redrive",
                OWN_MIGRATIONS,
                TRAP,
                (
                    "create trigger trap before insert on redrive.migrations for each row"
                    " execute function redrive.trap()"
                ),
                "grant all on schema redrive to public",
                "grant all on redrive.migrations to public",
            ),
            "schema redrive",
        ),
    ],
)
def test_a_schema_that_somebody_else_made_is_refused(
    url: str, attacker: Connection, statements: tuple[LiteralString, ...], named: str
) -> None:
    """A trigger on redrive.migrations became superuser."""
    for statement in statements:
        attacker.execute(statement)
    with psycopg.connect(url, autocommit=True) as conn:
        with pytest.raises(
            SchemaError, match=f"{named} belongs to redrive_attacker"
        ) as caught:
            migrate(conn)

        assert "reassign owned by redrive_attacker to redrive_owner" in str(
            caught.value
        )
        assert conn.execute("select who from public.taken").fetchall() == []
        conn.execute("drop schema redrive cascade")
        assert migrate(conn).after == latest()


BESIDE_OURS: dict[LiteralString, LiteralString] = {
    "table redrive.extra": "()",
    "view redrive.extra": "as select 1 as one",
    "sequence redrive.extra": "",
    "type redrive.extra": "as enum ('a')",
    "function redrive.extra()": "returns int language sql return 1",
}


def test_an_object_that_somebody_else_put_beside_ours_is_refused(
    url: str, attacker: Connection
) -> None:
    """Whoever was once granted CREATE on the schema."""
    with psycopg.connect(url, autocommit=True) as conn:
        migrate(conn)
        conn.execute("grant usage, create on schema redrive to redrive_attacker")
        for name, definition in BESIDE_OURS.items():
            attacker.execute(f"create {name} {definition}")
            refused = re.escape(f"{name} belongs to redrive_attacker")
            with pytest.raises(SchemaError, match=refused):
                migrate(conn)
            attacker.execute(f"drop {name}")


def test_a_trigger_of_somebody_else_on_our_tables_is_refused(
    url: str, attacker: Connection
) -> None:
    """Whoever was once granted TRIGGER on a table."""
    attacker.execute(TRAP.replace("redrive.trap", "public.trap"))
    with psycopg.connect(url, autocommit=True) as conn:
        migrate(conn)
        conn.execute("grant usage on schema redrive to redrive_attacker")
        conn.execute("grant trigger on redrive.migrations to redrive_attacker")
        attacker.execute(
            "create trigger trap before insert on redrive.migrations for each row"
            " execute function public.trap()"
        )
        conn.execute("update redrive.migrations set functions = 'of an older program'")
        with pytest.raises(
            SchemaError,
            match=r"trigger trap of redrive.migrations belongs to redrive_attacker",
        ):
            migrate(conn)


# Locks


def test_an_advisory_lock_keeps_no_migration_waiting(
    url: str, attacker: Connection
) -> None:
    """Anybody who can connect may take one."""
    with psycopg.connect(url, autocommit=True) as conn:
        migrate(conn)
        attacker.execute("select pg_advisory_lock(%s)", (LOCK_KEY,))
        conn.execute("update redrive.migrations set functions = 'of an older program'")
        conn.execute("set lock_timeout = '1ms'")

        assert migrate(conn).after == latest()


KEYS: tuple[LiteralString, ...] = (
    # what was the mark of a lane, of a delivery, of the names, and of the starts of campaigns
    "select pg_advisory_lock(hashtextextended('default', lane)) from generate_series(-2, 2) lane",
    (
        "select pg_advisory_lock(hashint8extended(id, deliveries))"
        " from generate_series(1, 20) id, generate_series(0, 3) deliveries"
    ),
    "select pg_advisory_lock(x'7265646e'::int, 0)",
    "select pg_advisory_lock(hashtextextended('redrive.start_campaign', 0))",
)


def test_a_login_that_may_only_connect_keeps_nobody_waiting(database: Database) -> None:
    """Its locks may have any key: nothing of ours waits for an advisory lock."""
    database.rows(
        "do $$ begin create role redrive_nobody nologin;"
        " exception when duplicate_object or unique_violation then null; end $$"
    )
    stranger = database.session("redrive_nobody")
    for keys in KEYS:
        stranger.rows(keys)
    conn = database.session(lock_timeout="300ms").conn
    dead = make_dead_letters(conn, 2)
    waiting = make_job(conn)
    worker = make_worker(conn)
    (job,) = claim(conn, worker, 10)
    assert job.id == waiting
    later = make_job(conn, run_at=datetime.now(UTC) + timedelta(hours=1))

    conn.execute(
        "select redrive.complete_in_transaction_v1(%s, %s, %s)",
        (worker, job.id, job.deliveries),
    )
    conn.execute("select redrive.cancel_v1(%s, 'ada', 'why')", ([later],))
    plan_id = plan(conn, Filter(), actor="ada").plan
    assert plan_id
    start_alone(conn, plan_id, Terms(canaries=0), actor="ada", why="why")
    drive(conn, plan_id)
    assert cancel(conn, plan_id, actor="ada", why="why") == len(dead)
    for n in range(30):
        make_job(conn, f"new.kind.{n}")


def test_no_function_waits_for_an_advisory_lock(database: Database) -> None:
    assert (
        database.column(
            "select p.oid::regprocedure::text from pg_proc p"
            " where p.pronamespace = 'redrive'::regnamespace"
            " and p.prosrc ~ 'pg_advisory_(xact_)?lock'"
        )
        == []
    )


def test_who_migrates_is_alone_and_keeps_nobody_from_working(
    database: Database,
) -> None:
    """What is locked is a table of ours, which others can still read."""
    second = database.session()
    first = database.transaction(
        "lock table redrive.migrations in share row exclusive mode"
    )
    waiting = database.start_blocked(second, lambda: migrate(second.conn), by=first)
    assert installed(database.conn) == latest()
    first.rows("commit")
    waiting.result(60)


@pytest.mark.parametrize("name", ["purge", "redrive", "reencrypt"])
def test_the_lock_of_a_run_is_for_those_who_may_run_it(
    database: Database, name: str
) -> None:
    """Anybody who could connect held back every purge and redrive."""
    hold: LiteralString = "select redrive.hold_run_v1(%s)"
    nobody, first, second = database.session(), database.session(), database.session()
    nobody.rows("select pg_advisory_lock(hashtext('redrive'), hashtext(%s))", name)
    for role in ("redrive_producer", "redrive_worker", "redrive_viewer"):
        nobody.conn.execute(f"set role {role}")  # type: ignore[arg-type]
        for statement in (
            hold,
            f"begin; lock table redrive.{name}_lock in exclusive mode",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                nobody.conn.execute(statement, (name,) if "%s" in statement else None)  # type: ignore[arg-type]
            nobody.rows("rollback")
        nobody.rows("reset role")
    first.rows("begin")

    assert first.value(hold, name)
    assert not second.value(hold, name)
    assert first.value("select pg_current_xact_id_if_assigned()") is None, (
        "vacuum goes on"
    )
    first.rows("commit")
    assert second.value(hold, name)


def test_a_viewer_who_holds_the_figures_freezes_nobody_elses(
    database: Database,
) -> None:
    """`stats_v1` in a transaction that stays open."""
    database.rows("select redrive.stats_v1('0')")
    make_job(database.conn, queue="new")
    viewer = database.session("redrive_viewer")
    exporter = database.session("redrive_viewer")
    database.rows(
        "update redrive.snapshots set taken_at = now() - interval '11 seconds'"
    )
    viewer.rows("begin")
    viewer.rows("select redrive.stats_v1('0')")
    depths = "select v.d ->> 'queue' from jsonb_array_elements(redrive.stats_v1('2 s') -> 'depths') v(d)"

    assert exporter.column(depths) == ["new"]
    viewer.rows("rollback")
    assert exporter.column(depths) == ["new"]


# What a producer may


def test_a_producer_takes_no_effect_keys(database: Database) -> None:
    """A key that is taken says that its work was done."""
    for role in ("redrive_producer", "redrive_operator", "redrive_viewer"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            database.session(role).rows("select redrive.first_time_v1('charged-17')")

    assert database.session("redrive_worker").value(
        "select redrive.first_time_v1('charged-17')"
    )


@pytest.mark.parametrize("how", ["insert", "copy"])
def test_nobody_passes_those_who_wait(database: Database, how: str) -> None:
    """A direct insert with run_at 2000 ran before everything else."""
    waiting = make_job(database.conn)
    producer = database.login("redrive_producer")
    if how == "insert":
        producer.rows(
            "insert into redrive.jobs (kind, run_at) values ('late', '2000-01-02')"
        )
    else:
        with producer.conn.cursor().copy(
            "copy redrive.jobs (kind, run_at) from stdin"
        ) as copy:
            copy.write("late\t2000-01-02\n")

    assert database.column("select id from redrive.jobs order by run_at")[0] == waiting
    assert database.value(
        "select run_at > now() - interval '1 minute' from redrive.jobs where kind = 'late'"
    )


def test_what_is_due_just_now_or_later_keeps_its_instant(database: Database) -> None:
    """Clocks differ by a little, and a restore brings jobs that waited."""
    producer = database.login("redrive_producer")
    instants = (
        "select array_agg(run_at order by run_at) from redrive.jobs where kind = %s"
    )
    for session, kind, earliest in (
        (producer, "now", "30 s"),
        (database, "restored", "9 days"),
    ):
        session.rows(
            "insert into redrive.jobs (kind, run_at)"
            " values (%s, date_trunc('second', now()) - %s::interval)",
            kind,
            earliest,
        )
        (run_at,) = database.value(instants, kind)
        assert run_at.microsecond == 0


# Who is told, and by whom


def test_what_a_producers_command_reads_is_granted(database: Database) -> None:
    """`redrive enqueue` works as redrive_producer."""
    producer = database.session("redrive_producer")

    assert installed(producer.conn) == latest()
    assert make_job(producer.conn, idempotency_key="k")


def test_the_exporter_needs_a_viewer_and_no_more(database: Database) -> None:
    """It had the operator's login, which reads payloads."""
    make_job(database.conn)
    viewer = database.login("redrive_viewer")

    assert installed(viewer.conn) == latest()
    assert viewer.value("select redrive.stats_v1('0') ->> 'workers'") == "0"
    store.sample(viewer.conn)
    store.fold(viewer.conn)
    assert viewer.value("select count(*) from redrive.workers") == 0


# Batches and proposals: their ids can be guessed, and their functions called without our programs


@pytest.fixture
def producers(database: Database) -> tuple[Session, Session]:
    """Two producers, each with a login of its own."""
    sessions = [database.session() for _ in "12"]
    for n, session in enumerate(sessions):
        name = f"redrive_test_producer_{n}"
        session.rows(
            f"do $$ begin create role {name} login in role redrive_producer;"  # type: ignore[arg-type]
            " exception when duplicate_object or unique_violation then null; end $$"
        )
        session.rows(f"set session authorization {name}")  # type: ignore[arg-type]
    return sessions[0], sessions[1]


OPEN = """select redrive.open_batch_v1('{"kind": "mail.done"}', null)"""
CLOSE: LiteralString = "select redrive.close_batch_v1(%s)"
JOIN: LiteralString = "select redrive.enqueue('mail.send', batch => %s)"


def test_a_producer_neither_closes_nor_joins_the_batch_of_another(
    database: Database, producers: tuple[Session, Session]
) -> None:
    """Its callback ran before its jobs, which were then refused; or it never ran."""
    owner, other = producers
    batch = owner.value(OPEN)

    for statement in (CLOSE, JOIN):
        with pytest.raises(psycopg.Error) as caught:
            other.rows(statement, batch)
        assert caught.value.sqlstate == "RD001"
    assert owner.value(JOIN, batch)
    worker = database.login("redrive_worker")
    assert worker.value(JOIN, batch)
    assert owner.value(CLOSE, batch)
    assert not owner.value(CLOSE, batch)


PROPOSE: LiteralString = (
    "select redrive.propose_v1('edit', 'claude', 'ada', 'why',"
    " jsonb_build_object('ids', '[1]'::jsonb, 'digests', '{}'::jsonb, 'patch', %s::jsonb))"
)


@pytest.mark.parametrize(
    "patch",
    [
        '[{"op": "test", "path": "/password", "value": "guess"}]',
        '[{"op": "copy", "from": "/password", "path": "/note"}]',
        '[{"op": "remove", "path": "/a"}, {"op": "move", "from": "/b", "path": "/c"}]',
        *('[{"path": "/a"}]', '["remove"]', '"remove"', "{}", "null"),
    ],
)
def test_no_agent_proposes_to_compare_or_copy_what_it_may_not_see(
    database: Database, patch: str
) -> None:
    """The server refused these, but its login could call the function without it."""
    agent = database.session("redrive_agent")

    with pytest.raises(psycopg.Error, match="patch: must be a list of add, remove"):
        agent.rows(PROPOSE, patch)
    assert agent.value(PROPOSE, '[{"op": "remove", "path": "/a"}]')


def test_an_agent_over_its_budget_does_not_fill_the_log(database: Database) -> None:
    """Each refused call left a line, for as long as the agent went on."""
    agent = database.session("redrive_agent")
    call: LiteralString = "select redrive.call_tool_v1('claude', %s, %s, '{}', 3, 1)"
    answers = [agent.value(call, "ada", "why_job") for _ in range(9)]
    for _ in range(5):
        agent.rows(call, "bo", "propose_change")

    assert answers == [None] * 3 + ["calls"] * 6
    assert database.rows(
        "select actor like '%%ada_', detail ->> 'refused', count(*) from redrive.audit"
        " group by 1, 2 order by 1 desc, 2 nulls first"
    ) == [
        (True, None, 3),
        (True, "calls", 1),
        (False, None, 1),
        (False, "proposals", 1),
    ]
