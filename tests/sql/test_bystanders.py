"""What a verb does to one, it does to no other: each is called on a row that has neighbours which
are like it in all but the one thing by which it was chosen.
"""

import json
import re
from typing import LiteralString

import psycopg
import pytest

from redrive.dead_letters.campaign import Terms, drive, plan, start
from redrive.dead_letters.filter import Filter
from redrive.worker import store
from redrive.worker.protocol import SideEffect
from redrive.worker.store import Registration, register
from tests.factories import (
    Claimed,
    bury,
    claim,
    claim_one,
    complete,
    failure,
    holders,
    make_campaign,
    make_dead_letter,
    make_dead_letters,
    make_job,
    make_jobs,
    make_limited_worker,
    make_worker,
    redrive,
    settle,
    silence,
)
from tests.postgres import Database
from tests.sql.bystanders import changed, make_past, touched

AT_ONCE = Terms(canaries=0)

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


LETTERS = {("dead_letters", 0), ("dead_letters", 1)}
NOTES = {("checkpoints", None), ("progress", None)}
"""What goes with a job, whatever is kept of it."""


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ("complete", {*LETTERS, *NOTES}),
        ("retry", set[tuple[str, int | None]]()),
        ("release", set[tuple[str, int | None]]()),
        ("dead", {("dead_letters", 1)}),
        ("cancel", {*LETTERS, *NOTES}),
    ],
)
def test_a_running_job_is_settled_alone(
    database: Database, outcome: str, expected: set[tuple[str, int | None]]
) -> None:
    """Its worker runs another one, and another worker one of the same key in another queue."""
    conn, workers = database.conn, [make_worker(database.conn, name) for name in ("w", "v")]
    ids = [make_past(database, queue) for queue in ("one", "two", "three")]
    redrive(conn, ids)
    database.rows("update redrive.jobs set noted = true, failed_at = now()")
    parked = make_job(conn, "pay", queue="two", ordering_key="k")
    one, _ = claim(conn, workers[0], 2)
    claim_one(conn, workers[1])
    end = {"complete": lambda: complete(conn, workers[0], one)}.get(
        outcome, lambda: settle(conn, workers[0], one, outcome, reason="x", failure=failure())
    )

    rows = touched(database, end)
    claims = {(table, *rest) for table, *rest in rows if table == "claims"}
    assert claims <= {("claims", one.claim, None)}
    always = {("jobs", one.id, 2), ("running_keys", one.id, None)}
    assert rows - claims == always | {(table, one.id, n) for table, n in expected}
    assert parked


@pytest.mark.parametrize("verb", ["cancel", "run_now"])
def test_a_job_that_waits_is_acted_on_alone(database: Database, verb: str) -> None:
    """Beside one of the same key in another queue, whose lane and row somebody has."""
    conn, (one, two) = database.conn, [make_past(database, queue) for queue in ("one", "two")]
    redrive(conn, [one, two])
    database.rows("update redrive.jobs set noted = true, failed_at = now(), run_at = now() + '1 h'")
    other, hasty = database.session(), database.session(lock_timeout="1ms")
    other.rows("begin")
    other.rows("select from redrive.lanes where queue = 'two' for update")
    other.rows("select from redrive.jobs where id = %s for update", two)
    acts: dict[str, LiteralString] = {
        "cancel": "select redrive.cancel_v1(array[%s], 'ada', 'x')",
        "run_now": "select redrive.run_now_v1(array[%s], 'ada', 'x')",
    }
    rows = touched(database, lambda: hasty.rows(acts[verb], one))

    ended = {(table, one, n) for table, n in LETTERS | NOTES}
    assert rows == {("jobs", one, 2)} | (ended if verb == "cancel" else set())


SETTLE = (
    "select redrive.settle_v2(%s::int[], %s, %s, %s, array[%s], '{null}', '{0}', '{f}', '{0}',"
    " array[null::jsonb], '{null}', %s)"
)


