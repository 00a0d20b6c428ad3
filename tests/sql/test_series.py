"""Series: what is counted already, by minute and hour; each count in one minute."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, time, timedelta
from typing import Any, LiteralString

import psycopg
import pytest

from redrive.observability import series
from redrive.observability.series import (
    Point,
    each_point,
    filled,
    gaps,
    now_of,
    read_queues,
    read_series,
    shortest,
)
from redrive.rules.times import HOUR, MINUTE, Period, period
from redrive.worker import store
from redrive.worker.store import Measured
from tests.factories import (
    SERIES_SUMS,
    claim_one,
    complete_next,
    failure,
    make_dead_letter,
    make_job,
    make_jobs,
    make_worker,
    redrive,
    settle_next,
)
from tests.postgres import Connection, Database

PASS: tuple[LiteralString, ...] = (
    # in two steps, so that no row takes the place of one that is moved after it
    "update redrive.series set at = at - %(time)s - %(far)s where span = 1 or %(n)s = 60",
    "update redrive.series set at = at + %(far)s where span = 1 or %(n)s = 60",
    (
        "update redrive.queue_series set at = at - %(time)s - %(far)s"
        " where span = 1 or %(n)s = 60"
    ),
    "update redrive.queue_series set at = at + %(far)s where span = 1 or %(n)s = 60",
    "update redrive.chores set place = place - %(n)s where name = 'series'",
)
FAR = timedelta(days=1000)


def record(conn: Connection) -> bool:
    """Record the minute that has just ended."""
    store.fold(conn)
    return store.fold_series(conn)


def let_pass(conn: Connection, minutes: int = 1) -> None:
    """Let this many minutes pass since the last record."""
    for statement in PASS:
        conn.execute(statement, {"n": minutes, "time": minutes * MINUTE, "far": FAR})


def last(conn: Connection, hours: float = 2, step: timedelta = MINUTE) -> Period:
    now = now_of(conn)
    return period(now - timedelta(hours=hours), now, now, 10_000, step)


def counts(points: list[Point]) -> list[tuple[Any, ...]]:
    return [point[3:9] for point in points]


def test_a_minute_holds_what_was_counted_since_the_one_before(
    database: Database,
) -> None:
    worker = make_worker(database.conn)
    for _ in range(3):
        make_job(database.conn, queue="mail")
    assert record(database.conn)
    let_pass(database.conn)
    complete_next(database.conn, worker)
    assert record(database.conn)

    points = read_series(
        database.conn, last(database.conn), by_queue=True, by_kind=True
    )
    assert counts(points) == [(3, 0, 0, 0, 0, 0), (0, 1, 0, 0, 0, 0)]
    assert {(p.queue, p.kind) for p in points} == {("mail", "invoice.charge")}


def test_every_ending_is_counted_in_its_place(database: Database) -> None:
    conn, worker = database.conn, make_worker(database.conn)
    make_dead_letter(conn)
    make_job(conn)
    settle_next(conn, worker, "retry", failure=failure())
    letter = make_dead_letter(conn)
    redrive(conn, [letter])
    record(conn)

    (point,) = read_series(conn, last(conn))
    assert (point.queue, point.kind) == (None, None)
    assert counts([point]) == [(3, 0, 3, 1, 2, 1)]


def test_nothing_is_counted_twice_nor_lost_when_two_record_at_once(
    database: Database,
) -> None:
    make_jobs(database.conn, 100)
    store.fold(database.conn)
    sessions = [database.session() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(store.fold_series, [one.conn for one in sessions]))

    assert any(done)
    points = read_series(database.conn, last(database.conn))
    assert [point.enqueued for point in points] == [100]


def test_a_minute_is_recorded_once(database: Database) -> None:
    """It is the minute that has just ended, so the second call may be in the next one."""
    began = now_of(database.conn)
    done = [record(database.conn) for _ in range(3)]
    turns = 1 + (now_of(database.conn) - began) // MINUTE

    assert done[0]
    assert sum(done) <= 1 + turns


def test_a_transaction_that_rolls_back_leaves_the_minute_to_the_next(
    database: Database,
) -> None:
    make_job(database.conn)
    store.fold(database.conn)
    other = database.transaction()
    assert store.fold_series(other.conn)
    assert not store.fold_series(database.conn), "it waits for nobody"
    other.rows("rollback")

    assert store.fold_series(database.conn)
    assert counts(read_series(database.conn, last(database.conn)))[0][0] == 1


def test_the_counts_of_a_pause_are_in_the_minute_after_it(database: Database) -> None:
    """So they are not lost, and the reader is told how many minutes they cover."""
    conn = database.conn
    record(conn)
    let_pass(conn, 90)
    make_jobs(conn, 7)
    record(conn)

    day = last(conn, hours=4)
    points = read_queues(conn, day)
    assert [point.minutes for point in points] in ([1, 90], [1, 91])
    assert counts(read_series(conn, day)) == [(7, 0, 0, 0, 0, 0)]
    ((since, until),) = gaps(points, day)
    assert until - since == (points[1].minutes - 1) * MINUTE
    assert points[0].at + MINUTE == since
    assert gaps(points[1:], day) == [(since, until)], "it began before the period"


def test_times_are_added_up_and_give_quantiles(database: Database) -> None:
    conn = database.conn
    short, long = [0] * 17, [0] * 17
    short[3], long[11] = 90, 10
    waits = [5, *[0] * 17]
    store.count_times(conn, [Measured("q", "a.b", short, waits)])
    store.count_times(conn, [Measured("q", "a.b", long, waits)])
    record(conn)

    (point,) = read_series(conn, last(conn))
    assert (point.duration, point.wait) == (
        [*[0] * 3, 90, *[0] * 7, 10, *[0] * 5],
        [10, *[0] * 17],
    )
    assert point.duration_at(0.5) == pytest.approx(0.025 + 0.025 * 50 / 90)
    assert point.duration_at(0.95) == pytest.approx(20)
    assert point.wait_at(0.95) == pytest.approx(0.005 * 0.95)
    assert database.value("select count(*) from redrive.series_deltas") == 0


def test_times_without_all_buckets_are_refused(database: Database) -> None:
    for durations, waits in (([0] * 16, [0] * 18), ([0] * 17, [])):
        with pytest.raises(psycopg.Error, match="17 and 18 buckets"):
            store.count_times(database.conn, [Measured("q", "a.b", durations, waits)])


def test_times_that_nobody_records_stay_bounded(database: Database) -> None:
    conn = database.conn
    measured = [Measured("q", f"a.k{n}", [1] * 17, [1] * 18) for n in range(2000)]
    store.count_times(conn, measured)
    database.rows(
        "insert into redrive.series_deltas select d.* from redrive.series_deltas d,"
        " generate_series(1, 98)"
    )
    for _ in range(3):  # the last one is dropped
        store.count_times(conn, measured)

    assert database.value("select count(*) from redrive.series_deltas") == 200_000
    make_job(conn)
    # 50,000 rows a minute, so that no minute takes longer than a statement may
    for _ in range(4):
        assert database.value("select count(*) from redrive.series_deltas") > 0
        record(conn)
        let_pass(conn)
    assert database.value("select count(*) from redrive.series_deltas") == 0
    points = read_series(conn, last(conn))
    assert sum(point.enqueued for point in points) == 1
    assert sum(point.duration[0] for point in points) == 100 * 2000


def test_an_hour_is_the_sum_of_its_minutes_and_the_one_that_runs_is_read_too(
    database: Database,
) -> None:
    conn = database.conn
    for n in (1, 2, 4):
        make_jobs(conn, n)
        record(conn)
        let_pass(conn, 60)
    record(conn)

    day = last(conn, 12, HOUR)
    assert day.span == 60
    assert sum(point.enqueued for point in read_series(conn, day)) == 7
    folded = (
        "select enqueued from redrive.series where span = 60 and queue = '' and kind = ''"
        " order by at"
    )
    assert database.column(folded) == [1, 2, 4]
    make_jobs(conn, 8)
    let_pass(conn)
    record(conn)
    assert sum(point.enqueued for point in read_series(conn, day)) == 15
    ends = [point.at for point in read_queues(conn, day)]
    assert ends == sorted(set(ends))


HOURS: LiteralString = """
    select s.at, s.enqueued::int from redrive.series s where s.span = 60 and s.queue || s.kind = ''
    union all
    select q.at, -q.minutes from redrive.queue_series q where q.span = 60 and q.queue = ''
    order by 1, 2"""
NOON = datetime.combine(datetime.now(UTC).date(), time(12), UTC)
"""Of today: what is older than 35 days is deleted."""


def record_at(conn: Connection, at: datetime) -> None:
    """Record the minute that begins then, with one job."""
    make_job(conn)
    store.fold(conn)
    minute = int(at.timestamp()) // 60
    conn.execute("select redrive.record_minute_v1(%s)", (minute,))


def test_an_hour_is_added_up_with_its_last_minute(database: Database) -> None:
    """Also if that is the first minute of all."""
    record_at(database.conn, NOON - MINUTE)
    assert database.rows(HOURS) == [(NOON - HOUR, -1), (NOON - HOUR, 1)]

    for minutes in (0, 30, 58):
        record_at(database.conn, NOON + minutes * MINUTE)
    assert len(database.rows(HOURS)) == 2
    record_at(database.conn, NOON + 59 * MINUTE)
    assert database.rows(HOURS)[2:] == [(NOON, -60), (NOON, 4)]


def test_an_hour_is_added_up_when_its_last_minute_was_missed(
    database: Database,
) -> None:
    for minutes in (10, 50, 59 + 3 * 60, 4 * 60):
        record_at(database.conn, NOON + minutes * MINUTE)

    assert database.rows(HOURS) == [
        (NOON, -41),
        (NOON, 2),
        (NOON + 3 * HOUR, -189),
        (NOON + 3 * HOUR, 1),
    ]


def test_an_hour_is_added_up_again_if_the_clock_was_set_back_into_it(
    database: Database,
) -> None:
    for minutes in (10, 59, 30, 59):
        record_at(database.conn, NOON + minutes * MINUTE)

    assert database.rows(HOURS) == [(NOON, -31), (NOON, 3)]


def test_rows_are_added_up_by_queue_or_kind_or_step(database: Database) -> None:
    conn = database.conn
    for queue, kind, n in (("a", "x", 1), ("a", "y", 2), ("b", "x", 4)):
        make_jobs(conn, n, queue=queue, kind=kind)
    record(conn)
    let_pass(conn, 60)
    make_jobs(conn, 8, queue="a", kind="x")
    record(conn)

    def sums(**options: Any) -> list[tuple[str | None, str | None, int]]:
        points = read_series(conn, last(conn, 2, HOUR), **options)
        return sorted(
            ((p.queue, p.kind, p.enqueued) for p in points), key=lambda row: row[2]
        )

    assert sum(n for *_, n in sums()) == 15
    assert sums(queue="b") == [(None, None, 4)]
    assert sum(n for *_, n in sums(kind="x")) == 13
    assert {row[:2] for row in sums(by_kind=True)} == {(None, "x"), (None, "y")}
    assert {row[:2] for row in sums(by_queue=True)} == {("a", None), ("b", None)}


def test_each_point_is_read_slice_by_slice(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that 35 days of many kinds take the memory of one slice."""
    fill(database, days=9, kinds=3)
    conn = database.conn
    month = shortest(conn, now_of(conn) - timedelta(days=30))
    sizes: list[int] = []

    def read(*asked: Any, **options: Any) -> list[Point]:
        found = read_series(*asked, **options)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(series, "read_series", read)
    points = each_point(conn, month)
    first = next(points)
    assert sum(sizes) <= 3 * series.SLICE_STEPS
    found = [first, *points]

    assert found == read_series(conn, month, by_queue=True, by_kind=True)
    assert len(found) == 3 * 9 * 24
    assert max(sizes) == 3 * series.SLICE_STEPS


