"""purge_v1: deleting dead letters for good."""

import pytest

from tests.factories import (
    complete_next,
    let_next_die,
    make_campaign,
    make_dead_letters,
    make_worker,
    redrive,
    totals,
)
from tests.postgres import Database

PURGE = "select redrive.purge_v1(null, %s, %s, %s)"


def letters(database: Database) -> list[tuple[int, int]]:
    return database.rows(
        "select id, redrives from redrive.dead_letters order by id, redrives"
    )


@pytest.mark.parametrize("state", ["open", "redriven", "resolved", "dismissed"])
def test_only_the_given_states_go(database: Database, state: str) -> None:
    ids = make_dead_letters(database.conn, 4)
    states = ["open", "redriven", "resolved", "dismissed"]
    for job_id, its_state in zip(ids, states, strict=True):
        database.rows(
            "update redrive.dead_letters set state = %s where id = %s",
            its_state,
            job_id,
        )

    assert database.value(PURGE, ids, [0] * 4, [state]) == 1
    gone = ids[states.index(state)]
    assert letters(database) == [(job_id, 0) for job_id in ids if job_id != gone]
    assert totals(database.conn)["purged" if state == "open" else "forgotten"] == 1


def test_what_was_not_asked_for_stays(database: Database) -> None:
    ids = make_dead_letters(database.conn, 3)

    assert database.value(PURGE, [ids[0], ids[1], 999], [0, 1, 0], ["open"]) == 1, (
        "the generation must match too"
    )
    assert letters(database) == [(ids[1], 0), (ids[2], 0)]


def test_failures_go_with_the_last_generation(database: Database) -> None:
    (job_id,) = make_dead_letters(database.conn, 1)
    redrive(database.conn, [job_id])
    worker = make_worker(database.conn)
    let_next_die(database.conn, worker)
    count = "select count(*) from redrive.failures"
    assert database.value(count) == 2

    assert database.value(PURGE, [job_id], [0], ["redriven"]) == 1
    assert database.value(count) == 2
    assert database.value(PURGE, [job_id], [1], ["open"]) == 1
    assert database.value(count) == 0


def test_another_generation_of_another_job_is_no_last_one(database: Database) -> None:
    """Of one job the newest goes and the first stays, of the other the first and only one goes."""
    (twice,) = make_dead_letters(database.conn, 1)
    redrive(database.conn, [twice])
    worker = make_worker(database.conn)
    let_next_die(database.conn, worker)
    (once,) = make_dead_letters(database.conn, 1)

    assert database.value(PURGE, [twice, once], [1, 0], ["open"]) == 2
    assert database.column("select distinct job from redrive.failures") == [twice]


def test_all_generations_may_go_at_once(database: Database) -> None:
    (job_id,) = make_dead_letters(database.conn, 1)
    redrive(database.conn, [job_id])
    worker = make_worker(database.conn)
    let_next_die(database.conn, worker)

    assert database.value(PURGE, [job_id, job_id], [0, 1], ["redriven", "open"]) == 2
    assert database.value("select count(*) from redrive.failures") == 0


def test_the_failures_of_a_job_that_lives_again_stay(database: Database) -> None:
    (job_id,) = make_dead_letters(database.conn, 1)
    redrive(database.conn, [job_id])

    assert database.value(PURGE, [job_id], [0], ["redriven"]) == 1
    assert database.value("select count(*) from redrive.failures") == 1


def test_a_job_that_succeeds_after_its_dead_letter_was_purged_is_just_done(
    database: Database,
) -> None:
    (job_id,) = make_dead_letters(database.conn, 1)
    redrive(database.conn, [job_id])
    database.rows(PURGE, [job_id], [0], ["redriven"])
    worker = make_worker(database.conn)

    assert complete_next(database.conn, worker) == {job_id}


def test_a_dead_letter_that_is_being_redriven_is_not_purged(database: Database) -> None:
    ids = make_dead_letters(database.conn, 3)
    operator, purger = database.session(), database.session(lock_timeout="1ms")
    campaign = make_campaign(operator.conn)
    run = purger.value("select redrive.begin_run_v1('purge', 'ada', 'old', 3, '{}')")
    operator.rows("begin")
    redrive(operator.conn, ids[:1], campaign=campaign)

    step = "select redrive.purge_v1(%s, %s, %s, %s)"
    assert purger.value(step, run, ids, [0] * 3, ["open"]) == 2
    operator.rows("commit")
    assert letters(database) == [(ids[0], 0)]
    assert purger.value(PURGE, ids, [0] * 3, ["open"]) == 0, "it is not open any more"
    assert database.column("select id from redrive.jobs") == [ids[0]]


def test_a_dead_letter_that_is_being_purged_cannot_be_redriven(
    database: Database,
) -> None:
    ids = make_dead_letters(database.conn, 2)
    purger, operator = database.transaction(), database.session()
    assert purger.value(PURGE, ids[:1], [0], ["open"]) == 1
    waiting = database.start_blocked(
        operator, lambda: redrive(operator.conn, ids), by=purger
    )
    purger.rows("commit")

    assert waiting.result(60) == {ids[0]: "not_open", ids[1]: None}
    assert database.column("select id from redrive.jobs") == [ids[1]]


def test_two_that_purge_the_same_count_each_once(database: Database) -> None:
    ids = make_dead_letters(database.conn, 1000)
    sessions = [database.session() for _ in range(2)]
    done = [
        s.start(lambda s=s, i=order: s.value(PURGE, i, [0] * 1000, ["open"]))
        for s, order in zip(sessions, (ids, ids[::-1]), strict=True)
    ]

    assert sum(d.result(60) for d in done) <= 1000
    left = database.value("select count(*) from redrive.dead_letters")
    assert totals(database.conn).get("purged", 0) == 1000 - left
