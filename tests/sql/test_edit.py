"""edit_v1: payloads of open dead letters are corrected, and nothing else is."""

import hashlib
import json
from typing import Any

import psycopg
import pytest

from redrive.dead_letters.campaigns.drive import drive
from redrive.dead_letters.campaigns.store import pause, plan, start
from redrive.dead_letters.campaigns.terms import Terms
from redrive.dead_letters.filter import Filter
from tests.factories import (
    claim_one,
    let_next_die,
    make_campaign,
    make_dead_letter,
    make_worker,
    redrive,
    totals,
)
from tests.postgres import Connection, Database, Session

PATCH = [{"op": "replace", "path": "/n", "value": 2}]
SEALED = {"$redrive": {"k": "k1", "n": "AA==", "c": "AA=="}}
PURGE = "select redrive.purge_v1(null, %s, %s, %s)"


def seen(conn: Connection, job: int) -> bytes:
    """The digest of what a dead letter is now."""
    row = conn.execute(
        "select redrives || ':' || payload::text from redrive.dead_letters"
        " where id = %s order by redrives desc limit 1",
        (job,),
    ).fetchone()
    return hashlib.sha256(row[0].encode() if row else b"").digest()


def edit(
    conn: Connection,
    job: int,
    payload: Any = None,
    *,
    digest: bytes | None = None,
    salt: str | None = None,
    patch: Any = PATCH,
) -> str | None:
    """Edit one dead letter. Returns what kept it as it was."""
    row = conn.execute(
        "select id, refused from redrive.edit_v1(%s, %s, %s::jsonb[], %s::text[], %s::jsonb,"
        " %s, 'ada', 'a typo')",
        (
            [job],
            [digest or seen(conn, job)],
            [json.dumps({"n": 2} if payload is None else payload)],
            [salt],
            json.dumps(patch),
            ["/n"],
        ),
    ).fetchone()
    assert row
    assert row[0] == job
    return row[1]


def payloads(database: Database) -> list[Any]:
    return database.column(
        "select payload from redrive.dead_letters order by id, redrives"
    )


def test_an_edit_changes_the_payload_and_keeps_what_it_was(database: Database) -> None:
    """A payload could be corrected by SQL alone, and nothing told what it had been."""
    dead = make_dead_letter(
        database.conn, payload={"n": 1}, idempotency_key="k", tenant="t"
    )
    other = make_dead_letter(database.conn, payload={"n": 1})
    rest = "select to_jsonb(d) - 'payload' from redrive.dead_letters d order by id"
    before, counted = database.column(rest), totals(database.conn)

    assert edit(database.conn, dead) is None
    assert database.rows(
        "select id, payload from redrive.dead_letters order by id"
    ) == [(dead, {"n": 2}), (other, {"n": 1})]
    assert database.column(rest) == before, "neither key nor anything else"
    assert totals(database.conn) == counted
    assert database.rows(
        "select job, n, redrives, actor, login, why, patch, paths, payload, salt from redrive.edits"
    ) == [(dead, 1, 0, "ada", "postgres", "a typo", PATCH, ["/n"], {"n": 1}, None)]
    assert database.rows("select actor, action, why, n, detail from redrive.audit") == [
        ("ada", "edit", "a typo", 1, {"ids": [dead], "paths": ["/n"]})
    ]


def test_a_redriven_job_runs_with_the_edited_payload_under_its_key(
    database: Database,
) -> None:
    dead = make_dead_letter(
        database.conn,
        payload={"n": 1},
        idempotency_key="k",
        ordering_key="o",
        headers={"mine": 1},
    )
    edit(database.conn, dead)
    redrive(database.conn, [dead])

    assert database.rows(
        "select id, payload, idempotency_key, ordering_key, headers ->> 'mine' from redrive.jobs"
    ) == [(dead, {"n": 2}, "k", "o", "1")]
    job = claim_one(database.conn, make_worker(database.conn))
    assert json.loads(job.payload) == {"n": 2}


