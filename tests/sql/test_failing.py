"""Causes of jobs that are retried: counts that equal the rows, and what they cost."""

from datetime import UTC
from typing import LiteralString

import pytest

from redrive.dead_letters.groups import store as groups
from redrive.dead_letters.groups.acknowledgements import acknowledge
from redrive.jobs import failing
from redrive.worker.store import fold
from tests.factories import (
    claim_one,
    complete,
    complete_next,
    failure,
    make_dead_letter,
    make_job,
    make_jobs,
    make_worker,
    settle,
)
from tests.postgres import Connection, Database


def fail(conn: Connection, worker: int, count: int, **overrides: object) -> None:
    """Let this many due jobs fail, and let them wait for an hour."""
    for _ in range(count):
        job = claim_one(conn, worker)
        said = failure(category="transient", **overrides)
        assert settle(conn, worker, job, "retry", delay=3600, failure=said)


def counts(conn: Connection) -> dict[str, int]:
    """Return the number of failing jobs by group."""
    return {cause["group"]: cause["failing"] for cause in failing.find(conn)}


def test_a_cause_names_its_jobs_error_and_first_failure(database: Database) -> None:
    conn = database.conn
    worker = make_worker(conn)
    make_jobs(conn, 3)
    fail(conn, worker, 2, message="503 from hooks.example")
    fail(conn, worker, 1, fingerprint="f2")

    first, second = failing.find(conn)
    at = database.value("select min(at) from redrive.failures where fingerprint = 'f1'")

    assert (first["group"], first["failing"], second["failing"]) == ("f1", 2, 1)
    assert first["message"] == "503 from hooks.example"
    assert first["category"] == "transient"
    assert first["since"] == at
    assert first["next_retry"] is not None
    assert (first["attempts"], first["share"]) == (3, 1)
    assert "100% of attempts fail since" in first["text"]
    assert first["text"].endswith("503 from hooks.example; 2 jobs are retried")


def test_a_cause_begins_again_after_another_failure_of_the_job(
    database: Database,
) -> None:
    conn = database.conn
    worker = make_worker(conn)
    make_job(conn)
    for name in ("f1", "f2", "f1", "f1"):
        fail(conn, worker, 1, fingerprint=name)
        database.rows("update redrive.jobs set run_at = now()")

    (cause,) = failing.find(conn)
    third = database.value(
        "select at from redrive.failures order by deliveries offset 2 limit 1"
    )

    assert cause["since"] == third


def test_the_count_equals_the_jobs_after_each_ending(database: Database) -> None:
    conn = database.conn
    worker = make_worker(conn)
    make_jobs(conn, 5)
    fail(conn, worker, 5)
    make_dead_letter(conn)
    make_jobs(conn, 2)
    seen = [counts(conn)]

    database.rows("update redrive.jobs set run_at = now() where failed_at is not null")
    database.rows(
        "update redrive.jobs set run_at = now() + '1 h' where failed_at is null"
    )
    job = claim_one(conn, worker)
    seen.append(counts(conn))
    complete(conn, worker, job)
    seen.append(counts(conn))
    job = claim_one(conn, worker)
    settle(conn, worker, job, "dead", reason="gave_up", failure=failure())
    seen.append(counts(conn))
    job = claim_one(conn, worker)
    settle(conn, worker, job, "cancel")
    seen.append(counts(conn))

    assert seen == [{"f1": n} for n in (5, 5, 4, 3, 2)]


def test_a_group_begins_with_the_first_failed_attempt(database: Database) -> None:
    conn = database.conn
    worker = make_worker(conn)
    make_jobs(conn, 2)
    fail(conn, worker, 2)
    (fresh,) = groups.find(conn)
    fold(conn)
    (group,) = groups.find(conn)
    at = database.value("select min(at) from redrive.failures")

    assert (group["failing"], group["failed"], group["open"]) == (2, 2, 0)
    assert group == fresh
    assert group["failing_since"] == at
    assert group["first_seen"] <= group["last_seen"]
    assert groups.show(conn, "f1") == group
    assert groups.find(conn, dead=True) == []
    assert groups.find(conn, failing=True) == [group]


