"""A figure counts its own rows, and nothing beside them; see bystanders."""

import json
from typing import Any, LiteralString

import psycopg
from psycopg import IsolationLevel

from redrive.worker import store
from redrive.worker.round_trip import START, ClaimRequest, Settlements, exchange
from tests.factories import (
    claim,
    claim_one,
    complete,
    make_dead_letter,
    make_job,
    make_jobs,
    make_schedule,
    make_worker,
)
from tests.postgres import Database, Server

JOBS: LiteralString = (
    "insert into redrive.jobs (kind, queue, priority, lane, run_at, failed_at, fingerprint)"
    " select 'k', queue, priority, lane, now() + later, failed_at, 'f' from (values"
    " ('a', 0, 0, 150, interval '-1 h', null), ('a', 0, 0, 2, '1 h', null),"
    " ('a', 0, 1, 1, '-1 h', null), ('a', 0, 1, 3, '1 h', null), ('a', 1, 0, 1, '-1 h', null),"
    " ('a', 1, 0, 5, '1 h', null), ('b', 0, 0, 1, '-1 h', now()), ('b', 0, 1, 2, '-1 h', null),"
    " ('b', 1, 0, 1, '-1 h', null), ('b', 0, 0, 6, '1 h', null), ('b', 0, 0, 1, '1 h', now()),"
    " ('d', 1, 0, 2, '-1 h', null))"
    " v(queue, priority, lane, n, later, failed_at), generate_series(1, n)"
    " union all select 'k', 'many', 0, n, now(), null, null from generate_series(1, 200) n"
)


def stats(database: Database, max_age: str = "0") -> dict[str, Any]:
    return database.value("select redrive.stats_v1(%s::interval)", max_age)


def test_each_lane_counts_once_for_its_own_queue(database: Database) -> None:
    """Also where not all that is due is looked at: with many lanes a hundred of each."""
    database.rows(JOBS)
    database.rows("select redrive.pause_v1('c', 'ada', 'x')")
    database.rows("select redrive.set_lanes_v1('a', 2, 'ada', 'x')")

    assert database.rows(
        "select queue, ready, scheduled, retrying, paused from redrive.depths_v1()"
        " where queue <> 'many'"
    ) == [
        *(("a", 152, 10, 0, False), ("b", 4, 6, 1, False)),
        *(("c", 0, 0, 0, True), ("d", 2, 0, 0, False)),
    ]


def test_the_oldest_job_is_one_that_waits_in_its_queue(database: Database) -> None:
    """Not one that runs, and not one whose time is still to come."""
    conn = database.conn
    for queue, hours in (("a", 5), ("a", 4), ("a", 1), ("a", -1), ("b", 9), ("c", -1)):
        job = make_job(conn, queue=queue)
        database.rows(
            "update redrive.jobs set run_at = now() - %s * interval '1 h' where id = %s",
            hours,
            job,
        )
    lanes = [lane for lane, _ in store.lanes(conn, ["a"])[0]]
    exchange(
        conn,
        Settlements((), ()),
        ClaimRequest(make_worker(conn), lanes, [START], 1, from_start=True, after=0),
    )

    assert database.rows(
        "select queue, floor(oldest_ready_seconds / 3600)::int from redrive.depths_v1()"
    ) == [("a", 4), ("b", 9), ("c", 0)]


def test_the_oldest_dead_letter_is_an_open_one_of_its_queue(database: Database) -> None:
    for queue, hours, state in (
        ("a", 1, "open"),
        ("a", 5, "dismissed"),
        ("b", 9, "open"),
    ):
        dead = make_dead_letter(database.conn, queue=queue)
        database.rows(
            "update redrive.dead_letters set died_at = now() - %s * interval '1 h', state = %s"
            " where id = %s",
            *(hours, state, dead),
        )

    assert database.rows(
        "select queue, floor(age_seconds / 3600)::int from redrive.oldest_dead_v1() order by 1"
    ) == [("a", 1), ("b", 9)]


