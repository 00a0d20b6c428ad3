"""Samples of jobs that succeeded: bounded, spread over time, and nobody waits for them."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from redrive.worker import store
from redrive.worker.protocol import Sampled
from tests.postgres import Connection, Database

SIZE = 200


def offer(conn: Connection, *kinds: str, facts: str = '{"a": 1}') -> int:
    return store.keep_samples(conn, [Sampled(kind, facts) for kind in kinds])


def age(conn: Connection, taken: str, began: str = "3 days") -> None:
    """Let the reservoirs have begun, and taken their last sample, that long ago."""
    conn.execute(
        "update redrive.reservoirs set began_at = clock_timestamp() - %s::interval,"
        " taken_at = clock_timestamp() - %s::interval",
        (began, taken),
    )


def test_the_first_are_all_kept_and_then_only_so_many(database: Database) -> None:
    assert offer(database.conn, *["a.b"] * (SIZE + 50)) <= SIZE + 50
    assert database.value("select count(*) from redrive.reservoir_samples") == SIZE
    assert database.value("select n from redrive.reservoirs") == SIZE


def test_a_full_one_takes_a_sample_for_each_part_of_its_time(
    database: Database,
) -> None:
    """So it covers the time since the first, up to three days, and not the last minutes."""
    offer(database.conn, *["a.b"] * SIZE)
    age(database.conn, "21 minutes")
    assert offer(database.conn, "a.b", facts='{"a": 2}') == 0
    age(database.conn, "22 minutes")
    assert offer(database.conn, "a.b", "a.b", facts='{"a": 2}') == 1
    age(database.conn, "22 minutes", began="30 days")
    assert offer(database.conn, "a.b") == 1
    age(database.conn, "10 seconds", began="40 minutes")
    assert offer(database.conn, "a.b") == 0
    age(database.conn, "13 seconds", began="40 minutes")
    assert offer(database.conn, "a.b") == 1
    assert database.value("select count(*) from redrive.reservoir_samples") == SIZE


@pytest.mark.parametrize("facts", ["[]", "1", json.dumps({"a": list(range(3000))})])
def test_what_is_no_facts_or_too_large_is_left_out(
    database: Database, facts: str
) -> None:
    assert offer(database.conn, "a.b", facts=facts) == 0
    assert offer(database.conn, "Not a kind") == 0
    assert database.value("select count(*) from redrive.reservoirs") == 0


def test_only_so_many_kinds_are_sampled(database: Database) -> None:
    assert offer(database.conn, *(f"k{n}" for n in range(501))) == 500
    assert offer(database.conn, "k1", "another") == 1


def test_whoever_comes_second_does_not_wait(database: Database) -> None:
    offer(database.conn, "a.b")
    other = database.transaction(
        "select redrive.keep_samples_v1('{a.b}', array['{}'::jsonb])"
    )

    assert offer(database.conn, "a.b") == 0

    other.rows("commit")
    assert database.value("select count(*) from redrive.reservoir_samples") == 2
    assert offer(database.conn, "a.b") == 1


def test_workers_that_race_end_and_fill_it_no_further(database: Database) -> None:
    """With the same new kinds in different orders: no deadlock, none doubled."""
    kinds = [f"k{n}" for n in range(40)]

    def race(number: int) -> None:
        with database.connect() as conn:
            for _ in range(5):
                offer(conn, *(kinds if number % 2 else reversed(kinds)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(race, range(4)))

    assert database.value("select count(*) from redrive.reservoirs") == len(kinds)
    assert database.value(
        "select bool_and(r.n = (select count(*) from redrive.reservoir_samples s"
        " where s.kind = r.kind)) from redrive.reservoirs r"
    )


def test_they_are_forgotten_after_thirty_days(database: Database) -> None:
    offer(database.conn, "a.b", "a.b", "c.d")
    database.conn.execute(
        "update redrive.reservoir_samples set at = at - interval '31 days' where kind = 'a.b'"
    )
    database.conn.execute(
        "update redrive.reservoirs set taken_at = taken_at - interval '31 days' where kind = 'a.b'"
    )

    store.forget(database.conn)

    assert database.value("select array_agg(kind) from redrive.reservoir_samples") == [
        "c.d"
    ]
    assert database.value("select array_agg(kind) from redrive.reservoirs") == ["c.d"]
