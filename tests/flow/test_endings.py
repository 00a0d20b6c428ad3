"""How an attempt can end: with a real worker in processes of its own, and a real Postgres."""

import json

from redrive import enqueue, enqueue_many
from tests.factories import holders
from tests.flow import look, typed_work
from tests.flow.handlers import SIGNALS
from tests.flow.harness import Workers, wait_for
from tests.postgres import Database


def test_a_job_runs_once_and_leaves_nothing_behind(
    database: Database, workers: Workers
):
    kinds = ("work.sync", "work.async", "work.returns-coroutine")
    jobs = [enqueue(database.conn, kind, {"n": 1}) for kind in kinds]

    workers.run()

    for job in jobs:
        assert [e.phase for e in workers.ledger() if e.job == job] == ["start", "end"]
    assert look.live(database) == 0
    assert look.reasons(database) == {}
    assert look.counted(database) == {"enqueued": 3, "claimed": 3, "completed": 3}


def test_a_handler_is_told_everything_about_its_job(
    database: Database, workers: Workers
):
    keyed = enqueue(
        database.conn,
        "work.report",
        {"ü": [1, None]},
        idempotency_key="k-1",
        tenant="acme",
        headers={"traceparent": "00-1"},
        queue="mail",
    )
    plain = enqueue(database.conn, "work.report")

    enqueued_at = database.value(
        "select (extract(epoch from created_at) * 1000000)::bigint from redrive.jobs where id = %s",
        plain,
    )
    workers.run()
    told = {
        job: json.loads((workers.home / f"report-{job}").read_text())
        for job in (keyed, plain)
    }

    assert 100 < told[keyed].pop("left") <= 300
    assert told[keyed] == {
        "id": keyed,
        "kind": "work.report",
        "queue": "mail",
        "attempt": 1,
        "deliveries": 1,
        "key": "k-1",
        "redrives": 0,
        "tenant": "acme",
        "headers": {"traceparent": "00-1"},
        "payload": {"ü": [1, None]},
    }
    assert (told[plain]["key"], told[plain]["queue"], told[plain]["tenant"]) == (
        f"{plain}-{enqueued_at}",
        "default",
        None,
    )


def test_a_failing_job_is_tried_again_until_it_succeeds_and_its_failures_go_with_it(
    database, workers
):
    job = enqueue(database.conn, "fail.until", {"attempt": 4})

    workers.run()

    assert [e.attempt for e in workers.starts(job)] == [1, 2, 3, 4]
    assert [e.delivery for e in workers.starts(job)] == [1, 2, 3, 4]
    assert look.failures(database, job) == []
    assert look.counted(database) == {
        "enqueued": 1,
        "claimed": 4,
        "retried": 3,
        "completed": 1,
    }


def test_a_job_that_fails_for_good_becomes_a_dead_letter_with_its_whole_history(
    database, workers
):
    job = enqueue(
        database.conn,
        "fail.always",
        {"n": 7},
        tenant="acme",
        headers={"traceparent": "00-2"},
    )

    workers.run(redrive_version="1.4.2")
    stack, causes, version = database.row(
        "select detail -> 'stack', detail -> 'causes', detail ->> 'version'"
        " from redrive.failures where job = %s limit 1",
        job,
    )

    assert look.dead(database, job) == look.Dead(
        "attempts_exhausted",
        "transient",
        "ConnectionError",
        "attempt 3 of {'n': 7}",
        3,
        3,
        0,
    )
    assert [f[:3] for f in look.failures(database, job)] == [
        (n, n, "ConnectionError") for n in (1, 2, 3)
    ]
    assert [frame["function"] for frame in stack] == ["fail_always"]
    assert [cause["error_class"] for cause in causes] == ["KeyError"]
    assert version == "1.4.2"
    assert database.row(
        "select payload, tenant, headers, state from redrive.dead_letters where id = %s",
        job,
    ) == ({"n": 7}, "acme", {"traceparent": "00-2"}, "open")
    assert look.live(database) == 0


def test_jobs_that_fail_at_once_are_fetched_ahead_like_any_other(
    database: Database, workers: Workers
):
    enqueue_many(
        database.conn,
        [{"kind": "fail.always", "max_attempts": 1} for _ in range(1_500)],
    )

    worker = workers()  # of 4 slots: one look at a time would be 375 claims
    wait_for(lambda: look.live(database) == 0)

    assert len(look.reasons(database)) == 1_500
    assert worker.metric("redrive_claims_total", result="hit") < 60


def test_bugs_and_the_same_failure_again_and_again_end_the_retries_early(
    database, workers
):
    bug = enqueue(database.conn, "fail.bug", {"n": 1})
    alike = enqueue(database.conn, "fail.alike")

    workers.run()

    assert look.dead(database, bug)[:3] == ("not_retryable", "bug", "AttributeError")
    assert look.dead(database, alike)[:5] == (
        "same_failure",
        "other",
        "RuntimeError",
        f"order {alike * 7919} is in an odd state",
        3,
    )


def test_every_signal_ends_its_attempt_as_it_says(database: Database, workers: Workers):
    ids = {name: enqueue(database.conn, "signal", {"signal": name}) for name in SIGNALS}
    worker = workers()

    wait_for(
        lambda: not holders(database.conn) and look.live(database) == 0,
        what="some signal was never settled: "
        + repr(
            database.rows("select payload ->> 'signal', deliveries from redrive.jobs")
        ),
    )
    runs = {
        name: [(e.delivery, e.attempt) for e in workers.starts(job)]
        for name, job in ids.items()
    }
    retried = {name: found for name, found in runs.items() if name.startswith("retry")}

    assert worker.process.poll() is None
    assert set(map(tuple, retried.values())) == {((1, 1), (2, 2))}
    for name in ("snooze", "snooze-instant", "snooze-past"):
        assert runs[name] == [(1, 1), (2, 1)], name
    assert runs["snooze-naive"] == [(1, 1), (2, 2)]
    assert look.dead(database, ids["give-up"])[:5] == (
        "gave_up",
        "other",
        "GiveUp",
        "the customer is gone",
        1,
    )
    assert look.reasons(database) == {ids["give-up"]: "gave_up"}
    assert look.counted(database)["cancelled"] == 1
    assert look.failures(database, ids["cancel"]) == []


