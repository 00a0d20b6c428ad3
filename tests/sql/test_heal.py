"""Heal in the database: which groups a new version tries, once each, and what is left out of it."""

import time
from typing import Any

import pytest

from redrive import Handlers, Heal
from redrive.dead_letters.campaigns import heal as healer
from redrive.dead_letters.campaigns.drive import drive
from redrive.dead_letters.campaigns.heal import healing, retry_fixed
from redrive.dead_letters.campaigns.obstacles import Allow
from redrive.dead_letters.campaigns.pace import is_version
from redrive.dead_letters.campaigns.store import plan, start
from redrive.dead_letters.campaigns.terms import Terms
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.find import find
from redrive.dead_letters.groups.store import find as find_groups
from redrive.dead_letters.groups.store import judge, resolve
from redrive.jobs import failing
from redrive.worker import store
from tests.factories import (
    claim,
    claim_one,
    complete,
    failure,
    let_die,
    make_dead_letter,
    make_dead_letters,
    make_job,
    make_worker,
    redrive,
    settle,
)
from tests.postgres import Connection, Database

KIND = "invoice.charge"
CAMPAIGNS = (
    "select id, state from redrive.campaigns where planned_by = 'heal' order by id"
)


def deploy(conn: Connection, version: str, *before: int, heals: bool = True) -> int:
    """Put a worker of a version that heals in the place of others. Returns its id."""
    policies = {KIND: Heal()} if heals else {}
    said = store.Registration("w", version, 30.0, [KIND], None, heals=policies)
    worker = store.register(conn, said)
    for old in before:
        store.retire(conn, old)
    return worker


def heal(conn: Connection) -> None:
    assert healer.heal(conn, time.monotonic() + 30) is None


def dead(conn: Connection, version: str = "1.0", **what: Any) -> int:
    """A job that died in this version."""
    job = make_job(conn, KIND)
    worker = make_worker(conn)
    (claimed,) = (one for one in claim(conn, worker) if one.id == job)
    detail = {"version": version}
    let_die(conn, worker, claimed, failure=failure(detail=detail, **what))
    store.retire(conn, worker)
    return job


def test_only_what_a_deploy_may_have_mended_is_tried_and_each_group_by_itself(
    database: Database,
) -> None:
    bug = dead(database.conn, fingerprint="a")
    invalid = dead(database.conn, fingerprint="b", category="invalid")
    dead(database.conn, fingerprint="c", category="transient")
    muted = dead(database.conn, fingerprint="d")
    database.rows(
        "select redrive.mute_v1('d', now() + interval '1 hour', 'ada', 'why')"
    )
    deploy(database.conn, "1.1")
    dead(database.conn, fingerprint="e")  # first seen after it came
    heal(database.conn)
    heal(database.conn)

    tried = "select j.id from redrive.campaign_jobs j order by j.campaign"
    assert database.column(tried) == [bug, invalid]
    assert database.column("select state from redrive.campaigns") == [
        "waiting",
        "waiting",
    ]
    assert muted


def test_nothing_is_tried_without_a_policy_or_while_an_older_version_runs(
    database: Database,
) -> None:
    dead(database.conn)
    old = deploy(database.conn, "1.0", heals=False)
    heal(database.conn)
    deploy(database.conn, "1.1")
    heal(database.conn)
    assert database.rows(CAMPAIGNS) == []

    store.retire(database.conn, old)
    heal(database.conn)
    assert len(database.rows(CAMPAIGNS)) == 1


