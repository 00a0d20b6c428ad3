"""redrive_v1, campaigns, dismiss_v1 and note_v1: what operators do about the dead."""

from collections import Counter
from concurrent.futures import wait
from datetime import timedelta
from itertools import combinations, pairwise
from typing import Any, LiteralString

import psycopg
import pytest

from redrive.dead_letters.campaigns.store import plan
from redrive.dead_letters.filter import Filter
from redrive.enqueue import enqueue_reporting
from redrive.worker import store
from tests.factories import (
    claim,
    claim_one,
    complete,
    complete_next,
    failure,
    let_die,
    let_next_die,
    make_campaign,
    make_dead_letter,
    make_dead_letters,
    make_full_job,
    make_job,
    make_worker,
    redrive,
    settle_next,
    totals,
)
from tests.postgres import Database


def test_a_redriven_job_is_back_under_its_own_id_with_its_deliveries(
    database: Database,
) -> None:
    job_id = make_dead_letter(database.conn)
    campaign = make_campaign(database.conn)

    assert redrive(database.conn, [job_id], campaign=campaign) == {job_id: None}

    assert database.rows(
        "select id, deliveries, attempt, losses, streak, redrives, failed_at, fingerprint,"
        " run_at <= clock_timestamp() from redrive.jobs"
    ) == [(job_id, 1, 0, 0, 0, 1, None, None, True)]
    assert database.rows(
        "select state, campaign, blocked, outcome, settled_at <= clock_timestamp()"
        " from redrive.dead_letters"
    ) == [("redriven", campaign, None, None, True)]
    assert totals(database.conn) == {
        "enqueued": 1,
        "claimed": 1,
        "dead": 1,
        "redriven": 1,
    }

    job = claim_one(database.conn, make_worker(database.conn))
    assert (job.deliveries, job.attempt, job.more["redrives"]) == (2, 1, 1)


def test_a_redriven_job_keeps_every_setting(database: Database) -> None:
    """Column by column, so that one added to jobs is not forgotten here."""
    make_full_job(database.conn)
    worker = make_worker(database.conn)
    job = claim_one(database.conn, worker)
    before = database.value("select to_jsonb(j) from redrive.jobs j")
    let_die(database.conn, worker, job)
    redrive(database.conn, [job.id])
    after = database.value("select to_jsonb(j) from redrive.jobs j")

    changed = {"deliveries": 1, "redrives": 1}
    its_own = {"run_at", "expires_at"}
    for column in before.keys() - its_own:
        assert after[column] == changed.get(column, before[column]), column


def test_the_window_a_job_had_is_counted_anew(database: Database) -> None:
    job_id = make_dead_letter(database.conn, expires_in=3600)
    database.rows(
        "update redrive.dead_letters set created_at = created_at - interval '9 days',"
        " expires_at = expires_at - interval '9 days'"
    )
    redrive(database.conn, [job_id])

    left = database.value("select expires_at - clock_timestamp() from redrive.jobs")
    assert timedelta(minutes=59) < left <= timedelta(minutes=61)


def test_a_dead_letter_that_is_not_open_is_left(database: Database) -> None:
    job_id, dismissed = make_dead_letter(database.conn), make_dead_letter(database.conn)
    database.rows("select redrive.dismiss_v1(%s, 'ada', 'test data')", [dismissed])

    assert redrive(database.conn, [job_id]) == {job_id: None}
    assert redrive(database.conn, [job_id, dismissed, 999]) == dict.fromkeys(
        [job_id, dismissed, 999], "not_open"
    )
    assert totals(database.conn)["redriven"] == 1


def test_a_key_that_lives_again_is_a_conflict(database: Database) -> None:
    dead = make_dead_letter(database.conn, idempotency_key="k")
    live = make_job(database.conn, idempotency_key="k")

    assert redrive(database.conn, [dead]) == {dead: "conflict"}
    assert database.row(
        "select state, blocked, settled_at, campaign from redrive.dead_letters"
    ) == ("open", "conflict", None, None)
    assert database.column("select id from redrive.jobs") == [live]
    assert totals(database.conn).get("redriven") is None