def test_a_step_without_anything_can_be_shown_as_zero(database: Database) -> None:
    make_job(database.conn)
    record(database.conn)
    hour = last(database.conn, 0.5)
    points = filled(read_series(database.conn, hour), hour)

    assert len(points) in {30, 31}
    assert sum(point.enqueued for point in points) == 1


def test_what_a_queue_holds_is_recorded_with_its_workers(database: Database) -> None:
    conn, worker = database.conn, make_worker(database.conn)
    make_jobs(conn, 3, queue="mail")
    claim_one(conn, worker)
    record(conn)

    hour = last(conn, 1)
    (mail,) = read_queues(conn, hour, None)
    assert mail[1:] == ("mail", 1, 2, 1, 1)
    assert [point[2:] for point in read_queues(conn, hour)] == [(1, 2, 1, 1)]


def test_old_rows_that_somebody_holds_stay_and_nobody_waits(database: Database) -> None:
    database.rows(
        "insert into redrive.series (span, at, queue, kind)"
        " select 1, now() - interval '27 hours', q, 'k' from unnest('{a,b}'::text[]) q"
    )
    database.rows(
        "insert into redrive.queue_series (span, at, queue, minutes, backlog, running, workers)"
        " select span, at, queue, 1, 0, 0, 0 from redrive.series"
    )
    database.rows(
        "insert into redrive.marks (at, what, name)"
        " select now() - interval '36 days', 'deploy', n from unnest('{a,b}'::text[]) n"
    )
    hasty = database.session(lock_timeout="1ms")
    other = database.transaction(
        "select from redrive.series where queue = 'a' for update"
    )
    other.rows("select from redrive.queue_series where queue = 'a' for update")
    other.rows("select from redrive.marks where name = 'a' for update")

    hasty.rows("select redrive.forget_series_v1(100)")

    assert database.column("select queue from redrive.series") == ["a"]
    assert database.column("select queue from redrive.queue_series") == ["a"]
    assert database.column("select name from redrive.marks") == ["a"]


