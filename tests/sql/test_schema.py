"""sql/schema.sql, which tools/schema.py makes."""

import pytest

from tests.postgres import Database
from tools.schema import SCHEMA, describe

pytestmark = pytest.mark.every_version


def test_the_schema_is_what_the_migrations_and_functions_make(
    database: Database,
) -> None:
    """The same on each version of Postgres. When it is not: make generate."""
    assert describe(database.conn).splitlines() == SCHEMA.read_text().splitlines()


def test_a_column_a_grant_and_a_function_more_are_seen(database: Database) -> None:
    """So that the comparison means something."""
    before = describe(database.conn).splitlines()
    database.rows("alter table redrive.queues add column history interval")
    database.rows("grant delete on redrive.audit to redrive_viewer")
    database.rows(
        "create function redrive.later_v1(n int) returns int language sql return n"
    )

    added = [
        line for line in describe(database.conn).splitlines() if line not in before
    ]

    assert added[:3] == [
        "grant delete on redrive.audit to redrive_viewer;",
        "    history interval,",
        "create function redrive.later_v1(n int)",
    ]
