"""settle_v1: retry, release, dead and cancel; one test per promise of each."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from redrive.rules.attempts.settlement import Outcome
from redrive.worker.protocol import Report
from tests.factories import (
    claim,
    claim_one,
    exchange,
    failure,
    holders,
    let_die,
    let_next_die,
    make_full_job,
    make_job,
    make_jobs,
    make_worker,
    redrive,
    settle,
    settle_next,
    totals,
)
from tests.postgres import Database

OUTCOMES = [outcome for outcome in Outcome if outcome is not Outcome.COMPLETE]


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("wrong", ["id", "deliveries", "worker"])
def test_a_settlement_that_does_not_match_the_claim_changes_nothing(
    database: Database, outcome: Outcome, wrong: str
) -> None:
    make_job(database.conn)
    worker = make_worker(database.conn)
    job = claim_one(database.conn, worker)
    before = database.rows("select * from redrive.jobs")
    stale = {
        "id": job._replace(id=job.id + 1),
        "deliveries": job._replace(deliveries=2),
    }.get(wrong, job)

    assert not settle(
        database.conn,
        worker + (wrong == "worker"),
        stale,
        outcome,
        failure=failure(),
        reason="r",
    )

    assert database.rows("select * from redrive.jobs") == before
    assert totals(database.conn) == {"enqueued": 1, "claimed": 1}
    assert (
        database.value(
            "select (select count(*) from redrive.failures) + (select count(*)"
            " from redrive.dead_letters)"
        )
        == 0
    )


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_settling_twice_settles_once(database: Database, outcome: Outcome) -> None:
    make_job(database.conn)
    worker = make_worker(database.conn)
    job = claim_one(database.conn, worker)

    assert settle(
        database.conn, worker, job, outcome, failure=failure(), reason="gave_up"
    )
    after = totals(database.conn)
    assert not settle(
        database.conn, worker, job, outcome, failure=failure(), reason="gave_up"
    )

    assert (
        totals(database.conn)
        == after
        == {"enqueued": 1, "claimed": 1, outcome.event: 1}
    )
    assert database.value("select sum(running) from redrive.depths_v1()") == 0


def test_a_mixed_batch_is_settled_in_one_statement(database: Database) -> None:
    make_jobs(database.conn, 5)
    worker = make_worker(database.conn)
    retry, release, dead, cancel, fenced = claim(database.conn, worker)
    reports = [
        Report(retry.id, 1, "retry", failure=failure(), reason="bug"),
        Report(release.id, 1, "release", refund=True, reason="unknown_kind"),
        Report(dead.id, 1, "dead", failure=failure(), reason="not_retryable"),
        Report(cancel.id, 1, "cancel", reason="asked"),
        Report(fenced.id, 9, "dead", failure=failure(), reason="not_retryable"),
    ]
    answer = exchange(
        database.conn, reports=[(v, fenced.claim, worker) for v in reversed(reports)]
    )

    assert answer.settled == {retry.id, release.id, dead.id, cancel.id}
    assert database.column("select id from redrive.jobs order by id") == [
        retry.id,
        release.id,
        fenced.id,
    ]
    assert holders(database.conn) == {fenced.id: worker}
    assert database.column("select id from redrive.dead_letters") == [dead.id]
    assert database.rows(
        "select event, reason, n from redrive.totals where event not in ('enqueued', 'claimed')"
        " order by event"
    ) == [
        ("cancelled", "asked", 1),
        ("dead", "not_retryable", 1),
        ("released", "unknown_kind", 1),
        ("retried", "bug", 1),
    ]


# Retry


def test_a_retry_waits_for_its_delay_and_records_its_failure(
    database: Database,
) -> None:
    job_id = make_job(database.conn)
    worker = make_worker(database.conn, "pod-7")
    before = database.value("select clock_timestamp()")
    settle_next(database.conn, worker, "retry", delay=60.0, failure=failure())

    assert database.rows(
        "select deliveries, attempt, losses, streak, fingerprint, failed_at <="
        " clock_timestamp(), run_at - interval '60 s' between %s and clock_timestamp()"
        " from redrive.jobs",
        before,
    ) == [(1, 1, 0, 1, "f1", True, True)]
    assert database.rows(
        "select job, deliveries, attempt, worker, error_class, message, category, fingerprint,"
        " detail"
        " from redrive.failures"
    ) == [
        (
            job_id,
            1,
            1,
            "pod-7",
            "ValueError",
            "no such invoice",
            "bug",
            "f1",
            {"stack": [{"file": "app/jobs.py", "line": 3, "function": "charge"}]},
        )
    ]


def test_a_retry_may_name_its_instant(database: Database) -> None:
    instant = datetime(2999, 1, 1, tzinfo=UTC)
    make_job(database.conn)
    worker = make_worker(database.conn)
    settle_next(database.conn, worker, "retry", run_at=instant, failure=failure())

    assert database.value("select run_at from redrive.jobs") == instant


@pytest.mark.parametrize(
    "when", [{"delay": -3600.0}, {"run_at": datetime(2001, 1, 1, tzinfo=UTC)}]
)
def test_no_job_comes_back_in_the_past(
    database: Database, when: dict[str, Any]
) -> None:
    make_job(database.conn)
    worker = make_worker(database.conn)
    job = claim_one(database.conn, worker)
    (before,) = database.row("select clock_timestamp()")
    settle(database.conn, worker, job, "retry", **when)

    assert database.value("select run_at >= %s from redrive.jobs", before)


def test_the_history_of_failures_grows_by_one_per_attempt(database: Database) -> None:
    job_id = make_job(database.conn)
    worker = make_worker(database.conn)
    for n in range(1, 4):
        settle_next(database.conn, worker, "retry", failure=failure(message=f"no. {n}"))

    assert database.rows(
        "select job, deliveries, attempt, message from redrive.failures order by deliveries"
    ) == [(job_id, n, n, f"no. {n}") for n in (1, 2, 3)]


def test_the_streak_counts_the_same_fingerprint_in_a_row(database: Database) -> None:
    make_job(database.conn)
    worker = make_worker(database.conn)
    streaks = []
    for fingerprint in ("a", "a", "a", "b", "a", "a"):
        recorded = failure(fingerprint=fingerprint)
        settle_next(database.conn, worker, "retry", failure=recorded)
        streaks.append(database.row("select fingerprint, streak from redrive.jobs"))

    assert streaks == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("a", 1), ("a", 2)]


def test_a_loss_is_counted_when_the_process_died(database: Database) -> None:
    make_job(database.conn)
    worker = make_worker(database.conn)
    for _ in range(2):
        job = claim_one(database.conn, worker)
        settle(database.conn, worker, job, "retry", losses=1, failure=failure())

    assert database.row("select losses, attempt, deliveries from redrive.jobs") == (
        2,
        2,
        2,
    )


@pytest.mark.parametrize(
    ("outcome", "report", "losses"),
    [
        ("retry", {"reason": "transient", "failure": failure()}, 0),
        ("release", {"reason": "snoozed"}, 0),
        ("release", {"reason": "shutdown"}, 1),
        ("release", {"reason": "neighbour_killed"}, 1),
    ],
)
def test_a_loss_is_forgotten_once_an_attempt_ended_by_itself(
    database: Database, outcome: str, report: dict[str, str], losses: int
) -> None:
    """`losses` was for life."""
    make_job(database.conn)
    worker = make_worker(database.conn)
    job = claim_one(database.conn, worker)
    settle(database.conn, worker, job, "retry", losses=1, failure=failure())
    settle_next(database.conn, worker, outcome, **report)

    assert database.value("select losses from redrive.jobs") == losses


def test_attempts_that_a_dependency_gave_back_are_counted_and_nothing_else_is(
    database: Database,
) -> None:
    """A breaker refunds the attempt also after 20 snoozes or redrives."""
    make_job(database.conn)
    worker = make_worker(database.conn)
    for outcome, report in (
        ("release", {"refund": True, "reason": "snoozed"}),
        ("retry", {"refund": True, "reason": "transient", "failure": failure()}),
        ("retry", {"refund": True, "losses": 1, "failure": failure()}),
        ("retry", {"reason": "transient", "failure": failure()}),
        ("retry", {"refund": True, "reason": "transient", "failure": failure()}),
    ):
        settle_next(database.conn, worker, outcome, **report)
    job = claim_one(database.conn, worker)

    assert (job.more["refunds"], job.deliveries, job.attempt) == (2, 6, 2)


# Release


def test_a_release_gives_the_attempt_back_and_records_no_failure(
    database: Database,
) -> None:
    make_job(database.conn)
    worker = make_worker(database.conn)
    for _ in range(3):
        settle_next(database.conn, worker, "release", refund=True)

    assert database.row(
        "select attempt, deliveries, streak, failed_at from redrive.jobs"
    ) == (0, 3, 0, None)
    assert database.value("select count(*) from redrive.failures") == 0


def test_a_release_keeps_what_was_known_of_the_last_failure(database: Database) -> None:
    make_job(database.conn)
    worker = make_worker(database.conn)
    settle_next(database.conn, worker, "retry", failure=failure())
    settle_next(database.conn, worker, "retry", failure=failure())
    before = database.row("select streak, fingerprint, failed_at from redrive.jobs")
    settle_next(database.conn, worker, "release", refund=True)

    assert (
        database.row("select streak, fingerprint, failed_at from redrive.jobs")
        == before
    )
    assert before[0] == 2


# Dead


def test_a_dead_letter_has_every_field_of_its_job(database: Database) -> None:
    """Column by column, so that one added to jobs is not forgotten here."""
    make_full_job(database.conn)
    worker = make_worker(database.conn)
    settle_next(database.conn, worker, "retry", losses=1, failure=failure())
    job = claim_one(database.conn, worker)
    row = database.value("select to_jsonb(j) from redrive.jobs j")
    let_die(database.conn, worker, job, losses=1)
    letter = database.value("select to_jsonb(d) from redrive.dead_letters d")
    assert (row["lane"], letter["lane"]) == (-1, 0)

    renamed = {"attempt": "attempts"}
    left_behind = {
        "worker",
        "run_at",
        "lane",  # it is in its front lane
        "streak",
        "refunds",
        "failed_at",
        "noted",
        "limits",
    }
    columns = set(
        database.column(
            "select column_name::text from information_schema.columns"
            " where table_schema = 'redrive' and table_name = 'jobs'"
        )
    )
    assert columns == set(row)
    for column in columns - left_behind - {"losses", "fingerprint"}:
        raised = int(column in {"attempt", "deliveries"})
        assert letter[renamed.get(column, column)] == (
            row[column] + 1 if raised else row[column]
        )
    assert letter["losses"] == row["losses"] + 1


def test_a_dead_letter_says_why(database: Database) -> None:
    make_job(database.conn)
    worker = make_worker(database.conn)
    settle_next(database.conn, worker, "retry", failure=failure())
    let_next_die(
        database.conn,
        worker,
        reason="same_failure",
        failure=failure(
            error_class="KeyError", message="m", category="missing", fingerprint="f2"
        ),
    )

    assert database.row(
        "select d.state, d.reason, d.error_class, d.message, d.category, d.fingerprint,"
        " d.attempts, d.deliveries,"
        " d.redrives,"
        " d.first_failed_at = (select min(at) from redrive.failures),"
        " d.died_at - (select max(at) from redrive.failures) < '1 s',"
        " d.settled_at, d.outcome, d.blocked, d.campaign, d.notes from redrive.dead_letters d"
    ) == (
        "open",
        "same_failure",
        "KeyError",
        "m",
        "missing",
        "f2",
        2,
        2,
        0,
        True,
        True,
        None,
        None,
        None,
        None,
        [],
    )
    assert database.column("select error_class from redrive.failures order by at") == [
        "ValueError",
        "KeyError",
    ]
    assert database.value("select count(*) from redrive.jobs") == 0


def test_a_job_may_die_without_a_failure(database: Database) -> None:
    make_job(database.conn, expires_in=0.001)
    worker = make_worker(database.conn)
    settle_next(database.conn, worker, "dead", reason="expired", refund=True)

    assert database.row(
        "select reason, category, error_class, message, attempts from redrive.dead_letters"
    ) == ("expired", "other", "", "", 0)
    assert database.value("select count(*) from redrive.failures") == 0


def test_what_the_caller_says_of_the_job_itself_is_not_believed(
    database: Database,
) -> None:
    make_job(database.conn, payload={"n": 1})
    worker = make_worker(database.conn)
    forged = json.loads(failure()) | {
        "payload": {"n": 2},
        "queue": "other",
        "kind": "x",
        "redrives": 5,
        "priority": 9,
    }
    let_next_die(database.conn, worker, failure=json.dumps(forged))

    assert database.row(
        "select payload, queue, kind, redrives, priority from redrive.dead_letters"
    ) == ({"n": 1}, "default", "invoice.charge", 0, 0)


def test_a_job_is_never_in_both_tables_nor_in_neither(database: Database) -> None:
    make_job(database.conn)
    worker = make_worker(database.conn)
    job = claim_one(database.conn, worker)
    settling = database.session()
    places = "select (select count(*) from redrive.jobs), (select count(*) from redrive.dead_letters)"
    settling.rows("begin")
    let_die(settling.conn, worker, job)

    assert database.row(places) == (1, 0)
    settling.rows("commit")
    assert database.row(places) == (0, 1)


def test_two_sessions_that_dead_letter_the_same_job_do_so_once(
    database: Database,
) -> None:
    make_job(database.conn)
    worker = make_worker(database.conn)
    job = claim_one(database.conn, worker)
    first, second = database.transaction(), database.session()
    let_die(first.conn, worker, job)
    waiting = database.start_blocked(
        second,
        lambda: settle(second.conn, worker, job, "dead", reason="r", failure=failure()),
        by=first,
    )
    first.rows("commit")

    assert waiting.result(60) is False
    assert database.value("select count(*) from redrive.dead_letters") == 1
    assert totals(database.conn)["dead"] == 1


def test_a_redriven_job_that_dies_again_is_one_letter_per_generation(
    database: Database,
) -> None:
    make_job(database.conn)
    worker = make_worker(database.conn)
    for _ in range(3):
        job_id = let_next_die(database.conn, worker)
        redrive(database.conn, [job_id])
    let_next_die(database.conn, worker)

    assert database.rows(
        "select redrives, state, outcome, deliveries from redrive.dead_letters order by redrives"
    ) == [
        (0, "redriven", "dead_again", 1),
        (1, "redriven", "dead_again", 2),
        (2, "redriven", "dead_again", 3),
        (3, "open", None, 4),
    ]
    assert database.value("select count(*) from redrive.failures") == 4


# Cancel


def test_a_cancelled_job_is_gone_with_its_failures(database: Database) -> None:
    make_job(database.conn, idempotency_key="k")
    worker = make_worker(database.conn)
    settle_next(database.conn, worker, "retry", failure=failure())
    settle_next(database.conn, worker, "cancel", reason="asked")

    assert (
        database.value(
            "select (select count(*) from redrive.jobs) + (select count(*) from redrive.failures)"
            " + (select count(*) from redrive.dead_letters) + (select count(*)"
            " from redrive.completions)"
        )
        == 0
    )
    assert totals(database.conn)["cancelled"] == 1


def test_a_redriven_job_that_is_cancelled_resolves_its_dead_letter(
    database: Database,
) -> None:
    make_job(database.conn)
    worker = make_worker(database.conn)
    job_id = let_next_die(database.conn, worker)
    redrive(database.conn, [job_id])
    settle_next(database.conn, worker, "cancel", reason="asked")

    assert database.rows("select state, outcome from redrive.dead_letters") == [
        ("resolved", "cancelled")
    ]
    assert database.value("select count(*) from redrive.failures") == 1, (
        "kept as long as the dead letter is"
    )