def test_a_group_is_over_when_its_failing_jobs_succeed(database: Database) -> None:
    conn = database.conn
    worker = make_worker(conn)
    make_job(conn)
    fail(conn, worker, 1)
    assert acknowledge(conn, ["f1"], actor="ada", why="mine") == ["f1"]
    database.rows("update redrive.jobs set run_at = now()")
    complete_next(conn, worker)
    fold(conn)

    (group,) = groups.find(conn, closed=True)
    database.rows("select redrive.forget_recovered_v1(9)")
    (later,) = groups.find(conn, closed=True)

    assert groups.find(conn) == []
    assert (group["failing"], group["failed"], group["total"]) == (0, 1, 0)
    assert group["acknowledged_by"] == "ada"
    assert later["acknowledged_by"] is None
    assert acknowledge(conn, ["f1"], actor="ada", why="mine") == []
    assert database.value("select redrive.forget_groups_v1('0', 9)") == 1


def test_a_group_keeps_its_acknowledgement_while_its_jobs_fail(
    database: Database,
) -> None:
    """The last open dead letter of a group may be settled before its failing jobs."""
    conn = database.conn
    worker = make_worker(conn)
    make_jobs(conn, 1)
    fail(conn, worker, 1)
    make_dead_letter(conn)
    fold(conn)
    acknowledge(conn, ["f1"], actor="ada", why="mine")
    database.rows("update redrive.dead_letters set state = 'dismissed'")
    fold(conn)
    database.rows("select redrive.forget_recovered_v1(9)")

    (group,) = groups.find(conn)
    assert (group["failing"], group["open"]) == (1, 0)
    assert group["acknowledged_by"] == "ada"
    assert database.value("select redrive.forget_groups_v1('0', 9)") == 0


def test_a_resolved_group_regresses_with_a_failed_attempt_of_a_fixed_version(
    database: Database,
) -> None:
    conn = database.conn
    worker = make_worker(conn)
    make_jobs(conn, 3)
    fail(conn, worker, 1, detail={"version": "1.4.1"})
    assert groups.resolve(conn, "f1", ["1.4.2"], actor="ada", why="fixed")
    fail(conn, worker, 1, detail={"version": "1.4.1"})
    fold(conn)
    groups.judge(conn)
    (old,) = groups.find(conn)
    fail(conn, worker, 1, detail={"version": "1.4.2"})
    fold(conn)
    groups.judge(conn)
    (new,) = groups.find(conn)

    assert (old["state"], old["since"]) == ("resolved", {"1.4.1": 1})
    assert (new["state"], new["regressed_in"]) == ("regressed", "1.4.2")
    with pytest.raises(ValueError, match=r"has failed in 1\.4\.2 already"):
        groups.resolve(conn, "f1", ["1.4.2"], actor="ada", why="fixed")


def test_a_sample_is_a_dead_letter_once_a_job_of_the_group_has_died(
    database: Database,
) -> None:
    conn = database.conn
    worker = make_worker(conn)
    dead = make_dead_letter(conn)
    live = make_job(conn)
    fail(conn, worker, 1)
    (fresh,) = groups.find(conn)
    fold(conn)
    (group,) = groups.find(conn)

    assert live > dead
    assert fresh["sample"] == group["sample"] == dead


def test_a_success_reads_no_index_of_failing_jobs(database: Database) -> None:
    """A job that succeeds at once pays nothing for the groups."""
    conn = database.conn
    worker = make_worker(conn)
    make_jobs(conn, 50)
    for _ in range(50):
        complete_next(conn, worker)

    assert database.value("select pg_relation_size('redrive.group_deltas')") == 0
    assert database.value("select pg_relation_size('redrive.jobs_failing_idx')") == 8192


@pytest.mark.parametrize(
    ("failed", "completed", "is_trouble"),
    [(20, 0, True), (20, 20, True), (20, 21, False), (19, 0, False)],
)
def test_a_kind_is_in_trouble_if_half_of_at_least_twenty_attempts_fail(
    database: Database, failed: int, completed: int, is_trouble: bool
) -> None:
    conn = database.conn
    worker = make_worker(conn)
    make_jobs(conn, failed + completed)
    fail(conn, worker, failed)
    for _ in range(completed):
        complete_next(conn, worker)

    assert bool([*failing.failing_kinds(failing.find(conn))]) is is_trouble


@pytest.mark.parametrize(
    ("pattern", "is_trouble"),
    [
        (("default", "invoice.charge"), False),
        (("default", "*"), False),
        (("*", "*"), False),
        (("default", "other"), True),
        (("other", "*"), True),
    ],
)
def test_the_share_of_failures_that_is_trouble_is_an_objective(
    database: Database, pattern: tuple[str, str], is_trouble: bool
) -> None:
    conn = database.conn
    worker = make_worker(conn)
    database.rows(
        "select redrive.set_objective_v2(%s, %s, 'failed_ratio', 0.8, 'ada', 'it polls')",
        *pattern,
    )
    make_jobs(conn, 28)
    fail(conn, worker, 20)
    for _ in range(8):
        complete_next(conn, worker)

    assert bool([*failing.failing_kinds(failing.find(conn))]) is is_trouble


