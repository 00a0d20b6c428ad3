"""Dead letters of other systems come in whole, once, on record, and as no incident."""

import json
from typing import Any, LiteralString

import psycopg
import pytest

from redrive.rules.model import Category, Reason
from tests.factories import make_dead_letter
from tests.postgres import Database, Session
from tools.metrics_page import of_the_database

LETTER: dict[str, Any] = {
    "source_id": "m-1",
    "kind": "mail.send",
    "queue": "mail",
    "payload": {"to": 17},
    "headers": {"source": "sqs"},
    "reason": "attempts_exhausted",
    "category": "other",
    "error_class": "ValueError",
    "message": "no such customer",
    "fingerprint": "f1",
    "attempts": 5,
    "died_at": "2026-03-02T12:00Z",
    "created_at": "2026-03-01T12:00Z",
}
IMPORT: LiteralString = (
    "select n, id from redrive.import_v1(%s, %s::jsonb, 'ada', 'we move')"
)


def take(
    session: Session, *letters: dict[str, Any], source: str = "sqs"
) -> list[tuple[Any, ...]]:
    """Import letters that are LETTER but for what is given. Returns n and id of the new ones."""
    return session.rows(
        IMPORT, source, json.dumps([LETTER | letter for letter in letters])
    )


def test_what_comes_in_is_a_dead_letter_like_any_other(database: Database):
    ((_, job),) = take(database, {"tenant": "acme", "idempotency_key": "k"})

    assert database.row(
        "select id, redrives, state, queue, kind, reason, category, error_class, message, attempts,"
        " deliveries, payload, tenant, idempotency_key, died_at > created_at,"
        " first_failed_at = died_at from redrive.dead_letters"
    ) == (
        *(
            job,
            0,
            "open",
            "mail",
            "mail.send",
            "attempts_exhausted",
            "other",
            "ValueError",
        ),
        *("no such customer", 5, 5, {"to": 17}, "acme", "k", True, True),
    )
    assert (
        database.value("select redrive.enqueue('next')") > job
    )  # its id is nobody else's


def test_none_comes_in_twice_from_its_source(database: Database):
    first = take(database, {}, {"payload": {"to": 18}}, {"source_id": "m-2"})
    again = take(database, {}, {"source_id": "m-2"}, {"source_id": "m-3"})
    other = take(database, {}, source="sidekiq")
    assert take(database, {}) == []

    assert [n for n, _ in first] == [1, 3]  # of two with one id, the first
    assert [n for n, _ in again] == [3]
    assert len(other) == 1
    assert database.value("select count(*) from redrive.dead_letters") == 4
    assert database.rows(
        "select n, detail ->> 'source' from redrive.audit order by id"
    ) == [(2, "sqs"), (1, "sqs"), (1, "sidekiq")]


def test_one_that_is_bad_keeps_all_out(database: Database):
    for wrong, rule in (
        ({"payload": None}, "payload: must be an object, not null"),
        ({"payload": {"x": "y" * 300_000}}, "payload: 300009 bytes, at most 262144"),
        ({"headers": []}, "headers: must be an object"),
        ({"headers": {"x": "y" * 9000}}, "headers: at most 8192 bytes"),
        (
            {"headers": {"x": 10**400}},
            "headers.x: number outside the range of a double",
        ),
        ({"source_id": None}, "source_id: must have 1 to 255 characters"),
        ({"tenant": ""}, "tenant: must have 1 to 255 characters"),
        ({"idempotency_key": ""}, "idempotency_key: must have 1 to 255 characters"),
        ({"reason": "tired"}, "reason: must be one for which a job dies"),
        ({"category": None}, "category: must be one of a failure"),
        ({"fingerprint": None}, "error_class: give it, message and fingerprint"),
        ({"attempts": 0}, "attempts: must lie between 1 and 100000"),
        (
            {"died_at": "1999-01-01"},
            "died_at: must lie between the years 2000 and 9999",
        ),
        (
            {"created_at": "2026-03-03"},
            "created_at: must lie between the year 2000 and died_at",
        ),
    ):
        with pytest.raises(psycopg.Error) as caught:
            take(database, {}, {"source_id": "m-2"} | wrong)

        assert caught.value.sqlstate == "RD001"
        assert caught.value.diag.message_primary == f"letters[1].{rule}"
    for wrong, rule in (
        ({"kind": "1"}, "kind: must match ^[A-Za-z][A-Za-z0-9_.-]{0,62}$"),
        ({"kind": None}, "kind: must match ^[A-Za-z][A-Za-z0-9_.-]{0,62}$"),
        ({"queue": None}, "queue: must match ^[A-Za-z][A-Za-z0-9_.-]{0,62}$"),
    ):
        with pytest.raises(psycopg.Error) as caught:
            take(database, {}, {"source_id": "m-2"} | wrong)

        assert caught.value.diag.message_primary == rule
    with pytest.raises(psycopg.Error, match="source: must have 1 to 255 characters"):
        take(database, {}, source="")

    for table in ("dead_letters", "imports", "audit", "deltas"):
        assert database.value(f"select count(*) from redrive.{table}") == 0, table  # type: ignore[arg-type]


