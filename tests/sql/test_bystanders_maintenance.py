"""What is past its time goes, and nothing beside it; see bystanders."""

from typing import LiteralString

from tests.factories import make_dead_letter, make_jobs
from tests.postgres import Database
from tests.sql.bystanders import changed, make_past

TIMES: LiteralString = """
    create temp table v as
    select n, now() - age as at, a, b from (values
        (1, interval '99 d', 'x', 1), (2, '98 d', 'y', 2), (3, '0 d', 'y', 3), (4, '0 d', 'z', 2))
        v(n, age, a, b)"""
"""The first is somebody's, the second has had its time, the others are like it in one thing."""

TIMED: list[tuple[LiteralString, LiteralString, dict[LiteralString, LiteralString]]] = [
    (
        "select redrive.forget_batches_v1('1 d', 9)",
        (
            "insert into redrive.batches (id, close_by, over_at) overriding system value"
            " select n, at, at from v; insert into redrive.batch_deltas (batch) select n from v"
        ),
        {"batches": "id", "batch_deltas": "batch"},
    ),
    (
        "select redrive.forget_completions_v1('1 d', 9)",
        "insert into redrive.completions (kind, key, job, at) select a, b, n, at from v",
        {"completions": "job"},
    ),
    (
        "select redrive.forget_effects_v1('1 d', 9)",
        "insert into redrive.effects (key, at) select n, at from v",
        {"effects": "key::int"},
    ),
    (
        "select redrive.forget_envelopes_v1(9)",
        "insert into redrive.envelopes (digest, at) select int4send(n), at from v",
        {"envelopes": "get_byte(digest, 3)"},
    ),
    (
        "select redrive.forget_groups_v1('1 d', 9)",
        (
            "insert into redrive.groups (fingerprint, kind, category, error_class, message, sample,"
            " total, open, first_seen, last_seen)"
            " select n, 'k', 'bug', 'E', 'm', 1, 1, 0, at, at from v"
        ),
        {"groups": "fingerprint::int"},
    ),
    (
        "select redrive.forget_results_v1(9)",
        (
            "insert into redrive.results (job, deliveries, outcome, keep_until)"
            " select n, 1, 'succeeded', at + interval '1 h' from v"
        ),
        {"results": "job"},
    ),
    (
        "select redrive.forget_samples_v1(9)",
        (
            "insert into redrive.reservoir_samples (kind, slot, at, facts)"
            " select a, b, at, jsonb_build_object('n', n) from v;"
            " insert into redrive.reservoirs (kind, taken_at) select n, at from v"
        ),
        {"reservoir_samples": "(facts->>'n')::int", "reservoirs": "kind::int"},
    ),
    (
        "select redrive.interrupt_runs_v1(9)",
        (
            "insert into redrive.runs (id, action, actor, why, active_at)"
            " select n, 'purge', 'ada', 'x', at from v"
        ),
        {"runs": "id::int"},
    ),
]
"""What forgets, a row each of v, and by what they are told apart."""


def test_what_has_had_its_time_goes_alone_and_nobody_is_waited_for(
    database: Database,
) -> None:
    other, hasty = database.session(), database.session(lock_timeout="1ms")
    database.rows(TIMES)
    other.rows("begin")
    for _, fill, keys in TIMED:
        database.rows(fill)
        for table, key in keys.items():
            other.rows(f"select from redrive.{table} where {key} = 1 for update")
    left: dict[str, list[int]] = {}
    for forget, _, keys in TIMED:
        hasty.rows(forget)
        left |= {
            table: database.column(f"select {key} from redrive.{table} order by 1")
            for table, key in keys.items()
        }

    assert left == {table: [1, 3, 4] for _, _, keys in TIMED for table in keys}


def test_a_lane_without_a_job_and_a_name_goes_alone(database: Database) -> None:
    """While a lane of a queue in use was deleted, no job that came to it was claimed."""
    other, hasty = database.session(), database.session(lock_timeout="1ms")
    busy = [("a", 1, 2), ("b", 0, 2), ("b", 1, 0)]
    for queue, priority, lane in busy:
        make_jobs(database.conn, 1, queue=queue, priority=priority, lane=lane)
    database.rows("delete from redrive.lanes")
    database.rows("delete from redrive.names")
    database.rows(
        "insert into redrive.names (queue, kind, priority) values ('d', 'k', 0)"
    )
    gone = [("b", 1, 2), ("d", 1, 0), ("e", 0, 0)]
    for lane in [*busy, *gone, ("c", 0, 0), ("d", 0, 0)]:
        database.rows("insert into redrive.lanes values (%s, %s, %s)", *lane)
    other.rows("begin")
    other.rows("select from redrive.lanes where queue = 'c' for update")

    assert hasty.value("select redrive.forget_lanes_v1(9)") == len(gone)
    left = [*busy, ("c", 0, 0), ("d", 0, 0)]
    assert (
        sorted(database.rows("select queue, priority, lane from redrive.lanes")) == left
    )