def test_a_key_that_has_succeeded_since_is_never_run_again(database: Database) -> None:
    dead = make_dead_letter(database.conn, idempotency_key="k")
    make_job(database.conn, idempotency_key="k")
    worker = make_worker(database.conn)
    complete_next(database.conn, worker)

    assert redrive(database.conn, [dead]) == {dead: "succeeded"}
    assert database.row("select state, blocked from redrive.dead_letters") == (
        "open",
        "succeeded",
    )
    assert database.value("select count(*) from redrive.jobs") == 0


def test_a_redrive_withdraws_no_job_but_its_own(database: Database) -> None:
    job_id = make_dead_letter(database.conn, idempotency_key="k")
    redrive(database.conn, [job_id])
    database.rows(
        "insert into redrive.completions (kind, key, job) values ('invoice.charge', 'k', 0)"
    )

    assert redrive(database.conn, [job_id]) == {job_id: "not_open"}
    assert database.column("select id from redrive.jobs") == [job_id]


def test_what_is_left_alone_makes_no_older_snapshot_fail(database: Database) -> None:
    """Nor does a job that has no key."""
    plain = make_dead_letter(database.conn)
    back = make_dead_letter(database.conn, idempotency_key="k")
    redrive(database.conn, [back])
    worker, reader = make_worker(database.conn), database.session()
    reader.rows("begin isolation level repeatable read")
    reader.rows("select")
    complete_next(database.conn, worker)

    assert redrive(reader.conn, [back, plain]) == {back: "not_open", plain: None}


def test_a_key_that_succeeds_while_a_redrive_waits_for_it_is_never_run_again(
    database: Database,
) -> None:
    """The insert waits for the completion to commit and finds the key free: it must then look
    again.
    """
    kinds = ("invoice.charge", "a", "b")
    ids = [make_dead_letter(database.conn, kind, idempotency_key="k") for kind in kinds]
    dead, *beside = ids
    worker = make_worker(database.conn)
    redrive(database.conn, ids)
    for again in claim(database.conn, worker):
        let_die(database.conn, worker, again)
    make_job(database.conn, idempotency_key="k")
    job = claim_one(database.conn, worker)
    settling, operator = database.session(), database.session()
    campaign = make_campaign(database.conn)
    settling.rows("begin")
    complete(settling.conn, worker, job)

    waiting = database.start_blocked(
        operator,
        lambda: redrive(operator.conn, [dead, *beside], campaign=campaign),
        by=settling,
    )
    settling.rows("commit")

    assert waiting.result(60) == {dead: "succeeded", **dict.fromkeys(beside)}
    assert database.rows(
        "select id, state, blocked from redrive.dead_letters order by redrives, id"
    ) == [
        *((job_id, "redriven", None) for job_id in ids),
        (dead, "open", "succeeded"),
        *((other, "redriven", None) for other in beside),
    ]
    assert database.column("select id from redrive.jobs order by id") == beside, (
        "their own kinds'"
    )
    assert totals(database.conn)["redriven"] == 5


def test_a_key_is_that_of_its_kind(database: Database) -> None:
    """Another kind's stands in nobody's way, whether that job has succeeded or lives."""
    dead = make_dead_letter(database.conn, idempotency_key="k")
    make_job(database.conn, "another", idempotency_key="k")
    worker = make_worker(database.conn)
    complete_next(database.conn, worker)
    make_job(database.conn, "a.third", idempotency_key="k")

    assert plan(database.conn, Filter(), actor="ada").blocked == {}
    assert redrive(database.conn, [dead]) == {dead: None}


def test_an_enqueue_of_the_key_while_a_redrive_is_not_committed_gets_the_redriven_job(
    database: Database,
) -> None:
    dead = make_dead_letter(database.conn, idempotency_key="k")
    operator, producer = database.transaction(), database.session()
    redrive(operator.conn, [dead])
    waiting = database.start_blocked(
        producer,
        lambda: enqueue_reporting(producer.conn, "invoice.charge", idempotency_key="k"),
        by=operator,
    )
    operator.rows("commit")

    found = waiting.result(60)
    assert (found.id, found.outcome) == (dead, "live")


