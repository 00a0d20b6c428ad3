"""What is done for one limit is done for no other: see bystanders."""

from typing import Any

from redrive.worker import store
from tests.factories import claim, complete, make_jobs, make_limited_worker, make_worker
from tests.postgres import Database, Session
from tests.sql.bystanders import touched

SET = "select redrive.set_limit_v1(%s, %s, %s, 'ada', 'x')"
WAKE = "select redrive.wake_v1(%s, %s, %s)"
PARK = "select redrive.park_v1(%s, %s)"
TEND = "select redrive.tend_limits_v1(%s)"
TAKE = "select redrive.take_slots_v1(%s)"
HOUR = 1 / 3600
"""A rate: one in an hour."""


def waiting(database: Database, name: str, **options: Any) -> int:
    """A job that waits behind a name, which has a key. Returns its id."""
    (job_id,) = make_jobs(database.conn, 1, **options)
    database.rows(PARK, [job_id], [name])
    database.rows(
        "insert into redrive.limit_keys values (%s) on conflict do nothing", name
    )
    return job_id


def holding(database: Database, table: str, **which: Any) -> None:
    """Let somebody else lock a row until the end of the test."""
    other, ((column, value),) = database.transaction(), which.items()
    assert other.rows(
        f"select from redrive.{table} where {column} = %s for update", value
    )  # type: ignore[arg-type]


def hasty(database: Database) -> Session:
    """One that waits for nobody."""
    return database.session(lock_timeout="1ms")


def ids_of(rows: set[tuple[Any, ...]], table: str) -> set[Any]:
    """Which of a table were touched."""
    return {key for name, key, _ in rows if name == table}


def parked(database: Database) -> list[int]:
    return database.column("select job from redrive.limit_waits order by job")


def test_a_worker_declares_the_limits_of_its_own_kinds_and_writes_only_what_is_new(
    database: Database,
) -> None:
    database.rows(
        "insert into redrive.kind_limits select k, array[k] from unnest('{a,b,c,d,e}'::text[]) k"
    )
    rows = "select kind, templates[1], xmin::text from redrive.kind_limits order by 1"
    before = database.rows(rows)
    said = '{"a": ["a"], "b": ["new"], "d": ["new"]}'
    database.rows("select redrive.declare_limits_v1('{a,b,c}', %s)", said)
    after = database.rows(rows)

    assert [row[:2] for row in after] == [
        ("a", "a"),
        ("b", "new"),
        ("d", "d"),
        ("e", "e"),
    ]
    assert set(before) - set(after) == {before[1], before[2]}


def test_to_park_a_job_waits_for_nobody_who_has_its_line(database: Database) -> None:
    """The place of the line is later than the job, and would be moved back."""
    (job_id,) = make_jobs(database.conn, 1, kind="a.b")
    database.rows(
        "insert into redrive.limit_lines (name, queue, kind, priority, due)"
        " select 'emails', queue, kind, priority, 'infinity' from redrive.jobs"
    )
    holding(database, "limit_lines", name="emails")

    hasty(database).rows(PARK, [job_id], ["emails"])

    assert parked(database) == [job_id]


def test_jobs_get_the_names_of_their_own_kind(database: Database) -> None:
    """Not what has some, as of a campaign; and one of a kind without any is not even locked."""
    make_limited_worker(database.conn, "emails", kind="a.b")
    make_limited_worker(database.conn, "others", kind="a.bc.d")
    one, named, other, free = (
        make_jobs(database.conn, 1, kind=kind)[0]
        for kind in ("a.b", "a.b", "a.b", "a.bc")
    )
    database.rows(
        "update redrive.jobs set limits = case id when %s then '{c}'::text[] end", named
    )
    holding(database, "jobs", id=free)
    hasty(database).rows("select redrive.resolve_limits_v1(%s)", [one, named, free])

    assert dict(database.rows("select id, limits[1] from redrive.jobs")) == {
        one: "emails",
        named: "c",
        other: None,
        free: None,
    }


