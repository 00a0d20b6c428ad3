"""Verbs of campaigns: what one of them does in its campaign, it does in no other."""

from typing import Any, LiteralString

import psycopg
import pytest

from redrive.dead_letters.campaigns.drive import drive
from redrive.dead_letters.campaigns.store import cancel, plan, start
from redrive.dead_letters.campaigns.terms import Terms
from redrive.dead_letters.filter import Filter
from redrive.worker.round_trip import Lane
from redrive.worker.store import Registration, register
from tests.factories import (
    claim,
    claim_one,
    complete,
    failure,
    let_die,
    let_next_die,
    make_campaign,
    make_dead_letter,
    make_dead_letters,
    make_job,
    make_jobs,
    make_worker,
    redrive,
    settle,
)
from tests.postgres import Connection, Database
from tests.sql.bystanders import changed, make_past, touched

AT_ONCE = Terms(canaries=0)
STEP = "select redrive.step_campaign_v1(%s, 0, 'running', 9, null, null)"
LOOK = "select redrive.look_at_campaign_v1(%s)"
REFUSED: dict[str, LiteralString] = {
    "cancel": "select redrive.cancel_campaign_v1(%s, 'ada', 'x')",
    "pause": "select redrive.pause_campaign_v1(%s, 'ada', 'x')",
    "resume": "select redrive.resume_campaign_v1(%s, 'ada', 'x')",
    "leave out": "select redrive.leave_out_v1(%s, '{1}', '{n: missing}')",
    "start": "select redrive.start_campaign_v1(%s, 'ada', 'x', null, 0, 0.1, null, '{}')",
}
"""Verbs that say why not; a step and a look say null."""


def planned(conn: Connection, **selects: Any) -> int:
    found = plan(conn, Filter(**selects), actor="ada").plan
    assert found is not None
    return found


def started(conn: Connection, **selects: Any) -> int:
    campaign = planned(conn, **selects)
    start(conn, campaign, AT_ONCE, actor="ada", why="x")
    return campaign


def states(database: Database, campaign: int) -> list[str | None]:
    return database.column(
        "select state from redrive.campaign_jobs where campaign = %s order by n",
        campaign,
    )


@pytest.mark.parametrize("whose", ["nobody", "over"])
def test_a_campaign_that_is_not_theirs_is_left_alone(
    database: Database, whose: str
) -> None:
    """By each verb, beside campaigns that would be; in each state that a verb asks for."""
    make_dead_letters(database.conn, 1)
    one, _, paused = (started(database.conn) for _ in range(3))
    database.rows("update redrive.campaigns set state = 'paused' where id = %s", paused)
    change = "update redrive.campaigns set planned_login = %s, state = %s where id = %s"
    asked = {"cancel": "running", "pause": "running", "resume": "paused"}
    for verb, query in REFUSED.items():
        state = "done" if whose == "over" else asked.get(verb, "planned")
        database.rows(change, "ada" if whose == "over" else None, state, one)

        def act(query: LiteralString = query) -> None:
            with pytest.raises(
                psycopg.Error, match=f" {one} is |only ada, who made it"
            ):
                database.rows(query, one)

        assert touched(database, act) == set(), verb
    database.rows(
        change, *(("ada", "done") if whose == "over" else (None, "running")), one
    )
    for query in (STEP, LOOK):
        assert touched(database, lambda q=query: database.rows(q, one)) == set()
        assert database.value(query, one) is None
    assert one not in database.column("select redrive.live_campaigns_v1()")
    with pytest.raises(psycopg.Error, match="is not found"):
        database.rows(REFUSED["cancel"], 99)


@pytest.mark.parametrize("verb", ["cancel", "leave out", "start", "step"])
def test_of_two_who_change_a_campaign_one_is_first(
    database: Database, verb: str
) -> None:
    """The other session sees the new state, and not the old one."""
    make_dead_letters(database.conn, 1)
    one = started(database.conn) if verb == "step" else planned(database.conn)
    acting = database.session()
    other = database.transaction("update redrive.campaigns set state = 'cancelled'")
    query = STEP if verb == "step" else REFUSED[verb]
    if verb == "step":  # a worker waits for nobody
        assert acting.value(query, one) is None
        return
    waiting = database.start_blocked(acting, lambda: acting.value(query, one), by=other)
    other.rows("commit")

    with pytest.raises(psycopg.Error, match=f" {one} is cancelled"):
        waiting.result(60)


