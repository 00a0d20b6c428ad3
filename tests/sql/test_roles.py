"""Who may do what, from the catalog and by trying it."""

import os
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

from tests.factories import (
    claim_one,
    complete,
    let_next_die,
    make_dead_letter,
    make_job,
    make_schedule,
    make_worker,
)
from tests.postgres import Database
from tools.generated import ROOT

pytestmark = pytest.mark.every_version

MATRIX = Path(__file__).parent / "privileges.txt"
ROLES = (
    "redrive_producer",
    "redrive_worker",
    "redrive_operator",
    "redrive_viewer",
    "redrive_encryptor",
    "redrive_agent",
    "redrive_console",
    "redrive_nobody",
)

GRANTED = """
    with roles as (select oid, rolname from pg_roles where rolname = any (%s)),
    cells as (
        select 'function ' || p.oid::regprocedure as object, r.rolname, 'execute' as privilege
        from roles r, pg_proc p
        where p.pronamespace = 'redrive'::regnamespace
          and has_function_privilege(r.oid, p.oid, 'execute')
        union all
        select case c.relkind when 'v' then 'view ' when 'S' then 'sequence ' else 'table ' end
                   || c.oid::regclass,
               r.rolname, lower(v)
        from roles r, pg_class c, unnest(
            case when c.relkind = 'S' then array['USAGE', 'SELECT', 'UPDATE']
                 else array['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES',
                            'TRIGGER'] end) v
        where c.relnamespace = 'redrive'::regnamespace and c.relkind in ('r', 'v', 'm', 'p', 'S')
          and case when c.relkind = 'S' then has_sequence_privilege(r.oid, c.oid, v)
                   else has_table_privilege(r.oid, c.oid, v) end
        union all
        select 'table ' || c.oid::regclass, r.rolname,
               lower(v) || ' (' || string_agg(a.attname, ', ' order by a.attnum) || ')'
        from roles r, pg_class c
             join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped,
             unnest(array['SELECT', 'INSERT', 'UPDATE', 'REFERENCES']) v
        where c.relnamespace = 'redrive'::regnamespace and c.relkind in ('r', 'v', 'm', 'p')
          and has_column_privilege(r.oid, c.oid, a.attnum, v)
          and not has_table_privilege(r.oid, c.oid, v)
        group by c.oid, r.rolname, v
        union all
        select 'schema ' || n.nspname, r.rolname, lower(v)
        from roles r, pg_namespace n, unnest(array['USAGE', 'CREATE']) v
        where n.nspname = 'redrive' and has_schema_privilege(r.oid, n.oid, v))
    select object || ': ' || privilege || ' for '
               || string_agg(substr(rolname, 9), ', ' order by rolname) as line
    from cells group by object, privilege order by object collate "C", privilege
"""


@pytest.fixture
def closed(database: Database) -> Database:
    """A database that also knows a role nothing was granted to."""
    database.rows(
        "do $$ begin create role redrive_nobody nologin;"
        " exception when duplicate_object or unique_violation then null; end $$"
    )
    return database


def test_every_privilege_is_an_expected_one(closed: Database) -> None:
    """Compared with privileges.txt; REDRIVE_WRITE_PRIVILEGES=1 writes what was found there, for you
    to review.
    """
    found = "".join(f"{line}\n" for line in closed.column(GRANTED, list(ROLES)))
    if os.environ.get("REDRIVE_WRITE_PRIVILEGES"):
        MATRIX.write_text(found)

    assert found.splitlines() == MATRIX.read_text().splitlines()


def test_what_was_granted_besides_is_taken_back(closed: Database) -> None:
    """By an older release, or by somebody: from everybody but the owner and roles of their own."""
    closed.rows(
        "set role redrive_owner; grant usage on schema redrive to public;"
        "grant select on redrive.audit to redrive_viewer, public;"
        "grant execute on function redrive.first_time_v1(text) to redrive_producer, public"
    )
    closed.rows((ROOT / "sql" / "roles.sql").read_text())  # type: ignore[arg-type] # our own

    assert closed.column(GRANTED, list(ROLES)) == MATRIX.read_text().splitlines()


def test_a_role_without_a_grant_can_do_nothing(closed: Database) -> None:
    assert not [
        line for line in closed.column(GRANTED, list(ROLES)) if "nobody" in line
    ]