def test_a_name_has_its_own_limit_or_that_of_its_like(database: Database) -> None:
    database.rows(
        "insert into redrive.limits values ('a', 1), ('c:*', 2), ('c:2', 3), ('e', 4)"
    )
    query = (
        "select name, slots from unnest(%s::text[]) name, redrive.limit_room_v1(name)"
    )
    slots = {"a": 1, "c:1": 2, "c:2": 3, "c": None, "cc:1": None, "d": None}

    assert dict(database.rows(query, list(slots))) == slots


def test_the_room_under_a_limit_is_what_its_own_jobs_leave(database: Database) -> None:
    for name in ("a", "b"):
        database.rows(SET, name, 3, None)
    database.rows("insert into redrive.limit_slots values ('a', 1), ('b', 2), ('b', 3)")

    assert database.row("select slots, room from redrive.limit_room_v1('a')") == (2, 2)


def test_only_these_jobs_are_parked(database: Database) -> None:
    """Not one that is parked already, which somebody may have; and no name gets a key by it."""
    one, before, key, other = make_jobs(database.conn, 4)
    database.rows(PARK, [before], ["a"])
    database.rows("update redrive.jobs set run_at = 'infinity' where id = %s", key)
    database.rows(
        "insert into redrive.running_keys select 'q', id::text, id from unnest(%s::bigint[]) id",
        [one, other],
    )
    holding(database, "jobs", id=key)
    holding(database, "jobs", id=before)
    rows = touched(
        database,
        lambda: hasty(database).rows(PARK, [one, before, key], ["b", "b", "b"]),
    )

    assert rows == {("jobs", one, 0), ("running_keys", one, None)}
    assert database.rows("select job, name from redrive.limit_waits order by job") == [
        (one, "b"),
        (before, "a"),
    ]
    assert database.column("select name from redrive.limit_keys") == []


def test_of_what_is_enqueued_that_waits_at_once_which_is_due_and_finds_no_room(
    database: Database,
) -> None:
    """What others have done before, a job that is due later, and one that others wait before."""
    database.rows("insert into redrive.limits values ('a', 1), ('b', 1)")
    waiting(database, "lifted")
    waiting(database, "b")
    earlier, later, one, two, free, behind = make_jobs(database.conn, 6)
    database.rows(
        "update redrive.jobs set limits = array[case id when %s then 'lifted' when %s then 'b'"
        " else 'a' end], run_at = case id when %s then now() + '1 h' else run_at end"
        " where isfinite(run_at)",
        free,
        behind,
        later,
    )
    query = "select redrive.park_limited_v1(%s)"
    rows = touched(
        database, lambda: database.rows(query, [later, one, two, free, behind])
    )

    assert ids_of(rows, "jobs") == {two, behind}
    assert earlier


def test_a_limit_is_set_and_removed_alone(database: Database) -> None:
    """What runs under it counts, and what waits behind it is woken; nothing of what is like it."""
    conn, worker = database.conn, make_limited_worker(database.conn)
    names = ["emails", "emailx", "c:1", "cc:1", "c"]
    running = make_jobs(conn, len(names))
    for name, job in zip(names, running, strict=True):
        database.rows(
            "update redrive.jobs set limits = array[%s] where id = %s", name, job
        )
    claim(conn, worker)
    waits = {name: waiting(database, name) for name in names}
    database.rows(
        "insert into redrive.limit_paces select name, 1, now(), now() + case"
        " when name <> 'emails' then '1 h' else -'1 h'::interval end from redrive.limit_keys"
    )
    slots = "select name, job from redrive.limit_slots"
    database.rows("insert into redrive.limits values ('emailx', 9)")

    rows = touched(database, lambda: database.rows(SET, "emails", 9, None))
    assert rows == {
        ("jobs", waits["emails"], 0),
        ("limit_waits", waits["emails"], None),
    }
    assert database.rows(slots) == [("emails", running[0])]
    rows = touched(database, lambda: database.rows(SET, "c:*", 9, None))
    assert ids_of(rows, "jobs") == {waits["c:1"]}
    assert ids_of(rows, "limit_paces") == {"c:1"}
    assert set(database.rows(slots)) == {("emails", running[0]), ("c:1", running[2])}
    rows = touched(database, lambda: database.rows(SET, "emails", None, None))
    assert rows == {("limits", "emails", None)}
    assert database.value(SET, "emails", None, None) is False, "there are others"


