"""Unique jobs: one of a kind with the same payload, or fields of it, for a time."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel, errors

from redrive.encryption import Keyring, configured
from redrive.enqueue import Enqueued, enqueue, enqueue_many, enqueue_reporting
from redrive.errors import InvalidJob
from redrive.testing import enqueued
from tests.factories import (
    Claimed,
    claim,
    claim_one,
    complete,
    complete_next,
    let_next_die,
    make_dead_letter,
    make_worker,
    redrive,
    settle_next,
    totals,
)
from tests.postgres import Database

Connection = psycopg.Connection[tuple[Any, ...]]

KIND = "crm.sync"
HOUR = timedelta(hours=1)
LEVELS = list(IsolationLevel)[1:]


def ask(conn: Connection, customer: int = 7, **options: Any) -> Enqueued:
    """Enqueue a unique job."""
    return enqueue_reporting(
        conn, KIND, {"customer": customer}, **({"unique_for": HOUR} | options)
    )


def debounce(conn: Connection, n: int, **options: Any) -> Enqueued:
    """Enqueue a job that replaces the waiting one."""
    return enqueue_reporting(
        conn,
        KIND,
        {"customer": 7, "n": n},
        **(
            {"unique_for": HOUR, "unique_by": ["customer"], "on_conflict": "replace"}
            | options
        ),
    )


def numbers(database: Database) -> list[int]:
    """Which of the debounced jobs live."""
    return database.column("select (payload ->> 'n')::int from redrive.jobs order by 1")


def let_pass(database: Database, interval: timedelta) -> None:
    """Let all have been enqueued so much earlier."""
    database.rows("update redrive.jobs set created_at = created_at - %s", interval)
    database.rows(
        "update redrive.completions set enqueued_at = enqueued_at - %s", interval
    )


# Skip


def test_a_unique_job_is_enqueued_once(database: Database) -> None:
    first, second = ask(database.conn), ask(database.conn)

    assert (first.created, first.outcome) == (True, "enqueued")
    assert second == Enqueued(first.id, created=False, outcome="live")
    assert totals(database.conn) == {"enqueued": 1}


def test_what_ended_within_its_time_is_in_the_way_and_later_is_not(
    database: Database,
) -> None:
    first, worker = ask(database.conn), make_worker(database.conn)
    complete_next(database.conn, worker)

    assert ask(database.conn) == Enqueued(first.id, created=False, outcome="succeeded")
    let_pass(database, HOUR)
    again = ask(database.conn)
    assert again.created
    complete_next(database.conn, worker)
    assert ask(database.conn) == Enqueued(again.id, created=False, outcome="succeeded")


def test_a_job_that_still_lives_is_in_the_way_for_as_long(database: Database) -> None:
    first = ask(database.conn)
    let_pass(database, 2 * HOUR)

    assert ask(database.conn) == Enqueued(first.id, created=False, outcome="live")


def test_a_dead_one_is_not_in_the_way_and_comes_back_under_its_key(
    database: Database,
) -> None:
    dead = make_dead_letter(database.conn, KIND, {"customer": 7}, unique_for=3600)
    second = ask(database.conn)

    assert second.created
    assert redrive(database.conn, [dead]) == {dead: "conflict"}
    worker = make_worker(database.conn)
    complete_next(database.conn, worker)
    assert redrive(database.conn, [dead]) == {dead: "succeeded"}

    other = make_dead_letter(database.conn, KIND, {"customer": 8}, unique_for=3600)
    assert redrive(database.conn, [other]) == {other: None}
    assert ask(database.conn, 8) == Enqueued(other, created=False, outcome="live")


@pytest.mark.parametrize(
    ("fields", "payloads", "is_same"),
    [
        (None, ({"a": 1, "b": 2}, {"b": 2, "a": 1}), True),
        (None, ({"a": 1}, {"a": 1, "b": None}), False),
        (["a"], ({"a": 1, "b": 2}, {"a": 1, "b": 3}), True),
        (["a"], ({"a": 1}, {"a": "1"}), False),
        (["a", "b"], ({"a": 1}, {"a": 1, "b": None}), True),
        (["a", "b"], ({"a": 1, "b": 2}, {"a": 2, "b": 1}), False),
        (["b", "a"], ({"a": {"x": [1]}}, {"a": {"x": [1]}, "c": 1}), True),
    ],
)
@pytest.mark.parametrize("sealed", [False, True])
def test_which_payloads_are_the_same(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    fields: list[str] | None,
    payloads: tuple[Any, Any],
    is_same: bool,
    sealed: bool,
) -> None:
    """Encrypted or not: nobody sees in the database by what."""
    if sealed:
        with_keys(monkeypatch)
    first, second = (
        enqueue(database.conn, KIND, payload, unique_for=60, unique_by=fields)
        for payload in payloads
    )

    assert (first == second) == is_same


@pytest.mark.parametrize("field", ["queue", "tenant", "ordering_key"])
def test_jobs_of_others_are_not_the_same(database: Database, field: Any) -> None:
    assert ask(database.conn, **{field: "a"}).created
    assert ask(database.conn, **{field: "b"}).created
    assert not ask(database.conn, **{field: "a"}).created


def test_another_kind_is_not_the_same(database: Database) -> None:
    assert ask(database.conn).created
    assert enqueue_reporting(
        database.conn, "crm.drop", {"customer": 7}, unique_for=60
    ).created


def test_plain_sql_and_bulk_make_the_same_key(database: Database) -> None:
    job = database.value(
        "select redrive.enqueue('crm.sync', '{\"customer\": 7}', unique_for => '1 hour')"
    )
    fields: Any = [
        {"kind": KIND, "payload": {"customer": n}, "unique_for": HOUR} for n in (7, 8)
    ]

    assert ask(database.conn).id == job
    assert enqueue_many(database.conn, fields) == 1


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"idempotency_key": "k"}, "unique_for"),
        ({"unique_for": None, "unique_by": ["a"]}, "unique_by"),
        ({"unique_for": None, "on_conflict": "skip"}, "on_conflict"),
        ({"on_conflict": "update"}, "on_conflict"),
        ({"on_conflict": "replace", "batch": 1}, "on_conflict"),
        ({"unique_by": []}, "unique_by"),
        ({"unique_by": "customer"}, "unique_by"),
        ({"unique_by": [7]}, "unique_by"),
        ({"unique_by": [""]}, "unique_by"),
        ({"unique_for": 0}, "unique_for"),
        ({"delay": 1, "run_at": datetime(2030, 1, 1, tzinfo=UTC)}, "delay"),
        ({"delay": -1}, "delay"),
        ({"unique_for": None, "idempotency_key": "$unique:mine"}, "idempotency_key"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(
    refusing: Database, options: dict[str, Any], path: str
) -> None:
    with pytest.raises(InvalidJob) as refused:
        ask(refusing.conn, **options)

    assert refused.value.path == path


def test_nobody_can_give_the_key_of_a_unique_job(database: Database) -> None:
    """Whoever could would keep the job of another from being enqueued."""
    producer = database.session("redrive_producer")
    with pytest.raises(psycopg.DatabaseError, match="must not begin with"):
        producer.rows("select redrive.enqueue('a', idempotency_key => '$unique:0')")


def test_the_key_of_a_unique_job_is_not_the_key_of_its_work(database: Database) -> None:
    """The next one has the same: a receiver that deduplicates by `job.key` would refuse its work."""
    ask(database.conn)

    assert (
        claim_one(database.conn, make_worker(database.conn)).more["idempotency_key"]
        is None
    )


def test_delay_counts_from_now(database: Database) -> None:
    enqueue(database.conn, "a", delay=3600)
    enqueue(database.conn, "a", delay=0)

    assert database.column(
        "select round(extract(epoch from run_at - created_at) / 3600)::int from redrive.jobs"
        " order by id"
    ) == [1, 0]


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_two_transactions_with_one_unique_job_make_one(
    database: Database, level: IsolationLevel, ends: str
) -> None:
    """The second one waits for the first and gets its job, or a 40001 and may try again."""
    second = database.session()
    second.conn.isolation_level = level
    second.conn.autocommit = False
    second.rows("select 1")  # takes the snapshot
    first = database.connect()
    first.autocommit = False
    made = ask(first)
    waiting = second.start(lambda: ask(second.conn))
    database.wait_until_blocked(second)
    getattr(first, ends)()
    try:
        found = waiting.result(60)
        second.conn.commit()
    except errors.SerializationFailure:
        assert level is not IsolationLevel.READ_COMMITTED
        second.conn.rollback()
        found = ask(second.conn)
        second.conn.commit()

    assert found.created == (ends == "rollback")
    assert (found.id == made.id) == (ends == "commit")
    assert database.value("select count(*) from redrive.jobs") == 1


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_one_that_ended_after_the_snapshot_is_in_the_way(
    database: Database, level: IsolationLevel
) -> None:
    """For unique jobs, too."""
    conn, worker = database.connect(), make_worker(database.conn)
    conn.isolation_level = level
    conn.autocommit = False
    conn.execute("select 1")
    first = ask(database.conn)
    complete_next(database.conn, worker)
    try:
        found = ask(conn)
    except errors.SerializationFailure:
        assert level is not IsolationLevel.READ_COMMITTED
        conn.rollback()
        found = ask(conn)

    assert found == Enqueued(first.id, created=False, outcome="succeeded")


# Replace


def test_a_job_that_waits_gets_the_newest_payload_and_time(database: Database) -> None:
    first = debounce(database.conn, 1, delay=60)
    second = debounce(database.conn, 2, delay=600, headers={"by": "ada"}, expires_in=60)

    assert second == Enqueued(first.id, created=False, outcome="replaced")
    (job,) = enqueued(database.conn)
    assert (job["id"], job["payload"]["n"], job["headers"]) == (
        first.id,
        2,
        {"by": "ada"},
    )
    assert job["expires_at"] is not None
    seconds = database.value(
        "select extract(epoch from run_at - created_at) from redrive.jobs"
    )
    assert 600 <= seconds < 660
    assert totals(database.conn) == {"enqueued": 1}


def test_it_is_put_off_to_no_later_than_its_time(database: Database) -> None:
    debounce(database.conn, 1, delay=3500)
    let_pass(database, timedelta(seconds=3400))
    debounce(database.conn, 2, delay=3500)

    assert database.row(
        "select run_at = created_at + interval '1 hour', payload ->> 'n' from redrive.jobs"
    ) == (True, "2")


def test_the_last_of_one_transaction_stands(database: Database) -> None:
    debounce(database.conn, 1, delay=60)
    with database.conn.transaction():
        for n in (2, 3):
            debounce(database.conn, n, delay=60)

    assert numbers(database) == [3]
    assert database.value("select count(*) from redrive.replacements") == 0


def test_what_is_rolled_back_replaces_nothing(database: Database) -> None:
    debounce(database.conn, 1, delay=60)
    with database.conn.transaction(force_rollback=True):
        debounce(database.conn, 2, delay=60)

    assert numbers(database) == [1]


def test_one_that_runs_is_left_and_the_new_one_comes_after_it(
    database: Database,
) -> None:
    worker = make_worker(database.conn)
    first = debounce(database.conn, 1)
    running = claim_one(database.conn, worker)
    debounce(database.conn, 2)
    debounce(database.conn, 3)

    assert numbers(database) == [1, 3]
    assert complete(database.conn, worker, running) == {first.id}
    (left,) = claim(database.conn, worker)
    assert left.payload == '{"n": 3, "customer": 7}'
    assert complete(database.conn, worker, left) == {left.id}
    assert debounce(database.conn, 4).created, "what has ended is not in its way"


def test_one_that_ended_before_the_commit_is_followed_by_the_new_one(
    database: Database,
) -> None:
    worker, producer = make_worker(database.conn), database.connect()
    producer.autocommit = False
    debounce(database.conn, 1)
    assert debounce(producer, 2).outcome == "replaced"
    complete_next(database.conn, worker)
    producer.commit()

    assert numbers(database) == [2]


def test_a_producer_that_takes_its_time_keeps_nobody_from_claiming(
    database: Database,
) -> None:
    worker, producer = make_worker(database.conn), database.connect()
    producer.autocommit = False
    debounce(database.conn, 1)
    assert debounce(producer, 2).outcome == "replaced"
    other = enqueue(database.conn, "a")
    claimed = claim(database.conn, worker)

    assert [job.kind for job in claimed] == [KIND, "a"]
    assert complete(database.conn, worker, *claimed) >= {other}
    producer.commit()
    assert numbers(database) == [2]


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_a_claim_that_came_first_never_swallows_what_replaces_it(
    database: Database, level: IsolationLevel
) -> None:
    """The old payload runs, and the new one after it, whatever the producer could see."""
    worker, producer = a_lane_in_use(database), database.connect()
    producer.isolation_level = level
    producer.autocommit = False
    debounce(database.conn, 1)
    assert debounce(producer, 2).outcome == "replaced"  # takes the snapshot
    old = claim_one(database.conn, worker)
    producer.commit()
    ends_well(database, worker, old)

    (new,) = claim(database.conn, worker)
    assert new.payload == '{"n": 2, "customer": 7}'
    assert complete(database.conn, worker, new) == {new.id}
    assert numbers(database) == []


def a_lane_in_use(database: Database) -> int:
    """Claim from the lane once, so that a replacement need not make its row. Returns a worker."""
    worker = make_worker(database.conn)
    enqueue(database.conn, "a")
    complete_next(database.conn, worker)
    return worker


def test_a_claim_that_came_after_the_snapshot_is_fenced_off(database: Database) -> None:
    """It is not seen, and the job runs again with what replaced it."""
    worker, producer = make_worker(database.conn), database.connect()
    producer.isolation_level = IsolationLevel.REPEATABLE_READ
    producer.autocommit = False
    debounce(database.conn, 1)
    debounce(producer, 2)
    job = claim_one(database.conn, worker)
    producer.commit()

    assert numbers(database) == [2]
    assert not complete(database.conn, worker, job)
    assert numbers(database) == [2]


def ends_well(database: Database, worker: int, job: Claimed) -> None:
    """Complete it as a worker does: the claim is over, whether the job was still its own or not."""
    complete(database.conn, worker, job)
    database.rows("delete from redrive.claims where id = %s", job.claim)


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_a_claim_that_is_under_way_comes_before_the_replacement(
    database: Database, level: IsolationLevel
) -> None:
    """The commit waits for the claim, and then finds that the job runs, or fences it off."""
    worker = a_lane_in_use(database)
    debounce(database.conn, 1)
    claimer = database.connect()
    claimer.autocommit = False
    old = claim_one(claimer, worker)  # holds the lane
    producer = database.session()
    producer.conn.isolation_level = level
    producer.conn.autocommit = False
    debounce(producer.conn, 2)
    committing = producer.start(producer.conn.commit)
    database.wait_until_blocked(producer)
    claimer.commit()
    committing.result(60)
    ends_well(database, worker, old)

    (new,) = claim(database.conn, worker)
    assert new.payload == '{"n": 2, "customer": 7}'


def test_two_that_replace_the_same_jobs_do_not_wait_in_a_circle(
    database: Database,
) -> None:
    """By lane: each replaces two jobs of two queues, in the other order."""

    def both(conn: Connection, n: int, queues: tuple[str, str]) -> None:
        with conn.transaction():
            for queue in queues:
                debounce(conn, n, queue=queue, delay=60)

    both(database.conn, 1, ("a", "b"))
    sessions = database.session(), database.session()
    for turn in range(10):
        acts = [
            sessions[0].start(lambda n=turn: both(sessions[0].conn, 2 * n, ("a", "b"))),
            sessions[1].start(
                lambda n=turn: both(sessions[1].conn, 2 * n + 1, ("b", "a"))
            ),
        ]
        for act in acts:
            act.result(60)

    one, other = numbers(database)
    assert one == other, "and neither halves of both"


def test_a_retrying_one_is_replaced_and_keeps_its_attempts(database: Database) -> None:
    worker = make_worker(database.conn)
    debounce(database.conn, 1)
    assert settle_next(database.conn, worker, "retry", delay=60.0)
    debounce(database.conn, 2)

    job = claim_one(database.conn, worker)
    assert (job.payload, job.attempt) == ('{"n": 2, "customer": 7}', 2)


def test_one_behind_an_ordering_key_stays_in_line(database: Database) -> None:
    enqueue(database.conn, "a", ordering_key="k")
    debounce(database.conn, 1, ordering_key="k")
    debounce(database.conn, 2, ordering_key="k")

    assert database.column(
        "select run_at = 'infinity' from redrive.jobs order by id"
    ) == [False, True]


def test_what_cannot_be_stored_replaces_nothing(database: Database) -> None:
    debounce(database.conn, 1)
    with pytest.raises(
        psycopg.DatabaseError, match=r"payload\.x: number outside the range"
    ):
        database.rows(
            "select redrive.enqueue('crm.sync', ('{\"customer\": 7, \"x\": 1' || repeat('0', 400)"
            " || '}')::jsonb, unique_for => '1 h', unique_by => '{customer}',"
            " on_conflict => 'replace')"
        )

    assert numbers(database) == [1]


# Encrypted


def with_keys(monkeypatch: pytest.MonkeyPatch, fill: bytes = b"k") -> Keyring:
    key = base64.b64encode(fill * 32).decode()
    monkeypatch.setenv("REDRIVE_ENCRYPTION_KEYS", f"k1 {key}")
    configured.cache_clear()
    monkeypatch.setattr("redrive.encryption.configured", configured)
    keyring = configured()
    assert keyring
    return keyring


@pytest.fixture(autouse=True)
def no_keys_left() -> Any:
    yield
    configured.cache_clear()


def test_what_makes_an_encrypted_job_unique_says_nothing_of_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A digest under the key: who has not that one cannot try values."""
    digests: set[str] = set()
    for fill in (b"k", b"l"):
        with_keys(monkeypatch, fill)
        enqueue(database.conn, KIND, {"customer": 7}, unique_for=60)
    for payload, key in database.rows(
        "select payload, idempotency_key from redrive.jobs"
    ):
        assert "customer" not in str(payload)
        digests.add(key)

    assert len(digests) == 2, "of another key it is another one"


def test_an_encrypted_job_can_be_replaced_and_read(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_keys(monkeypatch)
    debounce(database.conn, 1, delay=60)
    debounce(database.conn, 2, delay=60)

    (job,) = enqueued(database.conn)
    assert job["payload"] == {"customer": 7, "n": 2}


def test_a_running_one_that_gave_up_its_key_can_still_be_read(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_keys(monkeypatch)
    debounce(database.conn, 1)
    worker = make_worker(database.conn)
    let_next_die(database.conn, worker)
    debounce(database.conn, 2)
    claim_one(database.conn, worker)
    debounce(database.conn, 3, delay=60)

    assert [job["payload"]["n"] for job in enqueued(database.conn)] == [2, 3]