def test_a_group_keeps_its_owner_when_its_sample_has_succeeded(
    database: Database,
) -> None:
    conn = database.conn
    worker = make_worker(conn)
    database.rows("select redrive.set_owner_v1('default', '*', 'ada', null, 'a', 'b')")
    make_jobs(conn, 2)
    fail(conn, worker, 2)
    database.rows(
        "update redrive.jobs set run_at = now() where id = (select max(id) from redrive.jobs)"
    )
    complete_next(conn, worker)

    (group,) = groups.find(conn)
    assert (group["failing"], group["owner"]) == (1, "ada")
    assert groups.find(conn, owner="ada") == [group]


def test_a_login_that_may_not_read_failures_sees_the_figures(
    database: Database,
) -> None:
    conn = database.conn
    worker = make_worker(conn)
    make_jobs(conn, 20)
    fail(conn, worker, 20, message="secret")
    database.rows("set role redrive_viewer")

    (cause,) = failing.find(conn)

    assert (cause["failing"], cause["error_class"], cause["message"]) == (
        20,
        None,
        None,
    )
    assert "secret" not in cause["text"]
    assert cause["text"].endswith("; 20 jobs are retried")


def blocks(conn: Connection, call: LiteralString) -> int:
    """Return the blocks that a call reads when its plan has been cached."""
    query: LiteralString = f"select * from redrive.{call}"
    for _ in range(8):
        conn.execute(query)
    explain = conn.execute(f"explain (analyze, buffers, format json) {query}")
    plan = explain.fetchall()[0][0][0]["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


def test_only_the_pages_of_failed_jobs_are_read(database: Database) -> None:
    """Jobs that have not failed are not looked at, and no page is read for each job."""
    database.rows(
        "insert into redrive.jobs (kind, run_at, failed_at, fingerprint, streak)"
        " select 'a.b', now() + '1 h', case when n <= 10000 then now() end,"
        "        case when n <= 10000 then 'f' || n % 50 end, 1"
        " from generate_series(1, 60000) n"
    )
    database.rows("analyze redrive.jobs")
    pages = database.value("select pg_relation_size('redrive.jobs') / 8192")

    assert blocks(database.conn, "failing_v1(100000)") < pages / 2
    found = counts(database.conn)
    assert len(found) == 50
    assert set(found.values()) == {200}


@pytest.mark.parametrize(("causes", "most"), [(50, 8_000), (3000, 40_000)])
def test_the_oldest_failing_job_is_found_with_few_reads(
    database: Database, causes: int, most: int
) -> None:
    """However many jobs fail: the failures of 1,000 of them are read."""
    conn = database.conn
    conn.execute(
        "insert into redrive.jobs (kind, run_at, failed_at, fingerprint, streak)"
        " select 'a.b', now() + n * interval '1 s', now(), 'f' || n %% %s, 1"
        " from generate_series(1, 20000) n",
        (causes,),
    )
    conn.execute(
        "insert into redrive.failures"
        " (job, deliveries, attempt, at, error_class, message, category, fingerprint)"
        " select id, n, n, now() - interval '9 h' + n * interval '1 h', 'E', '',"
        "        'transient', fingerprint"
        " from redrive.jobs, generate_series(1, 3) n"
    )
    conn.execute("vacuum analyze redrive.jobs, redrive.failures")

    assert blocks(conn, "oldest_retrying_v1()") < most
    (age,) = database.column("select age_seconds from redrive.oldest_retrying_v1()")
    assert 8 * 3600 <= age < 8 * 3600 + 600


def test_the_largest_cause_says_when_a_job_may_die(database: Database) -> None:
    conn = database.conn
    worker = make_worker(conn)
    make_jobs(conn, 3)
    fail(conn, worker, 1, detail={"lasts": 2 * 86_400})
    fail(conn, worker, 1, detail={"lasts": 3 * 86_400})
    (cause,) = failing.find(conn)
    at = database.value("select min(at) + '2 d' from redrive.failures")
    fail(conn, worker, 1)
    (unknown,) = failing.find(conn)

    assert cause["text"].endswith(
        f"2 jobs are retried, none dies before {at.astimezone(UTC):%A %H:%M} UTC"
    )
    assert unknown["text"].endswith("3 jobs are retried")