WALKS: dict[LiteralString, tuple[LiteralString, LiteralString]] = {
    "failures": (
        "select redrive.forget_failures_v1(9)",
        (
            "insert into redrive.failures (job, deliveries, attempt, error_class, message,"
            " category, fingerprint)"
            " select n, 1, 1, 'E', 'm', 'bug', 'f' from generate_series(1, 4) n"
        ),
    ),
    "imports": (
        "select redrive.forget_imports_v1('1 d', 9)",
        (
            "insert into redrive.imports (source, source_id, job, at)"
            " select 's', n, n, now() - case when n < 5 then interval '9 d' else '0 d' end"
            " from generate_series(1, 5) n"
        ),
    ),
    "side_effects": (
        "select redrive.forget_side_effects_v1(9)",
        (
            "insert into redrive.side_effects (job, deliveries, what)"
            " select n, 1, 'x' from generate_series(1, 4) n"
        ),
    ),
}


def test_a_walk_goes_over_what_is_behind_its_place_and_takes_what_belongs_to_nothing(
    database: Database,
) -> None:
    """Job 3 lives, 4 is dead, and of the others nothing else is left; the import of 5 is new."""
    make_dead_letter(database.conn)
    database.rows("delete from redrive.failures")
    database.rows("update redrive.dead_letters set id = 4")
    database.rows("insert into redrive.jobs (id, kind) values (3, 'k')")
    for table, (forget, fill) in WALKS.items():
        database.rows(fill)
        database.rows(
            "update redrive.chores set place = (name = %s)::int", f"forget_{table}"
        )
        left: LiteralString = f"select job from redrive.{table} order by job"
        for _ in range(2):  # at its end it waits for the others
            database.rows(forget)
            assert (
                database.column(left)
                == [1, 3, 4, 5][: None if table == "imports" else 3]
            )
            assert database.rows(
                "select name, place from redrive.chores where place <> 0"
            ) == [(f"forget_{table}", -1)]


def test_a_campaign_goes_alone_with_what_it_froze(database: Database) -> None:
    """Of the old: 1 is before the place, 2 runs, 3 is a plan, 6 is over, 8 has a dead letter."""
    dead = make_dead_letter(database.conn)
    database.rows(
        "insert into redrive.campaigns (id, actor, filter, matched, state, created_at)"
        " overriding system value select n, 'ada', '{}', 1, state, now() - age from (values"
        " (1, 'done', interval '99 d'), (2, 'running', '98 d'), (3, 'planned', '97 d'),"
        " (4, 'planned', '0 d'), (5, 'planned', '0 d'), (6, 'done', '96 d'), (7, 'done', '0 d'),"
        " (8, 'done', '95 d')) v(n, state, age)"
    )
    database.rows("update redrive.dead_letters set campaign = 8 where id = %s", dead)
    database.rows(
        "insert into redrive.campaign_jobs (campaign, n, id, redrives) select c, n, n, 0"
        " from unnest('{2,3,4,6,99}'::int[]) c,"
        " generate_series(1, case c when 3 then 21 else 1 end) n"
    )
    database.rows("update redrive.chores set place = 1 where name = 'forget_campaigns'")
    forget: LiteralString = "select redrive.forget_campaigns_v1('1 d', %s)"
    jobs: LiteralString = (
        "select campaign, count(*) from redrive.campaign_jobs group by 1 order by 1"
    )
    campaigns: LiteralString = "select id from redrive.campaigns order by id"

    database.rows(forget, 1)
    assert database.column(campaigns) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert database.rows(jobs) == [(2, 1), (3, 1), (4, 1), (6, 1), (99, 1)]
    database.rows(forget, 1)
    assert database.column(campaigns) == [1, 2, 4, 5, 6, 7, 8]
    for _ in range(2):  # at its end it waits for the other walks
        database.rows(forget, 9)
        assert database.column(campaigns) == [1, 2, 4, 5, 7, 8]
        assert database.rows(jobs) == [(2, 1), (4, 1)], "nobody has campaign 99"
        assert database.rows(
            "select name, place from redrive.chores where place <> 0"
        ) == [("forget_campaigns", -1)]


