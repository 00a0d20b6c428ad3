"""What a verb does to one, it does to no other: each is called on a row that has neighbours which
are like it in all but the one thing by which it was chosen.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, LiteralString

import psycopg
import pytest

from redrive.dead_letters.campaign import Terms, drive, plan, start
from redrive.dead_letters.filter import Filter
from redrive.worker import store
from redrive.worker.store import Registration, register
from tests.factories import (
    bury,
    claim,
    claim_one,
    complete,
    failure,
    make_campaign,
    make_dead_letter,
    make_dead_letters,
    make_job,
    make_worker,
    redrive,
    settle,
    silence,
)
from tests.postgres import Database

AT_ONCE = Terms(canaries=0)
SHARED = {"audit_chain", "contact", "tallies"}
"""One row for everybody."""

KEYS = ("job", "id", "name")
"""What tells rows of a table apart, whichever it has."""

Rows = Counter[tuple[str, str]]


def rows_of(database: Database) -> Rows:
    """Each row there is: its table, and itself as JSON."""
    tables = database.column(
        "select relname::text from pg_class where relnamespace = 'redrive'::regnamespace"
        " and relkind in ('r', 'p') and not relispartition"
    )
    query = " union all ".join(
        f"select '{table}', to_jsonb(t)::text from redrive.{table} t"  # names of our own
        for table in sorted(set(tables) - SHARED)
    )
    return Counter(database.rows(query))  # type: ignore[arg-type]


def changed(database: Database, act: Callable[[], Any]) -> list[tuple[str, dict[str, Any]]]:
    """Rows that are not as they were, as they were: table and columns."""
    before = rows_of(database)
    act()
    return [(table, json.loads(row)) for table, row in before - rows_of(database)]


def touched(database: Database, act: Callable[[], Any]) -> set[tuple[Any, ...]]:
    """Of such rows: table, job or name or id, and generation if any."""
    return {
        (table, next((row[k] for k in KEYS if k in row), None), row.get("redrives"))
        for table, row in changed(database, act)
    }


def make_past(database: Database, queue: str) -> int:
    """A job that died twice and had all that a job can have. Returns its id."""
    conn, worker = database.conn, make_worker(database.conn)
    job_id = make_job(conn, "pay", queue=queue, ordering_key="k", tenant="acme")
    trace = failure(detail={"traceparent": queue})
    bury(conn, worker, claim_one(conn, worker), failure=trace)
    redrive(conn, [job_id])
    conn.execute(
        "with e as (insert into redrive.edits"
        "     (job, n, redrives, actor, why, patch, paths, payload)"
        "     select %(job)s, n, n - 1, 'ada', 'x', '[]', '{}', '{}' from generate_series(1, 2) n),"
        " c as (insert into redrive.checkpoints (job, deliveries, data) values (%(job)s, 2, '{}')),"
        " p as (insert into redrive.progress (job, deliveries, share, detail)"
        "     values (%(job)s, 2, 0.5, '{}'))"
        " insert into redrive.side_effects (job, deliveries, what, detail)"
        " values (%(job)s, 2, 'charged', '{}')",
        {"job": job_id},
    )
    bury(conn, worker, claim_one(conn, worker), failure=trace)
    return job_id


THE_LAST = {("dead_letters", 1)}
ALL_OF_IT = {
    *(("dead_letters", n) for n in range(2)),
    *(("edits", n) for n in range(2)),
    *((table, None) for table in ("checkpoints", "failures", "progress", "side_effects")),
}
"""Table and generation."""


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select redrive.redrive_v1(array[%s], null, null, 0, 9)", THE_LAST),
        ("select redrive.dismiss_v1(array[%s], 'ada', 'x')", THE_LAST),
        ("select redrive.assign_v1(array[%s], 'ada', 'ada', 'x')", THE_LAST),
        ("select redrive.note_v1(%s, 'ada', 'x')", THE_LAST),
        ("select redrive.reopen_v1(array[%s], 'ada', 'x')", THE_LAST),
        ("select redrive.purge_v1(array[%s], '{1}', '{open}')", {*THE_LAST, ("edits", 1)}),
        ("select redrive.purge_v1(array[%s, %s], '{0, 1}', '{open, redriven}')", ALL_OF_IT),
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


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ("complete", {("jobs", 2), ("dead_letters", 0), ("dead_letters", 1)}),
        ("retry", {("jobs", 2)}),
        ("release", {("jobs", 2)}),
        ("dead", {("jobs", 2), ("dead_letters", 1)}),
        ("cancel", {("jobs", 2), ("dead_letters", 0), ("dead_letters", 1)}),
    ],
)
def test_a_running_job_is_settled_alone(
    database: Database, outcome: str, expected: set[tuple[str, int | None]]
) -> None:
    """Its worker runs another one, and another worker one of the same key in another queue."""
    conn, workers = database.conn, [make_worker(database.conn, name) for name in ("w", "v")]
    ids = [make_past(database, queue) for queue in ("one", "two", "three")]
    redrive(conn, ids)
    parked = make_job(conn, "pay", queue="two", ordering_key="k")
    one, _ = claim(conn, workers[0], 2)
    claim_one(conn, workers[1])
    end = {"complete": lambda: complete(conn, workers[0], one)}.get(
        outcome, lambda: settle(conn, workers[0], one, outcome, reason="x", failure=failure())
    )

    rows = touched(database, end)
    assert {(table, *rest) for table, *rest in rows if rest[0] != one.id} <= {
        ("claims", one.claim, None)
    }
    assert {(table, generation) for table, id_, generation in rows if id_ == one.id} >= expected
    assert parked


@pytest.mark.parametrize("how", ["beats", "retires", "is lost"])
def test_a_worker_comes_and_goes_alone(database: Database, how: str) -> None:
    conn, workers = database.conn, [make_worker(database.conn, name) for name in ("w", "v")]
    ids = [make_job(conn, "pay", queue=queue, ordering_key="k") for queue in ("one", "two")]
    one, _ = claim(conn, workers[0], 1), claim(conn, workers[1], 1)
    if how == "is lost":
        silence(conn, workers[0])
    rows = touched(
        database,
        {
            "beats": lambda: database.rows("select redrive.beat_v1(%s, '{3}')", [workers[0]]),
            "retires": lambda: store.retire(conn, workers[0]),
            "is lost": lambda: store.rescue(conn, 60, 3),
        }[how],
    )

    held = {("jobs", ids[0], 0), ("claims", one[0].claim, None), ("running_keys", ids[0], None)}
    assert rows == {("workers", workers[0], None)} | (held if how != "beats" else set())


def test_a_redriven_job_is_linked_to_its_own_last_attempt(database: Database) -> None:
    ids = [make_past(database, queue) for queue in ("one", "two")]
    redrive(database.conn, ids)

    assert database.rows(
        "select queue, headers ->> 'dead_traceparent' from redrive.jobs order by id"
    ) == [("one", "one"), ("two", "two")]


def test_a_note_is_of_the_newest_death_of_its_own_job(database: Database) -> None:
    one, _ = make_dead_letter(database.conn), make_past(database, "two")
    note = "select redrive.note_v1(%s, 'ada', 'x')"

    assert touched(database, lambda: database.rows(note, one)) == {("dead_letters", one, 0)}


def test_a_kind_that_needs_two_keeps_back_no_other(database: Database) -> None:
    one, two = (make_dead_letter(database.conn, kind) for kind in ("a", "b"))
    database.rows("insert into redrive.approvals (kind) values ('b')")

    assert redrive(database.conn, [one]) == {one: None}
    with pytest.raises(psycopg.Error, match="approval: some of these"):
        redrive(database.conn, [two])


def test_a_death_repeats_the_one_before_of_its_own_job(database: Database) -> None:
    one, worker = make_dead_letter(database.conn), make_worker(database.conn)
    redrive(database.conn, [one])
    bury(database.conn, worker, claim_one(database.conn, worker), failure=failure(fingerprint="b"))
    make_dead_letter(database.conn)
    repeats = "select redrive.repeats_v1(%s, %s, %s, 'bug')"

    assert database.value(repeats, one, 2, "b")
    assert not database.value(repeats, one, 2, "f1"), "that was the death before"
    assert not database.value(repeats, one + 1, 2, "b"), "that was another job's"


def test_a_campaign_is_closed_once_and_alone(database: Database) -> None:
    one, _, planned = (make_campaign(database.conn) for _ in range(3))
    database.rows("update redrive.campaigns set planned_login = 'ada' where id = %s", planned)
    close = "select redrive.close_campaign_v1(%s, 1, '{}')"

    assert touched(database, lambda: database.rows(close, one)) == {("campaigns", one, None)}
    assert touched(database, lambda: database.rows(close, one)) == set()
    assert touched(database, lambda: database.rows(close, planned)) == set()
    ended = "select count(*) from redrive.audit where action = 'end redrive'"
    assert database.value(ended) == 1


def test_no_campaign_stands_in_for_another(database: Database) -> None:
    job_id, campaign = make_past(database, "one"), make_campaign(database.conn)
    planned = make_campaign(database.conn)
    database.rows("update redrive.campaigns set planned_login = 'ada' where id = %s", planned)
    for wrong in (planned, planned + 1):
        with pytest.raises(psycopg.Error, match="campaign: must be one"):
            redrive(database.conn, [job_id], campaign=wrong)
    other = make_campaign(database.conn)

    assert redrive(database.conn, [job_id], campaign=campaign) == {job_id: None}
    query = "select redriven from redrive.campaigns where id = any (%s) order by id"
    assert database.column(query, [campaign, other]) == [1, 0]


def test_campaigns_that_nobody_carries_on_are_interrupted_one_by_one(database: Database) -> None:
    """And one whose chunk is on its way is waited for by nobody."""
    job_id = make_past(database, "one")
    done, *stale = (make_campaign(database.conn) for _ in range(4))
    database.rows("select redrive.close_campaign_v1(%s, 1, '{}')", done)
    database.rows(
        "update redrive.campaigns set active_at = active_at + (id - 99) * interval '1 d'"
        " where id >= %s",
        done,
    )
    operator, other = database.session(), database.session(lock_timeout="1ms")
    operator.rows("begin")
    redrive(operator.conn, [job_id], campaign=stale[0])
    step = "select redrive.interrupt_campaigns_v1(1)"
    rows = touched(database, lambda: other.rows(step))
    operator.rows("rollback")

    assert rows == {("campaigns", stale[1], None)}, "the oldest that is free"


def test_a_campaign_goes_its_way_alone(database: Database) -> None:
    """Beside one over other dead letters, one over the same, and one that put them back before."""
    conn = database.conn
    make_dead_letters(conn, 3, kind="a")
    make_dead_letters(conn, 3, kind="b")
    for kinds in (("a",), ("b",)):
        campaign = plan(conn, Filter(kind=kinds), actor="ada").plan
        start(conn, campaign, AT_ONCE, actor="ada", why="x")
        drive(conn, campaign)
        if kinds == ("a",):
            worker = make_worker(conn)
            for job in claim(conn, worker):
                bury(conn, worker, job, failure=failure(category="transient"))
    worker = make_worker(conn)
    complete(conn, worker, *claim(conn, worker, 2))
    plan(conn, Filter(), actor="ada")
    one = plan(conn, Filter(kind=("a",)), actor="ada").plan
    said = (one, "ada", "x")

    for act in (
        lambda: database.rows("select redrive.leave_out_v1(%s, '{1}', '{n: missing}')", one),
        lambda: start(conn, one, AT_ONCE, actor="ada", why="x"),
        lambda: drive(conn, one),
        lambda: database.rows("select redrive.pause_campaign_v1(%s, %s, %s)", *said),
        lambda: database.rows("select redrive.resume_campaign_v1(%s, %s, %s)", *said),
        lambda: drive(conn, one),
        lambda: database.rows("select redrive.cancel_campaign_v1(%s, %s, %s)", *said),
    ):
        rows = changed(database, act)
        of_campaigns = [row for table, row in rows if table in {"campaigns", "campaign_jobs"}]
        assert {row.get("campaign", row["id"]) for row in of_campaigns} == {one}
        assert {row["kind"] for table, row in rows if table == "dead_letters"} <= {"a"}


def test_a_campaign_looks_at_what_it_depends_on_alone(database: Database) -> None:
    conn = database.conn
    for name in ("mail", "bank", "old", "extra", "other"):
        database.rows("insert into redrive.breakers (name) values (%s)", name)
    for kind in ("a", "b"):
        make_dead_letters(conn, 3, kind=kind)
    for kind in ("a", "b"):
        campaign = plan(conn, Filter(kind=(kind,)), actor="ada").plan
        terms = Terms(canaries=0, breakers={"extra": "closed"})
        start(conn, campaign, terms, actor="ada", why="x")
        drive(conn, campaign)
    workers = [
        register(conn, Registration("w", version, 30, [kind], None, {kind: [breaker]}))
        for version, kind, breaker in (("1", "a", "bank"), ("2", "b", "mail"), ("0", "b", "old"))
    ]
    database.rows("update redrive.workers set lost_at = now() where id = %s", workers[2])
    claimed, tried = claim(conn, workers[1], 2)
    settle(conn, workers[1], tried, "retry", failure=failure())
    seen = database.value("select redrive.look_at_campaign_v1(%s)", campaign)

    assert claimed
    assert seen["unclaimed"] == 1, "one is claimed and one was tried"
    assert seen["breakers"] == {"extra": "closed", "mail": "closed"}
    assert seen["versions"] == ["2"]
