"""Logical replication: no table refuses updates once it is published."""

import pytest

from redrive.database.schema.publications import publishing, without_identity
from tests.postgres import Database

pytestmark = pytest.mark.every_version

IN_FULL = [
    "batch_deltas",
    "deltas",
    "group_deltas",
    "history",
    "history_default",
    "limit_lines",
    "names",
    "purge_lock",
    "redrive_lock",
    "reencrypt_lock",
    "series_deltas",
    "side_effects",
    "start_lock",
]


def test_every_table_has_a_replica_identity_partitions_of_tomorrow_too(
    database: Database,
) -> None:
    """A publication of all tables stops no worker."""
    database.rows("select redrive.set_history_v1('default', 7, 'ada', 'support asks')")
    in_full = database.column(
        "select relname::text from pg_class"
        " where relnamespace = 'redrive'::regnamespace and relreplident = 'f' order by 1"
    )

    assert without_identity(database.conn) == []
    assert set(IN_FULL) < set(in_full)
    made = [name for name in in_full if name not in IN_FULL]
    assert [name[:-8] for name in made] == ["history_", "history_"], (
        "of the first two days"
    )


def test_a_replica_identity_adds_no_byte_to_the_log(database: Database) -> None:
    """As long as wal_level is replica: an index would add one entry for each row."""
    assert database.value("show wal_level") == "replica"

    def written(identity: str) -> int:
        database.rows(f"alter table redrive.deltas replica identity {identity}")  # type: ignore[arg-type] # ours
        fill = (
            "insert into redrive.deltas (queue, kind, event, n)"
            " select 'q', 'k', 'enqueued', n from generate_series(1, 1000) n"
        )
        database.rows(fill)
        database.rows("truncate redrive.deltas")
        database.rows("checkpoint")
        before = database.value("select pg_current_wal_insert_lsn()")
        database.rows(fill)
        database.rows("update redrive.deltas set n = 0")
        database.rows("delete from redrive.deltas")
        return int(
            database.value("select pg_current_wal_insert_lsn() - %s::pg_lsn", before)
        )

    nothing, full = written("nothing"), written("full")

    assert abs(full - nothing) < 1000, (
        "the difference is what the server writes by itself"
    )
    assert nothing > 100_000


def test_a_table_without_an_identity_is_named(database: Database) -> None:
    """Such as one that a person changed."""
    database.rows("alter table redrive.jobs replica identity nothing")
    database.rows("create table redrive.keyless (n int)")
    database.rows("create table redrive.keyed (n int primary key)")
    database.rows("create unique index names_all on redrive.keyed (n)")
    database.rows("alter table redrive.keyed replica identity using index names_all")

    assert without_identity(database.conn) == ["redrive.jobs", "redrive.keyless"]


def test_publications_with_a_table_of_ours_are_named(database: Database) -> None:
    database.rows("create table public.shop (n int primary key)")
    database.rows("create publication shops for table public.shop")
    assert publishing(database.conn) == []

    database.rows("create publication b_all for all tables")
    database.rows("create publication a_jobs for table redrive.jobs")
    assert publishing(database.conn) == ["a_jobs", "b_all"]