def test_campaigns_that_go_on_are_told_from_others(database: Database) -> None:
    conn = database.conn
    make_dead_letters(conn, 1)
    ids = [planned(conn) for _ in range(5)]
    database.rows(
        "update redrive.campaigns c set state = v.state, redriven = v.redriven, succeeded = 1,"
        " dead_again = 1, cancelled = 1"
        " from unnest(%s::bigint[], '{running,running,planned,paused,paused}'::text[],"
        " '{3,4,3,3,4}'::int[]) as v(id, state, redriven) where c.id = v.id",
        ids,
    )

    assert database.column("select redrive.live_campaigns_v1()") == [
        ids[0],
        ids[1],
        ids[4],
    ]


def test_a_dead_letter_is_in_the_campaign_that_has_yet_to_come_to_it(
    database: Database,
) -> None:
    conn = database.conn
    a, b = (make_dead_letters(conn, 4, kind=kind) for kind in "ab")
    old, one = planned(conn, kind=("a",)), planned(conn, kind=("a",))
    database.rows(
        "update redrive.campaigns set planned_login = null, state = 'running' where id = %s",
        old,
    )
    database.rows("select redrive.leave_out_v1(%s, '{3}', '{x}')", one)
    start(conn, one, AT_ONCE, actor="ada", why="x")
    two = started(conn, kind=("b",))
    planned(conn)
    found = "select id, campaign from redrive.in_campaign_v1(%s) order by 1"

    assert database.rows(found, a[1:] + b[:1]) == [
        (a[1], one),
        (a[3], one),
        (b[0], two),
    ]


def test_a_campaign_is_cancelled_beside_another(database: Database) -> None:
    """Each in a queue of its own, and nobody waits for what the other one holds, or runs."""
    conn = database.conn
    for queue in ("a", "b"):
        make_dead_letters(conn, 2, queue=queue)
    one, two = (started(conn, queue=(queue,)) for queue in ("a", "b"))
    for campaign in (one, two):
        drive(conn, campaign)
    database.rows(
        "insert into redrive.limit_waits"
        " select id, 'n', queue, kind, priority, now() from redrive.jobs"
    )
    (job,) = claim(conn, make_worker(conn), 1, lanes=[Lane(0, "a", 0)])
    hasty = database.session(lock_timeout="1ms")
    others = database.transaction(
        "select from redrive.lanes where queue = 'b' for update"
    )
    others.rows("select from redrive.dead_letters where id = %s for update", job.id)
    (taken,) = database.column(
        "select id from redrive.jobs where queue = 'a' and id <> %s", job.id
    )

    assert cancel(hasty.conn, one, actor="ada", why="x") == 1
    others.rows("commit")
    assert states(database, one) == ["redriven", "cancelled"]
    assert states(database, two) == ["redriven", "redriven"]
    waits = database.column("select job from redrive.limit_waits")
    assert taken not in waits
    assert len(waits) == 3


def test_what_is_taken_back_is_the_last_generation_of_this_campaign(
    database: Database,
) -> None:
    """Not what another one put back since, nor an older death of the same job."""
    conn = database.conn
    ids = [make_past(database, queue) for queue in ("one", "two", "three")]
    campaign = started(conn, ids=tuple(ids))
    drive(conn, campaign)
    worker = make_worker(conn)
    (again,) = (job for job in claim(conn, worker) if job.id == ids[0])
    let_die(conn, worker, again, failure=failure(fingerprint="z"))
    database.rows("delete from redrive.claims")
    redrive(conn, ids[:1])
    database.rows(
        "update redrive.jobs set deliveries = d.deliveries from redrive.dead_letters d"
        " where d.id = jobs.id and d.redrives = jobs.redrives - 1"
    )
    database.rows(
        "update redrive.dead_letters set state = 'dismissed' where id = %s", ids[2]
    )

    assert cancel(conn, campaign, actor="ada", why="x") == 1
    assert database.rows(
        "select id, redrives from redrive.dead_letters where state = 'open'"
    ) == [(ids[1], 1)]
    assert database.column("select id from redrive.jobs order by 1") == [ids[0], ids[2]]


