"""Settings of a database that stop no worker and no producer.

In CI each is tried for itself, and elsewhere several at a time.
"""

import os

import psycopg
import pytest
from psycopg import sql

from redrive.database.connections.link import Link
from redrive.dead_letters.campaigns import store as campaign
from redrive.dead_letters.campaigns.drive import drive, drive_all
from redrive.dead_letters.campaigns.terms import Terms
from redrive.dead_letters.filter import Filter
from redrive.enqueue import enqueue, enqueue_many
from redrive.worker import store
from redrive.worker.upkeep.maintenance import CHORES
from tests.factories import claim, complete, let_die, make_worker
from tests.postgres import Database

SETTINGS = {
    "array_nulls": "off",
    "backslash_quote": "off",
    "bytea_output": "escape",
    "check_function_bodies": "off",
    "client_encoding": "LATIN1",
    "client_min_messages": "error",
    "constraint_exclusion": "on",
    "cursor_tuple_fraction": "1",
    "datestyle": "German",
    "default_table_access_method": "heap",
    "default_tablespace": "pg_default",
    "default_transaction_deferrable": "on",
    "default_transaction_isolation": "serializable",
    "enable_bitmapscan": "off",
    "enable_hashagg": "off",
    "enable_hashjoin": "off",
    "enable_indexonlyscan": "off",
    "enable_indexscan": "off",
    "enable_material": "off",
    "enable_mergejoin": "off",
    "enable_nestloop": "off",
    "enable_seqscan": "off",
    "enable_sort": "off",
    "escape_string_warning": "off",
    "extra_float_digits": "-15",
    "from_collapse_limit": "1",
    "idle_in_transaction_session_timeout": "1s",
    "intervalstyle": "iso_8601",
    "jit": "on",
    "jit_above_cost": "0",
    "join_collapse_limit": "1",
    "lc_messages": "C",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lock_timeout": "1s",
    "plan_cache_mode": "force_custom_plan",
    "quote_all_identifiers": "on",
    "row_security": "off",
    "search_path": "nowhere",
    "standard_conforming_strings": "off",
    "statement_timeout": "1s",
    "synchronous_commit": "off",
    "temp_buffers": "100",
    "timezone_abbreviations": "Australia",
    "timezone": "Asia/Kathmandu",
    "transform_null_equals": "on",
    "work_mem": "64kB",
    "xmlbinary": "hex",
    "xmloption": "document",
}


GROUPS = len(SETTINGS) if os.environ.get("CI") == "true" else 7
CHOSEN = [[*SETTINGS.items()][n::GROUPS] for n in range(GROUPS)]


@pytest.fixture(params=CHOSEN, ids=lambda chosen: f"{chosen[0][0]}={chosen[0][1]}")
def set_by_others(request: pytest.FixtureRequest, database: Database) -> Database:
    """A database with settings that its owner has chosen for every session."""
    own = sql.Identifier(database.conn.info.dbname)
    for name, value in request.param:
        change = sql.SQL("alter database {} set {} = {}")
        database.conn.execute(change.format(own, sql.Identifier(name), value))
    return database


def test_a_job_is_enqueued_claimed_settled_and_redriven(
    set_by_others: Database,
) -> None:
    """Claims work with `array_nulls=off` on the database."""
    with psycopg.connect(set_by_others.url) as producer:
        enqueue(
            producer, "mail.send", {"to": "Zoë O'Hara \\ ada"}, ordering_key="a,b'{}\\"
        )
        plain = {"kind": "mail.send", "payload": {"n": 1.5}}
        enqueue_many(producer, [plain, {"kind": "mail.send", "tenant": "t"}])
    link = Link(set_by_others.url, "test")
    with link.use() as conn:
        worker = make_worker(conn)
        first, second, third = claim(conn, worker)
        assert complete(conn, worker, first) == {first.id}
        with psycopg.connect(set_by_others.url) as own:
            completed = "select redrive.complete_in_transaction_v1(%s, %s, %s)"
            own.execute(completed, (worker, third.id, third.deliveries))
        let_die(conn, worker, second)
        made = campaign.plan(conn, Filter(), actor="ada")
        assert made.plan is not None
        terms = Terms(rate=100.0, canaries=0)
        campaign.start(conn, made.plan, terms, actor="ada", why="fixed")
        drive(conn, made.plan)
        store.advance_floors(conn)
        for chore, (_, do) in CHORES.items():
            assert do(conn) is not NotImplemented, chore
        drive_all(conn)
        assert store.rescue(conn, 3600).workers == 0
    with link.use() as conn:
        assert store.retire(conn, worker).is_over
        assert conn.execute("show transaction_isolation").fetchone() == (
            "read committed",
        )
    link.close()
    assert set_by_others.rows("select redrives from redrive.jobs") == [(1,)]