def test_a_wait_without_end_is_a_failure_of_its_handler(
    database: Database, workers: Workers
) -> None:
    """Such a job was parked until 2127, and nothing said so."""
    refused = {
        "retry-huge": "Retry(after=1e+300)",
        "retry-longest": "Retry(after=999999999 days, 23:59:59.999999)",
        "retry-nan": "Retry(after=nan)",
        "retry-infinite": "Retry(after=inf)",
        "snooze-huge": "Snooze(until=1e+300)",
        "snooze-nan": "Snooze(until=nan)",
        "snooze-last": "Snooze(until=9999-12-31 23:59:59.999999+00:00)",
        "snooze-past-last": "Snooze(until=9999-12-31 23:59:59.999999-12:00)",
    }
    ids = {
        name: enqueue(database.conn, "signal", {"signal": name, "always": True})
        for name in refused
    }

    workers.run()

    rule = "must be at most 366 days from now; to end the job, raise GiveUp or Cancel"
    for name, argument in refused.items():
        reason, category, error, message = look.dead(database, ids[name])[:4]
        assert (reason, category, error) == (
            "attempts_exhausted",
            "other",
            "ValueError",
        ), name
        assert message == f"{argument}: {rule}"


def test_a_handler_that_only_asks_to_retry_dies_of_its_attempts_and_not_of_its_snoozes(
    database, workers
):
    retries = enqueue(database.conn, "signal", {"signal": "retry-zero", "always": True})
    snoozes = enqueue(database.conn, "signal", {"signal": "snooze", "always": True})

    workers()
    wait_for(lambda: look.dead(database, retries) and len(workers.starts(snoozes)) > 5)

    assert look.dead(database, retries)[:5] == (
        "attempts_exhausted",
        "other",
        "Retry",
        "asked for by the handler",
        3,
    )
    assert {e.attempt for e in workers.starts(snoozes)} == {1}


def test_a_payload_that_does_not_fit_is_dead_lettered_at_once_and_its_values_are_not_recorded(
    database, workers
):
    wrong = enqueue(database.conn, "work.typed", {"number": "SECRET-17", "card": 4111})
    right = enqueue(database.conn, "work.typed", {"number": 17, "card": "4111"})

    workers.run(handlers=typed_work.HANDLERS)
    letter = look.dead(database, wrong)

    assert letter[:3] == ("invalid_payload", "invalid", "pydantic_core.ValidationError")
    assert "number: Input should be a valid integer" in letter.message
    assert "SECRET" not in str(database.rows("select * from redrive.failures"))
    assert "4111" not in str(database.rows("select * from redrive.failures"))
    assert len(workers.starts(right)) == 1
    assert workers.starts(wrong) == []


def test_a_job_past_its_window_is_not_started(database: Database, workers: Workers):
    late = enqueue(database.conn, "work.sync", expires_in=0.001)
    unknown = enqueue(database.conn, "nobody.knows", expires_in=0.001)
    early = enqueue(database.conn, "work.sync", expires_in=60)
    database.conn.execute("select pg_sleep(0.01)")

    workers()
    wait_for(lambda: look.live(database) == 0)

    assert look.reasons(database) == {late: "expired", unknown: "expired"}
    assert (workers.starts(late), len(workers.starts(early))) == ([], 1)
    assert look.dead(database, late).attempts == 0


def test_a_kind_nobody_here_knows_is_given_back_and_never_dies(
    database: Database, workers: Workers
):
    """By a worker that claims all kinds."""
    workers()
    wait_for(lambda: database.value("select count(*) from redrive.workers"))
    look.claims_whatever_comes(database)
    unknown = enqueue(database.conn, "nobody.knows", max_attempts=1)
    known = enqueue(database.conn, "work.sync")

    wait_for(
        lambda: database.value(
            "select run_at > now() + interval '3 s' from redrive.jobs where id = %s",
            unknown,
        )
    )
    wait_for(lambda: look.live(database) == 1)

    assert (look.row(database, unknown)["attempt"], look.reasons(database)) == (0, {})
    assert len(workers.starts(known)) == 1


def test_max_attempts_of_the_job_goes_before_the_policy(
    database: Database, workers: Workers
):
    fewer = enqueue(database.conn, "fail.always", max_attempts=1)
    more = enqueue(database.conn, "fail.always", max_attempts=5)

    workers.run()

    assert [look.dead(database, job).attempts for job in (fewer, more)] == [1, 5]


def test_a_redriven_job_starts_again_at_its_first_attempt_and_resolves_its_dead_letter(
    database, workers
):
    from tests.factories import redrive

    job = enqueue(database.conn, "fail.until", {"attempt": 2}, max_attempts=1)
    workers.run()
    database.conn.execute(
        "update redrive.dead_letters set payload = '{\"attempt\": 1}'"
    )
    redrive(database.conn, [job])
    workers.run()

    assert [(e.delivery, e.attempt) for e in workers.starts(job)] == [(1, 1), (2, 1)]
    assert database.row("select state, outcome from redrive.dead_letters") == (
        "resolved",
        "succeeded",
    )
