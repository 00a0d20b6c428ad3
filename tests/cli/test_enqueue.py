"""Every road on which a job comes in knows every field of it, and names the one that is wrong."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from redrive import InvalidJob, enqueue, enqueue_many
from redrive.batches import open_batch
from redrive.rules.payloads.job_fields import FIELDS, OPTIONS, check_job
from tests.cli.conftest import Redrive
from tests.factories import make_worker
from tests.postgres import Database

SAMPLE: dict[str, Any] = {
    "kind": "invoice.charge",
    "payload": {"number": 17},
    "queue": "billing",
    "run_at": datetime(2999, 1, 1, tzinfo=UTC),
    "priority": -5,
    "max_attempts": 3,
    "idempotency_key": "invoice-17",
    "ordering_key": "customer-4",
    "tenant": "acme",
    "expires_in": 3600,
    "headers": {"source": "shop"},
    "version": 2,
}
UNIQUE: dict[str, Any] = {
    "kind": "invoice.charge",
    "payload": {"n": 1},
    "delay": 7200,
    "unique_for": 3600,
    "unique_by": ["n"],
    "on_conflict": "skip",
    "batch": 1,
}
"""What does not go together with some of those."""

IN_FLAGS: dict[str, Any] = {
    "delay": "2h",
    "expires_in": "1h",
    "headers": json.dumps(SAMPLE["headers"]),
    "run_at": "2999-01-01T00:00:00Z",
    "unique_by": "n",
    "unique_for": "1h",
}


def as_json(sample: dict[str, Any]) -> dict[str, Any]:
    at = {"run_at": IN_FLAGS["run_at"]} if "run_at" in sample else {}
    return sample | at


def by_function(redrive: Redrive, database: Database, sample: Any) -> None:
    enqueue(database.conn, **sample)


def in_bulk(redrive: Redrive, database: Database, sample: Any) -> None:
    enqueue_many(database.conn, [sample])


def by_flags(redrive: Redrive, database: Database, sample: Any) -> None:
    flags = [
        text
        for name, value in sample.items()
        if name in OPTIONS
        for text in (
            OPTIONS[name].flag or f"--{name.replace('_', '-')}",
            str(IN_FLAGS.get(name, value)),
        )
    ]
    done = redrive("enqueue", sample["kind"], json.dumps(sample["payload"]), *flags)
    assert done.code == 0, done.err


def by_line(redrive: Redrive, database: Database, sample: Any) -> None:
    done = redrive("enqueue", "-", stdin=json.dumps(as_json(sample)))
    assert done.code == 0, done.err


@pytest.mark.parametrize("road", [by_function, in_bulk, by_flags, by_line])
def test_every_field_comes_in_by_every_road(
    redrive: Redrive, database: Database, road: Any
) -> None:
    assert SAMPLE.keys() | UNIQUE.keys() == FIELDS.keys(), "a new field needs a sample"

    road(redrive, database, SAMPLE)

    stored = database.value(
        "select to_jsonb(j) || jsonb_build_object("
        "'run_at', run_at = '2999-01-01Z', 'expires_in', round(extract(epoch from"
        " expires_at - created_at))) from redrive.jobs j"
    )
    expected = SAMPLE | {"run_at": True, "headers": {"source": "shop", "version": 2}}
    del expected["version"]
    assert {name: stored[name] for name in expected} == expected


@pytest.mark.parametrize("road", [by_function, in_bulk, by_flags, by_line])
def test_what_makes_a_job_unique_comes_in_by_every_road(
    redrive: Redrive, database: Database, road: Any
) -> None:
    open_batch(database.conn)
    for _ in range(2):
        road(redrive, database, UNIQUE)

    assert database.row(
        "select round(extract(epoch from run_at - created_at))::int, batch,"
        " idempotency_key ~ '^.unique:[0-9a-f]{64}$' from redrive.jobs"
    ) == (7200, 1, True)


def test_a_misspelt_option_is_named_in_the_words_of_the_call(
    database: Database,
) -> None:
    wrong: dict[str, Any] = {"idempotencykey": "k"}

    with pytest.raises(TypeError) as refused:
        enqueue(database.conn, "mail", **wrong)

    assert str(refused.value) == (
        "enqueue() got an unknown option 'idempotencykey'; did you mean 'idempotency_key'?"
    )


@pytest.mark.parametrize(
    ("job", "text"),
    [
        (
            {"kind": "mail", "idempotencykey": "k"},
            "jobs[1].idempotencykey: unknown field; did you mean 'idempotency_key'?",
        ),
        (
            {"kind": "mail", "x": 1},
            f"jobs[1].x: unknown field; known are {', '.join(FIELDS)}",
        ),
        ({"payload": {}}, "jobs[1].kind: is missing"),
        (
            {"kind": "mail", "priority": "high"},
            "jobs[1].priority: must lie between -1000 and 1000",
        ),
        (
            {"kind": "mail", "expires_in": "soon"},
            "jobs[1].expires_in: must be a timedelta or a number of seconds",
        ),
        (
            {"kind": "mail", "headers": [1], "version": 2},
            "jobs[1].headers: must be an object, not list",
        ),
        (["mail"], "jobs[1]: must be a mapping, not list"),
    ],
)
def test_a_bad_field_of_many_jobs_is_named_with_its_job(
    database: Database, job: Any, text: str
) -> None:
    with pytest.raises(InvalidJob) as refused:
        enqueue_many(database.conn, [{"kind": "mail"}, job])

    assert str(refused.value) == text
    assert database.value("select count(*) from redrive.jobs") == 0


def test_a_bad_field_of_a_line_is_named_with_its_line(redrive: Redrive) -> None:
    done = redrive(
        "enqueue", "-", stdin='{"kind": "mail"}\n\n{"kind": "mail", "tenants": "a"}\n'
    )

    assert done.code == 64
    assert "line 3.tenants: unknown field; did you mean 'tenant'?" in done.err


def test_the_version_counts_towards_the_size_of_the_headers() -> None:
    headers = {"x": "a" * (8_192 - len('{"x":""}'))}

    check_job({"kind": "mail", "headers": headers})
    with pytest.raises(InvalidJob, match="headers: "):
        check_job({"kind": "mail", "headers": headers, "version": 2})


@pytest.mark.parametrize(
    ("arguments", "stdin", "complaint"),
    [
        (("enqueue", "some.kind", ""), "", "payload: is not valid JSON"),
        (("enqueue", "some.kind", "null"), "", "payload: must be an object, not null"),
        (
            ("enqueue", "-"),
            '{"kind": "some.kind", "payload": null}',
            "line 1.payload: must be an object, not null",
        ),
    ],
)
def test_a_payload_that_is_not_there_is_not_taken_for_an_empty_one(
    redrive: Redrive, database: Database, arguments: Any, stdin: str, complaint: str
) -> None:
    """An unset variable of a shell enqueued a job with `{}`."""
    done = redrive(*arguments, stdin=stdin)

    assert (done.code, complaint in done.err) == (64, True), done.err
    assert database.value("select count(*) from redrive.jobs") == 0


def test_a_payload_comes_from_standard_input_if_asked_for(
    redrive: Redrive, database: Database
) -> None:
    done = redrive("enqueue", "some.kind", "-", stdin='{"from": "a file"}\n')

    assert done.code == 0, done.err
    payload = database.value("select payload from redrive.jobs")
    assert payload == {"from": "a file"}


def test_a_job_from_a_shell_goes_to_the_queue_of_its_handler(
    redrive: Redrive, database: Database
) -> None:
    """Where REDRIVE_HANDLERS names the code, one job and lines; else as before."""
    code = {"REDRIVE_HANDLERS": "tests.flow.scheduled:jobs"}
    lines = '{"kind": "morning_report"}\n{"kind": "morning_report", "queue": "b"}\n{"kind": "x"}\n'

    redrive("enqueue", "morning_report", **code)
    redrive("enqueue", "morning_report", "--queue", "a", **code)
    redrive("enqueue", "-", stdin=lines, **code)
    redrive("enqueue", "morning_report")
    broken = redrive("enqueue", "morning_report", REDRIVE_HANDLERS="tests.nosuch:jobs")

    queues = database.column("select queue from redrive.jobs order by id")
    assert queues == ["reports", "a", "reports", "b", "default", "default"]
    assert (broken.code, "tests.nosuch" in broken.err) == (64, True)


def test_a_kind_that_no_worker_handles_is_told_at_once_with_the_nearest(
    redrive: Redrive, database: Database
) -> None:
    assert redrive("enqueue", "order.bok").err == "", "no worker is alive"
    make_worker(database.conn)
    database.rows("update redrive.workers set kinds = '{order.book,report.*}'")

    done = redrive("enqueue", "order.bok", "--json")
    said = "redrive: no live worker handles 'order.bok'; did you mean order.book?\n"
    assert (done.code, done.err, done.json["created"]) == (0, said, True)
    assert redrive("enqueue", "order.book").err == ""
    assert redrive("enqueue", "report.daily").err == ""


def test_a_login_that_may_not_read_workers_enqueues_without_a_word(
    redrive: Redrive, database: Database
) -> None:
    make_worker(database.conn)
    database.rows("update redrive.workers set kinds = '{order.book}'")
    producer = make_conninfo(database.url, options="-c role=redrive_producer")
    done = redrive("enqueue", "order.bok", REDRIVE_DATABASE_URL=producer)

    assert (done.code, done.err) == (0, "")
