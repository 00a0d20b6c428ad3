"""Encryption, with real workers: handlers read what the database cannot, and keys come and go."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from redrive import enqueue, enqueue_many
from redrive.cli import main
from redrive.encryption import configured
from tests.flow import look
from tests.flow.harness import Workers, wait_for
from tests.postgres import Database

Keys = Callable[..., Path]
CANARY = "Zx9-canary-77"
TABLES = ("jobs", "dead_letters", "failures", "side_effects", "groups", "group_deltas")


def run(capsys: Any, database: Database, *arguments: str) -> str:
    """What a command says."""
    capsys.readouterr()
    assert main([*arguments, "--database-url", database.url]) == 0
    return capsys.readouterr().out


def checked(capsys: Any, database: Database) -> str:
    """What check finds; it finds fault with a server of the tests, which does without fsync."""
    capsys.readouterr()
    main(["check", "--database-url", database.url])
    return capsys.readouterr().out


def stored(database: Database) -> str:
    """All that could hold something of a job."""
    return "".join(
        str(database.rows(f"select to_jsonb(t) from redrive.{table} t"))
        for table in TABLES
    )  # type: ignore[arg-type]


def left(capsys: Any, database: Database, *options: str) -> dict[str | None, int]:
    """Rows by key, as reencrypt counts them."""
    found = json.loads(run(capsys, database, "reencrypt", "--json", *options))["left"]
    return {row.pop("key"): sum(row.values()) for row in found}


def test_handlers_read_what_the_database_cannot(
    database: Database, workers: Workers, keys: Keys, capsys: Any
):
    path = keys("new")
    payload = {
        "said": CANARY,
        "amount": 0.1,
        "n": 2**60,
        "empty": {},
        "text": "é\U0001f600\\",
    }
    sealed = [
        enqueue(database.conn, "work.report", payload, headers={"mine": 1}),
        int(
            run(
                capsys,
                database,
                "enqueue",
                "work.report",
                json.dumps(payload),
                "--key",
                "k",
            )
        ),
    ]
    enqueue_many(database.conn, [{"kind": "work.report", "payload": payload}] * 2)
    enqueue_many(
        database.conn,
        [{"kind": "work.report", "payload": payload, "priority": 3, "tenant": "t"}],
    )
    sealed = sorted({*sealed, *database.column("select id from redrive.jobs")})
    assert CANARY not in stored(database)
    plain = database.value(
        "select redrive.enqueue('work.report', %s)", json.dumps(payload)
    )

    worker = workers.run(redrive_encryption_keys_file=path)

    reports = {
        job: json.loads((workers.home / f"report-{job}").read_text())
        for job in (*sealed, plain)
    }
    assert len(reports) == 6
    assert [report["payload"] for report in reports.values()] == [payload] * 6
    assert reports[sealed[0]]["headers"] == {"mine": 1}, "the random value is ours"
    assert CANARY not in worker.log.read_text()


def test_the_largest_payload_still_fits(
    database: Database, workers: Workers, keys: Keys
):
    path = keys("new")
    enqueue(database.conn, "work.sync", {"x": "x" * (262_144 - 8)})

    workers.run(redrive_encryption_keys_file=path)

    assert look.reasons(database) == {}
    assert database.value("select count(*) from redrive.jobs") == 0


@pytest.mark.parametrize("known", [[], ["new"], ["new", "old"]])
def test_what_cannot_be_read_dies_once_and_works_again_when_its_key_is_back(
    database: Database, workers: Workers, keys: Keys, capsys: Any, known: list[str]
):
    keys("old")
    whole, cut, flipped, moved, other = (
        enqueue(database.conn, "work.sync", {"said": CANARY}) for _ in range(5)
    )
    broken = [cut, flipped, moved]
    has_key = "old" in known
    database.rows(
        "update redrive.jobs set payload = jsonb_set(payload, '{$redrive,c}', '\"AAAA\"')"
        " where id = %s",
        cut,
    )
    database.rows(
        "update redrive.jobs set payload = jsonb_set(payload, '{$redrive,c}', to_jsonb("
        "  overlay(payload #>> '{$redrive,c}' placing"
        "  case left(payload #>> '{$redrive,c}', 1) when 'A' then 'B' else 'A' end"
        "  from 1 for 1))) where id = %s",
        flipped,
    )
    database.rows(
        "update redrive.jobs set payload = (select payload from redrive.jobs where id = %s)"
        " where id = %s",
        other,
        moved,
    )
    environment = {"redrive_encryption_keys_file": keys(*known)} if known else {}

    worker = workers.run("--slots", "1", **environment)

    dead = broken if has_key else [whole, other, *broken]
    assert look.reasons(database) == dict.fromkeys(dead, "undecryptable")
    assert database.column("select deliveries from redrive.dead_letters") == [1] * len(
        dead
    )
    assert CANARY not in worker.log.read_text()
    assert len({e.job for e in workers.ledger()}) == 5 - len(dead)
    keys("new")
    shown = run(capsys, database, "dlq", "show", str(cut))
    assert (
        '{"$redrive": "encrypted with key old, which is not configured here"}' in shown
    )
    if has_key:
        return
    keys("new", "old")
    assert CANARY in run(capsys, database, "dlq", "show", str(whole))
    run(
        capsys,
        database,
        "dlq",
        "redrive",
        str(whole),
        str(moved),
        "--yes",
        "--why",
        "the key is back",
    )
    workers.run(redrive_encryption_keys_file=workers.home / "keys")
    assert workers.starts(whole)
    states = "select array_agg(state order by redrives) from redrive.dead_letters where id = %s"
    assert (database.value(states, whole), database.value(states, moved)) == (
        ["resolved"],
        ["redriven", "open"],
    )


def test_a_keyring_that_is_no_good_stops_everybody_before_anything_is_stored(
    database: Database, workers: Workers, keys: Keys, capsys: Any
):
    path = keys()
    path.write_text("k1 AAAA")
    configured.cache_clear()

    with pytest.raises(Exception, match="line 1: the key has 3 bytes, not 32"):
        enqueue(database.conn, "work.sync", {})
    assert main(["enqueue", "work.sync", "--database-url", database.url]) == 64
    assert main(["reencrypt", "--database-url", database.url]) == 64
    assert "bad  encryption   REDRIVE_ENCRYPTION_KEYS_FILE is" in checked(
        capsys, database
    )
    worker = workers(redrive_encryption_keys_file=path)
    assert worker.wait() == 64
    assert "AAAA" not in worker.log.read_text()
    assert database.value("select count(*) from redrive.jobs") == 0


def test_what_was_in_the_clear_is_encrypted_afterwards(
    database: Database, workers: Workers, keys: Keys, capsys: Any
):
    job = enqueue(
        database.conn,
        "leak.declared",
        {"patient": "A. L.", "password": "x", "note": CANARY},
    )
    waiting = enqueue(database.conn, "work.report", {"note": CANARY})
    database.rows("select redrive.pause_v1('default', 'me', 'why')")
    database.rows("update redrive.jobs set queue = 'other' where id = %s", waiting)
    database.rows("select redrive.resume_v1('default', 'me', 'why')")
    workers.run("--queue", "default", handlers="tests.flow.judged:jobs")
    assert all(
        word in stored(database)
        for word in (CANARY, "A. L.", "told the provider", "sub-exceptions")
    )

    path = keys("new")
    before = stored(database)
    assert left(capsys, database, "--dry-run") == {"new": 0, None: 4}
    assert stored(database) == before
    assert left(capsys, database) == {"new": 4}
    assert [
        word
        for word in (CANARY, "A. L.", "told the provider", "sub-exceptions")
        if word in stored(database)
    ] == []
    assert database.rows(
        "select action, n, detail -> 'expected', why from redrive.audit"
        " where action ~ 'reencrypt' order by id"
    ) == [("reencrypt", 0, 4, "rotation"), ("end reencrypt", 4, None, "rotation")]
    shown = run(capsys, database, "dlq", "show", str(job))
    listed = run(capsys, database, "dlq", "ls", "--json") + run(
        capsys, database, "dlq", "groups"
    )
    assert all(
        word in shown for word in (CANARY, "told the provider", "sub-exceptions")
    )
    assert listed.count("sub-exceptions") == 2
    assert json.loads(run(capsys, database, "reencrypt", "--json"))["rewritten"] == 0
    workers.run("--queue", "other", redrive_encryption_keys_file=path)
    assert json.loads((workers.home / f"report-{waiting}").read_text())["payload"] == {
        "note": CANARY
    }


def test_what_was_said_of_one_delivery_is_not_shown_as_anothers(
    database: Database, workers: Workers, keys: Keys, capsys: Any
):
    """A failure was bound to its job alone."""
    path = keys("new")
    job = enqueue(database.conn, "fail.always", {"said": CANARY})
    workers.run(redrive_encryption_keys_file=path)
    before = run(capsys, database, "dlq", "show", str(job))
    untouched = json.loads(run(capsys, database, "reencrypt", "--json"))
    database.rows(
        "update redrive.failures f set detail = o.detail from redrive.failures o"
        " where f.deliveries + o.deliveries = 3"
    )

    shown = json.loads(run(capsys, database, "dlq", "show", str(job), "--json"))[
        "failures"
    ]
    unreadable = json.loads(run(capsys, database, "reencrypt", "--json"))

    assert all(f"attempt {n} of" in before for n in (1, 2, 3))
    assert (untouched["rewritten"], untouched["unreadable"]) == (0, 0)
    assert database.rows(
        "select action, n, detail -> 'expected' from redrive.audit"
        " where action ~ 'reencrypt' order by id"
    ) == [
        ("reencrypt", 0, 0),
        ("end reencrypt", 0, None),
        ("reencrypt", 0, 2),
        ("end reencrypt", 0, None),  # neither of the two can be read
    ]
    assert ["was moved" in failure["message"] for failure in shown] == [
        True,
        True,
        False,
    ]
    assert (unreadable["rewritten"], unreadable["unreadable"]) == (0, 2)


def test_keys_are_rotated_under_load_and_nothing_becomes_unreadable(
    database: Database, workers: Workers, keys: Keys, capsys: Any
):
    path = keys("old")
    for _ in range(3):
        enqueue_many(
            database.conn,
            [{"kind": "work.payload-only", "payload": {"n": n}} for n in range(500)],
        )
        enqueue_many(
            database.conn,
            [{"kind": "fail.until", "payload": {"attempt": 3}} for n in range(50)],
        )
        enqueue_many(
            database.conn,
            [{"kind": "fail.bug", "payload": {"n": 1}} for n in range(50)],
        )
    path = keys("new", "old")
    enqueue(
        database.conn, "work.until-file", {"file": "rotated"}
    )  # runs through all of it
    running = [
        workers(redrive_encryption_keys_file=path).wait_ready() for _ in range(2)
    ]

    rotating = (
        sys.executable,
        "-m",
        "redrive",
        "reencrypt",
        "--json",
        "--database-url",
        database.url,
    )
    rounds: list[dict[str, Any]] = []
    while not rounds or sum(
        n
        for row in rounds[-1]["left"]
        if row["key"] == "old"
        for n in list(row.values())[1:]
    ):
        enqueue_many(
            database.conn,
            [{"kind": "work.payload-only", "payload": {"n": n}} for n in range(500)],
        )
        rounds.append(
            json.loads(
                subprocess.run(
                    rotating, check=True, capture_output=True, text=True
                ).stdout
            )
        )
        assert len(rounds) < 20
    (workers.home / "rotated").touch()
    wait_for(lambda: database.value("select count(*) from redrive.jobs") == 0)
    for worker in running:
        assert worker.stop()[0] == 0

    assert set(look.reasons(database).values()) == {"not_retryable"}
    assert len(look.reasons(database)) == 150
    assert sum(r["unreadable"] for r in rounds) == 0
    assert sum(r["rewritten"] for r in rounds) > 100
    keys("new")
    assert "attempt" in run(
        capsys, database, "dlq", "show", str(next(iter(look.reasons(database))))
    )
    assert "not configured here" not in run(capsys, database, "dlq", "ls") + run(
        capsys, database, "dlq", "groups"
    )
    at_once = ("--canaries", "0")  # no worker is up
    run(
        capsys,
        database,
        "dlq",
        "redrive",
        "--kind",
        "fail.bug",
        *at_once,
        "--yes",
        "--why",
        "k",
    )
    workers.run(redrive_encryption_keys_file=workers.home / "keys")
    assert set(look.reasons(database).values()) == {"not_retryable"}


def test_check_says_with_which_key(database: Database, keys: Keys, capsys: Any):
    assert "ok   encryption   off" in checked(capsys, database)
    keys("new", "old")
    assert "ok   encryption   on, with key new; old can decrypt" in checked(
        capsys, database
    )