def test_every_reason_and_category_there_is_may_come(database: Database):
    reasons = [{"source_id": f"r{r}", "reason": r} for r in Reason]
    categories = [{"source_id": f"c{c}", "category": c} for c in Category]

    assert len(take(database, *reasons, *categories)) == len(Reason) + len(Category)


def test_they_raise_the_depth_and_are_no_growth(database: Database):
    """An import must not page: the alerts look at what was added."""
    make_dead_letter(database.conn, queue="mail")
    take(database, *({"source_id": str(n)} for n in range(30)))
    database.rows("select redrive.fold_v1()")
    database.rows("select redrive.sample_v1()")
    database.rows(
        "insert into redrive.samples (minute, queue, dead)"
        " select minute - interval '1 minute', queue, 0 from redrive.samples"
    )

    assert (
        database.value("select dead from redrive.depths_v1() where queue = 'mail'")
        == 31
    )
    assert (
        database.value(
            "select added from redrive.added_per_minute_v1() where queue = 'mail'"
        )
        == 1
    )
    figures = {family.name: family.samples for family in of_the_database(database.url)}
    told = {
        name: sum(
            sample.value for sample in figures[name] if sample.labels["queue"] == "mail"
        )
        for name in ("redrive_dlq_added", "redrive_dlq_depth", "redrive_dlq_imported")
    }
    assert told == {
        "redrive_dlq_added": 1,
        "redrive_dlq_depth": 31,
        "redrive_dlq_imported": 30,
    }


def test_a_recent_death_of_a_watched_source_counts_as_added(database: Database):
    recent = {"died_at": None, "created_at": None}
    take(database, recent | {"is_live": True}, {"source_id": "m-2", "is_live": True})
    take(database, recent | {"source_id": "m-3"})
    database.rows("select redrive.fold_v1()")

    counted = database.rows(
        "select event, reason, sum(n)::int from redrive.totals where queue = 'mail'"
        " and event in ('enqueued', 'claimed', 'dead', 'imported') group by 1, 2 order by 1"
    )
    assert counted == [
        ("claimed", "", 1),
        ("dead", "attempts_exhausted", 1),
        ("enqueued", "", 1),
        ("imported", "attempts_exhausted", 2),
    ]
    depths = "select ready, running, dead from redrive.depths_v1() where queue = 'mail'"
    assert database.rows(depths) == [(0, 0, 3)]


def test_the_age_of_the_oldest_is_that_of_its_death(database: Database):
    take(database, {})

    assert database.value(
        "select round((extract(epoch from clock_timestamp()) - age_seconds) / 3600) * 3600"
        " = extract(epoch from '2026-03-02T12:00Z'::timestamptz)"
        " from redrive.oldest_dead_v1() where queue = 'mail'"
    )


def test_a_group_begins_with_the_first_death_and_ends_with_the_last(database: Database):
    days = ("2026-03-05", "2026-03-02", "2026-03-09")
    take(database, *({"source_id": d, "died_at": f"{d}T12:00Z"} for d in days))
    seen: LiteralString = "select total, open, first_seen::date::text, last_seen::date::text from redrive.grouped"
    unfolded = database.row(seen)
    database.rows("select redrive.fold_groups_v1()")

    assert database.row(seen) == unfolded == (3, 3, "2026-03-02", "2026-03-09")


def test_nobody_dies_in_the_future(database: Database):
    take(database, {"died_at": "2999-01-01", "created_at": "2998-01-01"})

    assert database.row(
        "select died_at <= clock_timestamp(), created_at <= died_at from redrive.dead_letters"
    ) == (True, True)


def test_without_instants_it_died_now(database: Database):
    take(database, {"died_at": None, "created_at": None})

    assert database.row(
        "select died_at > clock_timestamp() - interval '1 minute', created_at = died_at"
        " from redrive.dead_letters"
    ) == (True, True)