def test_a_job_is_not_redriven_more_often_than_allowed(database: Database) -> None:
    job_id = make_dead_letter(database.conn)
    worker = make_worker(database.conn)
    for _ in range(2):
        assert redrive(database.conn, [job_id], max_redrives=2) == {job_id: None}
        let_next_die(database.conn, worker)

    assert redrive(database.conn, [job_id], max_redrives=2) == {job_id: "max_redrives"}
    assert database.column(
        "select blocked from redrive.dead_letters where state = 'open'"
    ) == ["max_redrives"]
    assert redrive(database.conn, [job_id], max_redrives=3) == {job_id: None}
    assert database.column(
        "select blocked from redrive.dead_letters where redrives = 2"
    ) == [None]


def test_only_the_blocked_of_a_chunk_are_left(database: Database) -> None:
    blocked = make_dead_letter(database.conn, idempotency_key="k")
    free = make_dead_letter(database.conn)
    make_job(database.conn, idempotency_key="k")

    assert redrive(database.conn, [free, 12345, blocked]) == {
        free: None,
        12345: "not_open",
        blocked: "conflict",
    }


def test_the_plan_and_the_redrive_give_the_same_cause(database: Database) -> None:
    """Also for a dead letter with several of them."""
    names = ("succeeded", "max_redrives", "muted", "conflict")
    worker = make_worker(database.conn)
    expected: dict[int, str | None] = {}
    for causes in (c for n in range(5) for c in combinations(names, n)):
        fingerprint, key = "+".join(causes) or "none", "-".join(causes) or "free"
        dead = make_job(database.conn, idempotency_key=key)
        let_next_die(database.conn, worker)
        database.rows(
            "update redrive.dead_letters set fingerprint = %s, redrives = %s where id = %s",
            fingerprint,
            5 if "max_redrives" in causes else 4,
            dead,
        )
        if "succeeded" in causes:
            database.rows(
                "insert into redrive.completions (kind, key, job) values ('invoice.charge', %s, 0)",
                key,
            )
        if "muted" in causes:
            database.rows(
                "select redrive.mute_v1(%s, now() + interval '1 h', 'ada', 'x')",
                fingerprint,
            )
        if "conflict" in causes:
            database.rows(
                "insert into redrive.jobs (kind, idempotency_key, run_at)"
                " values ('invoice.charge', %s, clock_timestamp() + interval '1 day')",
                key,
            )
        expected[dead] = causes[0] if causes else None

    planned = plan(database.conn, Filter(), actor="ada", max_redrives=5)
    frozen = database.column("select id from redrive.campaign_jobs order by n")

    assert frozen == list(expected)
    assert planned.blocked == Counter(filter(None, expected.values()))
    assert redrive(database.conn, frozen, max_redrives=5) == expected


@pytest.mark.every_version
def test_what_stands_in_the_way_is_found_within_the_statement_that_asks(
    database: Database,
) -> None:
    """A call for each dead letter would cost more than all else of a redrive."""
    explained = database.column(
        "explain select o.cause from redrive.dead_letters d cross join lateral"
        " redrive.redrive_obstacle_v2("
        "d.id, d.redrives, d.kind, d.idempotency_key, d.fingerprint, d.reason, d.category,"
        " d.version, d.deliveries, d.quarantined, 5, '{}') o"
    )

    assert "Nested Loop" not in explained[0]
    assert not [line for line in explained if "Function Scan on redrive_" in line]


def test_two_dead_letters_with_one_key_give_one_job(database: Database) -> None:
    first = make_dead_letter(database.conn, idempotency_key="k")
    second = make_dead_letter(database.conn, idempotency_key="k")

    assert redrive(database.conn, [second, first]) == {
        first: None,
        second: "conflict",
    }, "oldest first"