@pytest.mark.parametrize("settled_by", ["complete", "settle"])
def test_nobody_ends_the_claim_of_another_worker(database: Database, settled_by: str) -> None:
    conn = database.conn
    make_job(conn)
    make_job(conn)
    workers = [make_worker(conn, name) for name in ("w", "v")]
    jobs = [claim_one(conn, worker) for worker in workers]
    ended = [job.claim for job in jobs]
    mine = [[workers[0]], ended[:1], [jobs[0].id], [1]]
    if settled_by == "complete":
        database.rows("select redrive.complete_v2(%s::int[], %s, %s, %s, %s)", *mine, ended)
    else:
        database.rows(SETTLE, *mine, "retry", ended)

    assert database.column("select id from redrive.claims") == ended[1:]


def test_what_is_not_an_outcome_settles_nothing(database: Database) -> None:
    make_job(database.conn)
    worker = make_worker(database.conn)
    job = claim_one(database.conn, worker)
    query = SETTLE, [worker], [job.claim], [job.id], [1], "complete", []

    assert touched(database, lambda: database.rows(*query)) == set()


def test_nobody_waits_for_the_claim_of_another_worker(database: Database) -> None:
    conn, workers = database.conn, [make_worker(database.conn, name) for name in ("w", "v")]
    make_jobs(conn, 2)
    (one,), (two,) = (claim(conn, worker, 1) for worker in workers)
    other, hasty = database.session(), database.session(lock_timeout="1ms")
    other.rows("begin")
    other.rows("select from redrive.claims where id = %s for update", two.claim)

    assert settle(hasty.conn, workers[0], one, "retry", failure=failure())


def test_only_the_claims_of_these_workers_are_over(database: Database) -> None:
    conn, workers = database.conn, [make_worker(database.conn, name) for name in ("w", "v")]
    make_jobs(conn, 2)
    (one,), _ = (claim(conn, worker, 1) for worker in workers)
    database.rows("delete from redrive.jobs")
    end = "select redrive.end_claims_v1(array[%s])"

    assert touched(database, lambda: database.rows(end, workers[0])) == {
        ("claims", one.claim, None)
    }


@pytest.mark.parametrize("outcome", ["complete", "dead", "cancel"])
def test_only_a_redriven_dead_letter_learns_what_became_of_it(
    database: Database, outcome: str
) -> None:
    conn, worker, one = database.conn, make_worker(database.conn), make_past(database, "one")
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
    conn, worker, one = database.conn, make_worker(database.conn), make_past(database, "one")
    redrive(conn, [one])
    database.rows("update redrive.dead_letters set outcome = null")
    bury(conn, worker, claim_one(conn, worker))

    assert database.column("select outcome from redrive.dead_letters order by redrives") == [
        None,
        "dead_again",
        None,
    ]


def test_only_a_cancellation_that_ended_its_job_was_heeded(database: Database) -> None:
    """Not that of a job that runs on, nor of one that died instead."""
    conn, worker = database.conn, make_worker(database.conn)
    ids = make_jobs(conn, 3)
    heeding, dying, _ = claim(conn, worker)
    database.rows("select redrive.cancel_v1(%s, 'ada', 'x')", ids)
    settle(conn, worker, heeding, "cancel")
    bury(conn, worker, dying)

    assert database.column("select job from redrive.cancellations where is_heeded") == [heeding.id]


def test_a_failure_is_kept_of_its_own_job_while_that_lasts(database: Database) -> None:
    """Not of one that is cancelled; and the first failure of another is not this one's."""
    conn, worker = database.conn, make_worker(database.conn)
    make_jobs(conn, 3)
    older, one, cancelled = claim(conn, worker)
    for job in (older, one):
        settle(conn, worker, job, "retry", failure=failure())
    database.rows("update redrive.failures set at = at - interval '1 d' where job = %s", older.id)
    (one,) = (job for job in claim(conn, worker) if job.id == one.id)
    bury(conn, worker, one)
    settle(conn, worker, cancelled, "cancel", failure=failure())

    assert database.value(
        "select first_failed_at > now() - interval '1 h' from redrive.dead_letters"
    )
    assert database.column("select distinct job from redrive.failures order by 1") == [
        older.id,
        one.id,
    ]


