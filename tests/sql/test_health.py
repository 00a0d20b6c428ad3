"""The figures about the server, and about work that somebody has left behind."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from psycopg.sql import SQL, Identifier

from redrive.jobs.standing import blockers
from tests.factories import make_dead_letters
from tests.postgres import Database, Server

FRESH = "select redrive.health_v1(null)"
OLDEST = "select pid, prepared, state from redrive.oldest_transactions_v1(5)"


def test_an_idle_transaction_that_has_written_holds_vacuum_back(
    database: Database,
) -> None:
    """It has no snapshot while it is idle, and so it was not seen."""
    writer = database.session()
    database.transaction("select 1")
    writer.rows("begin")
    writer.rows("select redrive.enqueue('k')")
    pid = writer.value("select pg_backend_pid()")

    assert database.rows(OLDEST) == [(pid, None, "idle in transaction")]
    horizons = database.value("select redrive.health_v1(null) -> 'horizons'")
    assert list(horizons) == ["transaction"]
    assert database.value("select redrive.stats_v1('0') ->> 'oldest_transaction'") > "0"


def test_a_prepared_transaction_holds_vacuum_back(preparing: Database) -> None:
    other = preparing.transaction("set local redrive.notify = off")
    other.rows("select redrive.enqueue('k')")
    other.rows("prepare transaction 'left'")
    found = preparing.rows(OLDEST)
    preparing.rows("rollback prepared 'left'")

    assert found == [(None, "left", "prepared")]


@pytest.mark.parametrize("lock", ["for update", "table"])
def test_a_login_without_rights_names_a_prepared_transaction_that_has_locks(
    preparing: Database, lock: str
) -> None:
    """No session has its locks, so nothing was said of them."""
    holder, worker, login = (preparing.session() for _ in range(3))
    worker.rows("set application_name = 'redrive worker'; set lock_timeout = '9 s'")
    login.rows("set role redrive_worker")
    holder.rows("begin")
    if lock == "table":
        holder.rows("lock redrive.lane_marks in exclusive mode")
    holder.rows("select from redrive.lane_marks where n = 1 for update")
    holder.rows("prepare transaction 'left'")
    with ThreadPoolExecutor() as threads:
        threads.submit(
            worker.rows, "select from redrive.lane_marks where n = 1 for update"
        )
        found = blockers(login.conn)
        preparing.rows("rollback prepared 'left'")

    locked = "table lane_marks" if lock == "table" else "rows"
    assert [blocker.text for blocker in found] == [
        f"a prepared transaction has locked {locked}: see pg_prepared_xacts"
    ]


def test_the_figures_of_the_server_are_there(database: Database) -> None:
    database.rows("select redrive.enqueue('k')")
    found: Any = database.value(FRESH)
    ours = database.value("select current_database()")
    database.rows(
        SQL("alter database {} connection limit 20").format(Identifier(ours))  # type: ignore[arg-type]
    )
    limited = {scope: most for scope, _, most in database.value(FRESH)["connections"]}

    assert found["sees_sessions"] is True
    (server,) = found["connections"]
    assert server[0] == "server"
    assert 0 < server[1] < server[2] < int(database.value("show max_connections"))
    assert limited == {"server": server[2], "database": 20}
    assert {(counter, scope) for counter, scope, _ in found["freeze"]} == {
        (counter, scope)
        for counter in ("transaction", "multixact")
        for scope in ("server", "database")
    }
    thresholds = {name: at for name, _, at, _ in found["tables"]}
    assert (thresholds["jobs"], thresholds["deltas"]) == (5000, 2000)
    assert 0 < found["sequences"]["jobs_id_seq"] < 1e-6
    assert "notified" not in found["sequences"]
    assert found["database_size"] > found["schema_size"] > 0


def test_the_disk_of_dead_letters_and_of_the_history_is_measured_with_its_indexes(
    database: Database,
) -> None:
    empty: Any = database.value(FRESH)["disk"]
    make_dead_letters(database.conn, 500)
    database.rows(
        "insert into redrive.history (drop_on, id, state, queue, kind, attempt, deliveries,"
        " redrives, priority, created_at, run_at, headers, payload)"
        " select current_date, n, 'completed', 'mail', 'k', 1, 1, 0, 0, now(), now(), '{}', '{}'"
        " from generate_series(1, 2000) n"
    )
    for table in ("dead_letters", "failures", "history"):
        database.rows(SQL("analyze redrive.{}").format(Identifier(table)))  # type: ignore[arg-type]
    found: Any = database.value(FRESH)["disk"]

    assert found.keys() == {"dead_letters", "history"}
    assert found["dead_letters"] - empty["dead_letters"] > 500 * 300
    history = database.value(
        "select pg_total_relation_size('redrive.history_default')"
        " - pg_relation_size('redrive.history_default', 'fsm')"
        " - pg_relation_size('redrive.history_default', 'vm')"
    )
    assert 0.9 * history < found["history"] < 1.1 * history + 200_000


def test_the_limit_of_another_database_is_not_ours(
    server: Server, database: Database
) -> None:
    with server.database() as other:
        name = other.value("select current_database()")
        database.rows(
            SQL("alter database {} connection limit 30").format(Identifier(name))  # type: ignore[arg-type]
        )
        found: Any = database.value(FRESH)

    assert [scope for scope, _, _ in found["connections"]] == ["server"]


def test_a_slot_that_nobody_uses_shows_the_wal_that_it_keeps(
    database: Database,
) -> None:
    made = "select pg_create_physical_replication_slot('left_behind', true)"
    database.rows(made)
    try:
        slots = {name: rest for name, *rest in database.value(FRESH)["slots"]}
    finally:
        database.rows("select pg_drop_replication_slot('left_behind')")

    assert slots["left_behind"][0] is False
    assert slots["left_behind"][1] >= 0


def test_figures_are_made_anew_after_15_seconds(database: Database) -> None:
    taken = "select redrive.stats_v1('-1 s') -> 'health' ->> 'taken_at'"
    first = database.value(taken)
    same = database.value(taken)
    aged = "jsonb_set(body, '{health,taken_at}', to_jsonb(%s::float8 - 16))"
    database.rows(f"update redrive.snapshots set body = {aged}", first)

    assert same == first
    assert database.value(taken) > first


def test_a_locked_sequence_hides_health_and_nothing_else(database: Database) -> None:
    database.transaction("alter sequence redrive.batches_id_seq increment 2")
    body = database.value("select redrive.stats_v1('0')")

    assert body["health"] is None
    assert body["workers"] == 0


def test_without_rights_figures_are_left_out_and_the_others_are_shown(
    server: Server,
) -> None:
    """An owner that may see no other session, nor connect."""
    with server.database() as database:
        ours = Identifier(database.value("select current_database()"))
        database.rows(SQL("revoke connect on database {} from public").format(ours))  # type: ignore[arg-type]
        database.rows("begin")
        database.rows("revoke pg_read_all_stats from redrive_owner")
        found = database.value(FRESH)
        database.rows("rollback")

    assert found["sees_sessions"] is False
    assert (found["connections"], found["standbys"]) == ([], [])
    assert found["database_size"] is None
    assert found["freeze"]


def test_campaigns_heals_and_limits_that_wait_are_shown(database: Database) -> None:
    campaign = (
        "insert into redrive.campaigns (actor, why, filter, matched, place, state,"
        " active_at, ended_at, planned_by, planned_login)"
        " select 'ada', 'fix', '{}', matched, 1, state, now() - idle, now() - idle, by,"
        " 'ada' from (values (2, 'paused', interval '2 days', 'ada'),"
        " (1, 'paused', '9 days', 'ada'), (2, 'paused', '1 hour', 'ada'),"
        " (2, 'aborted', '3 hours', 'heal'), (1, 'aborted', '3 days', 'heal'),"
        " (2, 'running', '20 days', 'ada')) c(matched, state, idle, by)"
    )
    database.rows(campaign)
    database.rows(
        "insert into redrive.limits (name, concurrency) values ('customer:*', 1), ('b', 0)"
    )
    database.rows(
        "insert into redrive.limit_waits (job, name, queue, kind, priority, due)"
        " values (1, 'customer:secret', 'q', 'k', 0, now() - interval '2 h'),"
        " (2, 'b', 'q', 'k', 0, now() - interval '1 h'),"
        " (3, 'b', 'q', 'k', 0, now() - interval '1 min')"
    )
    found = database.value(FRESH)

    hours = {state: round(s / 3600) for state, s in found["campaigns"].items()}
    assert hours == {"paused": 48, "aborted": 3}
    assert found["heals_aborted"] == 1
    waits = {name: round(s / 3600) for name, s in found["limits"].items()}
    assert waits == {"customer:*": 2, "b": 1}


def test_a_chore_that_reaches_its_end_says_so(database: Database) -> None:
    """Nobody was told that rows past their retention pile up."""
    done = "select count(*) from redrive.chores where name = 'retention'"
    database.rows(
        "insert into redrive.results (job, deliveries, outcome, keep_until)"
        " select n, 1, 'succeeded', now() - interval '1 day' from generate_series(1, 3) n"
    )
    database.rows("select redrive.forget_v1(2)")
    behind = database.value(done)
    database.rows("select redrive.forget_v1(2)")
    database.rows("select redrive.forget_v1(2)")
    at_the_end = database.value(done)
    shown = {
        name for name, *_ in database.value("select redrive.stats_v1('0')")["chores"]
    }

    assert (behind, at_the_end) == (0, 1)
    assert "retention" in shown


def test_a_day_of_the_history_that_cannot_be_dropped_is_no_success(
    database: Database,
) -> None:
    done = "select count(*) from redrive.chores where name = 'history_days'"
    database.rows("select redrive.set_history_v1('mail', 1, 'ada', 'audit')")
    database.rows("delete from redrive.chores where name = 'history_days'")
    other = database.transaction("select from redrive.history")
    database.rows("select redrive.turn_history_v1(current_date + 40)")
    held_up = database.value(done)
    other.rows("rollback")
    database.rows("select redrive.turn_history_v1(current_date + 40)")

    assert (held_up, database.value(done)) == (0, 1)


def test_a_success_is_written_every_ten_minutes(database: Database) -> None:
    finish = "select redrive.finish_chore_v1('retention', '1 day')"
    ran_at = "select ran_at from redrive.chores where name = 'retention'"
    database.rows(finish)
    first = database.value(ran_at)
    database.rows(finish)
    same = database.value(ran_at)
    database.rows("update redrive.chores set ran_at = ran_at - interval '11 minutes'")
    database.rows(finish)

    assert same == first
    assert database.value(ran_at) > first


def test_sessions_are_counted_by_login_and_application(database: Database) -> None:
    many = [database.session(application_name="greedy") for _ in range(3)]
    found = {
        application: (connections, idle)
        for _, application, connections, idle in database.rows(
            "select * from redrive.sessions_v1(1000)"
        )
    }

    assert len(many) == 3
    assert found["greedy"] == (3, 3)