@pytest.mark.parametrize("state", ["redriven", "resolved", "dismissed"])
def test_only_an_open_one_is_edited(database: Database, state: str) -> None:
    dead = make_dead_letter(database.conn, payload={"n": 1})
    database.rows("update redrive.dead_letters set state = %s", state)

    assert edit(database.conn, dead) == "not_open"
    assert edit(database.conn, 999) == "not_open"
    assert payloads(database) == [{"n": 1}]
    assert database.value("select count(*) from redrive.edits") == 0
    assert database.value("select count(*) from redrive.audit") == 0, (
        "nothing done, no line"
    )


def test_one_that_is_not_what_was_seen_is_left_alone(database: Database) -> None:
    dead = make_dead_letter(database.conn, payload={"n": 1})
    digest = seen(database.conn, dead)
    edit(database.conn, dead, {"n": 3})

    assert edit(database.conn, dead, digest=digest) == "changed"
    assert payloads(database) == [{"n": 3}]


def test_one_that_a_campaign_is_to_put_back_stays_as_it_was_planned(
    database: Database,
) -> None:
    """Canaries would tell of payloads that the others no longer have."""
    put_back, waits = (
        make_dead_letter(database.conn, payload={"n": n}) for n in range(2)
    )
    plan(database.conn, Filter(), actor="ada")
    assert edit(database.conn, waits, {"n": 3}) is None, "a plan is no campaign yet"
    made = plan(database.conn, Filter(), actor="ada").plan
    assert made
    start(database.conn, made, Terms(canaries=1), actor="ada", why="x")
    drive(database.conn, made)

    assert edit(database.conn, waits) == "in_campaign"
    worker = make_worker(database.conn)
    let_next_die(database.conn, worker)
    assert edit(database.conn, put_back) is None, "it had its turn, and died anew"
    pause(database.conn, made, actor="ada", why="x")
    assert edit(database.conn, waits) is None
    assert payloads(database) == [{"n": 0}, {"n": 2}, {"n": 2}]


@pytest.mark.every_version
def test_campaigns_that_are_over_cost_an_edit_nothing(database: Database) -> None:
    made = make_campaign(database.conn)
    database.rows(
        "insert into redrive.campaign_jobs (campaign, n, id, redrives)"
        " select %s, n, n, 0 from generate_series(1, 20000) n",
        made,
    )
    database.rows(
        "update redrive.campaigns set state = 'running', planned_login = 'ada'"
    )
    dead = make_dead_letter(database.conn)
    database.rows("analyze redrive.campaign_jobs, redrive.dead_letters")
    look = "explain (analyze, buffers, format json) select * from redrive.in_campaign_v1(%s)"
    database.value(look, [dead])  # planned while it went on, as a session's plans are
    database.rows("update redrive.campaigns set state = 'done'")

    assert database.value(look, [dead])[0]["Plan"]["Shared Hit Blocks"] < 20


def test_another_death_of_the_same_payload_was_not_seen(database: Database) -> None:
    dead = make_dead_letter(database.conn, payload={"n": 1})
    digest = seen(database.conn, dead)
    redrive(database.conn, [dead])
    worker = make_worker(database.conn)
    let_next_die(database.conn, worker)

    assert edit(database.conn, dead, digest=digest) == "changed"
    assert edit(database.conn, dead) is None
    assert payloads(database) == [{"n": 1}, {"n": 2}], "of the generation that is open"


def test_of_many_each_is_judged_for_itself(database: Database) -> None:
    first, second, third = (
        make_dead_letter(database.conn, payload={"n": n}) for n in range(3)
    )
    digests = [seen(database.conn, job) for job in (first, second, third)]
    database.rows("select redrive.dismiss_v1(%s, 'bo', 'x')", [first])
    found = database.rows(
        "select id, refused from redrive.edit_v1(%s, %s, %s::jsonb[], %s::text[], '[]', '{/n}',"
        " 'ada', 'x')",
        [third, first, second],
        [digests[2], digests[0], b"other"],
        ['{"n": 9}'] * 3,
        [None] * 3,
    )

    assert found == [(third, None), (first, "not_open"), (second, "changed")], (
        "as it was asked"
    )
    assert payloads(database) == [{"n": 0}, {"n": 1}, {"n": 9}]
    assert database.rows(
        "select n, detail -> 'ids' from redrive.audit where action = 'edit'"
    ) == [(1, [third])]
    assert edit(database.conn, second) is None
    assert database.column("select n from redrive.edits") == [1, 1], (
        "each has numbers of its own"
    )