@pytest.mark.parametrize("how", ["beats", "retires", "is lost"])
def test_a_worker_comes_and_goes_alone(database: Database, how: str) -> None:
    conn, workers = database.conn, [make_worker(database.conn, name) for name in ("w", "v")]
    ids = [make_job(conn, "pay", queue=queue, ordering_key="k") for queue in ("one", "two")]
    one, _ = claim(conn, workers[0], 1), claim(conn, workers[1], 1)
    idle = make_worker(conn, "idle")
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
    left = {*workers, idle} if how == "beats" else {workers[1], idle}
    assert set(database.column("select id from redrive.workers")) == left


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


# Of a key


def test_a_parked_job_keeps_no_younger_one_of_its_key_waiting(database: Database) -> None:
    """Nobody would wake it as long as the younger one was not claimed."""
    ids = [make_job(database.conn, ordering_key="k") for _ in range(2)]
    parked = "update redrive.jobs set run_at = case id when %s then 'infinity' else now() end"
    database.rows(parked, ids[0])

    assert claim_one(database.conn, make_worker(database.conn)).id == ids[1]


def test_a_dead_letter_holds_no_older_job_of_its_key(database: Database) -> None:
    older, younger = make_job(database.conn, ordering_key="k"), make_dead_letter(database.conn)
    database.rows(
        "update redrive.dead_letters set holds_key = true, ordering_key = 'k' where id = %s",
        younger,
    )

    assert claim_one(database.conn, make_worker(database.conn)).id == older


def test_a_key_is_held_by_an_older_dead_letter_that_is_open_and_says_so(
    database: Database,
) -> None:
    dead = make_dead_letter(database.conn, ordering_key="k")
    held = "select redrive.is_key_held_v1('default', 'k', %s)"
    assert not database.value(held, dead + 1), "it says nothing"
    database.rows("update redrive.dead_letters set holds_key = true")

    assert database.value(held, dead + 1)
    assert not database.value(held, dead)


def test_a_key_is_woken_alone_and_nobody_is_told_of_nothing(database: Database) -> None:
    """Beside the same key of another queue and another key of this one, both of them older."""
    conn, listening = database.conn, database.session()
    others = [
        make_job(conn, ordering_key=key, queue=queue)
        for queue, key in (("b", "k"), ("a", "l"))
        for _ in range(2)
    ]
    ran, one, last = (make_job(conn, ordering_key="k", queue="a") for _ in range(3))
    make_dead_letter(conn, queue="c")
    listening.rows("listen redrive")
    wake = "select redrive.wake_keys_v1('{a}', '{k}')"
    database.rows("insert into redrive.running_keys values ('a', 'k', 0)")
    database.rows("delete from redrive.jobs where id = %s", ran)

    assert touched(database, lambda: database.rows(wake)) == set(), "it runs"
    database.rows("delete from redrive.running_keys")
    database.rows(
        "update redrive.dead_letters set id = 0, queue = 'a', ordering_key = 'k', holds_key = true"
    )
    assert touched(database, lambda: database.rows(wake)) == set(), "it is held"
    assert list(listening.conn.notifies(timeout=0)) == []
    database.rows("delete from redrive.dead_letters")
    database.rows("insert into redrive.running_keys values ('a', 'l', 0), ('b', 'k', 0)")
    assert touched(database, lambda: database.rows(wake)) == {("jobs", one, 0)}
    assert list(listening.conn.notifies(timeout=60, stop_after=1)), "whoever could claim it"
    parked = "select id from redrive.jobs where run_at = 'infinity' order by id"
    assert database.column(parked) == [others[1], others[3], last]


@pytest.mark.parametrize("why", ["its time", "its worker"])
def test_what_is_not_parked_is_not_woken(database: Database, why: str) -> None:
    make_job(database.conn, ordering_key="k")
    database.rows(
        "update redrive.jobs set run_at = now() + interval '1 h'"
        if why == "its time"
        else "update redrive.jobs set worker = 1"
    )
    wake = "select redrive.wake_keys_v1('{default}', '{k}')"

    assert touched(database, lambda: database.rows(wake)) == set()


def test_a_job_that_somebody_has_is_waited_for_by_no_waking(database: Database) -> None:
    make_job(database.conn, ordering_key="k")
    other, hasty = database.session(), database.session(lock_timeout="1ms")
    other.rows("begin")
    other.rows("select from redrive.jobs for update")

    hasty.rows("select redrive.wake_keys_v1('{default}', '{k}')")


# Of side effects


