"""How many queues and kinds there may be: admit_names_v1, and the lanes that workers look at."""

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from redrive.cli import main
from redrive.worker import store
from redrive.worker.round_trip import Lane
from tests.factories import make_dead_letter, make_job, redrive, totals
from tests.postgres import Connection, Database

FLOOD = "insert into redrive.jobs (kind, queue) select %s, 'q' || n from generate_series(1, %s::int) n"
KINDS = (
    "insert into redrive.jobs (kind, queue, priority) select 'k' || n, 'a', n %% 2"
    " from generate_series(1, %s::int) n"
)


def limit(database: Database, **limits: int) -> None:
    """Say how many there may be."""
    for what, number in limits.items():
        database.rows(
            "select redrive.limit_names_v1(%s, %s, 'ada', 'why')", what, number
        )


def by_function(conn: Connection, queue: str, kind: str) -> None:
    conn.execute("select redrive.enqueue(%s, queue => %s)", (kind, queue))


def by_many(conn: Connection, queue: str, kind: str) -> None:
    jobs = [{"kind": kind, "queue": queue}]
    conn.execute("select redrive.enqueue_many_v1(%s)", (json.dumps(jobs),))


def by_insert(conn: Connection, queue: str, kind: str) -> None:
    conn.execute(
        "insert into redrive.jobs (kind, queue) values (%s, %s)", (kind, queue)
    )


def by_copy(conn: Connection, queue: str, kind: str) -> None:
    with (
        conn.cursor() as cursor,
        cursor.copy("copy redrive.jobs (kind, queue) from stdin") as copy,
    ):
        copy.write_row((kind, queue))


Way = Callable[[Connection, str, str], None]
WAYS: list[Way] = [by_function, by_many, by_insert, by_copy]


@pytest.mark.parametrize("way", WAYS)
def test_past_the_limit_new_names_are_refused_and_those_in_use_go_on(
    database: Database, way: Way
) -> None:
    """Whatever way a producer brings them."""
    conn = database.connect("redrive_producer")
    limit(database, queues=2, kinds=3)
    for queue, kind in (("a", "k"), ("b", "k"), ("b", "l")):
        way(conn, queue, kind)

    for queue, kind, said in (
        ("c", "k", "queue: all 2 allowed names are in use;"),
        ("a", "new", "kind: all 3 allowed names are in use;"),
    ):
        with pytest.raises(psycopg.Error, match=said) as refused:
            way(conn, queue, kind)
        assert refused.value.sqlstate == "RD001"
        assert "redrive queue limit" in str(refused.value)
    way(conn, "a", "k")
    assert totals(database.conn) == {"enqueued": 4}
    limit(database, queues=3, kinds=4)
    way(conn, "c", "k")


def test_one_statement_of_many_queues_is_refused_whole(database: Database) -> None:
    """100,000 of them stalled everybody for half a minute."""
    with pytest.raises(psycopg.Error, match="queue: all 1000 allowed names are in use"):
        database.rows(FLOOD, "a", 1001)
    with pytest.raises(psycopg.Error, match="kind: all 5000 allowed names are in use"):
        database.rows(KINDS, 5001)

    assert database.value("select count(*) from redrive.names") == 0
    database.rows(FLOOD, "a", 1000)


def test_a_priority_is_a_lane_and_counts(database: Database) -> None:
    """A queue has room for 2,001 of them."""
    limit(database, kinds=10)

    with pytest.raises(psycopg.Error, match="kind: all"):
        database.rows(
            "insert into redrive.jobs (kind, priority) select 'a', n from generate_series(-5, 5) n"
        )


def test_nobody_waits_for_who_brings_a_name_and_does_not_commit(
    database: Database,
) -> None:
    first, second = database.transaction(), database.session(statement_timeout="5s")
    make_job(first.conn, queue="new")

    make_job(second.conn, queue="new")
    make_job(second.conn, queue="newer")
    second.rows(FLOOD, "a", 18)
    with pytest.raises(
        psycopg.errors.LockNotAvailable, match="another transaction is adding"
    ):
        second.rows(
            "insert into redrive.jobs (kind, queue) select 'a', 'r' || n"
            " from generate_series(1, 21) n"
        )
    first.rows("commit")
    second.rows(FLOOD, "a", 30)
    assert database.rows("select what, used from redrive.names_used_v1()") == [
        ("kinds", 32),
        ("queues", 32),
    ]


