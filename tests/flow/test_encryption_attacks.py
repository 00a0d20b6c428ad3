"""Encryption under attack: envelopes cut, replaced and put back by somebody who may update tables."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from redrive import enqueue
from redrive.cli import main
from tests.flow import look
from tests.flow.conftest import KEYS
from tests.flow.harness import Workers, wait_for
from tests.postgres import Database

Keys = Callable[..., Path]
Parts = dict[str, str]
CANARY = "Zx9-canary-77"
TAG_BYTES = 16


def _cut(part: str, begin: int | None, end: int | None) -> Callable[[Parts], None]:
    """Return a function that removes bytes of a part."""

    def cut(envelope: Parts) -> None:
        raw = bytearray(base64.b64decode(envelope[part]))
        del raw[begin:end]
        envelope[part] = base64.b64encode(raw).decode()

    return cut


CUTS: dict[str, Callable[[Parts], Any]] = {
    "nonce, first byte": _cut("n", 0, 1),
    "nonce, last byte": _cut("n", -1, None),
    "nonce, half": _cut("n", 6, None),
    "nonce, all": _cut("n", None, None),
    "nonce, missing": lambda e: e.pop("n"),
    "tag, last byte": _cut("c", -1, None),
    "tag, half": _cut("c", -TAG_BYTES // 2, None),
    "tag, all": _cut("c", -TAG_BYTES, None),
    "body, first bytes": _cut("c", 0, 3),
    "body, in the middle": _cut("c", 5, 9),
    "body, last byte": _cut("c", -TAG_BYTES - 1, -TAG_BYTES),
    "body, all": _cut("c", 0, -TAG_BYTES),
    "body and tag, all but three bytes": _cut("c", 3, None),
    "ciphertext, half a sign": lambda e: e.update(c=e["c"][:-1]),
    "ciphertext, missing": lambda e: e.pop("c"),
    "key id, last letter": lambda e: e.update(k=e["k"][:-1]),
    "key id, all": lambda e: e.update(k=""),
    "key id, missing": lambda e: e.pop("k"),
    "everything": lambda e: e.clear(),
}


def _payload(database: Database, job: int) -> dict[str, Any]:
    return database.value("select payload from redrive.jobs where id = %s", job)


def _put(database: Database, job: int, payload: object) -> None:
    database.rows(
        "update redrive.jobs set payload = %s where id = %s", Jsonb(payload), job
    )


def _run(database: Database, workers: Workers, path: Path) -> str:
    """Run a worker; return its log."""
    worker = workers.run(redrive_encryption_keys_file=path)
    return worker.log.read_text()


def test_an_envelope_that_is_cut_anywhere_runs_nowhere(
    database: Database, workers: Workers, keys: Keys
):
    path = keys("old")
    cut = {name: enqueue(database.conn, "work.sync", {"said": CANARY}) for name in CUTS}
    whole = enqueue(database.conn, "work.sync", {"said": CANARY})
    for name, job in cut.items():
        envelope = _payload(database, job)
        before = json.dumps(envelope)
        CUTS[name](envelope["$redrive"])
        assert json.dumps(envelope) != before, name
        _put(database, job, envelope)

    log = _run(database, workers, path)

    reasons = look.reasons(database)
    found = {name: reasons.get(job) for name, job in cut.items()}
    assert found == dict.fromkeys(CUTS, "undecryptable")
    assert {entry.job for entry in workers.ledger()} == {whole}
    assert CANARY not in log


def test_an_unencrypted_payload_in_place_of_an_envelope_runs(
    database: Database, workers: Workers, keys: Keys
):
    """Encryption hides data; it does not prove who wrote a payload, as its page says."""
    path = keys("old")
    job = enqueue(database.conn, "work.report", {"said": CANARY})
    _put(database, job, {"said": "forged"})

    _run(database, workers, path)

    report = json.loads((workers.home / f"report-{job}").read_text())
    assert report["payload"] == {"said": "forged"}


@pytest.mark.parametrize("known", [["new", "old"], ["new"]])
def test_an_older_envelope_runs_only_with_its_header_and_its_key(
    database: Database, workers: Workers, keys: Keys, known: list[str]
):
    """A ciphertext of the same job, which somebody kept and puts back after a rotation."""
    keys("old")
    alone, whole = (enqueue(database.conn, "work.sync", {"n": n}) for n in range(2))
    kept = {job: _payload(database, job) for job in (alone, whole)}
    header = database.value("select headers from redrive.jobs where id = %s", whole)
    keys("new", "old")
    assert main(["reencrypt", "--database-url", database.url]) == 0
    assert all(_payload(database, job) != kept[job] for job in kept)
    for job, payload in kept.items():
        _put(database, job, payload)
    database.rows(
        "update redrive.jobs set headers = %s where id = %s", Jsonb(header), whole
    )

    _run(database, workers, keys(*known))

    dead = [alone] if "old" in known else [alone, whole]
    assert look.reasons(database) == dict.fromkeys(dead, "undecryptable")
    assert {entry.job for entry in workers.ledger()} == {alone, whole} - {*dead}


PRODUCER = """
import os, sys, psycopg
from redrive import enqueue
with psycopg.connect(sys.argv[1], autocommit=True) as conn:
    made = 0
    while made < 50 or not os.path.exists(sys.argv[2]):
        enqueue(conn, "work.sync", {"n": made})
        made += 1
print(made)
"""


def test_a_rotation_beside_two_producers_and_a_worker_loses_no_job(
    database: Database, workers: Workers, keys: Keys, tmp_path: Path, capsys: Any
):
    """One producer has the new key first already, and the other has it last."""
    stop = tmp_path / "stop"

    def producer(*names: str) -> subprocess.Popen[str]:
        """Start a program that enqueues until the file is there."""
        ring = "\n".join(KEYS[name] for name in names)
        return subprocess.Popen(
            [sys.executable, "-c", PRODUCER, database.url, str(stop)],
            env=os.environ | {"REDRIVE_ENCRYPTION_KEYS": ring},
            stdout=subprocess.PIPE,
            text=True,
        )

    keys("old")
    database.rows("select redrive.pause_v1('later', 'me', 'why')")
    waiting = [
        enqueue(database.conn, "work.sync", {"n": n}, queue="later") for n in range(20)
    ]
    path = keys("new", "old")
    worker = workers(redrive_encryption_keys_file=path).wait_ready()
    producers = [producer("old", "new"), producer("new", "old")]
    rounds: list[dict[str, Any]] = []
    try:
        while len(rounds) < 5 or sum(found["rewritten"] for found in rounds) < 20:
            assert len(rounds) < 50
            assert main(["reencrypt", "--json", "--database-url", database.url]) == 0
            rounds.append(json.loads(capsys.readouterr().out))
            assert all(p.poll() is None for p in producers)
    finally:
        stop.touch()
        made = sum(int(p.communicate(timeout=300)[0]) for p in producers)
    database.rows("select redrive.resume_v1('later', 'me', 'why')")
    wait_for(lambda: database.value("select count(*) from redrive.jobs") == 0)
    assert worker.stop()[0] == 0

    ended = [entry.job for entry in workers.ledger() if entry.phase == "end"]
    assert len(ended) == len(set(ended)) == made + len(waiting)
    assert look.reasons(database) == {}
    assert sum(found["unreadable"] for found in rounds) == 0