def test_minutes_and_hours_are_deleted_when_they_are_old(database: Database) -> None:
    database.rows(
        "insert into redrive.series (span, at, queue, kind)"
        " select s, now() - n * interval '1 hour', 'q', 'k'"
        " from unnest(array[1, 60]) s, unnest(array[25, 27, 839, 841]) n"
    )
    database.rows(
        "insert into redrive.queue_series (span, at, queue, minutes, backlog, running, workers)"
        " select span, at, queue, 1, 0, 0, 0 from redrive.series"
    )
    database.rows(
        "insert into redrive.marks (at, what, name)"
        " select now() - n * interval '1 day', 'deploy', n::text from unnest(array[34, 36]) n"
    )
    record(database.conn)

    kept: LiteralString = (
        "select span, count(*) from redrive.{} where queue <> '' group by 1 order by 1"
    )
    assert database.rows(kept.format("series")) == [(1, 1), (60, 3)]
    assert database.rows(kept.format("queue_series")) == [(1, 1), (60, 3)]
    assert database.column("select name from redrive.marks") == ["34"]


def test_kinds_past_the_limit_are_added_up_as_other(database: Database) -> None:
    """A kind with a row in this hour keeps it; the busiest of the others come next."""
    conn = database.conn
    make_jobs(conn, 1, queue="q", kind="first")
    record(conn)
    database.rows(
        "insert into redrive.tallies (queue, kind, event, reason, n)"
        " select 'q', 'k' || n, 'enqueued', '', n from generate_series(1, 250) n"
    )
    make_jobs(conn, 1, queue="q", kind="first")
    let_pass(conn)
    record(conn)

    oldest, *newest = read_series(conn, last(conn), by_queue=True, by_kind=True)
    is_same_hour = oldest.at.hour == newest[0].at.hour
    kinds = {p.kind for p in newest}
    assert len(newest) == 201
    assert len({p.at for p in newest}) == 1
    assert sum(p.enqueued for p in newest) == 250 * 251 // 2 + 1
    assert {"k250", "k100"} < kinds
    assert "k1" not in kinds
    assert ("first" in kinds) == is_same_hour
    (other,) = [p for p in newest if p.kind == "other"]
    assert other.queue == "other"