def test_a_job_whose_dead_letter_is_purged_meanwhile_is_not_taken_back(
    database: Database,
) -> None:
    """It would be nowhere."""
    (dead,) = make_dead_letters(database.conn, 1)
    campaign = started(database.conn)
    drive(database.conn, campaign)
    operator = database.session()
    purging = database.transaction("delete from redrive.dead_letters")
    taken = database.start_blocked(
        operator,
        lambda: cancel(operator.conn, campaign, actor="ada", why="x"),
        by=purging,
    )
    purging.rows("commit")

    assert taken.result(60) == 0
    assert database.column("select id from redrive.jobs") == [dead]


# A step


def test_a_step_takes_the_next_alone(database: Database) -> None:
    """Not what had its turn and stayed, nor what is left out, nor what is another campaign's."""
    conn = database.conn
    ids = make_dead_letters(conn, 5)
    planned(conn)
    campaign = planned(conn)
    database.rows("select redrive.leave_out_v1(%s, '{2}', '{x}')", campaign)
    start(conn, campaign, AT_ONCE, actor="ada", why="x")
    step = "select redrive.step_campaign_v1(%s, %s, 'running', 1, null, null)"
    keep_back = "update redrive.dead_letters set quarantined = %s where id = %s"
    database.rows(keep_back, True, ids[0])
    assert database.value(step, campaign, 0) == 0
    database.rows(keep_back, None, ids[0])

    assert [database.value(step, campaign, n) for n in (1, 2)] == [1, 1]
    assert states(database, campaign) == [
        "blocked",
        "invalid",
        "redriven",
        "redriven",
        None,
    ]
    assert database.column("select id from redrive.jobs order by 1") == ids[2:4]


def test_what_became_of_a_turn_is_said_of_its_own_dead_letter(
    database: Database,
) -> None:
    """Beside a plan that holds the same ones in another order."""
    ids = make_dead_letters(database.conn, 3)
    campaign, other = started(database.conn), planned(database.conn)
    turned = "update redrive.campaign_jobs set id = %s - id where campaign = %s"
    database.rows(turned, ids[0] + ids[2], other)
    database.rows(
        "update redrive.dead_letters set quarantined = true where id = %s", ids[0]
    )
    database.rows(STEP, campaign)

    assert states(database, campaign) == ["blocked", "redriven", "redriven"]
    assert states(database, other) == [None] * 3


def test_what_a_step_passes_over_says_so_in_its_own_generation(
    database: Database,
) -> None:
    """Beside an earlier one of the same job, and beside others; it says nothing of what is over."""
    conn = database.conn
    ids = [make_past(database, queue) for queue in ("one", "two", "three", "four")]
    campaign = planned(conn, ids=tuple(ids[:3]))
    database.rows("select redrive.leave_out_v1(%s, '{1,2,3}', '{x,x,x}')", campaign)
    start(conn, campaign, AT_ONCE, actor="ada", why="x")
    database.rows(
        "update redrive.dead_letters set state = 'dismissed' where id = %s", ids[1]
    )
    redrive(conn, [ids[2]])
    worker = make_worker(conn)
    let_next_die(conn, worker)
    database.rows(STEP, campaign)

    assert database.rows(
        "select id, redrives from redrive.dead_letters where blocked = 'invalid'"
    ) == [(ids[0], 1)]


def test_a_step_passes_over_a_thousand_at_most(database: Database) -> None:
    make_dead_letters(database.conn, 2)
    campaign = started(database.conn)
    database.rows("update redrive.campaign_jobs set n = n + 1100")
    database.rows(
        "insert into redrive.campaign_jobs (campaign, n, id, redrives, state)"
        " select %s, n, 10000 + n, 0, 'invalid' from generate_series(1, 1100) n",
        campaign,
    )
    database.rows("update redrive.campaigns set matched = 1102")

    step = "select redrive.step_campaign_v1(%s, 0, 'running', 1, null, null)"
    assert database.value(step, campaign) == 0
    assert database.value("select place from redrive.campaigns") == 1000