def test_the_slots_of_these_jobs_are_freed(database: Database) -> None:
    """Whoever waits for a rate, or behind a name without a limit, has no need of a slot."""
    make_worker(database.conn, ttl=9)
    database.rows("insert into redrive.limits values ('a', 1, null), ('b', null, 1)")
    database.rows(
        "insert into redrive.limit_slots values ('a', 1), ('b', 1), ('c', 1), ('a', 2)"
    )
    one, *_ = [waiting(database, name) for name in "aabbcc"]
    database.rows("update redrive.limits set concurrency = 2 where name = 'a'")
    rows = touched(
        database, lambda: database.rows("select redrive.free_slots_v1('{1}')")
    )

    assert rows == {
        ("limit_slots", 1, None),
        ("jobs", one, 0),
        ("limit_waits", one, None),
    }
    assert database.rows("select name, job from redrive.limit_slots") == [("a", 2)]


def test_a_place_in_line_is_among_those_of_the_same_name_queue_and_kind(
    database: Database,
) -> None:
    """All queues and kinds of a name are one line each, and their places add up."""
    database.rows(SET, "a", 1, None)
    database.rows("insert into redrive.limit_slots values ('a', 1), ('b', 2)")
    for name in "ba":
        for queue in "pqr":
            for kind in ("x", "y"):
                waiting(database, name, queue=queue, kind=kind)
    last = waiting(database, "a", queue="q", kind="x")
    line = "select job, name, used, place from redrive.limit_line_v1(%s)"

    assert database.rows(line, [last]) == [(last, "a", 1, 7)]


# Of a claim that takes slots


def make_named(database: Database, *names: list[str]) -> list[int]:
    """Jobs with these limits each. Returns their ids."""
    ids = make_jobs(database.conn, len(names))
    for job, of_it in zip(ids, names, strict=True):
        database.rows("update redrive.jobs set limits = %s where id = %s", of_it, job)
    return ids


def test_slots_are_taken_under_names_that_are_limited_and_no_key_but_theirs_is_locked(
    database: Database,
) -> None:
    database.rows(
        "insert into redrive.limits values ('a', 2, null), ('r', null, %s), ('z', 9, null)",
        HOUR,
    )
    waiters = [waiting(database, name) for name in "az"]
    waiting(database, "r")
    waiting(database, "free")
    holding(database, "limit_keys", name="z")
    make_worker(database.conn, ttl=9)
    ids = make_named(database, ["a", "free", "r"], ["r"], ["a", "z"], ["free"])
    take = [ids[0], ids[1], ids[3]]
    took: list[int] = []
    rows = touched(database, lambda: took.extend(hasty(database).value(TAKE, take)))

    assert took == [ids[0], ids[3]]
    assert database.rows("select name, job from redrive.limit_slots order by 1") == [
        ("a", ids[0]),
        ("r", ids[0]),
    ]
    assert ids_of(rows, "limit_paces") == set(), "it had none"
    assert database.rows(
        "select name, next_at < now() + '2 h' from redrive.limit_paces"
    ) == [("r", True)], "of one, not of two"
    assert not ids_of(rows, "limit_waits") & set(waiters)