def test_a_clock_that_was_set_back_loses_the_minutes_ahead_and_no_count(
    database: Database,
) -> None:
    conn = database.conn
    record(conn)
    database.rows("update redrive.series set at = at + interval '3 hours'")
    database.rows("update redrive.queue_series set at = at + interval '3 hours'")
    database.rows("update redrive.chores set place = place + 180 where name = 'series'")
    make_job(conn)

    assert record(conn)
    assert counts(read_series(conn, last(conn))) == [(1, 0, 0, 0, 0, 0)]
    assert len(read_queues(conn, last(conn))) == 1


def test_counters_of_forgotten_names_do_not_come_again(database: Database) -> None:
    conn = database.conn
    worker = make_worker(conn)
    make_job(conn)
    complete_next(conn, worker)
    record(conn)
    let_pass(conn)
    database.rows("select redrive.forget_names_v1(interval '-1 day', 100)")
    record(conn)

    assert sum(point.enqueued for point in read_series(conn, last(conn))) == 1


@pytest.mark.every_version
def test_reading_35_days_reads_each_row_once_in_the_order_of_its_index(
    database: Database,
) -> None:
    """And reading one day of them reads a part of it."""
    fill(database, days=35, kinds=20)
    conn, now = database.conn, now_of(database.conn)
    month = period(now - timedelta(days=34), now, now, 300)
    day = period(now - timedelta(days=2), now - timedelta(days=1), now, 300, HOUR)

    assert pages(conn, month) < 1.2 * database.value(
        "select pg_total_relation_size('redrive.series') / 8192"
    )
    assert pages(conn, day) < pages(conn, month) / 10
    assert len(read_series(conn, month)) <= 300