def test_a_look_says_what_is_to_be_tried_and_of_the_others_why_not(
    database: Database,
) -> None:
    """Each as the chore will find it: they ask the same."""
    conn = database.conn
    for group in "ab":
        dead(conn, fingerprint=group)
    dead(conn, "1.1", fingerprint="c")
    dead(conn, fingerprint="d")
    dead(conn, fingerprint="t", category="transient")
    database.rows(
        "select redrive.mute_v1('d', now() + interval '1 hour', 'ada', 'why')"
    )

    def why() -> dict[str, str | None]:
        return {group["group"]: group["why"] for group in healing(conn)}

    assert set(why().values()) == {"no_policy"}
    old = deploy(conn, "1.0", heals=False)
    deploy(conn, "1.1")
    dead(conn, fingerprint="e")
    assert set(why().values()) == {"rollout"}
    store.retire(conn, old)
    assert why() == {
        "a": None,
        "b": None,
        "c": "same_version",
        "d": "muted",
        "e": "newer",
    }
    assert database.value("select redrive.heal_v1(5, 0.1)") is True
    assert why() == {
        "a": "over",
        "b": None,
        "c": "same_version",
        "d": "muted",
        "e": "newer",
    }
    assert database.column("select filter ->> 'group' from redrive.campaigns") == ["a"]
    heal(conn)
    assert set(why().values()) == {"over", "newer"}
    database.rows("select redrive.say_approvals_v1(array[%s], array[%s])", KIND, KIND)
    assert set(why().values()) == {"approval"}


def test_a_version_that_comes_back_tries_nothing_again(database: Database) -> None:
    dead(database.conn, fingerprint="a")
    first = deploy(database.conn, "1.1")
    heal(database.conn)
    second = deploy(database.conn, "1.2", first)
    heal(database.conn)
    again = deploy(database.conn, "1.1", second)
    dead(database.conn, "1.2", fingerprint="b")
    heal(database.conn)
    deploy(database.conn, "1.2", again)
    heal(database.conn)

    assert [state for _, state in database.rows(CAMPAIGNS)] == [
        "cancelled",
        "waiting",
    ], "the newer version took over from the older, and neither is new a second time"


def test_a_group_that_died_in_a_version_is_not_tried_with_it(
    database: Database,
) -> None:
    dead(database.conn, "1.1")
    deploy(database.conn, "1.1")
    heal(database.conn)

    assert database.rows(CAMPAIGNS) == []
    assert database.value("select ended_at is not null from redrive.heals")


def test_a_group_without_failing_jobs_uses_up_one_number(database: Database) -> None:
    """The demo, and people, expect the next campaign under the next number."""
    dead(database.conn)
    deploy(database.conn, "1.1")
    heal(database.conn)

    assert database.value("select max(id) from redrive.campaigns") == 1


def test_two_workers_that_heal_at_once_start_one_campaign(database: Database) -> None:
    """kill -9 between two statements leaves neither a turn without a campaign nor two of them."""
    dead(database.conn)
    deploy(database.conn, "1.1")
    first, second = database.session(), database.session()
    statement = "select redrive.heal_v1(5, 0.1)"
    first.rows("begin")
    assert first.value(statement) is True
    assert second.value(statement) is False
    first.rows("rollback")
    assert database.rows(CAMPAIGNS) == []
    heal(second.conn)

    assert len(database.rows(CAMPAIGNS)) == 1


def test_a_kind_that_wants_two_people_is_left_to_them(database: Database) -> None:
    with pytest.raises(ValueError, match='approval="two" requires two people'):
        Handlers().handle(KIND, approval="two", heal=Heal())
    dead(database.conn)
    deploy(database.conn, "1.1")
    database.rows("select redrive.say_approvals_v1(array[%s], array[%s])", KIND, KIND)
    heal(database.conn)

    assert database.rows(CAMPAIGNS) == []


@pytest.mark.parametrize(
    "wrong",
    [{"canaries": 0}, {"canaries": 2.5}, {"max_rate": 0}, {"max_rate": float("nan")}],
)
def test_a_policy_that_is_none_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"Heal: {next(iter(wrong))} must be"):
        Heal(**wrong)


def test_a_version_is_compared_as_text_where_it_is_none() -> None:
    assert is_version("a0b1c2", "===a0b1c2")
    assert not is_version("1.4.0", "===1.4")
    assert not is_version("a0b1c2", ">=1")


# Quarantine


def die_again(conn: Connection, job: int, **what: Any) -> None:
    """Redrive a dead letter by its id, and let it die again."""
    assert redrive(conn, [job]) == {job: None}
    worker = make_worker(conn)
    (claimed,) = claim(conn, worker)
    let_die(conn, worker, claimed, **what)