def test_whoever_takes_slots_waits_for_the_key(database: Database) -> None:
    """Of two at once, the second sees what the first took; and a key that is gone comes again."""
    database.let_wait("lock_limits_v1")
    database.rows("insert into redrive.limits values ('a', 1), ('b', 1)")
    database.rows("insert into redrive.limit_keys values ('a'), ('b')")
    one, two, three = make_named(database, ["a"], ["a"], ["b"])
    first, second = database.transaction(), database.session()
    assert first.value(TAKE, [one]) == [one]
    first.rows("delete from redrive.limit_keys where name = 'b'")
    waits = database.start_blocked(
        second, lambda: second.value(TAKE, [two, three]), by=first
    )
    first.rows("commit")

    assert waits.result(60) == [three]
    assert database.column("select name from redrive.limit_keys order by 1") == [
        "a",
        "b",
    ]


def test_a_job_takes_room_under_each_of_its_names_once(database: Database) -> None:
    """And one that waits under one name takes none under another."""
    database.rows("insert into redrive.limits values ('a', 1), ('b', 2), ('c', 9)")
    ids = make_named(
        database, ["a", "b"], ["a", "b", "c"], ["b", "c"], ["b", "c"], ["c"], ["c"]
    )

    assert database.value(TAKE, ids) == [ids[0], ids[2], *ids[4:]]
    assert database.rows("select job, name from redrive.limit_waits order by 1") == [
        (ids[1], "a"),
        (ids[3], "b"),
    ]


# Of waking


def test_who_is_told_of_what_was_woken_was_not_told_long_ago(
    database: Database,
) -> None:
    listening = database.session()
    listening.rows("listen redrive")
    database.rows("select setval('redrive.notified', 65535)")
    database.rows("select redrive.tell_v1(1)")

    assert list(listening.conn.notifies(timeout=60, stop_after=1))


def test_those_are_woken_first_whom_somebody_would_run(database: Database) -> None:
    """Not of a paused queue, nor what only a lost worker, or one of other queues or kinds would."""
    conn, listening = database.conn, database.session()
    workers = [
        store.register(conn, store.Registration("w", "1", 30.0, kinds, queues))
        for kinds, queues in ((["k"], ["p", "q"]), (["k"], ["lost"]))
    ]
    database.rows(
        "update redrive.workers set lost_at = now() where id = %s", workers[1]
    )
    one, other, named = (
        waiting(database, n, queue="q", kind="k") for n in ("a", "a", "b")
    )
    queues = [
        waiting(database, "a", queue=q, kind="k")
        for q in ("aa", "lost", "none", "p", "z")
    ]
    kinds = [waiting(database, "a", queue="q", kind=kind) for kind in ("j", "l")]
    database.rows("select redrive.set_lanes_v1('q', 2, 'ada', 'x')")
    database.rows("select redrive.pause_v1('p', 'ada', 'x')")
    listening.rows("listen redrive")
    took = {
        ids: touched(
            database, lambda n=n, served=served: database.rows(WAKE, "a", n, served)
        )
        for ids, n, served in (
            ((one,), 1, True),
            ((other,), 9, True),
            ((*queues, *kinds), 9, False),
        )
    }

    for ids, rows in took.items():
        assert rows == {
            (t, job, n) for job in ids for t, n in (("jobs", 0), ("limit_waits", None))
        }
    assert parked(database) == [named]
    assert list(listening.conn.notifies(timeout=60, stop_after=1))


def test_what_somebody_has_keeps_its_place_and_what_has_a_time_of_its_own_keeps_that(
    database: Database,
) -> None:
    held, locked, timed, one, other, stale = (
        waiting(database, name) for name in "aaaabb"
    )
    later = "update redrive.jobs set run_at = now() + '1 h' where id = any (%s)"
    database.rows(later, [timed, stale])
    holding(database, "limit_waits", job=held)
    holding(database, "jobs", id=locked)
    rows = touched(database, lambda: hasty(database).rows(WAKE, "a", 3, False))

    assert rows == {
        ("jobs", one, 0),
        ("limit_waits", one, None),
        ("limit_waits", timed, None),
    }
    assert parked(database) == [held, locked, other, stale]


