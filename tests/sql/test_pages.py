"""Lists and plans of dead letters cost what they show, and hold no more of it than a page."""

import tracemalloc
from collections.abc import Callable, Mapping
from itertools import pairwise

import pytest

from redrive.dead_letters.campaigns.store import plan, preview
from redrive.dead_letters.edit import store as edit
from redrive.dead_letters.filter import STATES, Filter
from redrive.dead_letters.find import find, ids
from redrive.dead_letters.purge import purgeable
from tests.factories import make_dead_letters
from tests.postgres import Database

pytestmark = pytest.mark.every_version

READ = """
    select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables
    where relname = 'dead_letters'
"""


def fill(database: Database, count: int) -> None:
    """Make more of the one dead letter there is, in all states, with messages of 2 kB."""
    database.rows(
        "insert into redrive.dead_letters select r.* from redrive.dead_letters d,"
        " generate_series(1, %s) n, lateral jsonb_populate_record(d, jsonb_build_object("
        " 'id', d.id + n, 'state', (%s::text[])[1 + n %% 4], 'died_at', d.died_at - n * interval"
        " '1 second', 'fingerprint', 'f' || n %% 3, 'message', repeat(md5(n::text), 64))) r",
        count,
        list(STATES),
    )


@pytest.mark.parametrize("states", [(), ("open", "dismissed"), ("resolved",)])
def test_the_latest_of_any_state_are_found_without_a_look_at_the_others(
    database: Database, states: tuple[str, ...]
) -> None:
    """A list over all states does not sort the whole table."""
    make_dead_letters(database.conn, 1)
    fill(database, 3000)
    database.rows("analyze redrive.dead_letters")
    by_hand = (
        "select id from redrive.dead_letters where state = any (%s)"
        " order by died_at desc, id desc limit 10"
    )
    expected = database.column(by_hand, list(states or STATES))
    session = database.session()
    with session.conn.transaction():
        found = find(session.conn, Filter(state=states, limit=10))
        read = session.value(READ)

    assert [letter["id"] for letter in found] == expected
    assert read <= 10 * len(states or STATES)


def test_who_asks_for_a_group_reads_that_group_alone(database: Database) -> None:
    """By its whole name: its beginning is in no index, and all were read for it."""
    make_dead_letters(database.conn, 1)
    for table in ("redrive.dead_letters", "redrive.group_deltas"):
        database.rows(f"update {table} set fingerprint = 'g9'")  # type: ignore[arg-type]
    fill(database, 3000)
    database.rows("vacuum analyze redrive.dead_letters")
    session, chosen = database.session(), Filter(state=("open",), group="g")
    asked: Mapping[str, Callable[[], object]] = {
        "list": lambda: find(session.conn, chosen),
        "ids": lambda: ids(session.conn, chosen),
        "edit": lambda: list(edit.find(session.conn, chosen)),
        "purge": lambda: purgeable(session.conn, chosen, 0),
        "plan": lambda: plan(session.conn, chosen, actor=None).matched,
        "preview": lambda: preview(session.conn, chosen, 0)[0].matched,
    }

    for name, ask in asked.items():
        with session.conn.transaction():
            assert ask(), name
            assert session.value(READ) <= 30, name


def test_a_plan_holds_a_page_of_dead_letters_and_the_ids_of_all(
    database: Database,
) -> None:
    """It held every row that matched, messages and all."""
    make_dead_letters(database.conn, 1)
    fill(database, 20_000)
    tracemalloc.start()
    planned = plan(database.conn, Filter(), actor="ada")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    oldest_first = database.column(
        "select id from redrive.dead_letters where state = 'open' order by died_at, id"
    )
    assert (
        database.column("select id from redrive.campaign_jobs order by n")
        == oldest_first
    )
    assert planned.matched == 5001
    assert len(planned.groups) == min(100, planned.group_count)
    assert all(a["count"] >= b["count"] for a, b in pairwise(planned.groups))
    assert peak < 1_000_000, "5,001 rows are 12 MB"


def test_a_plan_ends_at_its_limit_within_a_page_and_beyond(database: Database) -> None:
    make_dead_letters(database.conn, 1)
    fill(database, 6000)
    for limit in (1, 999, 1000, 1001, 1500):
        assert plan(database.conn, Filter(limit=limit), actor=None).matched == limit
    assert plan(database.conn, Filter(limit=10_000), actor=None).matched == 1501
