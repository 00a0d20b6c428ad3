"""Workers that retire give their jobs back."""

from datetime import timedelta

from redrive.worker import store
from tests.factories import (
    claim,
    complete,
    holders,
    make_job,
    make_jobs,
    make_worker,
    silence,
)
from tests.postgres import Database
from tests.sql.test_rescue import rescue


def test_a_worker_that_retires_gives_its_jobs_back_with_their_attempt(
    database: Database,
) -> None:
    make_jobs(database.conn, 3)
    worker, other = make_worker(database.conn), make_worker(database.conn, "other")
    claim(database.conn, worker, 2)
    claim(database.conn, other)

    assert store.retire(database.conn, worker) == (2, True)
    assert store.retire(database.conn, worker) == (0, True), "and may be sent again"

    assert database.rows(
        "select deliveries, attempt, losses from redrive.jobs order by id"
    ) == [(1, 0, 0), (1, 0, 0), (0, 0, 0)]
    assert set(holders(database.conn).values()) == {other}
    assert database.column("select id from redrive.workers") == [other]
    assert database.rows(
        "select event, reason, n from redrive.totals where event = 'released'"
    ) == [("released", "retired", 2)]


def test_a_retirement_comes_again_after_a_claim_of_its_worker_and_gives_that_back_too(
    database: Database,
) -> None:
    """The claim whose reply was lost may still be running on the server. Nobody waits for it."""
    make_jobs(database.conn, 3)
    worker = make_worker(database.conn)
    claiming, retiring = database.transaction(), database.session()
    claim(claiming.conn, worker)

    assert store.retire(retiring.conn, worker) == (0, False)
    claiming.rows("commit")

    assert store.retire(retiring.conn, worker) == (3, True)
    assert holders(database.conn) == {}
    assert database.column("select deliveries from redrive.jobs") == [1, 1, 1]


def test_a_retirement_leaves_a_job_that_a_handler_has_locked_for_the_next_time(
    database: Database,
) -> None:
    make_jobs(database.conn, 3)
    worker, other = make_worker(database.conn), make_worker(database.conn, "other")
    locked, *_ = claim(database.conn, worker, 3)
    handler = database.transaction()
    handler.value(
        "select redrive.complete_in_transaction_v1(%s, %s, %s)",
        worker,
        locked.id,
        locked.deliveries,
    )

    assert store.retire(database.conn, worker) == (2, False)
    assert holders(database.conn) == {locked.id: worker}
    assert len(claim(database.conn, other, 3)) == 2
    handler.rows("rollback")

    assert store.retire(database.conn, worker) == (1, True)
    assert [job.id for job in claim(database.conn, other, 3)] == [locked.id]


def test_an_identity_left_behind_gives_back_at_once_what_nobody_knows_of(
    database: Database,
) -> None:
    """Jobs of a claim whose reply was lost waited for the longest job of their worker."""
    make_jobs(database.conn, 5)
    worker, other = make_worker(database.conn), make_worker(database.conn, "other")
    known = claim(database.conn, worker, 2)[:1]
    claim(database.conn, worker, 3)

    assert store.retire(database.conn, worker, [job.id for job in known]) == (4, False)
    assert set(database.column("select id from redrive.workers")) == {worker, other}
    assert holders(database.conn) == {known[0].id: worker}
    assert len(claim(database.conn, other)) == 4
    make_job(database.conn)
    assert claim(database.conn, worker) == [], "it claims nothing more"
    assert complete(database.conn, worker, *known) == {known[0].id}
    store.retire(database.conn, worker)
    assert database.column("select id from redrive.workers") == [other]


def test_a_claim_whose_worker_nobody_knows_is_rescued(database: Database) -> None:
    """A job whose worker has no row is rescued."""
    make_jobs(database.conn, 3)
    worker, _ = make_worker(database.conn), make_worker(database.conn, "other")
    claim(database.conn, worker)
    database.rows("delete from redrive.workers where id = %s", worker)

    assert rescue(database.conn, timedelta(hours=1)) == (1, 3, 0)
    assert holders(database.conn) == {}


def test_a_claim_that_waits_for_the_retirement_of_its_worker_gets_nothing(
    database: Database,
) -> None:
    make_jobs(database.conn, 3)
    worker = make_worker(database.conn)
    retiring, claiming = database.transaction(), database.session()
    store.retire(retiring.conn, worker)

    waiting = database.start_blocked(
        claiming, lambda: claim(claiming.conn, worker), by=retiring
    )
    retiring.rows("commit")

    assert waiting.result(60) == []


def test_a_beat_counts_the_jobs_in_flight_and_only_moves_its_own_row(
    database: Database,
) -> None:
    one, two = make_worker(database.conn, "one"), make_worker(database.conn, "two")
    silence(database.conn, one)
    silence(database.conn, two)

    assert store.beat(database.conn, {one: 5, 999: 1}).alive == {one}
    assert database.rows(
        "select id, inflight, seen_at > clock_timestamp() - interval '1 minute'"
        " from redrive.workers order by name"
    ) == [(one, 5, True), (two, 0, False)]


def test_a_worker_counts_those_that_look_for_the_same_jobs(database: Database) -> None:
    def number(**differs: object) -> int:
        names = ", ".join(("name", *differs))
        values = ", ".join(["%s"] * (1 + len(differs)))
        return database.value(
            f"insert into redrive.workers ({names}) values ({values}) returning id",
            "w",
            *differs.values(),
        )

    mine = number(queues=["mail", "slow"])
    for_all = number()
    number(lost_at="2026-01-01")
    number(queues=["slow"])
    payments = number(queues=["payments"])

    counted = {
        who: store.beat(database.conn, {who: 0}).others
        for who in (mine, for_all, payments)
    }
    assert counted == {mine: 2, for_all: 3, payments: 1}
    assert store.beat(database.conn, {999: 0}).others == 0


def test_the_first_of_those_with_the_same_handlers_know_their_place(
    database: Database,
) -> None:
    database.rows("""
        insert into redrive.workers (id, name, kinds, version, lost_at, is_closed)
        overriding system value
        values (1, 'first', '{a}', '', null, false), (2, 'mail', '{mail}', '', null, false),
               (3, 'lost', '{a}', '', now(), false), (4, 'closed', '{a}', '', null, true),
               (5, 'second', '{a}', '', null, false), (6, 'newer', '{a}', '2', null, false)""")

    places = {who: store.beat(database.conn, {who: 0}).place for who in (1, 2, 5, 6)}

    assert places == {1: 0, 2: 0, 5: 1, 6: 0}