def test_what_is_redriven_has_room(database: Database) -> None:
    job = make_dead_letter(database.conn, queue="q")
    database.rows("delete from redrive.names")
    limit(database, queues=1, kinds=1)
    make_job(database.conn, queue="other")

    assert redrive(database.conn, [job]) == {job: None}


def test_what_nobody_uses_any_more_makes_room(database: Database) -> None:
    limit(database, queues=2)
    make_job(database.conn, "k", queue="kept")
    make_job(database.conn, "k", queue="gone", priority=3)
    database.rows("select redrive.fold_v1()")
    database.rows("delete from redrive.jobs where queue = 'gone'")
    forget = "select redrive.forget_names_v1('1 hour', 100)"
    database.rows(forget)
    assert database.value("select count(*) from redrive.names") == 2

    database.rows("update redrive.names set at = at - interval '2 hours'")
    database.rows(forget)

    assert database.column("select queue from redrive.names") == ["kept"]
    make_job(database.conn, queue="new")


def test_a_limit_is_set_and_listed(database: Database, capsys: Any) -> None:
    make_job(database.conn)
    where = ("--database-url", database.url)

    assert (
        main(
            [
                "queue",
                "limit",
                "queues=7",
                "--why",
                "few",
                "--yes",
                "--actor",
                "ada",
                *where,
            ]
        )
        == 0
    )
    capsys.readouterr()
    assert main(["queue", "limits", "--json", *where]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"what": "kinds", "used": 1, "at_most": 5000},
        {"what": "queues", "used": 1, "at_most": 7},
    ]
    assert database.rows("select actor, action, why, detail from redrive.audit") == [
        ("ada", "limit names", "few", {"what": "queues", "at_most": 7})
    ]
    assert main(["queue", "limit", "lanes=7", "--why", "x", *where]) == 64
    assert (
        "what is 'lanes'; it must be one of: queues, kinds" in capsys.readouterr().err
    )


# Lanes that there are already


def test_a_look_at_lanes_costs_no_more_however_many_there_are(
    database: Database,
) -> None:
    """100,000 took 6.4 s, and each claim asked about all of them."""
    database.rows("alter table redrive.jobs disable trigger jobs_admitted")
    database.rows(FLOOD, "a", 6000)
    database.rows(
        "insert into redrive.names (queue, kind, priority) select queue, kind, 0 from redrive.jobs"
    )
    database.rows("analyze redrive.jobs, redrive.names")
    scans = "select pg_stat_get_xact_numscans('redrive.jobs_due_idx'::regclass)"

    seen, place = list[Lane](), None
    for _ in range(6):
        with database.conn.transaction():
            before = database.value(scans)
            page, place = store.lanes(database.conn, None, place)
            assert database.value(scans) - before < 4100
        seen += [lane for lane, _ in page]

    assert len(set(seen)) == len(seen) == 6000, (
        "each look continues where the last one ended"
    )
    paused = seen[-1].queue
    database.rows("select redrive.pause_v1(%s, 'ada', 'x')", paused)
    page, after = store.lanes(database.conn, None, seen[-3])
    assert [lane for lane, _ in page[:2]] == [seen[-2], seen[0]]
    assert after == seen[997], "paused lanes count, or the walk would end at them"

    own = store.lanes(database.conn, ["q17", "q5999", "none"])[0]
    assert [lane.queue for lane, _ in own] == ["q17", "q5999"]


def test_few_lanes_are_all_seen_at_every_look(database: Database) -> None:
    database.rows(FLOOD, "a", 1000)

    assert len(store.lanes(database.conn, None)[0]) == 1000
    assert len(store.lanes(database.conn, ["q1", "q2"])[0]) == 2
    database.rows("select redrive.pause_v1('q1', 'ada', 'x')")
    assert len(store.lanes(database.conn, ["q1", "q2"])[0]) == 1