def test_whoever_has_the_key_of_a_rate_wakes_for_all(database: Database) -> None:
    """One after the other as that key says; and a job that wakes nobody keeps it from nobody."""
    for name in "abc":
        database.rows("insert into redrive.limits values (%s, null, %s)", name, HOUR)
    one, two, three, *_ = (waiting(database, name) for name in "bbbac")
    database.rows(
        "insert into redrive.limit_paces select name, 1, at, at from redrive.limit_keys,"
        " lateral (select now() + case when name = 'b' then '-3 h' else '3 min' end::interval"
        " as at) t"
    )
    other, quick = database.session(), hasty(database)
    asking = database.transaction("insert into redrive.limits values ('idle', null, 1)")
    asking.rows("insert into redrive.limit_keys values ('idle')")
    asking.rows("commit")
    asking.rows("begin")
    assert [
        asking.value(WAKE, *given) for given in (("idle", 1, False), ("b", 0, False))
    ] == [0, 0]
    quick.rows("select from redrive.limit_keys where name in ('idle', 'b') for update")
    other.rows("begin")
    other.rows("select from redrive.limit_keys where name = 'b' for update")
    assert touched(database, lambda: quick.rows(WAKE, "b", 9, False)) == set()
    other.rows("commit")
    asking.rows("commit")

    rows = touched(database, lambda: database.rows(WAKE, "b", 9, False))
    assert rows == {
        ("jobs", one, 0),
        ("limit_waits", one, None),
        ("limit_paces", "b", None),
    }
    assert [database.value(WAKE, "b", 9, False) for _ in range(2)] == [1, 0]
    assert database.value(
        "select run_at > now() + '50 min' from redrive.jobs where id = %s", two
    )
    assert parked(database)[0] == three


# Of the chore


def test_the_chore_looks_at_one_name_after_the_other_from_its_own_place(
    database: Database,
) -> None:
    """Where others have their limits; and it wakes only behind the name that it looks at."""
    jobs = {name: waiting(database, name) for name in "abcd"}
    database.rows("update redrive.chores set last_key = '{zz}'")
    database.rows("update redrive.chores set last_key = null where name = 'limits'")
    seen = []
    for _ in range(3):
        rows = touched(database, lambda: database.rows(TEND, 2))
        assert ids_of(rows, "chores") == {"limits"}
        seen.append(ids_of(rows, "jobs"))

    assert seen == [{jobs["a"], jobs["b"]}, {jobs["c"], jobs["d"]}, set()]
    holding(database, "chores", name="limits")
    assert hasty(database).value(TEND, 0) == 0, "what is so already is not written"


def test_a_name_that_nobody_uses_is_forgotten_alone(database: Database) -> None:
    """Not one that is limited, or has a slot, or one whose time has not come, or that one has."""
    names = ["idle", "idle2", "limited", "used", "next", "placed", "locked", "waited"]
    database.rows("insert into redrive.limit_keys select unnest(%s::text[])", names)
    database.rows(
        "insert into redrive.limit_paces values ('next', 1, now() + '1 h', '-infinity'),"
        " ('placed', 1, '-infinity', now() + '1 h'), ('idle', 1, '-infinity', '-infinity')"
    )
    database.rows("insert into redrive.limits values ('limited', 0)")
    waiting(database, "waited")
    database.rows("insert into redrive.limits values ('waited', 0)")
    worker = make_limited_worker(database.conn)
    (job,) = make_named(database, ["used"])
    (claimed,) = claim(database.conn, worker)
    database.rows(
        "insert into redrive.limit_slots values ('used', %s), ('limited', 0)", job
    )
    holding(database, "limit_keys", name="locked")
    rows = touched(database, lambda: hasty(database).rows(TEND, 99))

    assert ids_of(rows, "limit_keys") == {"idle", "idle2"}
    assert ids_of(rows, "limit_paces") == {"idle"}
    assert ids_of(rows, "limit_slots") == {0}
    assert complete(database.conn, worker, claimed)
