"""Retry, hold and give up of failing jobs: no job is lost, and no attempt is spent unseen."""

import random
from datetime import UTC, datetime

import psycopg
import pytest

from redrive.dead_letters import purge
from redrive.dead_letters.campaigns import store as campaigns
from redrive.dead_letters.campaigns.drive import drive
from redrive.dead_letters.campaigns.terms import Terms
from redrive.dead_letters.edit import store as edits
from redrive.dead_letters.edit.patch import read_patch
from redrive.dead_letters.edit.store import Letter
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.groups import store as groups
from redrive.handlers import Handlers
from redrive.jobs import control, failing
from redrive.rules.rows import Row, Signed
from redrive.worker import store
from tests.factories import (
    claim_one,
    complete,
    complete_next,
    failure,
    make_job,
    make_jobs,
    make_worker,
    outcome,
    redrive,
    settle,
    settle_next,
    silence,
    totals,
)
from tests.postgres import Connection, Database

OPEN = "select id from redrive.dead_letters where state = 'open' order by id"
HELD = datetime(9000, 1, 1, tzinfo=UTC)
SIGNED = Signed(actor="ada", why="the provider is back")


def fail(conn: Connection, worker: int, count: int, **overrides: object) -> list[int]:
    """Let this many due jobs fail, and let them wait for an hour; return their ids."""
    failed: list[int] = []
    for _ in range(count):
        job = claim_one(conn, worker)
        said = failure(category="transient", **overrides)
        assert settle(conn, worker, job, "retry", delay=3600, failure=said)
        failed.append(job.id)
    return failed


def retry(conn: Connection, terms: Terms = Terms()) -> int:  # noqa: B008 # it is frozen
    """Start a retry of the group f1; return its campaign."""
    plan = campaigns.plan_retry(conn, "f1", actor="ada")["plan"]
    campaigns.start(conn, plan, terms, **SIGNED)
    drive(conn, plan)
    return plan


def shown(conn: Connection, campaign: int) -> Row:
    """Return a campaign after its next step."""
    drive(conn, campaign)
    found = campaigns.show(conn, campaign)
    assert found
    return found


def due(conn: Connection) -> int:
    """Return the number of jobs that are due."""
    query = "select count(*) from redrive.jobs where run_at <= clock_timestamp()"
    return conn.execute(query).fetchall()[0][0]


def test_a_retry_of_a_cause_that_is_not_fixed_costs_three_attempts(
    database: Database,
) -> None:
    conn = database.conn
    worker = make_worker(conn)
    make_jobs(conn, 20)
    fail(conn, worker, 20)
    number = retry(conn)
    assert due(conn) == 3

    fail(conn, worker, 3)
    found = shown(conn, number)

    assert (found["state"], found["dead_again"], found["waiting"]) == ("aborted", 3, 17)
    assert found["said"] == "3 of 3 failed again, more than 10%"
    assert due(conn) == 0
    assert database.value("select sum(attempt) from redrive.jobs") == 23
    assert database.value("select count(*) from redrive.dead_letters") == 0


def test_a_retry_of_a_fixed_cause_runs_all_jobs(database: Database) -> None:
    conn = database.conn
    worker = make_worker(conn)
    make_jobs(conn, 20)
    fail(conn, worker, 20)
    number = retry(conn)
    found = shown(conn, number)

    while due(conn):
        for _ in range(due(conn)):
            complete_next(conn, worker)
        found = shown(conn, number)

    assert (found["state"], found["succeeded"], found["redriven"]) == ("done", 20, 20)
    assert groups.find(conn) == []
    actions = database.column("select action from redrive.audit order by id")
    assert actions == ["redrive", "end redrive"]


def test_a_retry_leaves_out_jobs_that_were_tried_since_the_plan(
    database: Database,
) -> None:
    conn = database.conn
    worker = make_worker(conn)
    make_jobs(conn, 3)
    first, second, third = fail(conn, worker, 3)
    plan = campaigns.plan_retry(conn, "f1", actor="ada")["plan"]
    database.rows("update redrive.jobs set run_at = now() where id = %s", first)
    fail(conn, worker, 1)
    database.rows("update redrive.jobs set run_at = now() where id = %s", second)
    complete_next(conn, worker)
    campaigns.start(conn, plan, Terms(canaries=0), **SIGNED)
    drive(conn, plan)

    assert database.column(
        "select id from redrive.jobs where run_at <= clock_timestamp()"
    ) == [third]
    found = shown(conn, plan)
    assert found["blocked"] == {"not_waiting": 2}
    assert found["redriven"] == 1


def test_a_job_that_dies_in_a_retry_counts_as_failed_again(database: Database) -> None:
    conn = database.conn
    worker = make_worker(conn)
    make_job(conn)
    fail(conn, worker, 1)
    number = retry(conn)
    job = claim_one(conn, worker)
    settle(conn, worker, job, "dead", reason="gave_up", failure=failure())

    found = shown(conn, number)
    assert (found["state"], found["dead_again"]) == ("aborted", 1)


