"""What operators do with a campaign: pause, cancel, and approve as the second of two."""

import psycopg
import pytest

from redrive.dead_letters.campaigns import campaign as campaigns
from redrive.dead_letters.campaigns.campaign import drive, plan, start
from redrive.dead_letters.filter import Filter
from redrive.rules.dead_letters.terms import Terms
from tests.factories import (
    claim,
    complete,
    depths,
    make_dead_letter,
    make_dead_letters,
    make_job,
    make_worker,
    settle,
)
from tests.postgres import Database
from tests.sql.test_campaigns import AT_ONCE, counts, run_all, started, state_of


def test_a_paused_campaign_puts_nothing_back_and_counts_still(
    database: Database,
) -> None:
    make_dead_letters(database.conn, 50)
    campaign = started(database.conn, terms=Terms())
    drive(database.conn, campaign)
    campaigns.pause(database.conn, campaign, actor="bo", why="lunch")
    run_all(database.conn)
    for _ in range(3):
        drive(database.conn, campaign)

    assert counts(database.conn, campaign) == ("paused", 3, 3, 0, 0, 47, {})
    with pytest.raises(psycopg.Error, match="only a running campaign can be paused"):
        campaigns.pause(database.conn, campaign, actor="bo", why="lunch")


def test_a_cancelled_campaign_takes_back_what_nobody_has_begun(
    database: Database,
) -> None:
    ids = make_dead_letters(database.conn, 6)
    before = depths(database.conn)
    history = (
        "select d.id, d.reason, d.deliveries, d.died_at, d.state, d.campaign, d.settled_at,"
        " d.outcome from redrive.dead_letters d order by 1"
    )
    as_it_was = database.rows(history)
    campaign = started(database.conn)
    database.rows(
        "select redrive.step_campaign_v1(%s, 0, 'running', 4, null, null)", campaign
    )
    worker = make_worker(database.conn)
    running, tried = claim(database.conn, worker, 2)
    settle(database.conn, worker, tried, "retry", delay=60.0)

    assert campaigns.cancel(database.conn, campaign, actor="bo", why="wrong group") == 2
    assert counts(database.conn, campaign) == ("cancelled", 4, 0, 0, 2, 2, {})
    assert database.column("select id from redrive.jobs order by id") == [
        running.id,
        tried.id,
    ]
    assert [r for r in database.rows(history) if r[0] in ids[2:]] == as_it_was[2:]

    complete(database.conn, worker, running)
    drive(database.conn, campaign)
    assert counts(database.conn, campaign) == ("cancelled", 4, 1, 0, 2, 2, {})
    left = depths(database.conn)["default"]
    assert (left.dead, left.ready + left.scheduled + left.running) == (4, 1)
    assert before["default"].dead == 6
    assert database.row(
        "select action, n from redrive.audit order by id desc limit 1"
    ) == (
        "cancel redrive",
        2,
    )


def test_nobody_claims_what_is_ended_while_its_lane_is_forgotten(
    database: Database,
) -> None:
    """The row of the lane has nothing to do with it."""
    conn = database.conn
    worker = make_worker(conn)
    make_job(conn)
    complete(conn, worker, *claim(conn, worker))
    database.rows("delete from redrive.names")
    forgetter, canceller = database.session(), database.session()
    # a look that began before the job came
    forgetter.rows("begin isolation level repeatable read")
    forgetter.rows("select from redrive.jobs")
    job = make_job(conn)
    assert forgetter.value("select redrive.forget_lanes_v1(10)") == 1
    canceller.rows("begin")
    cancelled = canceller.rows(
        "select * from redrive.cancel_v1(%s, 'ada', 'why')", [job]
    )
    assert cancelled == [(job, "cancelled")]
    forgetter.rows("commit")
    assert claim(database.session().conn, worker) == []
    canceller.rows("commit")
    assert claim(conn, worker) == []