def test_a_step_waits_for_no_dead_letter_and_keeps_none_locked(
    database: Database,
) -> None:
    """Nor for one that it passes over."""
    ids = make_dead_letters(database.conn, 2)
    campaign = planned(database.conn)
    database.rows("select redrive.leave_out_v1(%s, '{1}', '{x}')", campaign)
    start(database.conn, campaign, AT_ONCE, actor="ada", why="x")
    other = database.transaction(
        "select from redrive.dead_letters where id = %s for update", ids[0]
    )
    assert database.value(STEP, campaign) is None
    free = "select id from redrive.dead_letters where id = %s for update skip locked"
    assert other.column(free, ids[1]) == ids[1:]
    other.rows("commit")

    assert database.value(STEP, campaign) == 1


def test_a_step_leads_to_no_end_before_it(database: Database) -> None:
    make_dead_letters(database.conn, 1)
    campaign = started(database.conn)
    step = "select redrive.step_campaign_v1(%s, 0, %s, 0, null, null)"

    for state in ("planned", "paused", "cancelled", "done"):
        with pytest.raises(
            psycopg.Error, match="state: a step cannot lead to this state"
        ):
            database.rows(step, campaign, state)


# A look


def test_a_look_counts_each_end_once_and_of_its_campaign(database: Database) -> None:
    conn = database.conn
    make_dead_letters(conn, 2, kind="a")
    make_dead_letters(conn, 2, kind="b")
    one, two = (started(conn, kind=(kind,)) for kind in "ab")
    for campaign in (one, two):
        drive(conn, campaign)
    worker = make_worker(conn)
    for job in claim(conn, worker):
        if job.id % 2 == 0:
            let_die(conn, worker, job, failure=failure(category="transient"))
    seen = [database.value(LOOK, one) for _ in range(2)]

    assert [(look["ended"], look["dead"], look["in_flight"]) for look in seen] == [
        (1, 1, 1)
    ] * 2
    assert [look["window_dead"] for look in seen] == [1, 1]
    assert sorted(map(str, states(database, one))) == ["dead_again", "redriven"]
    assert states(database, two) == ["redriven"] * 2


def test_deaths_are_counted_among_a_hundred_in_a_row(database: Database) -> None:
    """Jobs that were retried ended last, and 45 of 84 died. Jobs before resume do not count."""
    conn = database.conn
    make_dead_letters(conn, 300, kind="other")
    other = started(conn)
    ids = make_dead_letters(conn, 300)
    campaign = started(conn, kind=("invoice.charge",))
    drive(conn, campaign)
    died = "update redrive.campaign_jobs set state = 'dead_again' where campaign = %s"
    database.rows(died, other)
    dead = {*ids[:5], *ids[100:103], *ids[199:201]}
    worker = make_worker(conn)
    for job in claim(conn, worker, 300):
        if job.id in dead:
            let_die(conn, worker, job, failure=failure(category="transient"))

    assert database.value(LOOK, campaign)["window_dead"] == 5
    assert database.value(LOOK, campaign)["window_dead"] == 5, (
        "the step before was not taken"
    )
    database.rows("select redrive.pause_campaign_v1(%s, 'ada', 'x')", campaign)
    database.rows("select redrive.resume_campaign_v1(%s, 'ada', 'x')", campaign)
    assert database.value(LOOK, campaign)["window_dead"] == 0
    database.rows(
        "update redrive.campaign_jobs set state = 'redriven' where n in (1, 101)"
    )
    database.rows("update redrive.campaigns set judged_from = 102")
    assert database.value(LOOK, campaign)["window_dead"] == 2


def test_what_waits_of_a_campaign_is_held_by_nobody(database: Database) -> None:
    """Not by a claim, and not by another campaign."""
    conn = database.conn
    make_dead_letters(conn, 4, kind="a")
    make_dead_letters(conn, 1, kind="b")
    one, two = (started(conn, kind=(kind,)) for kind in "ab")
    for campaign in (one, two):
        drive(conn, campaign)
    worker = make_worker(conn)
    _, tried = claim(conn, worker, 2)
    settle(conn, worker, tried, "retry", failure=failure())

    assert database.value(LOOK, one)["unclaimed"] == 2