def test_a_job_that_was_released_in_a_retry_counts_as_neither(
    database: Database,
) -> None:
    conn = database.conn
    worker = make_worker(conn)
    make_job(conn)
    fail(conn, worker, 1)
    number = retry(conn)
    settle_next(conn, worker, "release", refund=True)

    found = shown(conn, number)
    assert (found["state"], found["cancelled"]) == ("done", 1)


def test_a_job_that_is_cancelled_in_a_retry_counts_as_neither(
    database: Database,
) -> None:
    """Cancelled by its handler, or by a person before a worker took it."""
    conn = database.conn
    worker = make_worker(conn)
    make_jobs(conn, 3)
    fail(conn, worker, 3)
    number = retry(conn)
    settle_next(conn, worker, "cancel")
    waiting = database.value(
        "select min(id) from redrive.jobs where run_at <= clock_timestamp()"
    )
    assert control.cancel(conn, [waiting], **SIGNED).cancelled == 1
    complete_next(conn, worker)

    found = shown(conn, number)
    assert (found["state"], found["cancelled"], found["succeeded"]) == ("done", 2, 1)


def test_nothing_is_planned_if_no_job_waits(database: Database) -> None:
    conn = database.conn
    assert campaigns.plan_retry(conn, "f1", actor="ada")["plan"] is None
    assert database.value("select count(*) from redrive.campaigns") == 0


def test_a_held_group_spends_no_attempt_until_it_is_released(
    database: Database,
) -> None:
    conn = database.conn
    worker = make_worker(conn)
    make_jobs(conn, 3)
    fail(conn, worker, 2)
    assert failing.hold(conn, "f1", is_held=True, **SIGNED)
    assert (
        database.value("select min(run_at) from redrive.jobs where attempt > 0") > HELD
    )
    fail(conn, worker, 1)
    assert store.hold_failing(conn) == 1
    assert store.hold_failing(conn) == 0
    (group,) = groups.find(conn)
    latest = database.value("select min(run_at) from redrive.jobs")

    assert (group["failing"], group["held_by"]) == (3, "ada")
    assert group["next_retry"] is None
    assert latest.year == 9990

    assert failing.hold(conn, "f1", is_held=False, **SIGNED)
    assert not failing.hold(conn, "f1", is_held=False, **SIGNED)
    assert store.hold_failing(conn) == 3
    assert due(conn) <= 3
    assert database.value(
        "select bool_and(run_at < clock_timestamp() + interval '1 s') from redrive.jobs"
    )
    assert database.value("select count(*) from redrive.held_groups") == 0
    assert database.column("select action from redrive.audit") == ["hold", "release"]


def test_a_group_that_does_not_exist_is_not_held(database: Database) -> None:
    assert not failing.hold(database.conn, "f1", is_held=True, **SIGNED)
    assert database.value("select count(*) from redrive.audit") == 0


def test_a_retry_of_a_held_group_tries_its_canaries_and_keeps_the_others(
    database: Database,
) -> None:
    conn = database.conn
    worker = make_worker(conn)
    make_jobs(conn, 9)
    fail(conn, worker, 9)
    failing.hold(conn, "f1", is_held=True, **SIGNED)
    store.hold_failing(conn)
    number = retry(conn, Terms(rate=3))
    # The canaries are due within a second, and are left to the campaign.
    assert store.hold_failing(conn) == 0
    database.rows("update redrive.jobs set run_at = now() where run_at < now() + '1 m'")
    fail(conn, worker, due(conn))
    # A canary that has failed waits again, also before the campaign counts it.
    assert store.hold_failing(conn) == 3
    assert shown(conn, number)["state"] == "aborted"

    assert database.value("select sum(attempt) from redrive.jobs") == 12
    held = "select count(*) from redrive.jobs where run_at > now() + '1 d'"
    assert database.value(held) == 9


def test_failing_jobs_that_are_given_up_are_dead_letters_with_their_history(
    database: Database,
) -> None:
    conn = database.conn
    worker = make_worker(conn)
    make_jobs(conn, 4)
    fail(conn, worker, 3, detail={"version": "1.4"}, message="503")
    running = claim_one(conn, worker)
    jobs = [*failing.ids(conn, "f1"), running.id]

    assert failing.give_up(conn, jobs, **SIGNED) == 3
    store.fold(conn)
    (group,) = groups.find(conn)

    assert (group["failing"], group["open"], group["total"]) == (0, 3, 3)
    assert database.rows(
        "select distinct reason, category, message, attempts, version, fingerprint"
        " from redrive.dead_letters"
    ) == [("gave_up", "transient", "503", 1, "1.4", "f1")]
    assert totals(conn)["dead"] == 3
    assert complete(conn, worker, running)
    assert database.value("select count(*) from redrive.jobs") == 0
    assert database.rows("select action, n from redrive.audit") == [("give up", 3)]


