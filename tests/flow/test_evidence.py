"""What is known of a failure afterwards, what is not, and what an application's hooks cannot do."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from redrive import enqueue
from redrive.cli import main
from redrive.database.embedded import EmbeddedPostgres
from tests.flow import look
from tests.flow.endpoint import endpoint
from tests.flow.harness import Workers, wait_for
from tests.postgres import Database, programs
from tests.tracing.collector import collecting

HANDLERS = "tests.flow.judged:jobs"
CANARY = "Zx9-canary-77"
HEADER = "Qy8-header-66"
"""Headers stay in clear; elsewhere it is not to be found."""
SPOKEN = (
    "Ada L.",
    "the provider said",
    "inner ",
    "told the provider",
    "sub-exceptions",
    "leak_declared",
)
"""No secrets, but of payloads, messages, causes, side effects and stacks."""


def _dump(database: Database, tmp_path: Path) -> str:
    """Everything the database holds, as text."""
    version = database.conn.info.server_version // 10_000
    server = EmbeddedPostgres(tmp_path / "none", version, programs=programs(version))
    program = server.program("pg_dump")
    command = [
        program,
        "--data-only",
        "--inserts",
        "--column-inserts",
        "--dbname",
        database.url,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _acting(jobs: list[int], groups: list[str]) -> list[list[str]]:
    """What a person does about it, so that the audit log has something to show."""
    job, why = str(jobs[0]), ["--why", "they are on it", "--yes"]
    return [
        ["queue", "pause", "default", *why],
        ["queue", "resume", "default", *why],
        ["dlq", "assign", job, "--owner", "ada", *why],
        ["dlq", "mute", groups[0], *why],
    ]


def _showing(jobs: list[int], groups: list[str]) -> list[list[str]]:
    """All commands that show data to people; as JSON too, where they have it."""
    as_json = [
        ["dlq", "ls"],
        ["dlq", "groups"],
        ["audit", "ls"],
        ["audit", "verify"],
        ["queue", "ls"],
        ["queue", "limits"],
        ["check"],
        *(["dlq", "show", str(job)] for job in jobs),
        *(["dlq", "show", group] for group in groups),
    ]
    return [
        *as_json,
        *([*command, "--json"] for command in as_json),
        ["audit", "export"],
        *(["dlq", "report", group] for group in groups),
        ["dlq", "redrive", "--all", "--dry-run"],
    ]


@pytest.mark.parametrize("encrypted", [False, True])
def test_no_secret_is_found_outside_the_payloads(
    database: Database,
    workers: Workers,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    keys: Callable[..., Path],
    *,
    encrypted: bool,
):
    """With encryption, in them neither; nor is anything else that a job or failure said."""
    keyring = {"redrive_encryption_keys_file": keys("new")} if encrypted else {}
    jobs = [
        enqueue(
            database.conn,
            "leak.typed",
            {"holder": "Ada L.", "code": f"{CANARY}-a", "nickname": "bearer-of-99"},
        ),
        enqueue(
            database.conn,
            "leak.typed",
            {"holder": 7, "code": [f"{CANARY}-c"], "nickname": "x"},
        ),
        enqueue(
            database.conn,
            "leak.declared",
            {"patient": f"{CANARY}-d", "password": f"{CANARY}-e"},
        ),
        enqueue(database.conn, "to.secrets", {"token": f"{CANARY}-n"}),
        enqueue(database.conn, "leak.environment", headers={"x-api-key": HEADER}),
        *(
            enqueue(
                database.conn,
                "leak.signal",
                {"how": how, "otp": f"{CANARY}-p", "note": f"{CANARY}-p"},
            )
            for how in ("give up", "retry", "cancel")
        ),
    ]
    targets = tmp_path / "targets.yaml"
    with endpoint() as served, collecting() as collector:
        target = {
            "url": served.url("secrets"),
            "max_attempts": 1,
            "headers": {"X-Api-Key": f"{CANARY}-r"},
        }
        targets.write_text(
            json.dumps(
                {"allowed_hosts": ["127.0.0.1"], "targets": {"to.secrets": target}}
            )
        )
        worker = workers(
            "--until-empty",
            handlers=HANDLERS,
            redrive_targets=targets,
            redrive_log_level="debug",
            otel_exporter_otlp_endpoint=collector.url,
            leak_token=f"{CANARY}-q",
            **keyring,
        )
        seen = ""
        while worker.process.poll() is None:
            seen = worker.get("/metrics")[1] or seen
            time.sleep(0.05)
        collector.wait_for(lambda c: len(c.of("process default")) == 9)
    rows = [line for line in _dump(database, tmp_path).splitlines() if CANARY in line]
    outside = [
        line
        for line in rows
        if not line.startswith("INSERT INTO redrive.dead_letters ")
    ]
    elsewhere = database.value(
        "select count(*) from redrive.dead_letters d"
        " where strpos((to_jsonb(d) - 'payload' - 'headers')::text, %s) > 0",
        CANARY,
    )
    groups = database.column("select distinct fingerprint from redrive.grouped")
    for command in _acting(jobs, groups):
        assert main([*command, "--database-url", database.url]) == 0
    for command in _showing(jobs, groups):
        assert main([*command, "--database-url", database.url]) != 64, command
    printed = capsys.readouterr()
    shown = printed.out + printed.err

    assert len(look.reasons(database)) == 7
    if encrypted:
        assert [
            word for word in (CANARY, *SPOKEN) if word in _dump(database, tmp_path)
        ] == []
        assert all(word in shown for word in SPOKEN), "the key is at hand"
    else:
        assert len(rows) == 6, "the payloads themselves are in clear here"
    assert outside == []
    assert HEADER not in shown
    assert not [
        line
        for line in _dump(database, tmp_path).splitlines()
        if HEADER in line and not line.startswith("INSERT INTO redrive.dead_letters ")
    ]
    assert elsewhere == 0
    assert CANARY not in worker.log.read_text()
    assert CANARY not in seen
    assert CANARY.encode() not in collector.bodies
    assert CANARY not in shown
    assert not [
        line
        for line in _dump(database, tmp_path).splitlines()
        if "bearer-of-99" in line and ".failures" in line
    ]
    assert "[redacted]" in shown


def test_a_side_effect_is_shown_before_its_job_is_redriven(database, workers, capsys):
    job = enqueue(database.conn, "charge", {"n": 1})
    workers.run(handlers=HANDLERS)

    main(["dlq", "show", str(job), "--database-url", database.url])
    shown = capsys.readouterr().out
    main(["dlq", "redrive", str(job), "--dry-run", "--database-url", database.url])
    planned = capsys.readouterr().out

    assert "charge created" in shown
    assert f"ch_{job}" in shown
    assert "1 of them had side effects before they died" in planned


def test_an_older_payload_is_upgraded_step_by_step(
    database: Database, workers: Workers
):
    payloads = {
        None: {"price": 3},
        1: {"price": 3},
        2: {"amount": 3},
        3: {"cents": 300},
    }
    jobs = [
        enqueue(database.conn, "versioned", payload, version=version)
        for version, payload in payloads.items()
    ]

    workers.run(handlers=HANDLERS)

    found = [(workers.home / f"cents-{job}").read_text() for job in jobs]
    assert found == ["300"] * len(jobs)


def test_a_payload_newer_than_the_handler_waits_for_the_rollout_to_end(
    database, workers
):
    job = enqueue(database.conn, "versioned", {"new": 1}, version=4)
    workers(handlers=HANDLERS)

    row = wait_for(
        lambda: (r := look.row(database, job)) and r["deliveries"] == 1 and r
    )

    assert (row["attempt"], look.reasons(database)) == (0, {})


def test_a_payload_that_cannot_be_upgraded_is_invalid(
    database: Database, workers: Workers
):
    job = enqueue(database.conn, "versioned", {"wrong": 1}, version=1)

    workers.run(handlers=HANDLERS)

    found = look.dead(database, job)
    ended = (found.reason, found.category, found.attempts)
    assert ended == ("invalid_payload", "invalid", 1)


def test_a_failed_upgrade_says_which_version_the_payload_had(
    database: Database, workers: Workers, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the dead letter and in the log."""
    database.rows(
        """select redrive.enqueue('versioned', '{"no": 1}', headers => '{"version": 2}')"""
    )
    job = enqueue(database.conn, "versioned", {"wrong": 1})
    worker = workers.run(handlers=HANDLERS)
    capsys.readouterr()
    assert main(["dlq", "show", str(job), "--database-url", database.url]) == 0

    assert "payload version 1" in capsys.readouterr().out
    told = {
        e["payload_version"] for e in worker.events() if e["event"] == "dead-lettered"
    }
    assert told == {1, 2}


def test_hooks_of_the_application_cannot_hurt_a_job(database, workers):
    dead = [enqueue(database.conn, kind) for kind in ("die.bug", "die.hang", "die.bug")]
    late = enqueue(database.conn, "die.late", expires_in=0.001)
    time.sleep(0.05)

    worker = workers.run(handlers=HANDLERS)

    assert set(dead) <= set(look.reasons(database))
    assert look.reasons(database)[late] == "expired"
    assert (workers.home / f"expired-{late}").exists()
    told = (workers.home / "deaths").read_text().splitlines()
    assert sorted(int(line.split()[0]) for line in told) == sorted([*dead, late])
    assert not [e for e in worker.events() if "Traceback" in json.dumps(e)]