def test_a_campaign_sees_how_late_others_are(database: Database) -> None:
    """Those that are due and wait, of no campaign, in its queues as far as they are not paused."""
    conn = database.conn
    (again,) = make_dead_letters(conn, 1, kind="z")
    make_dead_letters(conn, 1)
    campaign = started(conn, kind=("invoice.charge",))
    database.rows("select redrive.set_lanes_v1('default', 1, 'ada', 'x')")
    for queue in ("other", "paused"):
        make_job(conn, queue=queue)
    database.rows("select redrive.pause_v1('paused', 'ada', 'x')")
    later = make_job(conn)
    database.rows("update redrive.jobs set run_at = now() + '1 h' where id = %s", later)
    late = "select (redrive.look_at_campaign_v1(%s) ->> 'others_late')::float8"
    before = database.value(late, campaign)
    claimed, waiting = make_jobs(conn, 2)
    redrive(conn, [again])
    claim(conn, make_worker(conn), 1)
    held = "update redrive.claims set queue = 'default', ids = array[%s::bigint]"
    database.rows(held, claimed)
    database.rows(
        "update redrive.jobs set run_at = now() - interval '1 d' where id <> %s", later
    )
    database.rows(
        "update redrive.jobs set run_at = now() - interval '1 h' where id = %s", waiting
    )

    assert before == 0
    assert 3600 <= database.value(late, campaign) < 80_000


# A plan


def test_dead_letters_of_a_key_are_ordered_in_their_plan_alone(
    database: Database,
) -> None:
    conn = database.conn
    keyed = [make_dead_letter(conn, "a", ordering_key="k") for _ in range(3)]
    plain = make_dead_letters(conn, 3, kind="b")
    database.rows(
        "update redrive.dead_letters set died_at = died_at + (case id when %s then 0 when %s then 1"
        " else 2 end) * interval '1 h' where kind = 'a'",
        keyed[2],
        keyed[0],
    )
    frozen = "select id from redrive.campaign_jobs where campaign = %s order by n"
    other = planned(conn, kind=("b",))
    last, every = planned(conn, ids=(keyed[2],)), planned(conn, kind=("a",))

    assert database.column(frozen, every) == keyed
    assert database.column(frozen, last) == keyed[2:]
    assert database.column(frozen, other) == plain


def test_a_plan_says_of_its_own_what_they_did(database: Database) -> None:
    conn = database.conn
    (one, *_) = make_dead_letters(conn, 7, kind="a")
    (other,) = make_dead_letters(conn, 1, kind="b")
    database.rows(
        "insert into redrive.side_effects (job, deliveries, what, detail)"
        " values (%s, 1, 'x', '{}'), (%s, 1, 'y', '{}')",
        one,
        other,
    )
    before = planned(conn, kind=("b",))
    made = plan(
        conn, Filter(ids=(one, one + 1, 10**6, other), kind=("a",)), actor="ada"
    )

    assert (made.acted, made.matched, made.missing) == (1, 2, [other, 10**6])
    assert len(plan(conn, Filter(kind=("a",)), actor=None).sample) == 5
    assert database.column(
        "select matched from redrive.campaigns where id = %s", before
    ) == [1]


def test_what_a_dead_letter_holds(database: Database) -> None:
    holds = 'select redrive.holds_v1(\'{"n": 5, "o": {"p": "="}}\', \'{"n": 6}\', %s)'
    asked = {
        "payload.n=5": True,
        "payload.n=6": False,
        "headers.n=6": True,
        "headers.n=5": False,
        "payload.o.p==": True,
        "payload.q=": False,
    }

    assert {said: database.value(holds, [said]) for said in asked} == asked
    assert not database.value(holds, ["payload.n=5", "headers.n=5"])


# Two people


def test_a_kind_that_needs_two_keeps_back_no_plan_of_another(
    database: Database,
) -> None:
    for kind in ("a", "b"):
        make_dead_letters(database.conn, 1, kind=kind)
    database.rows("select redrive.say_approvals_v1('{c}', '{c}')")
    say = "select redrive.say_approvals_v1('{b}', '{b}')"
    database.rows(say)
    assert touched(database, lambda: database.rows(say)) == set(), (
        "whoever said it first"
    )

    assert started(database.conn, kind=("a",))
    with pytest.raises(psycopg.Error, match="approval: b needs two"):
        started(database.conn, kind=("b",))
    assert database.column("select kind from redrive.approvals order by 1") == [
        "b",
        "c",
    ]