@pytest.mark.parametrize(
    ("payload", "patch", "said"),
    [
        ([1], PATCH, "payload: must be an object, not array"),
        ({"a": "x" * 262_144}, PATCH, "payload: 262153 bytes, at most 262144"),
        ({"n": 2}, {"op": "add"}, "patch: must be an array"),
        ({"n": 2}, None, "patch: must be an array"),
    ],
)
def test_what_no_job_can_hold_is_refused(
    database: Database, payload: Any, patch: Any, said: str
) -> None:
    dead = make_dead_letter(database.conn, payload={"n": 1})
    with pytest.raises(psycopg.Error, match=said) as caught:
        edit(database.conn, dead, payload, patch=patch)

    assert caught.value.sqlstate == "RD001"
    assert payloads(database) == [{"n": 1}]


@pytest.mark.parametrize(
    ("count", "payload", "said"),
    [(2, '{"n": 2}', "ids: must not repeat"), (1, None, "payload: must be an object")],
)
def test_bad_arrays_are_refused(
    database: Database, count: int, payload: str | None, said: str
) -> None:
    dead = make_dead_letter(database.conn, payload={"n": 1})
    with pytest.raises(psycopg.Error, match=said) as caught:
        database.rows(
            "select redrive.edit_v1(%s, %s, %s::jsonb[], %s::text[], '[]', '{}', 'ada', 'x')",
            [dead] * count,
            [seen(database.conn, dead)] * count,
            [payload] * count,
            [None] * count,
        )

    assert caught.value.sqlstate == "RD001"


def test_one_bad_payload_among_good_ones_is_refused(database: Database) -> None:
    dead = [make_dead_letter(database.conn, payload={"n": n}) for n in range(3)]
    with pytest.raises(psycopg.Error, match="payload: must be an object, not array"):
        database.rows(
            "select redrive.edit_v1(%s, %s, %s::jsonb[], %s::text[], '[]', '{}', 'ada', 'x')",
            dead,
            [seen(database.conn, job) for job in dead],
            ["{}", "[]", "{}"],
            [None] * 3,
        )


def test_an_edit_waits_for_nothing_that_is_done_to_others(database: Database) -> None:
    one, two = (make_dead_letter(database.conn, payload={"n": 1}) for _ in range(2))
    other, editor = database.session(), database.session(lock_timeout="1ms")
    with other.conn.transaction():
        other.rows("select from redrive.dead_letters where id = %s for update", two)

        assert edit(editor.conn, one) is None


def test_a_line_that_cannot_be_written_undoes_the_edit(database: Database) -> None:
    dead = make_dead_letter(database.conn, payload={"n": 1})
    with pytest.raises(psycopg.errors.CheckViolation):
        database.rows(
            "select redrive.edit_v1(%s, %s, %s::jsonb[], %s::text[], '[]', '{}', 'ada', '')",
            [dead],
            [seen(database.conn, dead)],
            ['{"n": 2}'],
            [None],
        )

    assert payloads(database) == [{"n": 1}]


# Encrypted


@pytest.mark.parametrize(
    ("payload", "salt"),
    [({"n": 2}, None), (SEALED, None), ({"$redrive": "k1"}, "2.x"), ({"n": 2}, "2.x")],
)
def test_what_was_encrypted_stays_so(
    database: Database, payload: Any, salt: str | None
) -> None:
    dead = make_dead_letter(database.conn)
    database.rows(
        "update redrive.dead_letters set payload = %s::text::jsonb", json.dumps(SEALED)
    )
    with pytest.raises(psycopg.Error, match="payload: must stay encrypted") as caught:
        edit(database.conn, dead, payload, salt=salt)

    assert caught.value.sqlstate == "RD001"
    assert payloads(database) == [SEALED]