def test_a_claim_and_a_cancel_never_have_the_same_job(database: Database) -> None:
    """The claim holds the mark of the lane; the cancel waits for it and sees the job begun."""
    make_dead_letters(database.conn, 1)
    campaign = started(database.conn)
    drive(database.conn, campaign)
    other = database.session()
    other.rows("begin")
    worker = make_worker(other.conn)
    assert len(claim(other.conn, worker)) == 1
    operator = database.session()
    taken = operator.start(
        lambda: campaigns.cancel(operator.conn, campaign, actor="bo", why="x")
    )
    database.wait_until_blocked(operator)
    other.rows("commit")

    assert taken.result(60) == 0
    assert database.value("select count(*) from redrive.jobs") == 1


def test_the_next_of_an_ordering_key_moves_up_when_one_is_taken_back(
    database: Database,
) -> None:
    dead = make_dead_letter(database.conn, ordering_key="o")
    campaign = started(database.conn)
    drive(database.conn, campaign)
    later = make_job(database.conn, ordering_key="o")
    campaigns.cancel(database.conn, campaign, actor="bo", why="x")

    assert [job.id for job in claim(database.conn, make_worker(database.conn))] == [
        later
    ]
    assert database.column(
        "select id from redrive.dead_letters where state = 'open'"
    ) == [dead]


def test_what_is_taken_back_holds_its_key_and_counts_as_dead_in_its_batch(
    database: Database,
) -> None:
    batch = database.value('select redrive.open_batch_v1(null, \'{"kind": "over"}\')')
    make_dead_letter(database.conn, ordering_key="o")
    database.rows("update redrive.dead_letters set holds_key = true, batch = %s", batch)
    campaign = started(database.conn)
    drive(database.conn, campaign)
    make_job(database.conn, ordering_key="o")
    campaigns.cancel(database.conn, campaign, actor="bo", why="x")

    assert claim(database.conn, make_worker(database.conn)) == []
    assert database.value("select sum(dead) from redrive.batch_deltas") == 0


def test_a_viewer_lists_and_watches(database: Database) -> None:
    make_dead_letters(database.conn, 1)
    campaign = started(database.conn)
    viewer = database.connect("redrive_viewer")
    watched = campaigns.watch(viewer, campaign, every=0.0)

    assert [next(watched)["state"] for _ in range(2)] == ["waiting", "waiting"]
    assert [found["campaign"] for found in campaigns.find(viewer)] == [campaign]


# Two people


def test_a_kind_that_needs_two_is_not_started_by_who_planned_it(
    database: Database,
) -> None:
    make_dead_letters(database.conn, 1)
    database.rows(
        "select redrive.say_approvals_v1('{invoice.charge}', '{invoice.charge}')"
    )
    operator = database.session()
    operator.rows("set session authorization redrive_operator")
    made = plan(operator.conn, Filter(), actor="ada")

    with pytest.raises(psycopg.Error, match="needs two people; a database login other"):
        start(operator.conn, made.plan, AT_ONCE, actor="not ada", why="x")

    start(database.conn, made.plan, AT_ONCE, actor="bo", why="x")
    drive(database.conn, made.plan)
    found = state_of(database.conn, made.plan)
    assert (found["planned_by"], found["planned_login"]) == ("ada", "redrive_operator")
    assert (found["actor"], found["login"]) == ("bo", database.conn.info.user)
    assert found["redriven"] == 1


def test_one_person_behind_two_logins_is_one_person(database: Database) -> None:
    """S23: with a token of each role, somebody started what they had planned."""
    make_dead_letters(database.conn, 1)
    database.rows(
        "select redrive.say_approvals_v1('{invoice.charge}', '{invoice.charge}')"
    )
    operator = database.session()
    operator.rows("set session authorization redrive_operator")
    made = plan(operator.conn, Filter(), actor="ada")

    with pytest.raises(psycopg.Error, match="ada planned this, so another person"):
        start(database.conn, made.plan, AT_ONCE, actor="ada", why="x")
    assert state_of(database.conn, made.plan)["state"] == "planned"


def test_a_kind_needs_two_until_a_worker_says_otherwise(database: Database) -> None:
    for twice, left in (("{a,b,elsewhere}", ["a", "b"]), ("{b}", ["b"]), ("{}", [])):
        database.rows("select redrive.say_approvals_v1('{a,b}', %s::text[])", twice)
        assert database.column("select kind from redrive.approvals order by 1") == left