def test_a_name_goes_alone_and_while_nobody_folds(database: Database) -> None:
    database.rows(
        "insert into redrive.tallies (queue, kind, event, reason, n, at)"
        " select queue, kind, event, '', 1, now() - age from (values"
        " ('q', 'old', 'enqueued', interval '9 d'), ('q', 'old', 'completed', '9 d'),"
        " ('q', 'busy', 'enqueued', '9 d'), ('q', 'here', 'enqueued', '0 d'),"
        " ('q', '', 'enqueued', '9 d'), ('r', 'old', 'enqueued', '0 d'),"
        " ('r', 'gone', 'enqueued', '0 d'), ('s', '', 'enqueued', '9 d'))"
        " v(queue, kind, event, age)"
    )
    make_jobs(database.conn, 1, "here", queue="q", priority=4)
    make_jobs(database.conn, 1, "old", queue="r", priority=5)
    database.rows("delete from redrive.names")
    database.rows(
        "insert into redrive.names (queue, kind, priority, at) select queue, kind, priority,"
        " now() - age from (values ('q', 'gone', 0, interval '9 d'), ('q', 'gone', 1, '0 d'),"
        " ('q', 'here', 0, '9 d'), ('q', 'here', 4, '9 d'), ('q', 'here', 5, '9 d'))"
        " v(queue, kind, priority, age)"
    )
    other, hasty = database.session(), database.session(lock_timeout="1ms")
    forget: LiteralString = "select redrive.forget_names_v1('1 d', 9)"
    tallies: LiteralString = (
        "select queue, kind, event, n from redrive.tallies order by queue, kind, event"
    )
    before = database.rows(tallies)
    other.rows("begin")
    other.rows("select from redrive.chores where name = 'fold' for update")
    assert hasty.value(forget) == 0
    assert database.rows(tallies) == before
    other.rows("rollback")

    assert hasty.value(forget) == 2
    assert database.rows(tallies) == [
        *(
            ("q", "", "completed", 1),
            ("q", "", "enqueued", 2),
            ("q", "busy", "enqueued", 1),
        ),
        *(
            ("q", "here", "enqueued", 1),
            ("r", "gone", "enqueued", 1),
            ("r", "old", "enqueued", 1),
        ),
    ]
    assert database.rows("select kind, priority from redrive.names order by 1, 2") == [
        ("gone", 1),
        ("here", 0),
        ("here", 4),
    ]


def test_forgetting_waits_for_nobody_and_begins_anew(database: Database) -> None:
    database.rows("insert into redrive.effects (key, at) values ('k', '2020-01-01')")
    database.rows(
        "insert into redrive.runs (id, action, actor, why, active_at)"
        " values (1, 'purge', 'ada', 'x', '2020-01-01')"
    )
    database.rows("update redrive.chores set place = 7 where name = 'fold'")
    other, hasty = database.session(), database.session(lock_timeout="1ms")
    forget: LiteralString = "select * from redrive.forget_v1(9)"
    left: LiteralString = "select (select count(*) from redrive.effects), (select count(*) from redrive.runs)"
    locks: list[tuple[LiteralString, tuple[int, int]]] = [
        ("select from redrive.chores where name = 'forget' for update", (1, 1)),
        ("select from redrive.audit_chain for update", (0, 1)),
        ("select", (0, 0)),
    ]
    for lock, expected in locks:
        other.rows("begin")
        other.rows(lock)
        hasty.rows(forget)
        assert database.row(left) == expected
        other.rows("rollback")
    assert hasty.row(forget) == (0, False)
    assert database.rows("select name, place from redrive.chores where place <> 0") == [
        ("fold", 7)
    ]


def test_lines_from_before_the_chain_are_forgotten_beside_it(
    database: Database,
) -> None:
    database.rows(
        "insert into redrive.audit (actor, action, why, n, at)"
        " values ('ada', 'note', 'x', 1, '2020-01-01')"
    )
    database.rows("update redrive.audit_chain set id = 9, forgotten_id = 9")

    assert database.value("select redrive.forget_audit_v1('30 days', 9)") == 1
    assert database.value("select forgotten_id from redrive.audit_chain") == 9


# What is sealed anew

NEW = '{"$redrive": {"k": "new"}}'
SEALED: dict[str, tuple[LiteralString, LiteralString, LiteralString]] = {
    "jobs": ("id", "redrives", "payload"),
    "dead_letters": ("id", "redrives", "payload"),
    "failures": ("job", "deliveries", "detail"),
    "side_effects": (
        *("job", "deliveries"),
        "jsonb_build_object('what', what, 'detail', detail)",
    ),
    "checkpoints": ("job", "deliveries", "data"),
    "progress": ("job", "deliveries", "detail"),
    "results": ("job", "deliveries", "result"),
    "history": ("id", "deliveries", "payload"),
    "edits": ("job", "n", "payload"),
}
"""Of each place what a row is told by, and what is read of it."""


