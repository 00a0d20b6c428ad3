"""Campaigns in the database: what is frozen, each step, and what is left after any death."""

import threading
from bisect import bisect_left
from collections import Counter
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from redrive.dead_letters.campaigns import drive as driver
from redrive.dead_letters.campaigns import store as campaigns
from redrive.dead_letters.campaigns.drive import drive, drive_all
from redrive.dead_letters.campaigns.store import plan, show, start
from redrive.dead_letters.campaigns.terms import Terms
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.find import find
from redrive.worker import store
from redrive.worker.store import forget
from tests.factories import (
    claim,
    complete,
    let_die,
    make_dead_letter,
    make_dead_letters,
    make_job,
    make_worker,
    redrive,
    settle,
)
from tests.postgres import Connection, Database

AT_ONCE = Terms(canaries=0)


def started(
    conn: Connection, chosen: Filter | None = None, terms: Terms = AT_ONCE
) -> int:
    """A campaign over all that matches. Returns its id."""
    made = plan(conn, chosen or Filter(), actor="ada")
    start(conn, made.plan, terms, actor="ada", why="the bank is back")
    return made.plan


def state_of(conn: Connection, campaign: int) -> dict[str, Any]:
    found = show(conn, campaign)
    assert found is not None
    return found


def counts(conn: Connection, campaign: int) -> tuple[Any, ...]:
    """state, redriven, succeeded, dead_again, cancelled, waiting, blocked"""
    found = state_of(conn, campaign)
    names = (
        "state",
        "redriven",
        "succeeded",
        "dead_again",
        "cancelled",
        "waiting",
        "blocked",
    )
    return tuple(found[name] for name in names)


def run_all(conn: Connection, *, dies: bool = False) -> int:
    """Claim all that is due and end it. Returns how many jobs that were."""
    worker = make_worker(conn)
    jobs = claim(conn, worker, 1000)
    if dies:
        for job in jobs:
            let_die(conn, worker, job)
    elif jobs:
        complete(conn, worker, *jobs)
    return len(jobs)


# The plan


def test_a_plan_freezes_the_exact_set_and_changes_nothing(database: Database) -> None:
    first, second = make_dead_letters(database.conn, 2)
    made = plan(database.conn, Filter(), actor="ada")
    make_dead_letter(database.conn)

    assert (made.matched, made.sample, made.blocked, made.acted) == (
        2,
        [first, second],
        {},
        0,
    )
    assert made.kinds == ["invoice.charge"]
    assert [(g["count"], g["id"], g["message"]) for g in made.groups] == [
        (2, first, "no such invoice")
    ]
    assert database.rows(
        "select n, id, redrives, state from redrive.campaign_jobs"
    ) == [(1, first, 0, None), (2, second, 0, None)]
    assert database.value("select count(*) from redrive.audit") == 0
    assert drive(database.conn, made.plan) is None

    start(database.conn, made.plan, AT_ONCE, actor="ada", why="x")
    drive(database.conn, made.plan)
    assert database.column("select id from redrive.jobs order by id") == [first, second]


def test_a_plan_says_what_will_stay_by_the_function_that_acts(
    database: Database,
) -> None:
    make_dead_letter(database.conn, idempotency_key="k")
    database.rows(
        "insert into redrive.completions (kind, key, job) values (%s, 'k', 9)",
        "invoice.charge",
    )
    made = plan(database.conn, Filter(), actor="ada")
    campaign = made.plan
    start(database.conn, campaign, AT_ONCE, actor="ada", why="x")
    drive(database.conn, campaign)
    drive(database.conn, campaign)

    assert made.blocked == {"succeeded": 1}
    assert counts(database.conn, campaign) == ("done", 0, 0, 0, 0, 0, {"succeeded": 1})
    assert database.column("select state from redrive.campaign_jobs") == ["blocked"]


