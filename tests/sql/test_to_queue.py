"""Jobs that a redrive sends to another queue."""

import psycopg
import pytest

from redrive.dead_letters.campaigns.terms import Terms
from tests.factories import (
    claim,
    complete,
    let_die,
    let_next_die,
    make_campaign,
    make_dead_letter,
    make_dead_letters,
    make_job,
    make_worker,
    redrive,
)
from tests.postgres import Connection, Database
from tests.sql.test_ordering_keys import holding_worker, make_key

DEPTHS = "select queue, ready, running, dead from redrive.depths_v1() order by queue"


def campaign_to(conn: Connection, queue: str) -> int:
    """A campaign whose jobs go to this queue."""
    campaign = make_campaign(conn)
    terms = psycopg.types.json.Jsonb(Terms(to_queue=queue).conditions())
    conn.execute(
        "update redrive.campaigns set conditions = %s where id = %s", (terms, campaign)
    )
    return campaign


@pytest.mark.every_version
def test_a_redriven_job_goes_to_another_queue_and_every_count_follows(
    database: Database,
) -> None:
    """Only the payload could be changed before a replay."""
    conn = database.conn
    first, second = make_dead_letters(conn, 2)

    assert redrive(conn, [first, second], campaign=campaign_to(conn, "slow")) == {
        first: None,
        second: None,
    }
    assert database.rows(DEPTHS) == [("default", 0, 0, 0), ("slow", 2, 0, 0)]

    worker = make_worker(conn)
    one, other = claim(conn, worker)
    assert database.rows(DEPTHS) == [("default", 0, 0, 0), ("slow", 0, 2, 0)]
    complete(conn, worker, one)
    let_die(conn, worker, other)

    assert database.rows(DEPTHS) == [("default", 0, 0, 0), ("slow", 0, 0, 1)]
    assert database.rows(
        "select queue, redrives, state, outcome from redrive.dead_letters"
        " order by id, redrives"
    ) == [
        ("default", 0, "resolved", "succeeded"),
        ("default", 0, "redriven", "dead_again"),
        ("slow", 1, "open", None),
    ]


def test_a_job_that_is_taken_back_is_a_dead_letter_of_its_own_queue(
    database: Database,
) -> None:
    """Cancel of the campaign undoes the change of the queue."""
    (job,) = make_dead_letters(database.conn, 1)
    campaign = campaign_to(database.conn, "slow")
    redrive(database.conn, [job], campaign=campaign)

    taken = database.value("select redrive.take_back_v1(%s, %s)", campaign, [job])

    assert taken == [job]
    assert database.rows(DEPTHS) == [("default", 0, 0, 1), ("slow", 0, 0, 0)]


def test_the_key_that_it_held_continues_without_it(database: Database) -> None:
    """Its order is that of the new queue, and the old queue does not wait for it."""
    worker = holding_worker(database.conn)
    first, second = make_key(database.conn, 2)
    let_next_die(database.conn, worker)
    assert claim(database.conn, worker) == []

    redrive(database.conn, [first], campaign=campaign_to(database.conn, "slow"))

    assert {job.id for job in claim(database.conn, worker)} == {first, second}


@pytest.mark.parametrize(("lanes", "expected"), [(1, False), (8, True)])
def test_its_tenant_takes_turns_by_the_rule_of_the_new_queue(
    database: Database, lanes: int, *, expected: bool
) -> None:
    """A lane of the old queue may not exist in the new one."""
    conn = database.conn
    conn.execute("select redrive.set_lanes_v1('default', 4, 'ada', 'x')")
    conn.execute("select redrive.set_lanes_v1('slow', %s, 'ada', 'x')", (lanes,))
    job = make_dead_letter(conn, tenant="acme")

    redrive(conn, [job], campaign=campaign_to(conn, "slow"))
    like = make_job(conn, queue="slow", tenant="acme")

    lane = "select lane from redrive.jobs where id = %s"
    assert database.value(lane, job) == database.value(lane, like)
    assert (database.value(lane, job) > 0) is expected


def test_a_dedupe_key_holds_in_every_queue(database: Database) -> None:
    """The same work is not done twice, whatever queue it goes to."""
    job = make_dead_letter(database.conn, idempotency_key="k")
    make_job(database.conn, idempotency_key="k")

    found = redrive(database.conn, [job], campaign=campaign_to(database.conn, "slow"))

    assert found == {job: "conflict"}
    assert database.rows(DEPTHS) == [("default", 1, 0, 1)]


@pytest.mark.parametrize(
    ("queue", "says"),
    [("1slow", "queue: must match"), ("new", "allowed names are in use")],
)
def test_an_impossible_queue_is_refused_before_anything_moves(
    database: Database, queue: str, says: str
) -> None:
    """The names of queues are checked and limited as for enqueue."""
    (job,) = make_dead_letters(database.conn, 1)
    database.conn.execute("select redrive.limit_names_v1('queues', 1, 'ada', 'x')")
    campaign = campaign_to(database.conn, queue)

    with pytest.raises(psycopg.Error, match=says):
        redrive(database.conn, [job], campaign=campaign)
    assert database.value("select state from redrive.dead_letters") == "open"