def test_what_was_read_is_sealed_anew_alone_and_nobody_is_waited_for(
    database: Database,
) -> None:
    """A row of each place, beside one that is locked, a third job's, and an older of its own."""
    ids = [make_past(database, queue) for queue in ("one", "two", "three")]
    live = make_jobs(database.conn, 3)
    database.rows("update redrive.failures set detail = '{}'")
    database.rows(
        "insert into redrive.results (job, deliveries, outcome, result, keep_until)"
        " select unnest(%s::bigint[]), 2, 'succeeded', '{}', 'infinity'",
        ids,
    )
    database.rows(
        "insert into redrive.history (drop_on, id, state, queue, kind, attempt, deliveries,"
        " redrives, priority, created_at, run_at, headers, payload)"
        " select 'infinity', id, 'completed', 'q', 'k', 1, n, 0, 0, now(), now(), '{}', '{}'"
        " from unnest(%s::bigint[]) id, generate_series(1, 2) n",
        ids,
    )
    other, hasty = database.transaction(), database.session(lock_timeout="1ms")
    seal: LiteralString = "select redrive.reencrypt_v1(null, %s, %s, %s, %s::jsonb[], %s::jsonb[], array[null, null])"
    for place, (key, n, old) in SEALED.items():
        held, one, _ = live if place == "jobs" else ids
        other.rows(f"select from redrive.{place} where {key} = %s for update", held)
        newest: LiteralString = f"select {n}, {old}::text from redrive.{place} where {key} = %s order by 1 desc limit 1"
        number, read = database.row(newest, one)
        given = place, [held, one], [number] * 2, [read] * 2, [NEW] * 2
        rows = changed(database, lambda given=given: hasty.rows(seal, *given))
        assert [(table, row[key], row[n]) for table, row in rows] == [
            (place, one, number)
        ]


HIDE: LiteralString = "select redrive.hide_messages_v1()"


def make_group(database: Database, fingerprint: str, message: str) -> None:
    database.rows(
        "insert into redrive.groups (fingerprint, kind, category, error_class, message, sample,"
        " total, open, first_seen, last_seen)"
        " values (%s, 'k', 'bug', 'E', %s, 1, 1, 0, now(), now())",
        *(fingerprint, message),
    )


def test_messages_are_hidden_alone_and_while_nobody_folds(database: Database) -> None:
    for n, message in (("3", "m"), ("1", "m"), ("2", "[encrypted]")):
        make_group(database, n, message)
        database.rows(
            "insert into redrive.group_deltas (fingerprint, kind, category, error_class, message,"
            " sample, added, opened) values ('d' || %s, 'k', 'bug', 'E', %s, 1, 1, 0)",
            *(n, message),
        )
    hiding = database.session()
    other = database.transaction(
        "select from redrive.chores where name = 'fold' for update"
    )
    hiding.rows("set lock_timeout = '1ms'; begin")
    assert hiding.value(HIDE) == 4
    hiding.rows("rollback; set lock_timeout = 0")
    other.rows("select from redrive.chores where name = 'fold_groups' for update")
    waiting = database.start_blocked(hiding, lambda: hiding.value(HIDE), by=other)
    other.rows("rollback; begin")
    waiting.result(60)
    assert hiding.value(HIDE) == 0
    assert database.column("select n from redrive.audit") == [4]


def test_messages_are_hidden_in_the_order_of_their_groups(database: Database) -> None:
    for n in "21":
        make_group(database, n, "m")
    ways = ("hashjoin", "mergejoin", "material", "indexscan", "bitmapscan")
    other, third = database.session(), database.session()
    hiding = database.session(
        **{f"enable_{way}": "off" for way in ways}
    )  # it finds 2 first
    other.rows("begin")
    other.rows("select from redrive.groups where fingerprint = '1' for update")
    waiting = database.start_blocked(hiding, lambda: hiding.value(HIDE), by=other)
    third.rows("select from redrive.groups where fingerprint = '2' for update nowait")
    other.rows("rollback")

    assert waiting.result(60) == 2


# Of the marks


def test_two_runs_that_end_at_once_leave_a_line_of_the_audit_log(
    database: Database,
) -> None:
    first, second = database.session(), database.session()
    done: LiteralString = "select redrive.done_chore_v1('purge', null)"
    first.rows("begin")
    first.rows(done)
    waiting = database.start_blocked(second, lambda: second.rows(done), by=first)
    first.rows("commit")
    waiting.result(60)

    assert database.value("select count(*) from redrive.audit") == 1


def test_a_chore_is_expected_alone(database: Database) -> None:
    expect: LiteralString = "select redrive.expect_chore_v1(%s, %s::interval)"
    for chore in ("purge", "redrive"):
        database.rows(expect, chore, "1 d")
    database.rows(expect, "purge", None)
    database.rows(expect, "dishes", None)

    expected: LiteralString = "select name from redrive.chores where every is not null"
    assert database.column(expected) == ["redrive"]
    assert (
        database.column("select name from redrive.chores where name = 'dishes'") == []
    )