def side_effect(*jobs: Claimed, worker: int, behind: int = 0) -> list[tuple[int, SideEffect]]:
    """What one worker reports of each; of the delivery before with `behind`."""
    return [(worker, SideEffect(job.id, job.deliveries + behind, "x", "{}")) for job in jobs]


def test_side_effects_lock_and_ask_for_no_other_job(database: Database) -> None:
    conn, worker = database.conn, make_worker(database.conn)
    make_jobs(conn, 3)
    one, stale, other = claim(conn, worker)
    telling, handler = database.session(), database.session(lock_timeout="1ms")
    handler.rows("begin")
    handler.rows("select from redrive.jobs where id = %s for update", stale.id)
    telling.rows("begin")
    told = side_effect(one, worker=worker) + side_effect(stale, worker=worker, behind=1)

    assert store.side_effects(telling.conn, told) == set(), "and not to come again with the stale"
    handler.rows("select from redrive.jobs where id = %s for update", other.id)


def test_what_a_handler_did_is_kept_with_the_dead_letter(database: Database) -> None:
    conn, worker = database.conn, make_worker(database.conn)
    make_job(conn)
    job = claim_one(conn, worker)
    store.side_effects(conn, side_effect(job, worker=worker))
    bury(conn, worker, job)

    assert database.column("select job from redrive.side_effects") == [job.id]


# Of a claim


def test_lanes_are_gone_through_from_a_place(database: Database) -> None:
    lanes = [("a", 0, 0), ("a", 0, 1), ("a", 1, 0), ("b", -1, 0), ("c", 0, 0)]
    for queue, priority, lane in lanes:
        make_jobs(database.conn, 2, queue=queue, priority=priority, lane=lane)
    after = "select * from redrive.next_lanes_v1(%s, %s, %s, %s, 9)"

    for n, place in enumerate(lanes, 1):
        assert database.rows(after, None, *place) == lanes[n:]
        assert database.rows(after, ["c", "b", "a"], *place) == lanes[n:]
        assert database.rows(after, ["c"], *place) == [lane for lane in lanes[n:] if "c" in lane]
    assert database.rows(after, ["a"], "", 0, 0) == lanes[:3]


def test_a_claim_of_the_release_before_is_told_of_each_job_once(database: Database) -> None:
    """However many lanes there are, and whoever claims from the first of them."""
    conn, worker = database.conn, make_worker(database.conn)
    busy, free = make_job(conn, queue="a"), make_job(conn, queue="b")
    other = database.session()
    other.rows("begin")
    other.rows("insert into redrive.lanes values ('a', 0, 0)")
    other.rows("commit")
    other.rows("begin")
    other.rows("select from redrive.lanes for update")
    claim_v1 = (
        "select id from redrive.claim_v1(%s, '{a,b}', '{0,0}', '{0,0}', '{epoch,epoch}', 9, false)"
    )

    assert database.column(claim_v1, worker) == [free]
    other.rows("commit")
    assert database.column(claim_v1, worker) == [busy]


def test_a_claim_says_whether_it_has_looked_at_all(database: Database) -> None:
    worker = make_worker(database.conn)
    make_jobs(database.conn, 2)
    query = (
        "select count(*) from redrive.claim_v2("
        "%s, '{default}', '{0}', '{0}', '{epoch}', '{0}', '{0}', true, %s)"
        " where lane_no is null and jobs = 0"
    )

    assert [database.value(query, worker, want) for want in (1, 9)] == [0, 1]


def test_slots_are_taken_from_one_lane_at_a_time(database: Database) -> None:
    """Of two claims that take those of two lanes, each could wait for the other."""
    worker = make_limited_worker(database.conn, "emails")
    database.rows("select redrive.set_limit_v1('emails', 9, null, 'ada', 'x')")
    ids = [make_job(database.conn, "a.b", queue=queue) for queue in ("a", "b")]

    assert [[job.id for job in claim(database.conn, worker)] for _ in range(2)] == [
        [id_] for id_ in ids
    ]