def test_what_a_newer_release_makes_is_nobodys_before_it_is_granted(
    database: Database,
) -> None:
    database.rows("set role redrive_owner")
    database.rows("create function redrive.later_v1() returns int return 1")

    assert not database.value(
        "select has_function_privilege('public', 'redrive.later_v1()', 'execute')"
    )


def test_nobody_but_the_owner_can_change_a_row(closed: Database) -> None:
    """The one exception is COPY of some columns by those who enqueue."""
    writes = [
        line
        for line in closed.column(GRANTED, list(ROLES))
        if line.startswith(("table", "view", "sequence")) and ": select" not in line
    ]

    columns = "run_at, max_attempts, priority, queue, kind, headers, payload"
    assert writes == [
        f"table redrive.jobs: insert ({columns}) for operator, producer, worker"
    ]


PRODUCER_MAY_NOT = (
    "select from redrive.jobs",
    "select payload from redrive.dead_letters",
    "select message from redrive.failures",
    "select from redrive.audit",
    "select from redrive.completions",
    "update redrive.jobs set payload = '{}'",
    "delete from redrive.jobs",
    "truncate redrive.jobs",
    "insert into redrive.jobs (kind, deliveries) values ('a', 1)",
    "insert into redrive.jobs (kind) values ('a') returning payload",
    "insert into redrive.jobs (id, kind) values (1, 'a') on conflict (id) do update set kind = 'b'",
    "do $$ begin lock table redrive.jobs; end $$",
    "copy redrive.jobs to stdout",
    "select redrive.register_v1('me', '', null, null, null, null, null)",
    "select redrive.claim_v1(1, '{default}', '{0}', '{0}', '{epoch}', '{0}', '{0}', true, 1, 0)",
    "select redrive.complete_v1('{1}', '{1}', '{1}', '{1}', '{}')",
    "select redrive.redrive_v1('{1}', 1, null, now(), 10, true)",
    "select redrive.purge_v1(null, '{1}', '{0}', '{open}')",
    "select redrive.assign_v1('{1}', 'me', 'me', 'why')",
    "select redrive.redrive_obstacle_v2(1, 0, 'a', 'k', 'f', 'r', 'bug', '1', 1, true, 5, '{}')",
    "select redrive.pause_v1('default', 'me', 'why')",
    "select redrive.set_lanes_v1('default', 16, 'me', 'why')",
    "select redrive.rescue_v1('0')",
    "select redrive.admit()",
    "create table redrive.mine ()",
    "set role redrive_owner",
    "set session_replication_role = replica",
)


@pytest.mark.parametrize("statement", PRODUCER_MAY_NOT)
def test_a_producer_can_add_jobs_and_nothing_else(
    refusing: Database, statement: str
) -> None:
    job_id = make_job(refusing.conn)
    before = refusing.rows("select * from redrive.jobs")
    producer = refusing.login("redrive_producer")

    with pytest.raises(
        (psycopg.errors.InsufficientPrivilege, psycopg.errors.FeatureNotSupported)
    ) as caught:
        producer.rows(statement)  # type: ignore[arg-type]
    assert caught.value.sqlstate in {"42501", "0A000"}
    assert refusing.rows("select * from redrive.jobs") == before
    assert make_job(producer.conn) > job_id


