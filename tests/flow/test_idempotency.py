"""A thing done once, however often its job runs."""

from redrive import enqueue
from redrive.enqueue import enqueue_reporting
from tests.flow import look

HANDLERS = "tests.flow.judged:jobs"


def test_an_effect_is_written_once_whether_the_attempt_fails_before_or_after_the_commit(
    database, workers
):
    database.conn.execute("create table effects (job bigint, delivery int)")
    jobs = [enqueue(database.conn, "once", {"n": n % 10}) for n in range(20)]

    workers.run(handlers=HANDLERS)

    assert look.reasons(database) == {}
    assert database.value("select count(*) from effects") == 10  # two jobs for each key
    assert {len(workers.starts(job)) for job in jobs} == {2}


def test_enqueueing_a_key_again_says_what_happened_to_it(database, workers):
    first = enqueue_reporting(database.conn, "other.work", idempotency_key="k")
    again = enqueue_reporting(database.conn, "other.work", idempotency_key="k")
    workers.run(handlers=HANDLERS)
    after = enqueue_reporting(database.conn, "other.work", idempotency_key="k")

    assert (first.created, first.outcome) == (True, "enqueued")
    assert (again.id, again.created, again.outcome) == (first.id, False, "live")
    assert (after.id, after.created, after.outcome) == (first.id, False, "succeeded")
