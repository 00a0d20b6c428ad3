"""reencrypt_v1: new envelopes for old ones, while everybody else works."""

import json

import pytest

from tests.factories import (
    claim_one,
    let_die,
    make_dead_letter,
    make_job,
    make_worker,
    totals,
)
from tests.postgres import Database

REENCRYPT = "select redrive.reencrypt_v1(null, %s, %s, %s, %s::jsonb[], %s::jsonb[], %s::text[])"
NEW = '{"$redrive": {"k": "new"}}'


def test_only_what_still_holds_what_was_read_is_changed(database: Database) -> None:
    jobs = [
        make_job(database.conn, payload={"n": n}, headers={"mine": n}) for n in range(3)
    ]
    read = [json.dumps({"n": n}) for n in range(3)]
    database.rows(
        "update redrive.jobs set payload = '{\"n\": 9}' where id = %s", jobs[1]
    )

    assert (
        database.value(
            REENCRYPT, "jobs", jobs, [0] * 3, read, [NEW] * 3, ["salt", "salt", None]
        )
        == 2
    )
    assert database.rows(
        "select payload::text, headers::text from redrive.jobs order by id"
    ) == [
        (NEW, '{"mine": 0, "$redrive": "salt"}'),
        ('{"n": 9}', '{"mine": 1}'),
        (NEW, '{"mine": 2}'),
    ]


def test_each_table_has_its_own_key(database: Database) -> None:
    worker = make_worker(database.conn)
    make_job(database.conn, payload={"n": 1})
    job = claim_one(database.conn, worker)
    for what in ("charged", "told"):
        database.rows(
            "select redrive.side_effects_v1(%s, %s, %s, %s, '{\"{}\"}')",
            [worker],
            [job.id],
            [job.deliveries],
            [what],
        )
    let_die(database.conn, worker, job)
    counted = totals(database.conn)
    detail = database.value("select detail::text from redrive.failures")
    effect = '{"what": "told", "detail": {}}'

    assert (
        database.value(
            REENCRYPT, "dead_letters", [job.id], [1], ['{"n": 1}'], [NEW], [None]
        )
        == 0
    )
    assert (
        database.value(
            REENCRYPT, "dead_letters", [job.id], [0], ['{"n": 1}'], [NEW], ["s"]
        )
        == 1
    )
    assert (
        database.value(
            REENCRYPT, "failures", [job.id], [job.deliveries], [detail], [NEW], [None]
        )
        == 1
    )
    assert (
        database.value(
            REENCRYPT,
            "side_effects",
            [job.id],
            [job.deliveries],
            [effect],
            [NEW],
            [None],
        )
        == 1
    )
    assert (
        database.value(
            REENCRYPT, "audit", [job.id], [job.deliveries], [effect], [NEW], [None]
        )
        == 0
    )
    assert database.rows(
        "select payload::text, headers ->> '$redrive', message from redrive.dead_letters"
    ) == [(NEW, "s", "[encrypted]")]
    assert database.rows("select detail::text, message from redrive.failures") == [
        (NEW, "[encrypted]")
    ]
    assert database.rows(
        "select what, detail::text from redrive.side_effects order by what desc"
    ) == [("charged", "{}"), ("[encrypted]", NEW)]
    assert totals(database.conn) == counted


@pytest.mark.parametrize("place", ["jobs", "dead_letters"])
def test_it_waits_for_nobody(database: Database, place: str) -> None:
    held, free = (
        [make_job(database.conn, payload={}) for _ in range(2)]
        if place == "jobs"
        else [make_dead_letter(database.conn, payload={}) for _ in range(2)]
    )
    other = database.session()
    other.rows("begin")
    other.rows(f"select from redrive.{place} where id = %s for update", held)  # type: ignore[arg-type]
    database.rows("set statement_timeout = '2 s'")

    assert (
        database.value(
            REENCRYPT, place, [held, free], [0, 0], ["{}"] * 2, [NEW] * 2, ["s", "s"]
        )
        == 1
    )


def test_groups_no_longer_quote_their_first_failure(database: Database) -> None:
    make_dead_letter(database.conn)
    assert database.column("select message from redrive.grouped") != ["[encrypted]"]

    assert database.value("select redrive.hide_messages_v1()") == 1
    assert database.value("select redrive.hide_messages_v1()") == 0
    assert database.column("select message from redrive.grouped") == ["[encrypted]"]
    assert database.column("select open from redrive.grouped") == [1]