def test_the_rate_is_the_schedule(database: Database) -> None:
    ids = make_dead_letters(database.conn, 6)
    redrive(database.conn, ids[:3], rate=0.5, first=30)
    redrive(database.conn, ids[3:], rate=0.5, first=33)

    due = database.column("select run_at from redrive.jobs order by id")
    gaps = [round((later - at).total_seconds()) for at, later in pairwise(due)]
    assert gaps[2] >= 2, "the second call came later"
    assert gaps[:2] == gaps[3:] == [2, 2]


def test_what_is_due_within_a_tenth_of_a_second_is_due_at_once(
    database: Database,
) -> None:
    """The tenths are tenths of the clock, the same for all."""
    ids = make_dead_letters(database.conn, 41)
    redrive(database.conn, ids, rate=100.0, first=6_000)  # a minute from now

    due, most = zip(
        *database.rows(
            "select run_at, count(*) from redrive.jobs group by run_at order by run_at"
        ),
        strict=True,
    )
    assert most[1:4] == (10, 10, 10)
    assert {later - earlier for earlier, later in pairwise(due[1:])} == {
        timedelta(seconds=0.1)
    }
    assert {at.microsecond % 100_000 for at in due[1:]} == {0}


def test_no_job_expires_while_it_waits_for_its_turn(database: Database) -> None:
    """With a window of 60 s and 10 jobs at 0.1/s, 3 were due after their own expiry."""
    ids = make_dead_letters(database.conn, 10)
    database.conn.execute(
        "update redrive.dead_letters set expires_at = created_at + interval '60 s'"
    )
    redrive(database.conn, ids, rate=0.1)

    windows = database.column(
        "select extract(epoch from expires_at - run_at)::float8 from redrive.jobs"
    )
    assert [round(window) for window in windows] == [60] * 10


def test_two_operators_with_the_same_ids_give_each_job_one_generation(
    database: Database,
) -> None:
    ids = make_dead_letters(database.conn, 2000)
    operators = [database.session() for _ in range(2)]
    campaign = make_campaign(database.conn)
    done = [
        operator.start(
            lambda o=operator, i=order: redrive(o.conn, i, campaign=campaign)
        )
        for operator, order in zip(operators, (ids, ids[::-1]), strict=True)
    ]
    wait(done)
    found = [d.result() for d in done]

    assert sorted(sum(cause is None for cause in f.values()) for f in found) == [
        0,
        2000,
    ]
    assert {cause for f in found for cause in f.values()} == {None, "not_open"}
    assert (
        database.value("select count(*) from redrive.jobs where redrives = 1") == 2000
    )
    assert (
        database.value(
            "select count(*) from redrive.dead_letters where state = 'redriven'"
        )
        == 2000
    )
    assert totals(database.conn)["redriven"] == 2000


def test_two_operators_with_overlapping_chunks_give_each_job_one_generation(
    database: Database,
) -> None:
    ids = make_dead_letters(database.conn, 2000)
    operators = [database.session() for _ in range(2)]
    campaign = make_campaign(database.conn)
    orders = (ids, ids[::-1])

    def act(operator: int) -> int:
        conn, order = operators[operator].conn, orders[operator]
        chunks = [
            redrive(conn, order[n : n + 50], campaign=campaign)
            for n in range(0, 2000, 50)
        ]
        return sum(cause is None for chunk in chunks for cause in chunk.values())

    done = [session.start(lambda n=n: act(n)) for n, session in enumerate(operators)]

    assert sum(d.result(60) for d in done) == 2000
    assert (
        database.value("select count(*) from redrive.jobs where redrives = 1") == 2000
    )
    assert totals(database.conn)["redriven"] == 2000


def test_a_redrive_that_rolls_back_leaves_the_dead_letters_open(
    database: Database,
) -> None:
    ids = make_dead_letters(database.conn, 10)
    operator = database.transaction()
    redrive(operator.conn, ids)
    operator.rows("rollback")

    assert (
        database.value("select count(*) from redrive.dead_letters where state = 'open'")
        == 10
    )
    assert database.value("select count(*) from redrive.jobs") == 0


def test_a_redriven_job_is_not_counted_as_enqueued(database: Database) -> None:
    ids = make_dead_letters(database.conn, 5)
    redrive(database.conn, ids)

    assert totals(database.conn)["enqueued"] == 5


