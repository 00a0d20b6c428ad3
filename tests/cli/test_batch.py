"""redrive batch, and unique jobs as they are typed."""

import json

from redrive.batches import close_batch, open_batch
from redrive.enqueue import enqueue
from redrive.jobs.show import show
from tests.cli.conftest import Redrive
from tests.factories import claim, complete, make_dead_letter, make_worker
from tests.postgres import Database


def test_batches_are_listed_and_shown(database: Database, redrive: Redrive) -> None:
    batch = open_batch(database.conn, on_end={"kind": "report"})
    for n in range(3):
        enqueue(database.conn, "page", {"n": n}, batch=batch)
    worker = make_worker(database.conn)
    first, *_ = claim(database.conn, worker)
    complete(database.conn, worker, first)
    make_dead_letter(database.conn, "page", batch=batch)
    counts = {"total": 4, "waiting": 2, "succeeded": 1, "dead": 1, "cancelled": 0}

    (listed,) = redrive("batch", "ls", "--json").lines
    shown = redrive("batch", "show", str(batch), "--json").json
    assert listed == shown
    assert counts.items() <= shown.items()
    assert (shown["id"], shown["state"], shown["closed_at"]) == (batch, "open", None)
    close_batch(database.conn, batch)
    assert redrive("batch", "show", str(batch), "--json").json["state"] == "running"
    assert "running" in redrive("batch", "show", str(batch)).out
    assert redrive("batch", "show", "99").code == 2


def test_a_callback_says_for_which_batch_it_waits(database: Database) -> None:
    batch = open_batch(database.conn, on_end={"kind": "report"})
    callback = database.value("select on_end from redrive.batches")
    why = show(database.conn, callback)["why"]

    assert why == {
        "code": "batch_running",
        "text": f"it waits for batch {batch} to end: redrive batch show {batch}",
    }


def test_a_unique_job_is_enqueued_by_hand(redrive: Redrive) -> None:
    typed = ("enqueue", "crm.sync", '{"customer": 7, "at": 1}', "--json")
    unique = ("--unique-for", "1h", "--unique-by", "customer")
    first = redrive(*typed, *unique).json

    assert redrive(*typed, *unique).json == first | {
        "created": False,
        "outcome": "live",
    }
    replaced = redrive(
        *typed, *unique, "--on-conflict", "replace", "--delay", "10m"
    ).json
    assert replaced == first | {"created": False, "outcome": "replaced"}
    assert redrive(*typed, "--on-conflict", "replace").code == 64
    assert redrive(*typed, *unique, "--on-conflict", "update").code == 64


def test_lines_have_the_same_fields(database: Database, redrive: Redrive) -> None:
    batch = open_batch(database.conn, on_end={"kind": "report"})
    job = {
        "kind": "page",
        "unique_for": 60,
        "unique_by": ["n"],
        "batch": batch,
        "delay": 5,
    }
    lines = "".join(json.dumps(job | {"payload": {"n": n}}) + "\n" for n in (1, 1, 2))

    assert redrive("enqueue", "-", "--json", stdin=lines).json == {
        "read": 3,
        "created": 2,
    }
    bad = redrive("enqueue", "-", stdin=json.dumps(job | {"unique_by": "n"}))
    assert bad.code == 64
    assert "line 1.unique_by: must be 1 to 16 names" in bad.err
