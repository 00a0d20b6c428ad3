"""Logical replication: flows of all kinds while every table is published, and a subscriber."""

import subprocess
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql

from redrive.batches import close_batch, open_batch
from redrive.database.embedded import EmbeddedPostgres
from redrive.enqueue import enqueue
from tests.factories import redrive
from tests.flow.harness import Workers, wait_for, workers_on
from tests.postgres import Database, Server, embedded

VERSION = 18
EVERY_TABLE = (
    "select relname::text from pg_class where relnamespace = 'redrive'::regnamespace"
    " and relkind in ('r', 'p') and not relispartition and relpersistence = 'p' order by 1"
)
SET_SEQUENCES = """
    select format('select setval(%L, %s)', format('%I.%I', schemaname, sequencename),
                  last_value + 1000000)
    from pg_sequences where schemaname = 'redrive' and last_value is not null
"""
"""As docs/logical-replication.md has it."""


@pytest.fixture(scope="module")
def logical() -> Iterator[Server]:
    with embedded(VERSION, wal_level="logical") as server:
        yield server


@pytest.fixture
def source(logical: Server) -> Iterator[Database]:
    """A database whose tables are all published, as the page says."""
    with logical.database() as database:
        database.rows(
            "create publication everything for all tables with (publish_via_partition_root = true)"
        )
        yield database


def live_through_everything(database: Database, workers: Workers) -> dict[str, int]:
    """Jobs that succeed, retry, die, come back, belong to a batch, and are kept; a fold of all."""
    conn = database.conn
    database.rows("select redrive.set_history_v1('default', 7, 'ada', 'support asks')")
    worker = workers().wait_ready()
    batch = open_batch(conn, on_success={"kind": "work.report"})
    ids = {
        "succeeds": enqueue(conn, "work.sync", idempotency_key="k"),
        "retries": enqueue(conn, "fail.until", {"attempt": 2}),
        "dies": enqueue(conn, "fail.always"),
        "returns": enqueue(conn, "fail.until", {"attempt": 2}, max_attempts=1),
        "in a batch": enqueue(conn, "work.async", batch=batch),
        "says what it did": enqueue(conn, "work.side-effect"),
    }
    close_batch(conn, batch)
    wait_for(lambda: database.value("select count(*) from redrive.dead_letters") == 2)
    database.rows("update redrive.dead_letters set payload = '{\"attempt\": 1}'")
    assert redrive(conn, [ids["returns"]]) == {ids["returns"]: None}
    wait_for(lambda: database.value("select count(*) from redrive.jobs") == 0)
    folded = (
        "select not exists (select from redrive.deltas)"
        " and not exists (select from redrive.group_deltas)"
        " and (select bool_and(over_at is not null) from redrive.batches)"
    )
    wait_for(lambda: database.value(folded))
    assert worker.stop()[0] == 0, worker.log.read_text()[-4000:]
    return ids


def check_everything(database: Database, ids: dict[str, int]) -> None:
    """What became of those jobs."""
    kept = database.column("select id from redrive.history where state = 'completed'")
    assert set(kept) > {job for name, job in ids.items() if name != "dies"}
    dead = dict(database.rows("select id, state from redrive.dead_letters"))  # type: ignore[arg-type]
    assert dead == {ids["dies"]: "open", ids["returns"]: "resolved"}


def test_a_publication_of_all_tables_stops_nothing(
    source: Database, tmp_path: Path
) -> None:
    """The first settlement ended the worker: 55000, side_effects has no replica identity."""
    with workers_on(source.url, tmp_path) as workers:
        ids = live_through_everything(source, workers)

    check_everything(source, ids)
    source.rows("select redrive.set_history_v1('default', null, 'ada', 'no longer')")
    source.rows("select redrive.turn_history_v1(%s)", date(9999, 1, 1))
    assert source.value("select count(*) from redrive.history") == 0


def rows_of(database: Database) -> dict[str, list[Any]]:
    """Every row of every table that is replicated."""
    return {
        table: database.column(
            sql.SQL("select t::text from redrive.{} t order by 1").format(
                sql.Identifier(table)
            )  # type: ignore[arg-type]
        )
        for table in database.column(EVERY_TABLE)
    }


def dump_schema(url: str, target: str) -> None:
    """Copy the schema without data: with pg_dump and psql, as the page says."""
    programs = EmbeddedPostgres(Path(), VERSION)
    dump = ["--schema-only", "--schema=redrive", "--no-publications", url]
    dumped = subprocess.run(
        [programs.program("pg_dump"), *dump], capture_output=True, text=True, check=True
    )
    subprocess.run(
        [programs.program("psql"), "--quiet", "-v", "ON_ERROR_STOP=1", target],
        input=dumped.stdout,
        capture_output=True,
        text=True,
        check=True,
    )


def test_a_subscriber_has_every_row_and_goes_on_after_the_switch(
    logical: Server, source: Database, tmp_path: Path
) -> None:
    """A blue/green upgrade as docs/logical-replication.md has it."""
    with logical.empty() as url:
        dump_schema(source.url, url)
        with (
            closing(Database(url)) as target,
            workers_on(source.url, tmp_path) as workers,
        ):
            # By hand: within one cluster `create subscription` would wait for itself.
            source.rows(
                "select pg_create_logical_replication_slot('green', 'pgoutput')"
            )
            target.conn.execute(
                sql.SQL(
                    "create subscription green connection {} publication everything"
                    " with (create_slot = false)"
                ).format(source.url)
            )
            ids = live_through_everything(source, workers)
            wait_for(lambda: rows_of(target) == rows_of(source))
            target.rows("alter subscription green disable")
            target.rows("alter subscription green set (slot_name = none)")
            target.rows("drop subscription green")
            for statement in source.column(SET_SEQUENCES):
                target.rows(statement)
            check_everything(target, ids)

            moved = enqueue(target.conn, "work.sync")
            again = enqueue(target.conn, "work.sync", idempotency_key="k")
            workers.run(url=url, redrive_test_url=url)
            assert moved > max(ids.values())
            assert again == ids["succeeds"], "the key has succeeded before the switch"
            assert redrive(target.conn, [ids["dies"]]) == {ids["dies"]: None}
            assert [job for job in (moved, again) if workers.starts(job)] == [
                moved,
                again,
            ]
        source.rows("select pg_drop_replication_slot('green')")
