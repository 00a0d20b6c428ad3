"""Rows that no client of ours would have written: each ends as a dead letter, and none takes its
batch with it.
"""

import psycopg
import pytest

from redrive import enqueue
from tests.flow import look
from tests.flow.harness import Workers, wait_for
from tests.postgres import Database

# What Postgres stores in jsonb and Python cannot read, or not as it stands; the trigger would
# refuse most of it.
PAYLOADS = {
    "far past it": '{"n": -1e100000}',
    "nested 5000 deep": '{"n": ' + "[" * 5_000 + "]" * 5_000 + "}",
    "an array": "[1, 2]",
    "a number": "17",
    "null": "null",
    "text": '"x"',
}
READABLE = {
    "past the range of a double": '{"n": 1e400}',  # Postgres writes its digits out
    "huge": '{"n": "' + "x" * 3_000_000 + '"}',
    "nested 200 deep": '{"n": ' + "[" * 200 + "]" * 200 + "}",
    "4000 digits": '{"n": ' + "1" * 300 + "}",
    "odd keys": r'{"": 1, " ": 2, "\u2028": 3, "__proto__": {"constructor": 1}}',
    "last of equal keys": '{"a": 1, "a": 2}',
}


def insert(database: Database, payload: str) -> int:
    """As the owner of the table may, past every check."""
    with database.conn.transaction():
        database.conn.execute("alter table redrive.jobs disable trigger user")
        job = database.value(
            "insert into redrive.jobs (kind, payload) values ('work.sync', %s::text::jsonb)"
            " returning id",
            payload,
        )
        database.conn.execute(
            "insert into redrive.deltas (queue, kind, event, n)"
            " values ('default', 'work.sync', 'enqueued', 1)"
        )
        database.conn.execute("alter table redrive.jobs enable trigger user")
    return int(job)


def test_a_payload_nobody_can_read_dies_alone(database: Database, workers: Workers):
    bad, good = {}, []
    for name, payload in PAYLOADS.items():
        bad[name] = insert(database, payload)
        good.append(enqueue(database.conn, "work.sync"))
    odd = {name: insert(database, payload) for name, payload in READABLE.items()}
    worker = workers("--slots", "32")
    wait_for(lambda: look.live(database) == 0)

    died = {
        name: (look.dead(database, job) or ("it ran",))[:2] for name, job in bad.items()
    }

    assert died == dict.fromkeys(bad, ("invalid_payload", "invalid"))
    assert set(look.reasons(database)) == set(bad.values())
    assert [len(workers.starts(job)) for job in (*good, *odd.values())] == [1] * (
        len(good) + len(odd)
    )
    began = "select distinct detail ->> 'began' from redrive.failures"
    assert database.column(began) == ["false"], "a redrive repeats nothing"
    assert worker.metric("redrive_runner_deaths_total") == 0
    assert look.counted(database)["claimed"] == len(bad) + len(good) + len(odd), (
        "nothing was stranded or tried again"
    )
    assert "1" * 100 not in str(
        database.rows("select message, detail from redrive.failures")
    )


HEADERS = {
    "a word for a version": '{"version": "x"}',
    "a list for a trace": '{"traceparent": [1], "version": null}',
}
REFUSED = ('{"n": ' + "1" * 5_000 + "}", '{"n": ' + "[" * 900 + "]" * 900 + "}")


def test_headers_of_any_shape_harm_neither_the_worker_nor_other_jobs(
    database: Database, workers: Workers
):
    enqueued = "select redrive.enqueue('work.sync', headers => %s::text::jsonb)"
    odd = {name: database.value(enqueued, headers) for name, headers in HEADERS.items()}
    for headers in REFUSED:
        with pytest.raises(psycopg.DatabaseError, match="headers"):
            database.value(enqueued, headers)
    worker = workers()
    wait_for(lambda: database.value("select count(*) from redrive.workers"))
    look.claims_whatever_comes(database)
    unknown = database.value(
        "select redrive.enqueue('nobody.knows', headers => %s::text::jsonb)",
        HEADERS["a list for a trace"],
    )
    good = [enqueue(database.conn, "work.sync") for _ in range(5)]
    wait_for(lambda: look.live(database) == 1, what="a job with odd headers is stuck")
    wait_for(
        lambda: database.value(
            "select run_at > now() + interval '3 s' from redrive.jobs where id = %s",
            unknown,
        )
    )

    assert worker.process.poll() is None
    assert worker.metric("redrive_runner_deaths_total") == 0
    assert [len(workers.starts(job)) for job in good] == [1] * 5
    assert set(look.reasons(database).values()) <= {"invalid_payload"}
    assert all(workers.starts(job) or look.dead(database, job) for job in odd.values())