@pytest.mark.parametrize(
    "role", ["redrive_worker", "redrive_operator", "redrive_viewer"]
)
def test_the_audit_can_only_grow(closed: Database, role: str) -> None:
    closed.rows("select redrive.pause_v1('q', 'ada', 'x')")
    session = closed.session(role)

    for statement in (
        "delete from redrive.audit",
        "update redrive.audit set actor = 'x'",
        "truncate redrive.audit",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.rows(statement)  # type: ignore[arg-type]


def test_the_audit_says_who_was_logged_in_and_not_only_who_they_say_they_are(
    closed: Database,
) -> None:
    operator = closed.login("redrive_operator")
    operator.rows("select redrive.pause_v1('q', 'somebody else', 'x')")

    assert closed.rows("select actor, db_user from redrive.audit") == [
        ("somebody else", "redrive_operator")
    ]


def test_a_viewer_sees_figures_and_no_payload(closed: Database) -> None:
    """Nor what a failure says, by its group; the exporter listens on the network as one."""
    make_job(closed.conn, payload={"card": "SECRET"})
    make_dead_letter(closed.conn, payload={"card": "SECRET"})
    viewer = closed.session("redrive_viewer")

    assert viewer.rows("select * from redrive.depths_v1()")
    assert viewer.rows("select * from redrive.totals")
    assert "SECRET" not in str(viewer.rows("select redrive.stats_v1('0')"))
    for table in (
        "jobs",
        "dead_letters",
        "failures",
        "completions",
        "audit",
        "groups",
        "grouped",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            viewer.rows(f"select * from redrive.{table}")  # type: ignore[arg-type]


SAID: tuple[LiteralString, ...] = (
    (
        "select redrive.plan_campaign_v1("
        '\'{"tenant": ["SECRET"], "holds": ["card=SECRET"]}\', 5, \'ada\')'
    ),
    "select redrive.plan_campaign_v1('{\"tenant\": [\"SECRET\"]}', 5, 'ada')",
    "select redrive.start_campaign_v1(2, 'ada', 'SECRET', 1, 0, 0.1, null, '{}')",
    "select redrive.pause_campaign_v1(2, 'ada', 'SECRET')",
    "select redrive.pause_v1('default', 'ada', 'SECRET')",
    "select redrive.set_limit_v1('customer:SECRET', 3, null, 'ada', 'SECRET')",
    "select redrive.set_limit_v1('customer:*', 5, null, 'ada', 'SECRET')",
    "insert into redrive.breakers (name) values ('smtp')",
    "select redrive.force_breaker_v1('smtp', 'open', 'ada', 'SECRET')",
    "select redrive.pause_schedule_v1('report', 'ada', 'SECRET')",
    "select redrive.fold_groups_v1()",
    "select redrive.dismiss_v1('{2}', 'ada', 'SECRET')",
)
READ: LiteralString = """
    select 'select v::text from ' || c.oid::regclass || ' v' from pg_class c
    where c.relnamespace = 'redrive'::regnamespace and c.relkind in ('r', 'v', 'p')
      and has_table_privilege('redrive_viewer', c.oid, 'select')
    union all
    select 'select v::text from redrive.' || p.proname || '(' || array_to_string(array(
        select case t::regtype::text
                   when 'timestamp with time zone'
                   then case n when 1 then '''2026-01-01''' else 'now()' end
                   when 'interval' then '''1 h''' when 'integer' then '9'
                   when 'boolean' then 'true' when 'jsonb' then '''{}''' else 'null' end
               || '::' || format_type(t, null)
        from unnest(p.proargtypes::oid[]) with ordinality as a(t, n) order by n), ', ') || ') v'
    from pg_proc p where p.pronamespace = 'redrive'::regnamespace
      and has_function_privilege('redrive_viewer', p.oid, 'execute')
      and p.proname <> 'end_session_v1'"""
"""All that a viewer may read, by statements."""


def test_a_viewer_reads_no_value_of_a_payload_and_no_reason_anywhere(
    closed: Database,
) -> None:
    """Filters of campaigns, keys of limits, and why something is paused told them."""
    make_schedule(closed.conn, "report")
    make_job(closed.conn, payload={"card": "SECRET"})
    make_dead_letter(closed.conn, payload={"card": "SECRET"}, tenant="SECRET")
    for statement in SAID:
        closed.rows(statement)
    viewer = closed.session("redrive_viewer")
    told = {read: str(viewer.rows(read)) for read in closed.column(READ)}

    assert len(told) > 40
    assert [read for read, text in told.items() if "SECRET" in text] == []
    assert viewer.rows(
        "select name, concurrency from redrive.limits_v1() where name ~ 'customer'"
    ) == [("customer:*", 5)]
    operator = closed.session("redrive_operator")
    assert "SECRET" in str(operator.rows("select filter from redrive.shown_campaigns"))


def test_each_role_can_do_its_own_work(closed: Database) -> None:
    producer, worker, operator = (
        closed.connect(f"redrive_{role}") for role in ("producer", "worker", "operator")
    )
    job_id = make_job(producer, idempotency_key="k", ordering_key="o", tenant="t")
    me = make_worker(worker)
    job = claim_one(worker, me)
    assert job.id == job_id
    make_job(producer)
    let_next_die(worker, me)
    plan = operator.execute("select redrive.plan_campaign_v1('{}', 5, 'ada') -> 'plan'")
    operator.execute(
        "select redrive.start_campaign_v1(%s, 'ada', 'why', null, 0, 0.1, null, '{}')",
        plan.fetchone(),
    )
    assert complete(worker, me, job) == {job_id}


# A definer function runs with the owner's rights: nothing of the caller's may be called inside it.

SHADOW = """
    create function {schema}.{name} returns {type} language plpgsql as $$
    begin perform {schema}.caught(); return {value}; end $$;
"""
SHADOWS = (
    ("now()", "timestamptz", "pg_catalog.clock_timestamp()"),
    ("clock_timestamp()", "timestamptz", "pg_catalog.now()"),
    ("hashtext(text)", "int", "0"),
    ("length(text)", "int", "1"),
    ("octet_length(text)", "int", "1"),
    ("jsonb_typeof(jsonb)", "text", "'object'"),
    ("is_so(int, int)", "boolean", "true"),
    ("is_so(text, text)", "boolean", "true"),
)
OPERATORS = (("=", "int"), (">", "int"), ("=", "text"), ("<>", "text"))
TABLES = (
    "jobs",
    "queues",
    "completions",
    "deltas",
    "dead_letters",
    "workers",
    "failures",
    "chores",
    "audit",
)


@pytest.mark.parametrize("schema", ["public", "pg_temp"])
def test_a_definer_function_calls_nothing_of_its_caller(
    closed: Database, schema: str
) -> None:
    """`caught` raises in whoever calls it; each function then runs with the caller's search_path
    turned against it.
    """
    attacker = closed.session()
    attacker.rows("create table public.witness (who text)")
    attacker.rows("grant all on public.witness to public")
    attacker.rows("grant create, usage on schema public to public")
    for table in TABLES:
        attacker.rows(f"create temp table {table} (like redrive.{table})")  # type: ignore[arg-type]
    trap = (
        f"create function {schema}.caught() returns void language plpgsql as $$ begin"
        " insert into public.witness values (current_user); end $$;"
    )
    attacker.rows(trap)  # type: ignore[arg-type]
    for name, returned, value in SHADOWS:
        attacker.rows(
            SHADOW.format(schema=schema, name=name, type=returned, value=value)
        )  # type: ignore[arg-type]
    for operator, of in OPERATORS:
        attacker.rows(  # type: ignore[arg-type]
            f"create operator {schema}.{operator} (leftarg = {of}, rightarg = {of}, function ="
            f" {schema}.is_so)"
        )
    attacker.rows(f"set search_path = {schema}, pg_catalog")  # type: ignore[arg-type]
    attacker.rows(f"select {schema}.now() is not null")  # type: ignore[arg-type]
    assert attacker.value("select pg_catalog.count(*) from public.witness") > 0, (
        "the trap works"
    )
    attacker.rows("delete from public.witness")

    job_id = make_job(
        attacker.conn,
        payload={"n": "x" * 200},
        tenant="t",
        ordering_key="o",
        idempotency_key="k",
    )
    me = make_worker(attacker.conn)
    make_dead_letter(attacker.conn)
    for statement in (
        "select redrive.depths_v1()",
        "select redrive.fold_v1()",
        "select redrive.unpark_v1(1000)",
        "select redrive.rescue_v1('1 hour')",
        "select redrive.take_chore_v1('fold', '1 s')",
        "select redrive.pause_v1('default', 'a', 'b'), redrive.resume_v1('default', 'a', 'b')",
        "select redrive.stats_v1('1 s')",
        (
            "select redrive.redrive_v1("
            "'{2}', redrive.open_campaign_v1('a', 'b', '{}', null, 1), null, null, 10, true)"
        ),
        "select redrive.dismiss_v1('{2}', 'a', 'b'), redrive.note_v1(2, 'a', 'b')",
        "select redrive.assign_v1('{2}', 'o', 'a', 'b')",
        "select redrive.set_lanes_v1('default', 2, 'a', 'b')",
        "select redrive.purge_v1(null, '{2}', '{0}', '{redriven}')",
        "select redrive.forget_completions_v1('1 day', 10)",
        'select redrive.enqueue_many_v1(\'[{"kind": "a"}]\')',
    ):
        attacker.rows(statement)  # type: ignore[arg-type]
    for job in (claim_one(attacker.conn, me),):
        complete(attacker.conn, me, job)
    attacker.rows("reset search_path")

    assert closed.column("select who from public.witness") == []
    for table in TABLES:
        assert attacker.value(f"select count(*) from pg_temp.{table}") == 0, table  # type: ignore[arg-type]
    assert job_id