UNSTORABLE = {
    "list": ("payload", "[]"),
    "wide payload": ("payload", '{"n": "' + "x" * (2 << 20) + '"}'),
    "deep payload": ("payload", '{"n": ' + "[" * 5_000 + "]" * 5_000 + "}"),
    "infinite": ("payload", '{"n": 1e999, "m": "' + "x" * 400 + '"}'),
    "headers that are a text": ("headers", '"text"'),
    "wide headers": ("headers", '{"h": "' + "x" * 9_200 + '"}'),
}
"""What the gate of enqueue refuses: column and value."""


def test_a_dead_letter_that_no_job_may_hold_stays_and_the_others_go(
    database: Database,
) -> None:
    """One such row ended the redrive of all others, and no message named it."""
    bad = {make_dead_letter(database.conn): value for value in UNSTORABLE.values()}
    good = make_dead_letter(database.conn)
    for job, (column, value) in bad.items():
        change: LiteralString = (
            "update redrive.dead_letters set payload = %s where id = %s"
            if column == "payload"
            else "update redrive.dead_letters set headers = %s where id = %s"
        )
        database.rows(change, value, job)

    made = plan(database.conn, Filter(), actor="ada")
    assert made.blocked == {"not_storable": len(bad)}
    stays = dict.fromkeys(bad, "not_storable")
    assert redrive(database.conn, [*bad, good]) == {**stays, good: None}
    assert database.column("select id from redrive.jobs") == [good]


# Campaigns


def test_what_is_noted_in_full_headers_keeps_no_job_from_coming_back(
    database: Database,
) -> None:
    """Its trace made them too long: no redrive took it, and each campaign of others aborted."""
    conn = database.conn
    worker = make_worker(conn)
    make_job(conn, headers={"h": "x" * 8170})
    traced = failure(detail={"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"})
    assert settle_next(conn, worker, "retry", delay=0.0, failure=traced)
    letter = let_next_die(conn, worker, failure=traced)

    assert redrive(conn, [letter]) == {letter: None}
    assert let_next_die(conn, worker, failure=traced) == letter
    assert redrive(conn, [letter]) == {letter: None}


def test_a_campaign_keeps_who_why_and_what_came_of_it(database: Database) -> None:
    campaign = database.value(
        "select redrive.open_campaign_v1('ada', 'bank is back', '{\"kind\": \"a\"}', 2.5, 7)"
    )
    redrive(database.conn, make_dead_letters(database.conn, 2), campaign=campaign)
    database.rows(
        "select redrive.close_campaign_v1(%s, 5, '{\"conflict\": 2}')", campaign
    )

    assert database.row(
        "select actor, why, filter, rate, matched, redriven, blocked, state from redrive.campaigns"
    ) == ("ada", "bank is back", {"kind": "a"}, 2.5, 7, 2, {"conflict": 2}, "done")
    plan = {"campaign": campaign, "filter": {"kind": "a"}, "rate": 2.5}
    end = {"campaign": campaign, "matched": 7, "blocked": {"conflict": 2}}
    assert database.rows(
        "select actor, action, why, n, detail, db_user = session_user from redrive.audit"
        " order by id"
    ) == [
        ("ada", "redrive", "bank is back", 7, plan, True),
        ("ada", "end redrive", "bank is back", 2, end, True),
    ]


def test_what_belongs_to_a_campaign_that_was_forgotten_meanwhile_is_left(
    database: Database,
) -> None:
    job_id, campaign = make_dead_letter(database.conn), make_campaign(database.conn)
    operator = database.session()
    forgetful = database.transaction(
        "delete from redrive.campaigns where id = %s", campaign
    )
    waiting = database.start_blocked(
        operator,
        lambda: redrive(operator.conn, [job_id], campaign=campaign),
        by=forgetful,
    )
    forgetful.rows("commit")

    with pytest.raises(
        psycopg.Error, match="campaign: it was deleted meanwhile; make a new plan"
    ):
        waiting.result()
    assert database.column("select state from redrive.dead_letters") == ["open"]