def test_an_encrypted_payload_comes_with_its_header_and_once(
    database: Database,
) -> None:
    """The ciphertext of another job is not to be run in this one's place."""
    first, second = (
        make_dead_letter(database.conn, headers={"mine": 1}) for _ in range(2)
    )
    now = int(database.value("select extract(epoch from clock_timestamp())"))
    salt = f"2.{now}.x.y"

    assert edit(database.conn, first, SEALED, salt=salt) is None
    assert database.value(
        "select headers from redrive.dead_letters where id = %s", first
    ) == {"mine": 1, "$redrive": salt}
    with pytest.raises(
        psycopg.Error, match="this encrypted payload was enqueued before"
    ):
        edit(database.conn, second, SEALED, salt=salt)
    assert edit(database.conn, first, SEALED, salt=f"2.{now}.z.y") is None
    assert database.column("select salt from redrive.edits order by n") == [None, salt]


def test_reencrypt_takes_what_it_was_and_leaves_no_values_beside_it(
    database: Database,
) -> None:
    dead = make_dead_letter(database.conn, payload={"n": 1})
    edit(database.conn, dead, patch=[{"op": "test", "path": "/n", "value": 1}, *PATCH])
    reencrypt = "select redrive.reencrypt_v1(null, 'edits', %s, '{1}', %s::jsonb[], %s::jsonb[], '{salt}')"
    new = [json.dumps(SEALED)]

    assert database.value(reencrypt, [dead], ['{"n": 3}'], new) == 0, (
        "not what was read"
    )
    assert database.value(reencrypt, [dead], ['{"n": 1}'], new) == 1
    assert database.rows("select payload, salt, patch from redrive.edits") == [
        (
            SEALED,
            "salt",
            [{"op": "test", "path": "/n"}, {"op": "replace", "path": "/n"}],
        )
    ]
    with pytest.raises(psycopg.Error, match="news: must be encrypted envelopes"):
        database.value(reencrypt, [dead], [json.dumps(SEALED)], ['{"n": 3}'])


# Purge


def test_what_it_was_goes_with_the_dead_letter(database: Database) -> None:
    dead, other = (make_dead_letter(database.conn, payload={"n": 1}) for _ in range(2))
    edit(database.conn, dead)
    edit(database.conn, other)
    redrive(database.conn, [dead])
    worker = make_worker(database.conn)
    let_next_die(database.conn, worker)
    edit(database.conn, dead, {"n": 3})
    kept = "select job, redrives from redrive.edits order by job, n"

    assert database.rows(kept) == [(dead, 0), (dead, 1), (other, 0)]
    database.value(PURGE, [dead], [0], ["redriven"])
    assert database.rows(kept) == [(dead, 1), (other, 0)]
    database.value(PURGE, [dead], [1], ["open"])
    assert database.rows(kept) == [(other, 0)]


# Races


def race(database: Database, session: Session, holder: Session, act: Any) -> Any:
    """Let `act` of a session wait for what the holder does in its transaction; then commit it."""
    waiting = database.start_blocked(session, act, by=holder)
    holder.rows("commit")
    return waiting.result(60)


def test_of_two_editors_the_second_is_told(database: Database) -> None:
    dead = make_dead_letter(database.conn, payload={"n": 1})
    digest = seen(database.conn, dead)
    ada, bo = database.transaction(), database.session()
    assert edit(ada.conn, dead, {"n": 2}, digest=digest) is None

    assert (
        race(database, bo, ada, lambda: edit(bo.conn, dead, {"n": 3}, digest=digest))
        == "changed"
    )
    assert payloads(database) == [{"n": 2}]
    assert database.column("select payload from redrive.edits") == [{"n": 1}]