def test_a_plan_understands_every_filter_as_a_list_does(database: Database) -> None:
    """Each field of the filter is written a second time in plan_campaign.sql."""
    now = datetime.now(UTC)
    make_dead_letter(
        database.conn, "a", {"currency": "XAU", "n": 5}, queue="q", tenant="acme"
    )
    make_dead_letter(
        database.conn, "b", {"currency": "EUR"}, headers={"source": "import"}
    )
    database.rows(
        "update redrive.dead_letters set category = 'invalid', error_class = 'KeyError',"
        " environment = 'test', version = '1.4', fingerprint = 'f9',"
        " died_at = died_at - interval '1 day' where kind = 'b'"
    )
    database.rows("update redrive.group_deltas set fingerprint = 'f9' where kind = 'b'")
    database.rows("select redrive.set_owner_v1('q', 'a', 'money', null, 'ada', 'b')")
    tried: dict[str, list[Any]] = {
        "ids": [(1,), (2, 99)],
        "kind": [("a",), ("a", "b")],
        "queue": [("q",)],
        "reason": [("not_retryable",), ("expired",)],
        "category": [("invalid",)],
        "error_class": [("KeyError",)],
        "group": ["f9", "f"],
        "owner": ["money", "nobody"],
        "state": [("open",)],
        "tenant": [("acme",)],
        "environment": [("test",)],
        "version": [("1.4",), ("1.5",)],
        "holds": [
            ("payload.currency=XAU",),
            ("payload.n=5", "payload.currency=XAU"),
            ("payload.n=5", "payload.currency=EUR"),
            ("headers.source=import",),
            ("payload.absent=",),
        ],
        "since": [now - timedelta(hours=1)],
        "until": [now - timedelta(hours=1)],
        "limit": [1],
    }

    assert set(tried) == {f.name for f in fields(Filter)}
    for name, values in tried.items():
        for value in values:
            chosen = Filter(**{"state": ("open",)} | {name: value})  # type: ignore[arg-type]
            made = plan(database.conn, chosen, actor="ada")
            frozen = database.column(
                "select id from redrive.campaign_jobs where campaign = %s", made.plan
            )
            listed = [row["id"] for row in find(database.conn, chosen)]
            if name == "limit":
                assert len(frozen) == len(listed) == 1
            else:
                assert sorted(frozen) == sorted(listed), (name, value)


def test_a_plan_that_nobody_starts_is_forgotten_after_a_day(database: Database) -> None:
    make_dead_letters(database.conn, 5)
    old = plan(database.conn, Filter(), actor="ada").plan
    new = plan(database.conn, Filter(), actor="ada").plan
    database.rows(
        "update redrive.campaigns set created_at = now() - interval '25 h' where id = %s",
        old,
    )
    forget(database.conn)

    assert database.column("select id from redrive.campaigns") == [new]
    assert database.column("select distinct campaign from redrive.campaign_jobs") == [
        new
    ]
    with pytest.raises(psycopg.Error, match="is not found; make a new plan"):
        start(database.conn, old, AT_ONCE, actor="ada", why="x")


def test_a_plan_that_is_forgotten_by_steps_is_not_started(database: Database) -> None:
    """A plan that is partly forgotten cannot be started."""
    make_dead_letters(database.conn, 50)
    old = plan(database.conn, Filter(), actor="ada").plan
    database.rows("update redrive.campaigns set created_at = now() - interval '25 h'")
    database.rows("select redrive.forget_v1(1)")
    assert database.value("select count(*) from redrive.campaign_jobs") == 30

    with pytest.raises(
        psycopg.Error, match=f"plan: {old} is not found; make a new plan"
    ):
        start(database.conn, old, AT_ONCE, actor="ada", why="x")
    forget(database.conn)
    assert database.column("select id from redrive.campaigns") == []


def test_a_plan_that_is_started_while_it_is_forgotten_stays_whole(
    database: Database,
) -> None:
    make_dead_letters(database.conn, 50)
    old = plan(database.conn, Filter(), actor="ada").plan
    database.rows("update redrive.campaigns set created_at = now() - interval '25 h'")
    starter = database.transaction()
    start(starter.conn, old, AT_ONCE, actor="ada", why="x")
    forgetter = database.session()
    # skips what the starter holds: it does not wait for it, and takes nothing of it
    forgetter.rows("select redrive.forget_campaigns_v1('400 days', 100)")
    starter.rows("commit")

    drive(database.conn, old)
    assert counts(database.conn, old)[:2] == ("running", 50)


def test_a_plan_is_started_once(database: Database) -> None:
    make_dead_letters(database.conn, 1)
    campaign = started(database.conn)

    with pytest.raises(
        psycopg.Error, match=f"plan: {campaign} is waiting; make a new plan"
    ):
        start(database.conn, campaign, AT_ONCE, actor="bo", why="y")


