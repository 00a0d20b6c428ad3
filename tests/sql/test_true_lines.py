"""Each function that a person or a program of a person may call, with arguments that hurt others.

The catalog names the functions. A call is refused, or it changes nothing, or the audit log says truly
what it changed: by its login, now, and not more than there is.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg
import pytest

from tests.factories import make_dead_letter, make_dead_letters, make_job, make_schedule
from tests.postgres import Database
from tests.sql.test_matrix import DECISIONS

pytestmark = pytest.mark.every_version

PEOPLE = ("agent", "encryptor", "operator", "producer", "viewer")

WITHOUT_A_LINE = {
    name
    for why in (
        "adds jobs",
        "is part of a line that is there",
        "does what is due anyway",
        "ends what belongs to one browser",
    )
    for name in DECISIONS[why].split()
}
"""Functions that change something and need no line of their own; their decision says why."""

CALLABLE = """
    select p.proname::text, p.proargnames[:p.pronargs], array(
        select format_type(t, null) from unnest(p.proargtypes::oid[])
        with ordinality as a(t, n) order by n)::text[]
    from pg_proc p
    where p.pronamespace = 'redrive'::regnamespace and p.prorettype <> 'trigger'::regtype
      and p.provolatile = 'v' and has_function_privilege(%s, p.oid, 'execute')
    order by 1"""

CHANGED = """
    select c.oid::regclass::text, pg_stat_get_xact_tuples_inserted(c.oid)
        + pg_stat_get_xact_tuples_updated(c.oid) + pg_stat_get_xact_tuples_deleted(c.oid)
    from pg_class c where c.relnamespace = 'redrive'::regnamespace and c.relkind = 'r'"""

LATE = """
    select c.oid::regclass::text, a.attname::text from pg_class c
    join pg_attribute a on a.attrelid = c.oid and a.atttypid = 'timestamptz'::regtype
        and not a.attisdropped
    where c.relnamespace = 'redrive'::regnamespace and c.relkind = 'r'"""

NOT_OF_PEOPLE = {"redrive.audit", "redrive.audit_chain"}


COUNTS_NO_ROWS = {
    "cancel_campaign": "the dead letters that it leaves",
    "reveal": "the payload that was read",
}
"""Functions whose line counts something else than changed rows."""


class Line(NamedTuple):
    """What a line of the audit log says, and whether it was written now."""

    login: str
    n: int
    is_now: bool


@pytest.fixture
def others(database: Database) -> dict[str, Any]:
    """What other logins have made; values of arguments by their names, as often as there are."""
    dead = make_dead_letters(database.conn, 3)
    dismissed = make_dead_letter(database.conn)
    job = make_job(database.conn)
    make_schedule(database.conn, "report")
    database.rows("select redrive.dismiss_v1(%s, 'bo', 'why')", [dismissed])
    database.rows("insert into redrive.breakers (name) values ('smtp')")
    database.rows("select redrive.pause_v1('default', 'bo', 'why')")
    plan, going = (
        database.value("select redrive.plan_campaign_v1('{}', 5, 'bo') -> 'plan'")
        for _ in range(2)
    )
    database.rows(
        "select redrive.start_campaign_v1(%s, 'bo', 'why', 0.01, 1, 0.1, null, '{}')",
        going,
    )
    database.rows("select redrive.fold_groups_v1()")
    run = database.value("select redrive.begin_run_v1('purge', 'bo', 'why', 1, '{}')")
    proposal = database.value(
        "select redrive.propose_v1('mute', 'a', 'bo', 'why', '{\"seconds\": 9}')"
    )
    group = database.value("select fingerprint from redrive.grouped limit 1")
    return {
        "ids": dead,
        "campaign": going,
        "plan": plan,
        "run": run,
        "proposal": proposal,
        "job": job,
        "fingerprint": group,
        "names": [group],
        "queue": "default",
        "breaker": "smtp",
        "schedule": "report",
        "name": "report",
        "action": "purge",
        "step": 0,
        "state": "running",
    }


FAR = "2126-01-01"
HOSTILE: dict[str, tuple[object, ...]] = {
    "text": ("redrive", "ada", "closed"),
    "text[]": (["redrive"], ["open", "dismissed"], []),
    "jsonb": ("{}", '{"ids": [1], "line": 1, "last": 9}', "[]"),
    "jsonb[]": (['{"n": 9}'], [], ["{}"]),
    "integer": (2**31 - 1, 1, -1),
    "integer[]": ([0, 0, 0], [1], []),
    "smallint[]": ([0], [], [1]),
    "bigint": (1, 2**62, -1),
    "bigint[]": ([1], [], [2]),
    "double precision": (1e17, -1.0, 0.5),
    "boolean": (True, False, True),
    "bytea[]": ([b"x"], [], [b""]),
    "interval": ("100 years", "-1 day", "1 s"),
    "timestamp with time zone": (FAR, "1970-01-01", "now"),
}


@pytest.mark.parametrize("role", PEOPLE)
def test_a_call_is_refused_or_its_line_is_true(
    database: Database, others: dict[str, Any], role: str
) -> None:
    """Steps of campaigns released all jobs, a run claimed rows that nobody deleted."""
    login = database.session()
    columns = database.rows(LATE)
    faults = []
    for name, names, types in database.rows(CALLABLE, f"redrive_{role}"):
        for n in range(3):
            named = zip(names or (), types, strict=True)
            values = [others.get(a, HOSTILE[of][n]) for a, of in named]
            places = ", ".join(f"%s::{of}" for of in types)
            call = f"select redrive.{name}({places})"
            fault = _fault(login.conn, f"redrive_{role}", name, call, values, columns)
            if fault:
                faults.append((name, n, fault))

    assert not faults, "\n".join(map(str, faults))


def _fault(
    conn: psycopg.Connection[Any],
    role: str,
    name: str,
    call: str,
    values: list[Any],
    columns: list[Any],
) -> str | None:
    """Call a function as a login, return what is not true afterwards, and undo it."""
    with conn.transaction(force_rollback=True):
        before = conn.execute("select max(id) from redrive.audit").fetchone()
        counted = dict(conn.execute(CHANGED).fetchall())
        conn.execute(f"set local session authorization {role}")  # type: ignore[arg-type]
        try:
            with conn.transaction():
                conn.execute(call, values)  # type: ignore[arg-type]
        except psycopg.Error:
            return None
        finally:
            conn.execute("reset session authorization")
        changed = {
            table: n - counted.get(table, 0)
            for table, n in conn.execute(CHANGED)
            if n > counted.get(table, 0) and table not in NOT_OF_PEOPLE
        }
        lines = [
            Line(*row)
            for row in conn.execute(
                "select db_user, n, at between now() and clock_timestamp()"
                " from redrive.audit where id > %s",
                before,
            )
        ]
        late = list(_late(conn, columns, changed))
    if late:
        return f"a time far away in {late}"
    if any(line.login != role or not line.is_now for line in lines):
        return f"a line in the name of another: {lines}"
    is_counted = without_version(name) not in COUNTS_NO_ROWS
    if is_counted and sum(line.n for line in lines) > sum(changed.values()):
        return f"a line of more than was changed: {lines}, {changed}"
    is_on_record = lines or without_version(name) in WITHOUT_A_LINE
    return None if is_on_record or not changed else f"no line of {changed}"


def without_version(name: str) -> str:
    """Return the name of a function without its version."""
    return name.rpartition("_v")[0] or name


def _late(
    conn: psycopg.Connection[Any], columns: list[Any], changed: dict[str, int]
) -> Iterator[str]:
    for table, column in columns:
        if table not in changed:
            continue
        found = conn.execute(  # nosec: names of the catalog
            f"select from {table} where {column} between now() + interval '2 years'"  # type: ignore[arg-type]
            " and '9999-01-01' limit 1"
        ).fetchone()
        if found is not None:
            yield f"{table}.{column}"