def quarantined(conn: Connection) -> list[int]:
    return sorted(row["id"] for row in find(conn, Filter()) if row["quarantined"])


@pytest.mark.parametrize(
    ("what", "is_quarantined"),
    [
        ({}, True),
        ({"fingerprint": "another"}, False),
        ({"category": "transient"}, False),
    ],
)
def test_what_dies_of_the_same_again_is_quarantined(
    database: Database, what: dict[str, Any], is_quarantined: bool
) -> None:
    job = make_dead_letter(database.conn)
    die_again(database.conn, job, failure=failure(**what))

    assert quarantined(database.conn) == [job] * is_quarantined


def test_quarantine_is_left_out_of_many_and_left_by_name(database: Database) -> None:
    again, once = make_dead_letters(database.conn, 2)
    die_again(database.conn, again)
    made = plan(database.conn, Filter(kind=(KIND,)), actor="ada")
    assert made.blocked == {"quarantined": 1}
    assert [(g["open"], g["quarantined"]) for g in find_groups(database.conn)] == [
        (2, 1)
    ]
    assert (
        plan(database.conn, Filter(), actor=None, allow=Allow(quarantined=True)).blocked
        == {}
    )

    start(database.conn, made.plan, Terms(canaries=0), actor="ada", why="fixed")
    drive(database.conn, made.plan)
    assert database.column("select id from redrive.jobs") == [once]
    assert database.value(
        "select blocked from redrive.dead_letters where id = %s and state = 'open'",
        again,
    )

    named = plan(database.conn, Filter(ids=(again,)), actor="ada")
    assert named.blocked == {}
    start(database.conn, named.plan, Terms(canaries=0), actor="ada", why="looked at")
    drive(database.conn, named.plan)
    assert database.column("select id from redrive.jobs order by 1") == sorted(
        [again, once]
    )
    assert quarantined(database.conn) == []


def test_quarantine_is_left_by_dismissal_and_heal_does_not_enter_it(
    database: Database,
) -> None:
    job = make_dead_letter(database.conn)
    die_again(database.conn, job)
    deploy(database.conn, "1.1")
    heal(database.conn)
    assert database.rows(CAMPAIGNS) == []
    assert database.value("select count(*) from redrive.campaign_jobs") == 0

    database.rows("select redrive.dismiss_v1(%s, 'ada', 'why')", [job])
    assert quarantined(database.conn) == []


def test_a_redrive_of_a_key_goes_by_the_order_of_its_jobs(database: Database) -> None:
    """Of three of a key the first died last: it goes first all the same."""
    first, second, other, third = (
        make_dead_letter(database.conn, ordering_key=key)
        for key in ("k", "k", None, "k")
    )
    die_again(database.conn, first, failure=failure(fingerprint="another"))
    made = plan(database.conn, Filter(), actor="ada")

    turns = "select id from redrive.campaign_jobs where campaign = %s order by n"
    assert database.column(turns, made.plan) == [first, other, second, third]
    start(database.conn, made.plan, Terms(), actor="ada", why="fixed")
    worker = make_worker(database.conn)
    ran: list[int] = []
    while len(ran) < 4:
        drive(database.conn, made.plan)
        jobs = claim(database.conn, worker)
        complete(database.conn, worker, *jobs)
        ran += [job.id for job in jobs if job.id != other]
        ran += [job.id for job in jobs if job.id == other]
    assert [job for job in ran if job != other] == [first, second, third]


def test_a_group_whose_plan_takes_too_long_is_tried_in_part_and_stops_no_other(
    database: Database,
) -> None:
    """A group that fails keeps no other group from its turn."""
    dead(database.conn, fingerprint="a")
    dead(database.conn, fingerprint="b")
    deploy(database.conn, "1.1")
    database.rows(
        "create function slow() returns trigger language plpgsql as $$ begin"
        " if (new.filter ->> 'limit')::int > 50000 then"
        "  raise exception using errcode = 'query_canceled', message = 'statement timeout';"
        " end if; return new; end $$"
    )
    database.rows(
        "create trigger slow before insert on redrive.campaigns"
        " for each row execute function slow()"
    )
    heal(database.conn)

    planned = "select filter ->> 'group' from redrive.campaigns order by id"
    assert database.column(planned) == ["a", "b"]