def test_a_job_behind_a_limit_is_pending_for_its_kind_and_queue(database: Database) -> None:
    worker = make_limited_worker(database.conn, "emails")
    database.rows("select redrive.set_limit_v1('emails', 1, null, 'ada', 'x')")
    for _ in range(2):
        make_job(database.conn, "a.b")
    complete(database.conn, make_worker(database.conn), *claim(database.conn, worker)[1:])
    database.rows("delete from redrive.jobs where isfinite(run_at)")
    pause = "select redrive.pause_v1(%s, 'ada', 'x')"

    assert store.is_pending(database.conn, None, ["a.b"], 0)
    assert store.is_pending(database.conn, ["default"], ["a.b"], 0)
    assert not store.is_pending(database.conn, ["other"], ["a.b"], 0)
    assert not store.is_pending(database.conn, None, ["b"], 0)
    database.rows(pause, "other")
    database.rows("select redrive.set_lanes_v1('default', 1, 'ada', 'x')")
    assert store.is_pending(database.conn, None, ["a.b"], 0), "another one is paused"
    database.rows(pause, "default")
    assert not store.is_pending(database.conn, None, ["a.b"], 0)


# Of a worker that is back


def make_lost(database: Database, count: int = 1, kind: str = "a") -> list[int]:
    """Jobs whose worker was lost, each of them a suspect. Returns their ids."""
    conn, worker = database.conn, make_worker(database.conn, "lost")
    ids = [make_job(conn, kind) for _ in range(count)]
    claim(conn, worker)
    silence(conn, worker)
    assert store.rescue(conn, 60, 1) == (1, count, 0)
    return ids


def test_what_a_worker_that_is_back_held_is_forgiven_alone(database: Database) -> None:
    one, two = make_lost(database, 2)
    other = database.session()
    other.rows("begin")
    other.rows("select from redrive.jobs where id = %s for update", two)
    hasty = database.session(lock_timeout="1ms")
    rows = touched(database, lambda: store.forgive(hasty.conn, [(one, 1)]))

    assert rows == {("jobs", one, 0), ("failures", one, None)}


def test_the_job_is_locked_before_its_failures_are(database: Database) -> None:
    """As by whoever settles it: nobody waits in a circle."""
    (one,) = make_lost(database)
    settling, forgiving = database.session(), database.session()
    settling.rows("begin")
    settling.rows("select from redrive.jobs for update")
    waiting = forgiving.start(lambda: store.forgive(forgiving.conn, [(one, 1)]))
    assert database.wait_until_blocked(forgiving) == [settling.pid]
    free = settling.rows("select job from redrive.failures for update skip locked")
    settling.rows("commit")

    assert free == [(one,)]
    assert waiting.result(60) == [one]


def test_only_losses_of_this_very_job_are_forgiven_and_counted(database: Database) -> None:
    """Ten of another job, or of another kind of error, are none of its ten."""
    one, two, three = make_lost(database, 3)
    database.rows("update redrive.failures set error_class = 'Mine' where job = %s", three)
    database.rows(
        "insert into redrive.failures (job, deliveries, attempt, error_class, message, category,"
        " fingerprint) select j, n, 1, e, '', 'transient', '' from generate_series(2, 11) n,"
        " (values (%s, 'Mine'), (%s, 'WorkerLost')) v(j, e)",
        one,
        two,
    )
    database.rows("update redrive.jobs set losses = 0")

    assert store.forgive(database.conn, [(id_, 1) for id_ in (one, two, three)]) == [one]
    assert database.column("select distinct losses from redrive.jobs") == [0], "and never less"


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
    assert database.value("select count(*) from redrive.audit where actor = 'redrive'") == expected


def test_what_workers_of_the_release_before_hold_is_told_apart(database: Database) -> None:
    workers = [make_worker(database.conn, name) for name in ("w", "v")]
    database.rows("update redrive.workers set marks_jobs = true")
    ids = [make_job(database.conn) for _ in workers]
    mark = "update redrive.jobs set worker = %s where id = %s"
    for worker, job_id in zip(workers, ids, strict=True):
        database.rows(mark, worker, job_id)

    held = "select id from redrive.held_v1(array[%s])"
    assert [database.column(held, worker) for worker in workers] == [[id_] for id_ in ids]


# Of a worker


