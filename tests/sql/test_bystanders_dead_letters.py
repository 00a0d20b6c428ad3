"""Verbs of dead letters: what one of them does to one, it does to no neighbour."""

import re
from typing import LiteralString

import pytest

from redrive.worker import store
from tests.factories import (
    claim_one,
    complete,
    failure,
    let_next_die,
    make_dead_letter,
    make_job,
    make_worker,
    redrive,
    settle,
)
from tests.postgres import Database
from tests.sql.bystanders import make_past, touched

THE_LAST = {("dead_letters", 1)}


ALL_OF_IT = {
    *(("dead_letters", n) for n in range(2)),
    *(("edits", n) for n in range(2)),
    *(
        (table, None)
        for table in ("checkpoints", "failures", "progress", "side_effects")
    ),
}
"""Table and generation."""


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select redrive.redrive_v1(array[%s], null, null, now(), 9, true)", THE_LAST),
        ("select redrive.dismiss_v1(array[%s], 'ada', 'x')", THE_LAST),
        ("select redrive.assign_v1(array[%s], 'ada', 'ada', 'x')", THE_LAST),
        ("select redrive.note_v1(%s, 'ada', 'x')", THE_LAST),
        ("select redrive.reopen_v1(array[%s], 'ada', 'x')", THE_LAST),
        (
            "select redrive.purge_v1(null, array[%s], '{1}', '{open}')",
            {*THE_LAST, ("edits", 1)},
        ),
        (
            "select redrive.purge_v1(null, array[%s, %s], '{0, 1}', '{open, redriven}')",
            ALL_OF_IT,
        ),
    ],
    ids=lambda given: found[1] if (found := re.search(r"\.(\w+)", str(given))) else "",
)
def test_a_dead_letter_is_acted_on_alone(
    database: Database, query: LiteralString, expected: set[tuple[str, int | None]]
) -> None:
    """Not its earlier generations, nor another job's; and of what is left of a job, all goes."""
    one, two = make_past(database, "one"), make_past(database, "two")
    make_job(database.conn, "pay")
    if "reopen" in query:
        database.rows("select redrive.dismiss_v1(%s, 'ada', 'x')", [one, two])
    lines = "select count(*) from redrive.audit"
    before = database.value(lines)
    rows = touched(database, lambda: database.rows(query, *[one] * query.count("%s")))

    assert database.value(lines) == before + 1
    assert rows == {(table, one, generation) for table, generation in expected}


@pytest.mark.parametrize("outcome", ["complete", "dead", "cancel"])
def test_only_a_redriven_dead_letter_learns_what_became_of_it(
    database: Database, outcome: str
) -> None:
    conn = database.conn
    worker = make_worker(database.conn)
    one = make_past(database, "one")
    redrive(conn, [one])
    database.rows("update redrive.dead_letters set state = 'dismissed'")
    job = claim_one(conn, worker)
    if outcome == "complete":
        complete(conn, worker, job)
    else:
        settle(conn, worker, job, outcome, reason="x", failure=failure())

    assert database.rows(
        "select state, outcome from redrive.dead_letters where redrives < 2 order by redrives"
    ) == [("dismissed", "dead_again"), ("dismissed", None)]


def test_a_death_is_that_of_the_last_redrive_alone(database: Database) -> None:
    conn = database.conn
    worker = make_worker(database.conn)
    one = make_past(database, "one")
    redrive(conn, [one])
    database.rows("update redrive.dead_letters set outcome = null")
    let_next_die(conn, worker)

    assert database.column(
        "select outcome from redrive.dead_letters order by redrives"
    ) == [None, "dead_again", None]


def test_a_redriven_job_is_linked_to_its_own_last_attempt(database: Database) -> None:
    ids = [make_past(database, queue) for queue in ("one", "two")]
    redrive(database.conn, ids)

    assert database.rows(
        "select queue, headers ->> 'dead_traceparent' from redrive.jobs order by id"
    ) == [("one", "one"), ("two", "two")]


def test_a_note_is_of_the_newest_death_of_its_own_job(database: Database) -> None:
    one, _ = make_dead_letter(database.conn), make_past(database, "two")
    note = "select redrive.note_v1(%s, 'ada', 'x')"

    assert touched(database, lambda: database.rows(note, one)) == {
        ("dead_letters", one, 0)
    }


def test_a_death_repeats_the_one_before_of_its_own_job(database: Database) -> None:
    one, worker = make_dead_letter(database.conn), make_worker(database.conn)
    redrive(database.conn, [one])
    let_next_die(database.conn, worker, failure=failure(fingerprint="b"))
    make_dead_letter(database.conn)
    repeats = "select redrive.repeats_v1(%s, %s, %s, 'bug')"

    assert database.value(repeats, one, 2, "b")
    assert not database.value(repeats, one, 2, "f1"), "that was the death before"
    assert not database.value(repeats, one + 1, 2, "b"), "that was another job's"


@pytest.mark.parametrize(
    ("changed_to", "expected"),
    [
        ("kind = 'a'", 2),  # as it was
        ("state = 'dismissed'", 0),
        ("reason = 'expired'", 0),
    ],
)
def test_of_dead_letters_only_those_that_a_loss_made_go_back(
    database: Database, changed_to: LiteralString, expected: int
) -> None:
    conn = database.conn
    database.rows("insert into redrive.approvals (kind) values ('b')")
    one, two = make_dead_letter(conn, "a"), make_dead_letter(conn, "a")
    database.rows("update redrive.dead_letters set reason = 'killed_worker'")
    database.rows(
        "update redrive.failures set error_class = 'WorkerLost', category = 'lost' where job = %s",
        one,
    )
    database.rows("update redrive.dead_letters set " + changed_to)
    rows = touched(database, lambda: store.forgive(conn, [(one, 1)]))

    assert {row for row in rows if row[1] == two} == set()
    assert (
        database.value("select count(*) from redrive.audit where actor = 'redrive'")
        == expected
    )