def test_the_oldest_retrying_job_is_seen_by_its_first_failure_in_this_life(
    database: Database,
) -> None:
    """Retries of hours are safe only if somebody sees them."""
    redriven = "('a', 1, '8 h'), ('a', 2, '3 h'), ('b', 1, '2 h')"
    database.conn.execute(
        "with lives as (select * from (values " + redriven + ") v(queue, life, ago)),"
        " jobs as (insert into redrive.jobs (id, queue, kind, run_at, failed_at, fingerprint, redrives)"
        "   select case queue when 'a' then 901 else 902 end, queue, 'k', now() + '1 h',"
        "          now(), 'f1', max(life) - 1 from lives group by queue),"
        " failed as (insert into redrive.failures"
        "   (job, deliveries, attempt, at, error_class, message, category, fingerprint)"
        "   select case queue when 'a' then 901 else 902 end, life + n, 1,"
        "          now() - ago::interval + n * interval '5 min', 'E', '', 'transient', ''"
        "   from lives, unnest('{0,10}'::int[]) n where (life, n) <> (1, 10) or queue = 'b')"
        " insert into redrive.deltas (queue, kind, event, n)"
        " select queue, 'k', 'retried', 1 from lives"
    )
    make_dead_letter(database.conn, queue="a")
    database.rows("update redrive.dead_letters set id = 901, deliveries = 1")
    others = (("c", "1 h", None), ("d", "-1 h", "now"), ("e", "1 h", "now"))
    for queue, due, failed_at in others:  # scheduled, due, parked
        (job,) = database.row(
            "insert into redrive.jobs (queue, kind, run_at, failed_at, fingerprint)"
            " values (%s, 'k', now() + %s::interval, %s, '') returning id",
            *(queue, due, failed_at),
        )
        database.rows(
            "insert into redrive.failures"
            " (job, deliveries, attempt, error_class, message, category, fingerprint)"
            " values (%s, 1, 1, 'E', '', 'transient', '')",
            job,
        )
        database.rows(
            "insert into redrive.deltas (queue, kind, event, n) values (%s, 'k', 'retried', 1)",
            queue,
        )
    database.rows("update redrive.jobs set run_at = 'infinity' where queue = 'e'")

    assert database.rows(
        "select queue, floor(age_seconds / 3600)::int"
        " from redrive.oldest_retrying_v1() order by 1"
    ) == [("a", 3), ("b", 2)]


def test_samples_of_an_hour_are_kept(database: Database) -> None:
    database.rows(
        "insert into redrive.samples select now() - n * interval '1 min', 'q', n"
        " from unnest('{30,90}'::int[]) n"
    )
    database.rows("select redrive.sample_v1()")

    assert sorted(database.column("select dead from redrive.samples")) == [0, 30]


def test_an_objective_is_set_alone(database: Database) -> None:
    kept = [("a", "dlq_added_5m", 1.0), ("b", "dead_ratio", 1.0)]
    for queue, objective, _ in [*kept, ("a", "dead_ratio", 1.0)]:
        database.rows(
            "select redrive.set_objective_v1(%s, %s, 1, 'ada', 'x')", queue, objective
        )
    for value, left in ((2, [("a", "dead_ratio", 2.0), *kept]), (None, kept)):
        database.rows(
            "select redrive.set_objective_v1('a', 'dead_ratio', %s, 'ada', 'x')", value
        )
        own: LiteralString = (
            "select * from redrive.objectives where queue <> '*' order by 1, 2"
        )
        assert database.rows(own) == left


def test_a_fold_goes_on_at_its_own_place_and_one_folds_at_a_time(
    database: Database,
) -> None:
    database.rows(
        "insert into redrive.deltas (queue, kind, event, n)"
        " select 'q', 'k', 'enqueued', 1 from generate_series(1, 300)"
    )
    database.rows(
        "update redrive.chores set place = case name when 'fold' then 1 else 7 end"
    )
    before = database.value("select count(*) from redrive.deltas where ctid < '(1,0)'")
    hasty = database.session(lock_timeout="1ms")
    other = database.transaction(
        "select from redrive.chores where name = 'fold' for update"
    )
    fold: LiteralString = "select moved, more from redrive.fold_v1()"
    assert hasty.row(fold) == (0, False)
    other.rows("rollback")
    hasty.rows(fold)

    assert database.value("select count(*) from redrive.deltas") == before
    assert database.rows("select name from redrive.chores where place <> 7") == [
        ("fold",)
    ]


def test_neither_what_runs_nor_what_has_ended_waits_for_a_handler(
    database: Database,
) -> None:
    """Counted by arithmetic behind a long backlog, and one by one in other queues."""
    conn, lost = database.conn, make_worker(database.conn)
    store.register(conn, store.Registration("w", "test", 30.0, ["mail"], None))
    make_jobs(conn, 2, "report")
    ended, _ = claim(conn, lost)
    complete(conn, lost, ended)
    database.rows("update redrive.workers set lost_at = now() where id = %s", lost)
    unhandled: LiteralString = "select queue, jobs from redrive.unhandled_v1()"
    assert database.rows(unhandled) == []
    make_jobs(conn, 1500, "mail")
    make_jobs(conn, 2, "report")
    for queue in ("other", "third"):
        make_jobs(conn, 1, "report", queue=queue)
    make_job(conn, "report", queue="other", delay=3600)

    assert database.rows(unhandled) == [("default", 2), ("other", 1), ("third", 1)]


# What is exported


def test_names_are_those_of_kinds_and_queues(database: Database) -> None:
    """Neither what is left of forgotten kinds nor the objectives of all others are one."""
    database.rows(
        "insert into redrive.tallies (queue, kind, event, reason, n) select q, k, 'enqueued', '', 9"
        " from unnest('{a,b,c}'::text[]) q, unnest(array['', 'k']) k"
    )
    database.rows("select redrive.set_objective_v1('*', 'dead_ratio', 1, 'ada', 'x')")
    before: dict[str, Any] = {
        "queues": ["a"],
        "folded": True,
        "bases": [["b", "k", "enqueued", "", 7]],
    }
    shown: LiteralString = "select redrive.shown_v1(%s::jsonb)"
    found = database.value(shown, json.dumps(before))

    assert (found["kinds"], found["queues"]) == (["k"], ["a", "b", "c"])
    assert sorted(found["bases"]) == [
        *(["b", "", "enqueued", "", 9], ["b", "k", "enqueued", "", 7]),
        *(["c", "", "enqueued", "", 9], ["c", "k", "enqueued", "", 9]),
    ]
    found = database.value(shown, json.dumps(before | {"folded": False}))
    assert found["bases"] == before["bases"]