def test_no_worker_waits_for_another_ones_row(database: Database) -> None:
    workers = [make_worker(database.conn, name) for name in ("w", "v")]
    other, hasty = database.session(), database.session(lock_timeout="1ms")
    other.rows("begin")
    other.rows("select from redrive.workers where id = %s for update", workers[1])
    store.run_alone(hasty.conn, workers[0], 1)
    store.retire(hasty.conn, workers[0])
    other.rows("commit")

    assert database.rows("select id, alone from redrive.workers") == [(workers[1], None)]


def test_a_lost_worker_that_somebody_rescues_is_left_to_them(database: Database) -> None:
    make_job(database.conn)
    worker = make_worker(database.conn)
    claim_one(database.conn, worker)
    database.rows("update redrive.workers set lost_at = now()")
    other, hasty = database.session(), database.session(lock_timeout="1ms")
    other.rows("begin")
    other.rows("select from redrive.workers for update")

    assert store.rescue(hasty.conn, 60, 1) == (0, 0, 0)
    other.rows("commit")
    assert store.run_alone(database.conn, worker, 1) is None, "it can prove nothing any more"


def test_a_worker_of_the_release_before_stays_while_its_job_is_held(database: Database) -> None:
    worker, job_id = make_worker(database.conn), make_job(database.conn)
    database.rows("update redrive.workers set marks_jobs = true, lost_at = now()")
    database.rows("update redrive.jobs set worker = %s, deliveries = 1", worker)
    handler = database.session()
    handler.rows("begin")
    handler.rows("select from redrive.jobs for update")

    assert store.rescue(database.conn, 60, 1) == (1, 0, 0)
    assert database.column("select id from redrive.workers") == [worker]
    handler.rows("commit")
    assert store.rescue(database.conn, 60, 1) == (1, 1, 0)
    assert database.column("select id from redrive.jobs where worker is null") == [job_id]


def test_what_is_settled_meanwhile_is_not_given_back(database: Database) -> None:
    """Somebody else may run it already."""
    make_job(database.conn)
    worker = make_worker(database.conn)
    job = claim_one(database.conn, worker)
    settling, retiring = database.session(), database.session()
    settling.rows("begin")
    settle(settling.conn, worker, job, "retry", failure=failure())
    waiting = retiring.start(lambda: store.retire(retiring.conn, worker))
    assert database.wait_until_blocked(retiring) == [settling.pid]
    settling.rows("commit")

    assert waiting.result(60) == 0
    assert database.rows("select deliveries, attempt from redrive.jobs") == [(1, 1)]


def test_a_job_is_judged_by_its_own_losses(database: Database) -> None:
    """Not by another one's, nor by a failure that was no loss."""
    one, two = make_lost(database, 2)
    worker = make_worker(database.conn)
    said = "update redrive.failures set detail = %s where job = %s"
    database.rows(said, '{"ran_at_most": 70}', one)
    database.rows(said, '{"ran_at_most": 1000}', two)
    database.rows(
        "insert into redrive.failures (job, deliveries, attempt, error_class, message, category,"
        " fingerprint, detail) values (%s, 2, 1, '', '', 'transient', '', %s)",
        one,
        '{"ran_at_most": 1000}',
    )
    progress = json.dumps({"slots": 1, "running": {str(one): 80}, "waiting": []})
    store.beat(database.conn, {worker: 1}, {worker: progress})

    losses = "select losses from redrive.judge_loss_v1(%s, array[%s])"
    assert database.value(losses, worker, one) == 0, "it outlasted them: one more, the others gone"
    assert store.run_alone(database.conn, worker, one) == 70


def test_the_ttl_of_a_lost_worker_holds_up_no_clock(database: Database) -> None:
    for name, ttl in (("lost", 4), ("alive", 40)):
        make_worker(database.conn, name, ttl=ttl)
    database.rows("update redrive.workers set lost_at = now() where name = 'lost'")
    database.rows("update redrive.contact set at = at - interval '1 h'")

    ran = "select extract(epoch from redrive.contact_now_v1() - elapsed)::int from redrive.contact"
    assert database.value(ran) == 10