@pytest.mark.every_version
def test_the_curves_of_everything_read_sums_and_no_pairs(database: Database) -> None:
    """So that a page does not become slower with each kind."""
    fill(database, days=8, kinds=100)
    conn, now = database.conn, now_of(database.conn)
    week = period(now - timedelta(days=7), now, now, 300, HOUR)
    pairs = read_series(conn, week, by_queue=True, by_kind=True)

    assert pages(conn, week) < pages(conn, week, by_each=True) / 3
    for chosen in ({}, {"queue": "q1"}, {"kind": "k7"}):
        for by in ({}, {"by_queue": True}, {"by_kind": True}):
            found = read_series(conn, week, **chosen, **by)
            wanted = [
                p
                for p in pairs
                if p.queue == chosen.get("queue", p.queue)
                and p.kind == chosen.get("kind", p.kind)
            ]
            assert sum(p.enqueued for p in found) == sum(p.enqueued for p in wanted)
            assert sum(sum(p.wait or ()) for p in found) == sum(
                sum(p.wait or ()) for p in wanted
            )


FILL: LiteralString = """
    insert into redrive.series (span, at, queue, kind, enqueued, duration, wait)
    select 60, date_trunc('hour', now()) - h * interval '1 hour', 'q' || k %% 4, 'k' || k, 9,
           array_fill(3, array[17]), array_fill(2, array[18])
    from generate_series(1, %s * 24) h, generate_series(1, %s) k"""


def fill(database: Database, days: int, kinds: int) -> None:
    """Fill the series as if it had run for days."""
    database.rows(FILL, days, kinds)
    database.rows(SERIES_SUMS)
    database.rows("analyze redrive.series")


def pages(conn: Connection, of: Period, *, by_each: bool = False) -> int:
    """Count the pages of the table and its index that a read needs."""
    query = (
        "explain (analyze, buffers, format json) select * from redrive.read_series_v1("
        "%s, %s, %s, %s, null, null, %s, %s)"
    )
    asked = (of.span, of.since, of.until, of.step, by_each, by_each)
    conn.execute(query, asked)  # reads the catalog
    ((explained,),) = conn.execute(query, asked)
    plan = explained[0]["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
