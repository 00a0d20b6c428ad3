"""Whose silence counts, by what clock: contact_now_v1, advance_contact_v1, mark_lost_v1."""

import pytest

from redrive.worker import store
from tests.factories import claim, complete, make_jobs, make_worker, silence
from tests.postgres import Connection, Database

TTL = 30.0


def minutes_pass(conn: Connection, minutes: float) -> None:
    """Nobody could reach the database for so long, or its clock was set: it looks the same."""
    for column in ("contact set at = at", "workers set seen_at = seen_at"):
        conn.execute(
            f"update redrive.{column} - %s * interval '1 minute'",  # type: ignore[arg-type]
            (minutes,),
        )


@pytest.mark.parametrize(
    "minutes", [1, 60, -60], ids=["outage", "an hour on", "an hour back"]
)
def test_nobody_is_lost_for_an_outage_or_because_the_clock_was_set(
    database: Database, minutes: float
) -> None:
    """Whoever came back first took everybody else for dead."""
    make_jobs(database.conn, 3)
    first, other = (
        make_worker(database.conn, name, ttl=TTL) for name in ("first", "other")
    )
    jobs = claim(database.conn, other)
    minutes_pass(database.conn, minutes)
    store.beat(database.conn, {first: 0})

    for _ in range(10):
        assert store.mark_lost(database.conn, TTL) == 0
    assert store.beat(database.conn, {first: 0, other: 3}).alive == {first, other}
    assert complete(database.conn, other, *jobs) == {job.id for job in jobs}


def test_who_is_silent_while_others_beat_is_lost_whatever_the_clock_says(
    database: Database,
) -> None:
    """A worker whose last beat seemed to lie in the future was never taken for lost."""
    beating, silent = (make_worker(database.conn, name, ttl=TTL) for name in ("a", "b"))
    database.conn.execute(
        "update redrive.workers set seen_at = seen_at + interval '1 hour'"
    )
    for _ in range(
        5
    ):  # in each of which nobody's clock runs for more than a quarter of a ttl
        minutes_pass(database.conn, 1)
        assert store.mark_lost(database.conn, TTL) in {0, 1}
        assert store.beat(database.conn, {beating: 0}).alive == {beating}

    assert database.column(
        "select id from redrive.workers where lost_at is not null"
    ) == [silent]


def test_an_outage_counts_for_a_quarter_of_the_shortest_ttl(database: Database) -> None:
    make_worker(database.conn, "patient", ttl=60)
    make_worker(database.conn, "hasty", ttl=4)
    minutes_pass(database.conn, 1)
    (counted,) = database.row(
        "select extract(epoch from redrive.contact_now_v1())::float8"
    )

    assert 1 <= counted < 10, "a quarter of 4 s, and not of 60 s"


def test_a_worker_is_marked_although_its_jobs_cannot_be_taken_back(
    database: Database,
) -> None:
    """The mark went with the rest when taking jobs back ran into its timeout."""
    make_jobs(database.conn, 1)
    worker = make_worker(database.conn, ttl=TTL)
    claim(database.conn, worker)
    silence(database.conn, worker)
    blocker = database.transaction("lock table redrive.jobs in access exclusive mode")
    rescuer = database.session(lock_timeout="1ms")

    assert store.mark_lost(rescuer.conn, TTL) == 1
    assert store.mark_lost(rescuer.conn, TTL) == 0, "and may be sent again"
    assert store.beat(rescuer.conn, {worker: 1}).alive == set()
    blocker.rows("rollback")
    assert store.rescue(database.conn, TTL) == (1, 1, 0)


def test_a_beat_waits_for_nobody_who_advances_the_clock(database: Database) -> None:
    worker = make_worker(database.conn, ttl=TTL)
    database.transaction("select from redrive.contact for update")
    beating = database.session(lock_timeout="1ms")

    assert store.beat(beating.conn, {worker: 0}).alive == {worker}
    assert store.mark_lost(beating.conn, TTL) == 0


def test_a_chore_done_in_the_future_is_due(database: Database) -> None:
    """A clock set back by an hour meant no rescue for an hour."""
    database.rows(
        "update redrive.chores set ran_at = clock_timestamp() + interval '1 hour'"
    )

    assert store.take_chore(database.conn, "rescue", 5)
    assert not store.take_chore(database.conn, "rescue", 5)


def test_a_worker_that_was_just_registered_is_not_lost(database: Database) -> None:
    """However long others have been in contact before."""
    database.conn.execute(
        "update redrive.contact set elapsed = elapsed + interval '1 hour'"
    )
    for ttl in (None, 1.0):
        make_worker(database.conn, ttl=ttl)

    assert store.mark_lost(database.conn, 1.0) == 0


def test_a_heartbeat_reads_no_row_of_another_worker(database: Database) -> None:
    """Each of 1,000 idle workers read the rows of all others twice, every few seconds."""
    beat = "explain (analyze, buffers, format json) select redrive.beat_v1(%s, '{0}', '{null}')"

    def blocks() -> int:
        database.rows("vacuum (freeze, analyze) redrive.workers")
        while True:
            at = database.value(
                "update redrive.contact set at = clock_timestamp() returning at"
            )
            plan = database.value(beat, [worker])[0]["Plan"]
            # If the beat was late, it has advanced the clock itself.
            if database.value("select at from redrive.contact") == at:
                return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

    worker = make_worker(database.conn, ttl=TTL)
    blocks()
    alone = blocks()
    for n in range(1_000):
        make_worker(database.conn, f"other {n}", ttl=TTL)

    assert blocks() < alone + 20, "the rows of all others fill a hundred blocks"
