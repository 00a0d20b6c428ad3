"""Real workers sample jobs that succeed, and nobody can read in a sample what was in a job."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from redrive.enqueue import enqueue
from tests.flow.harness import Workers, kill, wait_for
from tests.postgres import Database

CANARY = "Zx9-canary"
PAYLOAD = {
    "currency": CANARY,
    "password": f"{CANARY}-secret",
    "memo": f"it was {CANARY}-secret",
    "list": [CANARY],
    "map": {f"{CANARY}@example.com": CANARY, "2026-11-22": {"said": CANARY}},
    "amount": 17,
}
EVERYTHING = """
    select string_agg(r::text, ' ') from
    (select to_jsonb(s) from redrive.reservoir_samples s
     union all select to_jsonb(r) from redrive.reservoirs r) as x(r)"""


def sampled(
    database: Database, kind: str = "work.payload-only"
) -> list[dict[str, Any]]:
    return database.column(
        "select facts from redrive.reservoir_samples where kind = %s", kind
    )


def enqueue_one(database: Database, kind: str = "work.payload-only") -> int:
    return enqueue(
        database.conn, kind, PAYLOAD, tenant=CANARY, headers={"source": CANARY}
    )


def test_what_is_kept_tells_no_content(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    """Texts as digests, secrets as such, keys that are data not at all; the log says nothing."""
    worker = workers(redrive_version="1.5.0", redrive_node="node-7").wait_ready()
    enqueue_one(database)
    enqueue_one(database, "work.unsampled")
    (facts,) = wait_for(lambda: sampled(database))

    assert CANARY not in database.value(EVERYTHING)
    assert CANARY not in worker.log.read_text()
    assert set(facts) == {
        *("version", "node", "pod", "queue", "tenant", "header.source"),
        *(
            f"payload.{name}"
            for name in ("currency", "password", "memo", "list[]", "amount")
        ),
    }
    assert (facts["version"], facts["node"]) == ("1.5.0", "node-7")
    assert (facts["payload.amount"], facts["payload.list[]"]) == (17, 1)
    assert facts["payload.password"] == facts["payload.memo"] == "?secret"
    assert (
        facts["payload.currency"] == facts["tenant"] == facts["header.source"] != CANARY
    )


def test_a_second_of_many_is_kept_and_neither_of_a_kind_that_is_not_to_be(
    database: Database, workers: Workers
) -> None:
    """The first 20, then one a second at most; `sample=False` and the setting keep any from it."""
    workers(redrive_success_samples="false").wait_ready()
    for _ in range(50):
        enqueue_one(database)
    wait_for(lambda: database.value("select not exists (select from redrive.jobs)"))
    workers.end()
    worker, began = workers().wait_ready(), time.monotonic()
    for _ in range(50):
        enqueue_one(database, "work.unsampled")
        enqueue_one(database, "work.sync")
    wait_for(lambda: sampled(database, "work.sync"))

    assert sampled(database) == sampled(database, "work.unsampled") == []
    assert len(sampled(database, "work.sync")) <= 22 + time.monotonic() - began
    assert worker.process.poll() is None


def test_what_a_handler_completes_in_its_transaction_is_sampled_if_it_succeeded(
    database: Database, workers: Workers
) -> None:
    """Nothing was known of a kind whose jobs all end so."""
    database.conn.execute("create table effects (job bigint, delivery int)")
    for how in ("raise", "commit"):
        enqueue(database.conn, "effect.sync", {"how": how})
    workers(redrive_test_url=database.url)
    wait_for(lambda: sampled(database, "effect.sync"))

    assert len(sampled(database, "effect.sync")) == 1


def test_of_an_encrypted_payload_nothing_is_kept(
    database: Database, workers: Workers, keys: Callable[..., Path]
) -> None:
    """Where it ran and what its headers say, which are in the clear, are."""
    path = keys("new")
    workers(redrive_encryption_keys_file=path).wait_ready()
    enqueue_one(database)
    (facts,) = wait_for(lambda: sampled(database))

    assert [name for name in facts if name.startswith("payload")] == ["payload"]
    assert facts["payload"] == "?unread"
    assert CANARY not in database.value(EVERYTHING)


def test_a_worker_that_is_killed_loses_samples_and_no_job(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    worker = workers().wait_ready()
    done = [enqueue(database.conn, "work.sync", {"seconds": 0.05}) for _ in range(36)]
    # The first worker may be done with all others before it is killed.
    done += [
        enqueue(database.conn, "work.until-file", {"file": "go"}) for _ in range(4)
    ]
    wait_for(workers.ledger)
    kill(database, worker)
    (tmp_path / "go").touch()
    workers().wait_ready()
    wait_for(lambda: database.value("select not exists (select from redrive.jobs)"))
    wait_for(lambda: sampled(database, "work.until-file"))

    assert {entry.job for entry in workers.ledger() if entry.phase == "end"} == set(
        done
    )
    assert database.value("select count(*) from redrive.dead_letters") == 0