def test_each_figure_counts_what_it_is_of(database: Database) -> None:
    conn = database.conn
    database.rows(
        "insert into redrive.campaigns (actor, filter, matched, planned_login, state, active_at)"
        " select 'ada', '{}', n, login, state, now() - age from (values"
        " (1, 'ada', 'paused', interval '0 d'), (2, null, 'running', '0 d'),"
        " (3, 'ada', 'done', '0 d'), (4, 'ada', 'paused', '40 d')) v(n, login, state, age)"
    )
    database.rows("select redrive.expect_chore_v1('purge', '1 d')")
    database.rows("update redrive.chores set ran_at = now() where name = 'fold'")
    make_schedule(conn, "late")
    database.rows(
        "update redrive.schedules set next_at = now() - interval '1 h', paused_at = now()"
    )
    database.rows("delete from redrive.schedule_declarers; delete from redrive.workers")
    workers = [make_worker(conn, name) for name in ("busy", "lost", "silent", "gone")]
    for worker in workers[:3]:
        make_job(conn)
        claim_one(conn, worker)
    database.rows(
        "update redrive.workers set lost_at = now() where id = %s", workers[1]
    )
    database.rows(
        "update redrive.workers set seen_at = now() - interval '3 min' where id = any (%s)",
        workers[2:],
    )
    database.rows("create table public.jobs ()")
    found = stats(database)

    assert found["campaigns"] == [["paused", 1, 0, 0]]
    assert sorted(name for name, *_ in found["chores"]) == ["fold", "purge"]
    assert list(found["expected"]) == ["purge"]
    assert (found["workers"], found["workers_lost"]) == (1, 2)
    assert sorted(name for name, *_ in found["tables"]) == [
        *("completions", "dead_letters", "deltas", "failures", "jobs")
    ]


def test_a_schedule_is_overdue_neither_before_its_time_nor_while_it_is_paused(
    database: Database,
) -> None:
    make_schedule(database.conn, "late")
    database.rows("update redrive.schedules set next_at = now() + interval '1 h'")
    assert stats(database)["schedule_overdue"] == 0
    database.rows("update redrive.schedules set next_at = now() - interval '1 h'")
    assert stats(database)["schedule_overdue"] >= 3600
    database.rows("update redrive.schedules set paused_at = now()")

    assert stats(database)["schedule_overdue"] == 0


def test_a_transaction_is_old_that_keeps_vacuum_from_here(
    database: Database, server: Server
) -> None:
    """Not the session that asks, nor one without a snapshot, nor one of another database."""
    holding = database.session()
    database.transaction("select 1")
    with psycopg.connect(server.url) as elsewhere, database.conn.transaction():
        elsewhere.isolation_level = IsolationLevel.REPEATABLE_READ
        elsewhere.execute("select 1")
        assert stats(database)["oldest_transaction"] == 0
    holding.rows("begin isolation level repeatable read")
    holding.rows("select 1")

    assert stats(database)["oldest_transaction"] > 0


def test_whoever_has_fresh_figures_makes_no_others_and_nobody_waits(
    database: Database,
) -> None:
    taken = stats(database)["taken_at"]
    assert stats(database, "1 h")["taken_at"] == taken
    database.rows("update redrive.snapshots set taken_at = clock_timestamp()")
    hasty = database.session(lock_timeout="1ms")
    other = database.transaction("select from redrive.snapshots for update")
    anew: LiteralString = "select redrive.stats_v1('-1 s')"

    assert hasty.value(anew)["taken_at"] == taken
    other.rows("rollback")
    assert hasty.value(anew)["taken_at"] > taken
    assert database.value("select taken_at < now() from redrive.snapshots")


def test_figures_of_a_clock_that_was_ahead_are_made_anew(database: Database) -> None:
    """They were served until the clock came to where it had been, and no alert saw anything."""
    taken = stats(database)["taken_at"]
    database.rows("update redrive.snapshots set taken_at = now() + interval '1 day'")

    assert stats(database, "1 h")["taken_at"] > taken
    assert database.value("select taken_at < now() from redrive.snapshots")


def test_a_minute_that_is_still_to_come_is_forgotten(database: Database) -> None:
    """The last two minutes on record were of a clock that was two minutes ahead."""
    ahead = "now() + interval '1 day', '', 0"
    database.rows(f"insert into redrive.samples (minute, queue, dead) select {ahead}")  # type: ignore[arg-type] # ours
    database.rows("select redrive.sample_v1()")

    assert (
        database.value("select count(*) from redrive.samples where minute > now()") == 0
    )