def test_an_approval_that_another_worker_releases_is_not_waited_for(
    database: Database,
) -> None:
    database.rows("select redrive.say_approvals_v1('{a,b}', '{a,b}')")
    other = database.transaction("delete from redrive.approvals where kind = 'a'")
    database.rows("set lock_timeout = '1ms'")
    database.rows("select redrive.say_approvals_v1('{a,b}', '{}')")
    other.rows("commit")

    assert database.column("select kind from redrive.approvals") == []


def test_a_plan_shows_of_each_group_one_of_its_own_that_is_open(
    database: Database,
) -> None:
    """Beside dead letters of other groups, and an earlier death of the same job."""
    again, one, two = make_dead_letters(database.conn, 3)
    redrive(database.conn, [again])
    let_die(
        database.conn,
        worker := make_worker(database.conn),
        claim_one(database.conn, worker),
    )
    database.rows(
        "update redrive.dead_letters set fingerprint = id || '-' || redrives,"
        " message = id || '-' || redrives"
    )

    groups = plan(database.conn, Filter(), actor="ada").groups
    shown = {(group["group"], group["id"], group["message"]) for group in groups}
    names = [(f"{again}-1", again), (f"{one}-0", one), (f"{two}-0", two)]
    assert shown == {(name, job, name) for name, job in names}


def test_a_campaign_is_closed_once_and_alone(database: Database) -> None:
    one, _, planned = (make_campaign(database.conn) for _ in range(3))
    database.rows(
        "update redrive.campaigns set planned_login = 'ada' where id = %s", planned
    )
    close = "select redrive.close_campaign_v1(%s, 1, '{}')"

    assert touched(database, lambda: database.rows(close, one)) == {
        ("campaigns", one, None)
    }
    assert touched(database, lambda: database.rows(close, one)) == set()
    assert touched(database, lambda: database.rows(close, planned)) == set()
    ended = "select count(*) from redrive.audit where action = 'end redrive'"
    assert database.value(ended) == 1


def test_a_redrive_counts_for_its_campaign_alone(database: Database) -> None:
    job_id, campaign = make_past(database, "one"), make_campaign(database.conn)
    other = make_campaign(database.conn)

    assert redrive(database.conn, [job_id], campaign=campaign) == {job_id: None}
    query = "select redriven from redrive.campaigns where id = any (%s) order by id"
    assert database.column(query, [campaign, other]) == [1, 0]


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
                let_die(conn, worker, job, failure=failure(category="transient"))
    worker = make_worker(conn)
    complete(conn, worker, *claim(conn, worker, 2))
    plan(conn, Filter(), actor="ada")
    one = plan(conn, Filter(kind=("a",)), actor="ada").plan
    said = (one, "ada", "x")

    for act in (
        lambda: database.rows(
            "select redrive.leave_out_v1(%s, '{1}', '{n: missing}')", one
        ),
        lambda: start(conn, one, AT_ONCE, actor="ada", why="x"),
        lambda: drive(conn, one),
        lambda: database.rows("select redrive.pause_campaign_v1(%s, %s, %s)", *said),
        lambda: database.rows("select redrive.resume_campaign_v1(%s, %s, %s)", *said),
        lambda: drive(conn, one),
        lambda: database.rows("select redrive.cancel_campaign_v1(%s, %s, %s)", *said),
    ):
        rows = changed(database, act)
        of_campaigns = [
            row for table, row in rows if table in {"campaigns", "campaign_jobs"}
        ]
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
        for version, kind, breaker in (
            ("1", "a", "bank"),
            ("2", "b", "mail"),
            ("0", "b", "old"),
        )
    ]
    database.rows(
        "update redrive.workers set lost_at = now() where id = %s", workers[2]
    )
    claimed, tried = claim(conn, workers[1], 2)
    settle(conn, workers[1], tried, "retry", failure=failure())
    seen = database.value("select redrive.look_at_campaign_v1(%s)", campaign)

    assert claimed
    assert seen["unclaimed"] == 1, "one is claimed and one was tried"
    assert seen["breakers"] == {"extra": "closed", "mail": "closed"}
    assert seen["versions"] == ["2"]