@pytest.mark.parametrize(
    ("actor", "why"),
    [("", "why"), ("ada", ""), (None, "why"), ("ada", None), ("a" * 256, "why")],
)
def test_nobody_acts_without_a_name_and_a_reason(
    database: Database, actor: str | None, why: str | None
) -> None:
    ids = [make_dead_letter(database.conn)]
    for statement, parameters in (
        ("select redrive.open_campaign_v1(%s, %s, '{}', null, 1)", (actor, why)),
        ("select redrive.dismiss_v1(%s, %s, %s)", (ids, actor, why)),
        ("select redrive.pause_v1('q', %s, %s)", (actor, why)),
        ("select redrive.note_v1(%s, %s, %s)", (ids[0], actor, why)),
        ("select redrive.assign_v1(%s, 'bo', %s, %s)", (ids, actor, why)),
        ("select redrive.set_lanes_v1('q', 16, %s, %s)", (actor, why)),
    ):
        with pytest.raises(psycopg.errors.IntegrityError):
            database.rows(statement, *parameters)

    assert database.value("select count(*) from redrive.audit") == 0
    assert database.row("select state, notes, owner from redrive.dead_letters") == (
        "open",
        [],
        None,
    )
    assert database.rows("select from redrive.queues") == []


# Dismiss and note


def test_a_dismissed_dead_letter_says_who_and_why(database: Database) -> None:
    first, second, third = make_dead_letters(database.conn, 3)

    assert sorted(
        database.column(
            "select redrive.dismiss_v1(%s, 'ada', 'test data')", [third, first]
        )
    ) == [first, third]

    assert database.rows(
        "select id, state, settled_at <= clock_timestamp(), notes -> 0 ->> 'actor', notes -> 0"
        " ->> 'text'"
        " from redrive.dead_letters order by id"
    ) == [
        (first, "dismissed", True, "ada", "test data"),
        (second, "open", None, None, None),
        (third, "dismissed", True, "ada", "test data"),
    ]
    action, why, n, detail = database.row(
        "select action, why, n, detail from redrive.audit"
    )
    assert (action, why, n, sorted(detail["ids"])) == (
        "dismiss",
        "test data",
        2,
        [first, third],
    )
    assert totals(database.conn)["dismissed"] == 2


def test_only_an_open_dead_letter_is_dismissed(database: Database) -> None:
    (job_id,) = make_dead_letters(database.conn, 1)
    redrive(database.conn, [job_id])

    assert (
        database.column("select redrive.dismiss_v1(%s, 'ada', 'test data')", [job_id])
        == []
    )
    assert (
        database.value("select count(*) from redrive.audit where action = 'dismiss'")
        == 0
    )


def test_two_operators_that_dismiss_the_same_do_it_once(database: Database) -> None:
    ids = make_dead_letters(database.conn, 500)
    sessions = [database.session() for _ in range(2)]
    done = [
        s.start(
            lambda s=s, i=order: s.column(
                "select redrive.dismiss_v1(%s, 'ada', 'x')", i
            )
        )
        for s, order in zip(sessions, (ids, ids[::-1]), strict=True)
    ]

    assert sorted(len(d.result(60)) for d in done) == [0, 500]
    assert totals(database.conn)["dismissed"] == 500


def test_a_note_goes_to_the_newest_generation(database: Database) -> None:
    job_id = make_dead_letter(database.conn)
    redrive(database.conn, [job_id])
    worker = make_worker(database.conn)
    (job,) = claim(database.conn, worker)
    let_die(database.conn, worker, job)

    assert (
        database.value("select redrive.note_v1(%s, 'ada', 'see ticket 7')", job_id)
        is True
    )
    assert database.value("select redrive.note_v1(999, 'ada', 'nothing')") is False

    assert database.rows(
        "select redrives, notes -> 0 ->> 'text' from redrive.dead_letters order by redrives"
    ) == [(0, None), (1, "see ticket 7")]
    assert database.rows(
        "select action, actor, why, n from redrive.audit where action = 'note'"
    ) == [("note", "ada", "see ticket 7", 1)]


