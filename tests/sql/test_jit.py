"""JIT takes 0.4 s for a statement that runs for a millisecond. None of ours uses it."""

from typing import Any

import pytest

from redrive.batches import open_batch
from redrive.enqueue import enqueue, enqueue_many
from tests.factories import make_limited_worker
from tests.postgres import Connection, Database, Server

pytestmark = pytest.mark.every_version

WITH_JIT_ON = """
    select p.oid::regprocedure::text from pg_proc p
    where p.pronamespace = 'redrive'::regnamespace
      and p.proconfig is not null and 'jit=off' <> all (p.proconfig)
"""
WITHOUT_SETTINGS = """
    select distinct p.proname::text from pg_proc p, pg_roles r
    where p.pronamespace = 'redrive'::regnamespace and p.proconfig is null
      and r.rolname in ('redrive_producer', 'redrive_worker')
      and has_function_privilege(r.oid, p.oid, 'execute')
"""
READ_NO_TABLE = {"delivery_mark_v1", "is_alive_v1", "wake_slot_v1"}

JOBS: dict[str, dict[str, Any]] = {
    "plain": {},
    "limited": {"kind": "a.b"},
    "idempotency key": {"idempotency_key": "k"},
    "ordering key": {"ordering_key": "k"},
    "unique": {"unique_for": 60},
    "replaced": {"unique_for": 60, "on_conflict": "replace", "delay": 60},
    "tenant": {"tenant": "acme"},
}


def test_every_function_turns_jit_off(database: Database) -> None:
    """In a function the planner's guards make a statement look expensive enough for JIT.

    A function without settings is planned with the statement that calls it.
    """
    assert database.column(WITH_JIT_ON) == []
    assert set(database.column(WITHOUT_SETTINGS)) <= READ_NO_TABLE


@pytest.fixture
def producer(server: Server, database: Database) -> Connection:
    """A session for which JIT compiles every statement that it may."""
    if not server.has_jit:
        pytest.skip("this Postgres has no JIT")
    make_limited_worker(database.conn, "emails", kind="a.b")
    database.rows("select redrive.set_limit_v1('emails', 1, null, 'ada', 'why')")
    return database.connect("redrive_producer", jit_above_cost="0")


@pytest.mark.parametrize("name", JOBS)
def test_jit_compiles_no_statement_of_enqueue(
    producer: Connection, server: Server, name: str
) -> None:
    """With JIT, a job of a limited kind took 0.4 s, and 0.0005 s without."""
    job = {"kind": "other"} | JOBS[name]
    for _ in range(2):  # the second time its key is taken, and its limit full
        enqueue(producer, **job)
        enqueue_many(producer, [job, job])

    assert server.compiled() == []


def test_jit_compiles_no_statement_of_a_batch(
    producer: Connection, server: Server
) -> None:
    """Neither of the batch itself nor of its jobs."""
    with open_batch(producer, on_end={"kind": "report"}) as batch:
        enqueue(producer, "a.b", batch=batch)
        enqueue_many(producer, [{"kind": "a.b", "batch": batch}])

    assert server.compiled() == []


def test_what_jit_compiles_is_seen(producer: Connection, server: Server) -> None:
    """So that the tests above can fail."""
    producer.execute("do $$ begin perform count(*) from pg_class; end $$")

    assert any("pg_class" in query for query in server.compiled())