# Its course


def test_what_was_put_back_is_counted_by_what_became_of_it(database: Database) -> None:
    """Its state said done while jobs were still scheduled."""
    make_dead_letters(database.conn, 3)
    campaign = started(database.conn)
    drive(database.conn, campaign)
    assert counts(database.conn, campaign) == ("running", 3, 0, 0, 0, 0, {})

    worker = make_worker(database.conn)
    first, second, third = claim(database.conn, worker)
    complete(database.conn, worker, first)
    settle(database.conn, worker, second, "cancel")
    drive(database.conn, campaign)
    assert counts(database.conn, campaign) == ("running", 3, 1, 0, 1, 0, {})

    let_die(database.conn, worker, third)
    drive(database.conn, campaign)
    assert counts(database.conn, campaign) == ("done", 3, 1, 1, 1, 0, {})
    assert database.column("select state from redrive.campaign_jobs order by n") == [
        *("succeeded", "cancelled", "dead_again")
    ]
    assert database.rows("select actor, action, n from redrive.audit order by id") == [
        ("ada", "redrive", 3),
        ("redrive", "end redrive", 3),
    ]
    assert drive(database.conn, campaign) is None


def test_of_a_set_that_fails_always_only_the_canaries_run(database: Database) -> None:
    make_dead_letters(database.conn, 200)
    campaign = started(database.conn, terms=Terms())
    ran = 0
    for _ in range(20):
        drive(database.conn, campaign)
        ran += run_all(database.conn, dies=True)

    assert ran == 3
    assert counts(database.conn, campaign) == ("aborted", 3, 0, 3, 0, 197, {})
    assert (
        database.value("select count(*) from redrive.dead_letters where state = 'open'")
        == 200
    )
    assert database.row(
        "select action, why from redrive.audit order by id desc limit 1"
    ) == ("abort redrive", "3 of 3 died again, more than 10%")


def test_a_campaign_that_aborted_goes_on_when_somebody_says_so(
    database: Database,
) -> None:
    make_dead_letters(database.conn, 50)
    campaign = started(database.conn, terms=Terms())
    drive(database.conn, campaign)
    run_all(database.conn, dies=True)
    drive(database.conn, campaign)
    campaigns.resume(database.conn, campaign, actor="ada", why="1.4.3 is out")
    for _ in range(20):
        drive(database.conn, campaign)
        run_all(database.conn)

    assert counts(database.conn, campaign) == ("done", 50, 47, 3, 0, 0, {})


def test_only_the_generation_that_was_seen_goes_back(database: Database) -> None:
    """What died once more since the plan is another dead letter, which nobody looked at."""
    first, second = make_dead_letters(database.conn, 2)
    campaign = started(database.conn)
    redrive(database.conn, [first])
    run_all(database.conn, dies=True)
    drive(database.conn, campaign)

    assert database.column("select id from redrive.jobs") == [second]
    assert state_of(database.conn, campaign)["blocked"] == {"not_open": 1}


def test_dead_letters_that_are_no_longer_open_use_up_no_turn(
    database: Database,
) -> None:
    """A campaign of many whose first ones were dismissed passed over three in each step."""
    ids = make_dead_letters(database.conn, 300)
    campaign = started(database.conn, terms=Terms(canaries=3))
    database.rows("select redrive.dismiss_v1(%s::bigint[], 'ada', 'known')", ids[:150])
    drive(database.conn, campaign)

    assert database.column("select id from redrive.jobs order by id") == ids[150:153]
    assert state_of(database.conn, campaign)["blocked"] == {"not_open": 150}


def test_a_campaign_says_that_its_canaries_have_not_begun(database: Database) -> None:
    """They wait for a limit of 0, for example. Nobody was told."""
    make_dead_letters(database.conn, 20)
    campaign = started(database.conn, terms=Terms(canaries=3))
    drive(database.conn, campaign)
    drive(database.conn, campaign)
    assert state_of(database.conn, campaign)["said"] is None
    database.rows(
        "update redrive.dead_letters set settled_at = settled_at - interval '2 minutes'"
    )
    drive(database.conn, campaign)

    said = "its canaries have not begun; redrive job show says why"
    assert state_of(database.conn, campaign)["said"] == said
    health = database.value("select redrive.health_v1(null)")
    assert set(health["campaigns"]) == {"canary"}
    run_all(database.conn)
    drive(database.conn, campaign)
    assert state_of(database.conn, campaign)["said"] is None


