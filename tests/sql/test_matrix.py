"""Each role and each function, table and column of the catalog.

A new function has no decision here, and a test fails until somebody makes it. Each role also calls
each of its functions with hostile arguments.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
import pytest

from tests.factories import make_dead_letters, make_job
from tests.postgres import Database, Session

pytestmark = pytest.mark.every_version

ROLES = ("agent", "encryptor", "operator", "producer", "viewer", "worker")

DECISIONS: dict[str, str] = {
    "reads": "added_per_minute claimed delivery_mark depths due due_schedules"
    " failing fixed groups_named handles healing health held_until holds in_campaign is_alive lanes limit_line limited"
    " limits live_campaigns live_jobs lost_workers names_of_limits names_used new_lanes"
    " oldest_dead oldest_retrying oldest_transactions others outcome owned owner_of payload_fault pending"
    " queue_of reads_texts read_marks read_queue_series read_series redrive_obstacle redrive_rates schedules"
    " sessions standing unhandled unjudged unrecorded verify_audit walk_jobs",
    "adds jobs": "enqueue enqueue_many open_batch close_batch first_time",
    "writes a line of the audit log": "acknowledge assign begin_run call_tool cancel"
    " cancel_campaign decide dismiss done_chore edit end_run force_breaker give_up hold_group import limit_names mute"
    " note pause pause_campaign pause_schedule propose propose_campaign purge"
    " reencrypt reopen resolve resume resume_campaign resume_schedule reveal run_now run_schedule set_history"
    " set_lanes set_limit set_objective set_owner set_retention start_campaign",
    "is part of a line that is there": "hold_run import_failures leave_out lock_starts"
    " plan_campaign plan_retry",
    "changes what the caller has claimed": "beat cancelled claim complete"
    " complete_in_transaction complete_with_results end_cancellations end_left_open forgive"
    " keep_checkpoints keep_progress register retire run_alone settle side_effects",
    "does what is due anyway": "advance_floors busy look_at_campaign stats fire_schedule fold fold_batches fold_groups"
    " fold_series forget heal hide_messages hold_failing mark_lost rescue retry_fixed sample step_campaign take_chore"
    " take_chores tend_history tend_limits unpark wake_slot",
    "says what the code of a worker says": "breakers count_times declare_limits"
    " declare_redrives declare_schedules judge keep_samples say_approvals say_heals take_probe",
    "ends what belongs to one browser": "end_session use_link",
}
"""Why a role may call it -> the functions, without their versions."""

SECRET = {
    "agent": "audit checkpoints dead_letters edits failures grouped groups history jobs progress"
    " reservoir_samples results side_effects",
    "encryptor": "checkpoints dead_letters edits failures history jobs progress results"
    " side_effects",
    "operator": "audit checkpoints dead_letters edits failures grouped groups history jobs"
    " progress proposals reservoir_samples results side_effects",
    "producer": "",
    "viewer": "",
    "worker": "grouped",
}
"""Role -> the tables in which it may read what a payload, a failure or a person says."""

SECRET_COLUMNS = {
    "payload",
    "message",
    "detail",
    "result",
    "facts",
    "patch",
    "data",
    "text",
}

CALLABLE = """
    select r.rolname, p.oid::regprocedure::text, regexp_replace(p.proname, '_v[0-9]+$', ''),
           array(select format_type(t, null) from unnest(p.proargtypes::oid[])
                 with ordinality as a(t, n) order by n)::text[]
    from pg_roles r, pg_proc p
    where p.pronamespace = 'redrive'::regnamespace and r.rolname = any (%s)
      and p.prorettype <> 'trigger'::regtype and has_function_privilege(r.oid, p.oid, 'execute')
    order by 1, 2"""
READABLE = """
    select substr(r.rolname, 9), c.relname::text from pg_roles r, pg_class c, pg_attribute a
    where c.relnamespace = 'redrive'::regnamespace and c.relkind in ('r', 'v', 'm', 'p')
      and not c.relispartition and a.attrelid = c.oid and a.attnum > 0
      and a.attname::text = any (%s) and r.rolname = any (%s)
      and has_column_privilege(r.oid, c.oid, a.attnum, 'select')
    group by 1, 2 order by 1, 2"""
EVIL = "x'; drop schema redrive cascade; --\"$$%s\\"
HOSTILE: dict[str, tuple[object, ...]] = {
    "text": (EVIL, "", "a" * 70_000, "\u202e"),
    "text[]": ([EVIL], [], [None, ""] * 100, ["default", EVIL]),
    "jsonb": (
        '"x"',
        "[]",
        '{"ids": [1], "limit": -1, "kind": "x"}',
        '[{"kind": 1}, null]',
    ),
    "jsonb[]": (["null"], [], ["1", '"x"'], ['{"a": 1}']),
    "integer": (-1, 0, 2**31 - 1, 1),
    "integer[]": ([-1], [], [2**31 - 1, None], [1]),
    "smallint[]": ([-1], [], [2**15 - 1, None], [0]),
    "bigint": (-1, 0, 2**63 - 1, 1),
    "bigint[]": ([-1], [], [2**63 - 1, None], [1]),
    "double precision": (float("nan"), float("inf"), -1.0, 1e308),
    "double precision[]": ([float("nan")], [], [1e308, None], [1.0]),
    "boolean": (True, False, None, True),
    "boolean[]": ([True], [], [None, False], [True]),
    "bytea[]": ([b"\0"], [], [None, b""], [b"x"]),
    "interval": ("-1 year", "0", "1000000 years", "1 s"),
    "interval[]": (["-1 year"], [], ["1000000 years", None], ["1 s"]),
    "uuid": (UUID(int=0), UUID(int=2**128 - 1), None, UUID(int=1)),
    "timestamp with time zone": ("infinity", "-infinity", "0001-01-01", "now"),
    "timestamp with time zone[]": ("{infinity}", "{}", "{-infinity,null}", "{now}"),
}
"""Type of an argument -> its values; the first values of all arguments make the first call, ..."""
CALLS = 4
OURS = ("XX", "42", "53", "54")
"""Errors that a caller must not be able to cause: in our statements, of the server, of its limits."""


class Grant(NamedTuple):
    """A function that a role may call."""

    role: str
    signature: str
    name: str
    types: list[str]


def callables(database: Database) -> list[Grant]:
    roles = [f"redrive_{role}" for role in ROLES]
    return [Grant(*row) for row in database.rows(CALLABLE, roles)]


def test_each_function_that_somebody_may_call_has_one_decision(
    database: Database,
) -> None:
    decided = [name for names in DECISIONS.values() for name in names.split()]
    there = {each.name for each in callables(database)}

    assert there - set(decided) == set(), (
        "decide why its roles may call it, and write it above"
    )
    assert set(decided) - there == set()
    assert len(decided) == len(set(decided))


def test_what_is_said_to_read_only_reads(database: Database) -> None:
    """Postgres refuses each write in a read-only transaction, also inside a function."""
    reads = set(DECISIONS["reads"].split())
    sessions = {
        role: database.session(f"redrive_{role}", default_transaction_read_only="on")
        for role in ROLES
    }
    refused = {
        each.name
        for each in callables(database)
        if _called(sessions[each.role.removeprefix("redrive_")], each, 3) == "25006"
    }

    assert refused, "the sessions can write"
    assert refused & reads == set()


def test_what_jobs_and_people_say_is_read_by_those_who_were_chosen(
    database: Database,
) -> None:
    found = dict.fromkeys(ROLES, "")
    columns, roles = sorted(SECRET_COLUMNS), [f"redrive_{role}" for role in ROLES]
    for role, table in database.rows(READABLE, columns, roles):
        found[role] = f"{found[role]} {table}".strip()

    assert found == {role: " ".join(tables.split()) for role, tables in SECRET.items()}


@pytest.mark.parametrize("role", ROLES)
def test_no_argument_breaks_a_function(database: Database, role: str) -> None:
    """No fault of ours, no statement made of it, and nothing of the schema is gone."""
    make_dead_letters(database.conn, 3)
    make_job(database.conn)
    before = list(_schema(database))
    session = database.session(f"redrive_{role}", statement_timeout="60s")
    faults = []
    for each in callables(database):
        if each.role != f"redrive_{role}":
            continue
        for n in range(CALLS):
            state = _called(session, each, n)
            if state is not None and state.startswith(OURS):
                faults.append((each.signature, n, state))

    assert faults == []
    assert list(_schema(database)) == before


def _called(session: Session, each: Grant, n: int) -> str | None:
    """Call a function with its hostile arguments, undo it, and return the error's SQLSTATE."""
    values = [HOSTILE[of][n] for of in each.types]
    places = ", ".join(f"%s::{of}" for of in each.types)
    name = each.signature.partition("(")[0]
    conn = session.conn
    try:
        with conn.transaction(force_rollback=True):
            conn.execute(f"select {name}({places})", values)  # type: ignore[arg-type]
    except psycopg.Error as error:
        return error.sqlstate
    return None


def _schema(database: Database) -> Iterator[tuple[Any, ...]]:
    yield from database.rows(
        "select relname::text, relkind::text, relowner from pg_class"
        " where relnamespace = 'redrive'::regnamespace order by 1"
    )
    yield from database.rows(
        "select oid::regprocedure::text, prosrc, proowner from pg_proc"
        " where pronamespace = 'redrive'::regnamespace order by 1"
    )
