"""redrive dlq export: a dead letter as one object."""

import json
from typing import Any

import pytest

from redrive.jobs import export as exports
from redrive.jobs.reveal import reveal
from tests.cli.conftest import Redrive
from tests.factories import claim_one, make_dead_letter, make_job, make_worker, settle
from tests.postgres import Connection, Database


def test_a_dead_letter_is_one_object_without_its_secrets(
    redrive: Redrive, database: Database
) -> None:
    payload = {"number": 7, "token": "s3cr3t-t0ken"}
    headers = {"version": 1, "api_key": "s3cr3t-k3y"}
    job = make_dead_letter(database.conn, "order.book", payload, headers=headers)
    noted = {"page": 3, "cursor": "s3cr3t-t0ken", "used": "s3cr3t-k3y"}
    checkpointed(database, job, noted)

    found = redrive("dlq", "export", str(job)).json

    assert found["bundle"] == 1
    assert (found["id"], found["kind"], found["queue"]) == (
        job,
        "order.book",
        "default",
    )
    assert (found["attempt"], found["deliveries"], found["seed"]) == (1, 1, f"{job}-1")
    assert found["payload"] == {"number": 7, "token": "[redacted]"}
    assert found["headers"] == {"version": 1, "api_key": "[redacted]"}
    assert found["checkpoint"] == {
        "delivery": 1,
        "data": {"page": 3, "cursor": "[redacted]", "used": "[redacted]"},
    }
    (failure,) = found["failures"]
    assert failure["detail"]["stack"][0]["line"] == 3
    assert found["started_at"] == failure["at"]
    assert found["redacted"] is True
    assert "s3cr3t" not in redrive("dlq", "export", str(job)).out


def test_secrets_are_kept_for_a_reason_that_the_audit_log_has(
    redrive: Redrive, database: Database
) -> None:
    payload = {"token": "s3cr3t-t0ken"}
    job = make_dead_letter(database.conn, "order.book", payload, headers=payload)

    found = redrive(
        *("dlq", "export", str(job), "--reveal", "--why", "the bank asks", "--yes")
    ).json

    assert (found["payload"], found["headers"]) == (payload, payload)
    assert found["redacted"] is False
    assert audit(database) == [("tester", "reveal", "the bank asks")]


def test_the_token_of_a_send_is_in_no_export(
    redrive: Redrive, database: Database
) -> None:
    job = make_dead_letter(database.conn, "order.book", {})
    checkpointed(
        database, job, {"state": "sent", "redrives": 1, "token": "s3cr3t-t0ken"}
    )

    plain = redrive("dlq", "export", str(job)).out
    reveal = ("--reveal", "--why", "the bank asks", "--yes")
    revealed = redrive("dlq", "export", str(job), *reveal)

    assert revealed.json["checkpoint"]["data"] == {"state": "sent", "redrives": 1}
    assert "s3cr3t" not in plain + revealed.out + redrive("job", "show", str(job)).out


def test_nothing_is_revealed_of_a_job_that_is_purged_meanwhile(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_dead_letter(database.conn, headers={"api_key": "s3cr3t-k3y"})

    def reveal_later(conn: Connection, job: int, **said: str) -> Any:
        database.rows("delete from redrive.dead_letters where id = %s", job)
        return reveal(conn, job, **said)

    monkeypatch.setattr(exports, "reveal", reveal_later)

    assert exports.export(database.conn, job, actor="ada", why="so") is None
    assert audit(database) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--reveal",), "--why is missing"),
        (("--why", "so"), "--why is for --reveal"),
        (("--reveal", "--why", "so"), "add --yes"),
    ],
)
def test_nothing_is_revealed_without_a_reason_and_consent(
    redrive: Redrive, database: Database, options: tuple[str, ...], message: str
) -> None:
    job = make_dead_letter(database.conn, "order.book", {"token": "s3cr3t-t0ken"})
    refused = redrive("dlq", "export", str(job), *options)

    assert (refused.code, refused.out) == (64, "")
    assert message in refused.err
    assert audit(database) == []


def test_the_attempt_is_that_of_the_last_failure(
    redrive: Redrive, database: Database
) -> None:
    make_job(database.conn, "order.book", max_attempts=3)
    worker = make_worker(database.conn)
    for _ in range(2):
        failed = claim_one(database.conn, worker)
        settle(database.conn, worker, failed, "retry", failure=FAILURE)
    died = claim_one(database.conn, worker)
    settle(database.conn, worker, died, "dead", reason="gave_up", failure=FAILURE)

    found = redrive("dlq", "export", str(died.id)).json

    assert (found["attempt"], found["deliveries"]) == (3, 3)
    assert (found["started_at"], found["max_attempts"]) == (STARTED, 3)
    assert [failure["attempt"] for failure in found["failures"]] == [1, 2, 3]


def test_a_job_that_never_died_cannot_be_exported(
    redrive: Redrive, database: Database
) -> None:
    job = make_job(database.conn, "order.book")
    missing = redrive("dlq", "export", str(job))

    assert (missing.code, missing.out) == (2, "")
    assert f"job {job} has no dead letter" in missing.err


STARTED = "2026-03-01T12:00:00+00:00"
FAILURE = (
    '{"error_class": "KeyError", "message": "", "category": "bug", "fingerprint": "f",'
    f' "detail": {{"started_at": "{STARTED}"}}}}'
)


def checkpointed(database: Database, job: int, data: dict[str, Any]) -> None:
    database.rows(
        "insert into redrive.checkpoints (job, deliveries, data)"
        " values (%s, 1, jsonb_build_object('data', %s::jsonb))",
        job,
        json.dumps(data),
    )


def audit(database: Database) -> list[Any]:
    return database.rows("select actor, action, why from redrive.audit")