def test_of_two_that_looked_at_the_same_time_one_comes_too_late(
    database: Database,
) -> None:
    make_dead_letters(database.conn, 4)
    campaign = started(database.conn)
    take = "select redrive.step_campaign_v1(%s, 0, 'running', 2, null, null)"

    assert database.value(take, campaign) == 2
    assert database.value(take, campaign) is None
    assert database.value("select count(*) from redrive.jobs") == 2


def test_while_somebody_is_at_it_the_others_have_nothing_to_do(
    database: Database,
) -> None:
    make_dead_letters(database.conn, 2)
    campaign = started(database.conn)
    database.transaction("select redrive.look_at_campaign_v1(%s)", campaign)

    assert drive(database.conn, campaign) is None


def test_a_step_that_rolls_back_changes_nothing(database: Database) -> None:
    make_dead_letters(database.conn, 4)
    campaign = started(database.conn)
    other = database.transaction()
    drive(other.conn, campaign)
    other.rows("rollback")

    assert counts(database.conn, campaign) == ("waiting", 0, 0, 0, 0, 4, {})
    assert database.value("select count(*) from redrive.jobs") == 0
    drive(database.conn, campaign)
    assert database.value("select count(*) from redrive.jobs") == 4


def test_an_error_stops_no_other_campaign_and_none_is_lost(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second error replaced the first."""
    make_dead_letters(database.conn, 1)
    made = [started(database.conn) for _ in range(3)]
    tried: list[int] = []

    def fail(_: Connection, campaign: int) -> None:
        tried.append(campaign)
        if campaign != made[1]:
            msg = f"fault of {campaign}"
            raise psycopg.DataError(msg)

    monkeypatch.setattr(driver, "drive", fail)
    with pytest.raises(psycopg.DataError, match=f"fault of {made[0]}") as error:
        drive_all(database.conn)

    assert tried == made
    assert error.value.__notes__ == [f"and after it: fault of {made[2]}"]


def test_a_driver_that_is_killed_at_any_step_loses_and_doubles_nothing(
    database: Database,
) -> None:
    """kill -9 of the driver, as its server sees it: the session ends between or in statements."""
    make_dead_letters(database.conn, 20)
    campaign = started(database.conn, terms=Terms(canaries=3))
    begun: Counter[int] = Counter()
    worker = make_worker(database.conn)
    for n in range(30):
        driver = database.session()
        if n % 3:  # killed in the middle: what it had not committed is gone
            driver.rows("begin")
        drive(driver.conn, campaign)
        database.rows("select pg_terminate_backend(%s, 5000)", driver.pid)
        jobs = claim(database.conn, worker)
        begun.update(job.id for job in jobs)
        if jobs:
            complete(database.conn, worker, *jobs)

    assert counts(database.conn, campaign) == ("done", 20, 20, 0, 0, 0, {})
    assert len(begun) == 20
    assert set(begun.values()) == {1}
    assert database.value("select max(redrives) from redrive.dead_letters") == 0


def test_32_starters_over_the_same_set_give_each_job_one_generation(
    database: Database,
) -> None:
    ids = make_dead_letters(database.conn, 320)
    sessions = [database.session() for _ in range(32)]
    together = threading.Barrier(32)

    def act(conn: Connection) -> int:
        together.wait()
        made = plan(conn, Filter(ids=ids), actor="ada")
        if made.plan is None:  # the others were sooner
            return 0
        campaign = made.plan
        start(conn, campaign, AT_ONCE, actor="ada", why="the bank is back")
        while state_of(conn, campaign)["waiting"]:
            drive(conn, campaign)
        return int(state_of(conn, campaign)["redriven"])

    done = [session.start(lambda s=session: act(s.conn)) for session in sessions]

    assert sum(d.result(120) for d in done) == 320
    assert database.value("select count(*) from redrive.jobs where redrives = 1") == 320
    assert database.column("select distinct state from redrive.dead_letters") == [
        "redriven"
    ]


def test_a_clock_that_is_set_back_does_not_stop_the_feed(database: Database) -> None:
    """It put nothing back until the clock was where it had been."""
    make_dead_letters(database.conn, 5)
    campaign = started(database.conn, terms=Terms(canaries=0, rate=0.01))
    drive(database.conn, campaign)
    assert state_of(database.conn, campaign)["redriven"] == 1
    database.rows("delete from redrive.jobs")
    database.rows("update redrive.campaigns set fed_at = fed_at + interval '1 day'")

    drive(database.conn, campaign)
    assert state_of(database.conn, campaign)["redriven"] == 2
    drive(database.conn, campaign)
    assert state_of(database.conn, campaign)["redriven"] == 2, "at its rate"


def test_no_second_has_more_than_the_rate_though_steps_come_late(
    database: Database,
) -> None:
    """Two chunks, each on time by itself, had 162 due within one second at 100/s."""
    make_dead_letters(database.conn, 1_500)
    campaign = started(database.conn, terms=Terms(canaries=0, rate=100.0))
    due: list[float] = []
    passed = 0
    for seconds in (0, 1, 2, 9, 0, 1, 30, 3, 0):
        passed += seconds
        past = timedelta(seconds=seconds)
        database.rows("update redrive.campaigns set fed_at = fed_at - %s", past)
        database.rows("update redrive.jobs set run_at = run_at - %s", past)
        database.rows(
            "delete from redrive.jobs where run_at < now()"
        )  # they begin and end
        before = set(database.column("select id from redrive.jobs"))
        drive(database.conn, campaign)
        due += [
            passed + at
            for job, at in database.rows(
                "select id, extract(epoch from run_at)::float8 from redrive.jobs"
            )
            if job not in before
        ]
    due.sort()

    assert len(due) >= 500
    # one more, because instants are rounded to microseconds
    assert max(bisect_left(due, at + 0.99) - n for n, at in enumerate(due)) <= 101


def test_what_is_not_due_yet_is_not_waited_for(database: Database) -> None:
    make_dead_letters(database.conn, 100)
    campaign = started(database.conn, terms=Terms(rate=5.0, canaries=0))
    drive(database.conn, campaign)
    unclaimed = "select redrive.look_at_campaign_v1(%s) -> 'unclaimed'"
    database.rows("update redrive.jobs set run_at = now() + interval '1 minute'")
    assert database.value(unclaimed, campaign) == 0

    database.rows("update redrive.jobs set run_at = now()")
    assert database.value(unclaimed, campaign) == database.value(
        "select count(*) from redrive.jobs"
    )


def test_what_nobody_begins_is_bounded(database: Database) -> None:
    """After a pause of 15 s ten jobs ran within 35 ms."""
    make_dead_letters(database.conn, 100)
    campaign = started(database.conn, terms=Terms(rate=5.0, canaries=0))
    for _ in range(30):
        database.rows("update redrive.campaigns set fed_at = fed_at - interval '10 s'")
        database.rows("update redrive.jobs set run_at = run_at - interval '10 s'")
        drive(database.conn, campaign)

    assert database.value("select count(*) from redrive.jobs") == 5


def late(database: Database, seconds: float, **columns: Any) -> int:
    """A job that has been due for so long."""
    job = make_job(database.conn, **columns)
    due = datetime.now(UTC) - timedelta(seconds=seconds)
    database.rows("update redrive.jobs set run_at = %s where id = %s", due, job)
    return job


def test_others_come_first(database: Database) -> None:
    """It waits with its first, holds back when others wait longer, and aborts if that goes on."""
    conn = database.conn
    make_dead_letters(conn, 50)
    campaign = started(conn, terms=Terms())
    waits = late(database, 60)
    drive(conn, campaign)
    assert state_of(conn, campaign)["state"] == "waiting"
    assert state_of(conn, campaign)["said"].startswith(
        "a ready job of its queues has waited for 6"
    )

    database.rows("delete from redrive.jobs where id = %s", waits)
    drive(conn, campaign)
    assert run_all(conn) == 3
    before = database.value("select late_before from redrive.campaigns")
    waits = late(database, 60)
    drive(conn, campaign)
    held = state_of(conn, campaign)
    assert before < 1
    assert (held["state"], held["redriven"]) == ("ramp", 3)
    assert held["said"].endswith(" s, 0 s when it began")

    database.rows(
        "update redrive.campaigns set held_since = held_since - interval '11 min'"
    )
    drive(conn, campaign)
    assert state_of(conn, campaign)["state"] == "aborted"
    assert state_of(conn, campaign)["said"].endswith("held for 600 s")
    assert database.value(
        "select action from redrive.audit order by id desc limit 1"
    ) == ("abort redrive")
    database.rows("delete from redrive.jobs where id = %s", waits)
    campaigns.resume(conn, campaign, actor="ada", why="over")
    drive(conn, campaign)
    assert database.row(
        "select state, redriven, held_since from redrive.campaigns"
    ) == ("canary", 6, None)


@pytest.mark.parametrize(
    "whose",
    ["its own", "a worker's", "a paused queue's", "another queue's", "a stranger's"],
)
def test_what_does_not_wait_beside_it_holds_it_not_back(
    database: Database, whose: str
) -> None:
    conn = database.conn
    make_dead_letters(conn, 50)
    campaign = started(conn, terms=Terms())
    if whose == "its own":
        drive(conn, campaign)
        database.rows("update redrive.jobs set run_at = run_at - interval '1 h'")
    elif whose == "another queue's":
        late(database, 3600, queue="other")
    elif whose == "a stranger's":  # of a kind that no worker handles
        store.register(conn, store.Registration("w", "test", 30.0, ["invoice.*"], None))
        late(database, 3600, kind="stranger")
    else:
        late(database, 3600)
    if whose == "a worker's":
        claim(conn, make_worker(conn))
    if whose == "a paused queue's":
        database.rows("select redrive.pause_v1('default', 'bo', 'why')")
    drive(conn, campaign)

    seen = database.value("select redrive.look_at_campaign_v1(%s)", campaign)
    assert (seen["others_late"], seen["state"]) == (0, "canary")


def test_only_breakers_and_versions_of_its_own_kinds_count(database: Database) -> None:
    """A worker of two kinds held up the campaign of one by the breaker of the other."""
    conn = database.conn
    make_dead_letter(conn, "book")
    make_dead_letter(conn, "mail")
    kinds, depends_on = ["book", "mail"], {"mail": ["smtp"]}
    store.register(
        conn, store.Registration("w", "1", 30.0, kinds, None, depends_on=depends_on)
    )
    store.register(conn, store.Registration("v", "2", 30.0, ["mail"], None))
    database.rows("insert into redrive.breakers (name, state) values ('smtp', 'open')")

    seen = {}
    for kind in kinds:
        made = started(conn, Filter(kind=(kind,)), Terms(canaries=3))
        looked = database.value("select redrive.look_at_campaign_v1(%s)", made)
        seen[kind] = list(looked["breakers"]), looked["versions"]
    assert seen == {"book": ([], ["1"]), "mail": (["smtp"], ["1", "2"])}


@pytest.mark.parametrize(("share", "window"), [(0.01, 1000), (0.1, 100), (0.5, 100)])
def test_a_window_is_large_enough_for_ten_deaths(
    database: Database, share: float, window: int
) -> None:
    make_dead_letter(database.conn)
    campaign = started(database.conn, terms=Terms(abort_share=share))

    looked = database.value("select redrive.look_at_campaign_v1(%s)", campaign)

    assert looked["window"] == window


def test_an_outage_of_a_dependency_holds_it_until_the_breaker_closes(
    database: Database,
) -> None:
    conn = database.conn
    make_dead_letters(conn, 50)
    store.register(
        conn,
        store.Registration(
            "w", "1", 30.0, ["invoice.*"], None, depends_on={"invoice.charge": ["smtp"]}
        ),
    )
    database.rows("insert into redrive.breakers (name) values ('smtp')")
    campaign = started(conn, terms=Terms())
    drive(conn, campaign)
    database.rows("update redrive.breakers set state = 'open'")
    drive(conn, campaign)
    away = state_of(conn, campaign)
    database.rows("update redrive.breakers set state = 'closed'")
    run_all(conn)
    drive(conn, campaign)
    drive(conn, campaign)

    assert (away["state"], away["said"]) == ("waiting", "breaker smtp is open")
    assert away["in_flight"] == 3
    assert state_of(conn, campaign)["redriven"] > 3


def test_only_recent_recoveries_of_its_own_breakers_count(database: Database) -> None:
    conn = database.conn
    make_dead_letter(conn, "mail")
    store.register(
        conn,
        store.Registration(
            "w", "1", 30.0, ["mail"], None, depends_on={"mail": ["smtp"]}
        ),
    )
    database.rows("insert into redrive.breakers (name) values ('smtp'), ('bank')")
    campaign = started(conn, Filter(kind=("mail",)), Terms(canaries=3))
    database.rows(
        "insert into redrive.marks (at, what, name)"
        " select now() - v.minutes * interval '1 min', v.what, v.name"
        " from (values (1, 'breaker closed', 'smtp'), (9, 'breaker closed', 'smtp'),"
        " (11, 'breaker closed', 'smtp'), (1, 'breaker open', 'smtp'),"
        " (1, 'breaker closed', 'bank')) v(minutes, what, name)"
    )
    looked = database.value("select redrive.look_at_campaign_v1(%s)", campaign)

    assert looked["recoveries"] == {"smtp": 2}


def test_a_rule_tightened_since_aborts_it_and_says_so(database: Database) -> None:
    """It aborts, because each step would fail again."""
    make_dead_letter(database.conn)
    database.rows("update redrive.dead_letters set tenant = repeat('x', 300)")
    campaign = started(database.conn)
    drive(database.conn, campaign)

    assert counts(database.conn, campaign)[:2] == ("aborted", 0)
    assert "tenant" in state_of(database.conn, campaign)["said"]


@pytest.mark.parametrize(
    ("field", "terms"),
    [
        ("rate", "1e-300, 3, 0.1, null, '{}'"),
        ("rate", "'nan', 3, 0.1, null, '{}'"),
        ("not_before", "1, 3, 0.1, 'infinity', '{}'"),
        ("conditions", "1, 3, 0.1, null, '[]'"),
        ("conditions", "1, 3, 0.1, null, null"),
        ("conditions.version", "1, 3, 0.1, null, '{\"version\": 2}'"),
        ("conditions", '1, 3, 0.1, null, \'{"versions": "===2"}\''),
        ("conditions.to_queue", "1, 3, 0.1, null, '{\"to_queue\": 1}'"),
        ("conditions.to_queue", '1, 3, 0.1, null, \'{"to_queue": "a b"}\''),
        ("conditions.breakers", '1, 3, 0.1, null, \'{"breakers": ["smtp"]}\''),
        ("conditions.breakers", '1, 3, 0.1, null, \'{"breakers": {"smtp": 1}}\''),
    ],
)
def test_terms_that_no_step_could_read_are_refused(
    refusing: Database, field: str, terms: str
) -> None:
    make_dead_letter(refusing.conn)
    made = plan(refusing.conn, Filter(), actor="ada")
    with pytest.raises(psycopg.DatabaseError, match=rf"^{field}: must") as refused:
        refusing.rows(
            f"select redrive.start_campaign_v1(%s, 'ada', 'why', {terms})",  # type: ignore[arg-type]
            made.plan,
        )
    assert refused.value.sqlstate == "RD001"


def test_a_version_that_cannot_be_read_aborts_it_and_says_so(
    database: Database,
) -> None:
    """It ended the thread of each worker that does the chores, and nothing was rescued."""
    make_dead_letters(database.conn, 2)
    make_worker(database.conn, ttl=600.0)
    unreadable = started(database.conn, terms=Terms(version="latest"))
    drive_all(database.conn)

    assert counts(database.conn, unreadable)[:2] == ("aborted", 0)
    assert "'latest'" in state_of(database.conn, unreadable)["said"]


@pytest.mark.every_version
def test_a_step_costs_what_is_in_flight(database: Database) -> None:
    """Whether the campaign holds ten thousand or thirty."""
    make_dead_letters(database.conn, 3000)
    campaign = started(database.conn)
    database.rows("analyze redrive.campaign_jobs, redrive.dead_letters, redrive.jobs")
    database.rows(
        "select redrive.step_campaign_v1(%s, 0, 'running', 10, null, null)", campaign
    )
    look = (
        "explain (analyze, buffers, format json) select redrive.look_at_campaign_v1(%s)"
    )
    database.value(look, campaign)
    blocks = database.value(look, campaign)[0]["Plan"]["Shared Hit Blocks"]

    assert blocks < 200