def fails(conn: Connection, version: str = "1.0", count: int = 1) -> list[int]:
    """Let jobs fail in this version that are retried in an hour."""
    worker = make_worker(conn)
    failed = failure(category="transient", detail={"version": version})
    jobs: list[int] = []
    for _ in range(count):
        make_job(conn, KIND)
        job = claim_one(conn, worker)
        settle(conn, worker, job, "retry", delay=3600, failure=failed)
        jobs.append(job.id)
    store.retire(conn, worker)
    return jobs


def due(database: Database) -> list[int]:
    return database.column(
        "select id from redrive.jobs where run_at <= clock_timestamp() order by id"
    )


def test_a_version_that_heals_retries_failing_jobs_canaries_first(
    database: Database,
) -> None:
    conn = database.conn
    jobs = fails(conn, count=9)
    deploy(conn, "1.1")
    heal(conn)
    ((number, state),) = database.rows(CAMPAIGNS)
    drive(conn, number)

    assert state == "waiting"
    assert due(database) == jobs[:3]
    heal(conn)
    assert len(database.rows(CAMPAIGNS)) == 1


def test_a_version_in_which_jobs_fail_already_retries_none(database: Database) -> None:
    conn = database.conn
    fails(conn)
    deploy(conn, "1.1")
    fails(conn, "1.1")
    heal(conn)

    assert database.rows(CAMPAIGNS) == []


def test_a_resolved_group_retries_its_held_jobs_when_all_workers_have_the_fix(
    database: Database,
) -> None:
    conn = database.conn
    jobs = fails(conn, count=5)
    failing.hold(conn, "f1", is_held=True, actor="ada", why="until 1.1")
    store.hold_failing(conn)
    assert resolve(conn, "f1", ["1.1"], actor="ada", why="fixed")
    store.fold(conn)
    old = deploy(conn, "1.0", heals=False)
    new = deploy(conn, "1.1", heals=False)
    retry_fixed(conn)
    assert database.rows(CAMPAIGNS) == []

    store.retire(conn, old)
    retry_fixed(conn)
    retry_fixed(conn)
    ((number, _),) = database.rows(CAMPAIGNS)
    drive(conn, number)
    assert due(database) == jobs[:3]

    while due(database):
        for job in claim(conn, new):
            complete(conn, new, job)
        drive(conn, number)
    store.hold_failing(conn)

    assert database.value("select count(*) from redrive.jobs") == 0
    assert database.value("select count(*) from redrive.held_groups") == 0
    assert database.rows("select action, actor from redrive.audit order by id") == [
        ("hold", "ada"),
        ("resolve", "ada"),
        ("redrive", "heal"),
        ("end redrive", "redrive"),
        ("release", "redrive"),
    ]


def test_a_fix_that_fixes_nothing_costs_three_attempts_and_the_others_stay_held(
    database: Database,
) -> None:
    conn = database.conn
    fails(conn, count=9)
    failing.hold(conn, "f1", is_held=True, actor="ada", why="until 1.1")
    store.hold_failing(conn)
    resolve(conn, "f1", ["1.1"], actor="ada", why="fixed")
    store.fold(conn)
    new = deploy(conn, "1.1", heals=False)
    retry_fixed(conn)
    ((number, _),) = database.rows(CAMPAIGNS)
    drive(conn, number)
    failed = failure(category="transient", detail={"version": "1.1"})
    for job in claim(conn, new):
        settle(conn, new, job, "retry", delay=3600, failure=failed)
    drive(conn, number)
    store.hold_failing(conn)
    store.fold(conn)
    judge(conn)
    retry_fixed(conn)

    assert database.rows(CAMPAIGNS) == [(number, "aborted")]
    assert database.value("select sum(attempt) from redrive.jobs") == 12
    assert (
        database.value("select count(*) from redrive.jobs where run_at > now() + '1 d'")
        == 9
    )