def test_a_given_up_job_lets_the_next_one_of_its_key_run(database: Database) -> None:
    conn = database.conn
    worker = make_worker(conn)
    first = make_job(conn, ordering_key="k")
    second = make_job(conn, ordering_key="k")
    assert fail(conn, worker, 1) == [first]

    failing.give_up(conn, [first], **SIGNED)

    assert claim_one(conn, worker).id == second


def test_a_given_up_job_that_was_redriven_ends_its_redrive(database: Database) -> None:
    conn = database.conn
    worker = make_worker(conn)
    job = make_job(conn)
    settle_next(conn, worker, "dead", reason="gave_up", failure=failure())
    database.rows(
        "select redrive.redrive_v1(array[%s::bigint], null, null, clock_timestamp(), 5, false)",
        job,
    )
    fail(conn, worker, 1)
    failing.give_up(conn, [job], **SIGNED)

    assert outcome(conn, job) is not None
    assert database.rows(
        "select redrives, state, outcome from redrive.dead_letters order by redrives"
    ) == [(0, "redriven", "dead_again"), (1, "open", None)]


@pytest.mark.parametrize("role", ["redrive_viewer", "redrive_worker"])
def test_only_operators_change_failing_jobs(database: Database, role: str) -> None:
    database.conn.execute(f"set role {role}".encode())
    for call in (
        "plan_retry_v1('f1', 'ada')",
        "hold_group_v1('f1', true, 'ada', 'why')",
        "give_up_v1('{1}', 'ada', 'why')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            database.conn.execute(f"select redrive.{call}".encode())


def change_dead_letters(conn: Connection, act: int) -> int:
    """Redrive, purge or edit open dead letters; return how many are gone for good."""
    chosen = Filter(state=("open",))
    letters = list(edits.find(conn, chosen))
    if act == 13:
        redrive(conn, [one.id for one in letters[:2] if isinstance(one, Letter)])
    elif act == 14:
        old = purge.purgeable(conn, chosen, 0)[:1]
        return purge.purge(conn, chosen, old, **SIGNED)
    else:
        patch = read_patch('[{"op": "add", "path": "/n", "value": 1}]')
        seen = edits.preview(letters, patch, Handlers())
        edits.edit(conn, seen, patch, handlers=Handlers(), **SIGNED)
    return 0


@pytest.mark.parametrize("seed", range(6))
def test_failing_counts_equal_the_jobs_whatever_happens(
    database: Database, seed: int
) -> None:
    """The number of failing jobs by group is that of the rows, and no job is lost."""
    conn = database.conn
    chance = random.Random(seed)
    worker = make_worker(conn)
    enqueued = 0
    done = 0

    for _ in range(60):
        act = chance.randrange(16)
        name = chance.choice(["f1", "f2"])
        if act < 3:
            make_jobs(conn, 3)
            enqueued += 3
        elif act < 8 and due(conn):
            job = claim_one(conn, worker)
            how = chance.choice(["retry", "release", "dead", "cancel", "complete"])
            if how == "complete":
                complete(conn, worker, job)
            else:
                said = failure(fingerprint=name, category="transient")
                settle(
                    conn,
                    worker,
                    job,
                    how,
                    delay=3600,
                    failure=said if how in {"retry", "dead"} else None,
                    reason=chance.choice(["gave_up", "expired"])
                    if how == "dead"
                    else "snoozed",
                )
            done += how in {"complete", "cancel"}
        elif act == 8:
            failing.hold(conn, name, is_held=chance.random() < 0.5, **SIGNED)
            store.hold_failing(conn)
        elif act == 9:
            failing.give_up(conn, failing.ids(conn, name)[:2], **SIGNED)
        elif act == 10 and failing.ids(conn, name):
            plan = campaigns.plan_retry(conn, name, actor="ada")["plan"]
            campaigns.start(conn, plan, Terms(canaries=0), **SIGNED)
            drive(conn, plan)
        elif act == 11:
            ids = database.column("select id from redrive.jobs order by id limit 1")
            done += control.cancel(conn, ids, **SIGNED).cancelled
        elif act == 12 and due(conn):
            claim_one(conn, worker)
            silence(conn, worker)
            store.rescue(conn, 30)
            worker = make_worker(conn)
        elif act > 12:
            done += change_dead_letters(conn, act)
        if chance.random() < 0.2:
            store.fold(conn)

        rows = database.rows(
            "select fingerprint, count(*) from redrive.jobs where failed_at is not null"
            " group by 1"
        )
        found = groups.find(conn, failing=True)
        assert {g["group"]: g["failing"] for g in found} == dict(rows)

    live = database.value("select count(*) from redrive.jobs")
    assert live + len(database.column(OPEN)) + done == enqueued
    opened = database.rows(
        "select fingerprint, count(*) from redrive.dead_letters where state = 'open'"
        " group by 1"
    )
    found = groups.find(conn, dead=True)
    assert {g["group"]: g["open"] for g in found} == dict(opened)