def test_of_a_fair_queue_it_has_the_lane_of_its_tenant(database: Database):
    database.rows("select redrive.set_lanes_v1('mail', 8, 'ada', 'why')")
    enqueued = database.value(
        "select redrive.enqueue('a', queue => 'mail', tenant => 'acme')"
    )
    take(database, {"tenant": "acme"}, {"source_id": "m-2"})

    lanes = database.column("select lane from redrive.dead_letters order by id")
    assert lanes == [
        database.value("select lane from redrive.jobs where id = %s", enqueued),
        0,
    ]


def test_of_a_queue_that_is_not_fair_it_has_no_lane(database: Database):
    database.rows("select redrive.pause_v1('mail', 'ada', 'why')")
    database.rows("select redrive.set_lanes_v1('other', 8, 'ada', 'why')")
    take(database, {"tenant": "acme"})

    assert database.column("select lane from redrive.dead_letters") == [0]


def test_an_encrypted_payload_comes_in_once(database: Database):
    """As when it is enqueued: nobody gets another's by bringing its ciphertext again."""
    salt = database.value(
        "select '2.' || extract(epoch from clock_timestamp())::bigint || '.x.y'"
    )
    sealed = {"headers": {"$redrive": salt}}
    take(database, sealed)
    with pytest.raises(
        psycopg.Error, match="this encrypted payload was enqueued before"
    ):
        take(database, {"source_id": "m-2"} | sealed)

    assert take(database, sealed) == [], "one that is known is not looked at"
    assert len(take(database, sealed, {"source_id": "m-3"})) == 1


def test_there_must_be_room_for_a_name(database: Database):
    database.rows("select redrive.limit_names_v1('queues', 1, 'ada', 'why')")
    take(database, {})
    with pytest.raises(psycopg.Error, match=r"queue: all \d+ allowed"):
        take(database, {"source_id": "m-2", "queue": "other"})

    assert take(database, {"queue": "other"}) == [], "it is known, whatever its queue"
    assert len(take(database, {"queue": "other"}, {"source_id": "m-3"})) == 1


def test_deaths_of_one_time_are_one_delta_of_their_group(database: Database):
    take(database, *({"source_id": str(n)} for n in range(3)))

    assert database.value("select count(*) from redrive.group_deltas") == 1


def test_a_record_of_a_failure_comes_once_and_with_its_import(database: Database):
    """Nobody adds a record to what was there, or to what another transaction has imported."""
    own = make_dead_letter(database.conn)
    ((_, older),) = take(database, {"source_id": "older"})
    failures = database.column("select job from redrive.failures")
    with database.conn.transaction():
        ((_, job),) = take(database, {})
        for message in ("no such customer: 17", "another"):
            record = json.dumps({"message": message, "detail": {"stack": []}})
            database.rows(
                "select redrive.import_failures_v1(%s::bigint[], %s::jsonb[])",
                [job, own, older],
                [record] * 3,
            )

    assert database.column(
        "select job from redrive.failures where job = any (%s)", [own, older]
    ) == [own]
    assert failures == [own]
    assert database.rows(
        "select job, deliveries, attempt, worker, error_class, message, detail, at"
        " = '2026-03-02T12:00Z' from redrive.failures where job = %s",
        job,
    ) == [(job, 5, 5, "sqs", "ValueError", "no such customer: 17", {"stack": []}, True)]
    assert (
        database.value("select count(*) from redrive.failures where job = %s", own) == 1
    )


def test_what_came_in_is_remembered_while_anything_is_left_and_as_long_as_keys(
    database: Database,
):
    ids = [job for _, job in take(database, *({"source_id": str(n)} for n in range(4)))]
    back = database.rows(
        "select * from redrive.redrive_v1(%s::bigint[], null, null, now(), 9, true)",
        ids[3:],
    )
    purged = [*ids[:2], ids[3]]
    database.rows(
        "select redrive.purge_v1(null, %s::bigint[], '{0,0,0}', '{open,redriven}')",
        purged,
    )
    database.rows(
        "update redrive.imports set at = at - interval '31 days' where job = any (%s)",
        ids[1:],
    )
    while database.value("select more from redrive.forget_v1(1)"):
        pass

    assert back == [(ids[3], None)], "it is a job now"
    assert database.column("select job from redrive.imports order by job") == [
        ids[0],
        *ids[2:],
    ]


def test_two_imports_of_one_source_wait_for_each_other_and_bring_none_twice(
    database: Database,
):
    first, second = database.transaction(), database.session()
    take(first, {"source_id": "b"}, {"source_id": "a"})
    waiting = second.start(lambda: take(second, {"source_id": "a"}, {"source_id": "b"}))
    database.wait_until_blocked(second)
    first.rows("commit")

    assert waiting.result(60) == []
    assert database.value("select count(*) from redrive.dead_letters") == 2