# Assign


def test_an_owner_is_given_taken_away_and_audited(database: Database) -> None:
    first, second, third = make_dead_letters(database.conn, 3)
    database.rows("select redrive.dismiss_v1(%s, 'ada', 'test data')", [third])
    assign = "select redrive.assign_v1(%s, %s, 'ada', 'she knows the bank')"

    assert sorted(database.column(assign, [third, second, first], "bo")) == [
        first,
        second,
    ]
    assert database.column(assign, [second], "") == [second]
    assert database.column(assign, [999], "bo") == []

    assert database.column("select owner from redrive.dead_letters order by id") == [
        "bo",
        None,
        None,
    ]
    audited = database.rows(
        "select actor, why, n, detail from redrive.audit where action = 'assign' order by id"
    )
    assert [
        (actor, why, n, d["owner"], sorted(d["ids"])) for actor, why, n, d in audited
    ] == [
        ("ada", "she knows the bank", 2, "bo", [first, second]),
        ("ada", "she knows the bank", 1, None, [second]),
    ]


def test_an_owner_has_a_length(database: Database) -> None:
    job_id = make_dead_letter(database.conn)
    with pytest.raises(psycopg.Error) as caught:
        database.rows(
            "select redrive.assign_v1(%s, %s, 'ada', 'x')", [job_id], "a" * 256
        )

    assert caught.value.sqlstate == "RD001"


def test_two_operators_that_assign_the_same_never_wait_in_a_circle(
    database: Database,
) -> None:
    ids = make_dead_letters(database.conn, 500)
    sessions = [database.session() for _ in range(2)]
    done = [
        s.start(
            lambda s=s, i=order: s.column(
                "select redrive.assign_v1(%s, 'bo', 'ada', 'x')", i
            )
        )
        for s, order in zip(sessions, (ids, ids[::-1]), strict=True)
    ]

    assert [len(d.result(60)) for d in done] == [500, 500]


def test_what_is_redriven_meanwhile_is_nobodys_to_look_after(
    database: Database,
) -> None:
    (job_id,) = make_dead_letters(database.conn, 1)

    assert (
        meanwhile(
            database,
            job_id,
            "redrive_v1(%s, null, null, now(), 9, true)",
            "assign_v1(%s, 'bo', 'ada', 'x')",
        )
        == []
    )


def test_two_operators_that_reopen_the_same_do_it_once(database: Database) -> None:
    (job_id,) = make_dead_letters(database.conn, 1)
    database.rows("select redrive.dismiss_v1(%s, 'ada', 'x')", [job_id])

    assert meanwhile(database, job_id, *["reopen_v1(%s, 'ada', 'x')"] * 2) == []


def meanwhile(
    database: Database, job_id: int, first: LiteralString, second: LiteralString
) -> list[Any]:
    """What the second does once the first, which it has to wait for, is committed."""
    one, two = database.transaction(), database.session()
    assert one.rows("select redrive." + first, [job_id])
    waiting = database.start_blocked(
        two, lambda: two.column("select redrive." + second, [job_id]), by=one
    )
    one.rows("commit")
    return waiting.result(60)


@pytest.mark.parametrize("kind", ["celery.shop.charge", "orders"])
def test_a_dead_letter_that_no_import_brought_in_is_not_sent_to_a_broker(
    database: Database, kind: str
) -> None:
    """A producer may add a job of the kind and let it die; the plan says that it stays, and why."""
    forged = make_dead_letter(database.conn, kind)
    plain = make_dead_letter(database.conn)
    real = make_dead_letter(database.conn, kind)
    source = "celery" if kind.startswith("celery.") else kind
    database.rows("insert into redrive.imports values (%s, 'm-1', %s)", source, real)
    sender = store.Registration("sender", "1", None, ["celery.*", "*"], None)
    store.register(database.conn, sender)

    made = plan(database.conn, Filter(), actor="ada")
    assert made.blocked == {"not_imported": 1}
    assert redrive(database.conn, [forged, plain, real]) == {
        forged: "not_imported",
        plain: None,
        real: None,
    }