def test_unpark_wakes_a_key_beside_others_that_wait(database: Database) -> None:
    """The same key of another queue, another key of this one, both running; and its own place."""
    conn, worker = database.conn, make_worker(database.conn)
    for queue, key in (("b", "k"), ("a", "l")):
        make_job(conn, ordering_key=key, queue=queue)
    claim(conn, worker)
    database.rows("update redrive.jobs set worker = 1")
    ran, one, last = (make_job(conn, ordering_key="k", queue="a") for _ in range(3))
    database.rows("delete from redrive.jobs where id = %s", ran)
    database.rows("insert into redrive.limit_waits values (%s, 'n', 'a', 'b', 0, now())", last)
    database.rows("update redrive.chores set last_key = '{z,z}' where name <> 'unpark'")
    database.rows("update redrive.chores set last_key = null where name = 'unpark'")
    mark = "update redrive.jobs set worker = %s where id = %s"

    database.rows(mark, 1, last)
    here = {("chores", "unpark", None)}
    rows = touched(database, lambda: store.unpark(conn))
    assert rows == here, "one of the release before runs it"
    database.rows(mark, None, last)
    assert touched(database, lambda: store.unpark(conn)) - here == {("jobs", one, 0)}


@pytest.mark.parametrize("how", ["completes", "gives back"])
def test_the_next_of_its_own_key_goes_on(database: Database, how: str) -> None:
    """Not an older one, of another key of the queue."""
    conn, worker = database.conn, make_worker(database.conn)
    keys = ["l", "k", "l", "k"]
    ids = [make_job(conn, ordering_key=key) for key in keys]
    _, job = claim(conn, worker)
    if how == "completes":
        complete(conn, worker, job)
    else:
        bury(conn, worker, job)

    assert database.column("select id from redrive.jobs where run_at = 'infinity'") == [ids[2]]


@pytest.mark.parametrize("how", ["completes", "buries"])
@pytest.mark.parametrize("why", ["its worker", "a dead letter"])
def test_the_next_of_a_key_that_something_else_holds_does_not(
    database: Database, how: str, why: str
) -> None:
    conn, worker = database.conn, make_worker(database.conn)
    make_dead_letter(conn)
    ids = [make_job(conn, ordering_key="k") for _ in range(2)]
    job = claim_one(conn, worker)
    if why == "its worker":
        database.rows("update redrive.jobs set worker = 1 where id = %s", ids[1])
    else:
        database.rows("update redrive.dead_letters set ordering_key = 'k', holds_key = true")
    if how == "completes":
        complete(conn, worker, job)
    else:
        bury(conn, worker, job)

    assert database.column("select id from redrive.jobs where run_at = 'infinity'") == ids[1:]


def test_a_worker_goes_on_with_what_it_knows_beside_another(database: Database) -> None:
    conn, workers = database.conn, [make_worker(database.conn, name) for name in ("w", "v")]
    make_jobs(conn, 3)
    (known, unknown), (other,) = claim(conn, workers[0], 2), claim(conn, workers[1])
    store.retire(conn, workers[0], [known.id])

    assert holders(conn) == {known.id: workers[0], other.id: workers[1]}
    assert claim_one(conn, workers[1]).id == unknown.id


def test_what_is_parked_no_more_is_not_woken(database: Database) -> None:
    """It may have got a time of its own."""
    for _ in range(2):
        make_job(database.conn, ordering_key="k")
    database.rows("delete from redrive.jobs where isfinite(run_at)")
    other, waking = database.session(), database.session()
    other.rows("begin")
    other.rows("update redrive.jobs set run_at = now() + interval '1 h'")
    waiting = waking.start(lambda: store.unpark(waking.conn))
    assert database.wait_until_blocked(waking) == [other.pid]
    other.rows("commit")

    assert waiting.result(60) == 0


# Of a queue


def test_a_queue_is_resumed_alone_and_once(database: Database) -> None:
    for queue in ("a", "b"):
        database.rows("select redrive.pause_v1(%s, 'ada', 'x')", queue)
    resume = "select redrive.resume_v1('a', 'ada', 'x')"

    assert [database.value(resume), database.value(resume)] == [True, False]
    assert database.column("select queue from redrive.queues where paused_at is not null") == ["b"]


def test_names_are_limited_alone(database: Database) -> None:
    database.rows("select redrive.limit_names_v1('queues', 7, 'ada', 'x')")

    assert database.column("select what from redrive.name_limits where at_most = 7") == ["queues"]