def test_the_second_of_two_editors_counts_on_where_both_leave_it_as_it_was(
    database: Database,
) -> None:
    """A B A: what the second has seen is there again, and the numbers of edits are not doubled."""
    dead = make_dead_letter(database.conn, payload={"n": 1})
    digest = seen(database.conn, dead)
    ada, bo = database.transaction(), database.session()
    edit(ada.conn, dead, {"n": 2})
    edit(ada.conn, dead, {"n": 1})

    assert (
        race(database, bo, ada, lambda: edit(bo.conn, dead, {"n": 3}, digest=digest))
        is None
    )
    assert database.rows("select n, payload from redrive.edits order by n") == [
        (1, {"n": 1}),
        (2, {"n": 2}),
        (3, {"n": 1}),
    ]


@pytest.mark.parametrize("first", ["redrive", "dismiss", "purge"])
def test_an_edit_that_comes_too_late_changes_nothing(
    database: Database, first: str
) -> None:
    dead = make_dead_letter(database.conn, payload={"n": 1})
    digest = seen(database.conn, dead)
    campaign = make_campaign(database.conn)
    ada, bo = database.transaction(), database.session()
    if first == "redrive":
        redrive(ada.conn, [dead], campaign=campaign)
    elif first == "dismiss":
        ada.rows("select redrive.dismiss_v1(%s, 'ada', 'x')", [dead])
    else:
        ada.rows(PURGE, [dead], [0], ["open"])

    assert (
        race(database, bo, ada, lambda: edit(bo.conn, dead, digest=digest))
        == "not_open"
    )
    assert database.value("select count(*) from redrive.edits") == 0
    assert payloads(database) == ([] if first == "purge" else [{"n": 1}])
    assert database.column("select payload from redrive.jobs") == (
        [{"n": 1}] if first == "redrive" else []
    )


def test_a_redrive_that_comes_later_takes_what_was_edited(database: Database) -> None:
    dead = make_dead_letter(database.conn, payload={"n": 1})
    campaign = make_campaign(database.conn)
    ada, bo = database.transaction(), database.session()
    edit(ada.conn, dead)

    assert race(
        database, bo, ada, lambda: redrive(bo.conn, [dead], campaign=campaign)
    ) == {dead: None}
    assert database.column("select payload from redrive.jobs") == [{"n": 2}]
    assert payloads(database) == [{"n": 2}], "what it ran with is on record"


def test_one_reopened_while_it_waits_is_left_to_the_next_edit(
    database: Database,
) -> None:
    """What it has not locked it does not change, though it may see it open by then."""
    held, closed = (make_dead_letter(database.conn, payload={"n": 1}) for _ in range(2))
    database.rows("select redrive.dismiss_v1(%s, 'ada', 'x')", [closed])
    digests = [seen(database.conn, job) for job in (held, closed)]
    bo = database.session()
    ada = database.transaction(
        "select redrive.assign_v1(%s, 'ada', 'ada', 'x')", [held]
    )
    ada.rows("select redrive.reopen_v1(%s, 'ada', 'x')", [closed])
    found = race(
        database,
        bo,
        ada,
        lambda: bo.rows(
            "select id, refused from redrive.edit_v1(%s, %s, %s::jsonb[], %s::text[], '[]', '{}',"
            " 'bo', 'x')",
            [held, closed],
            digests,
            ['{"n": 2}'] * 2,
            [None] * 2,
        ),
    )

    assert found == [(held, None), (closed, "not_open")]
    assert payloads(database) == [{"n": 2}, {"n": 1}]


def test_an_old_snapshot_is_refused(database: Database) -> None:
    dead = make_dead_letter(database.conn, payload={"n": 1})
    digest = seen(database.conn, dead)
    bo = database.session()
    bo.rows("begin isolation level repeatable read")
    bo.rows("select 1 from redrive.dead_letters")
    edit(database.conn, dead)
    with pytest.raises(psycopg.errors.SerializationFailure):
        edit(bo.conn, dead, {"n": 3}, digest=digest)
