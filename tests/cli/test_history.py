"""redrive queue set --history, and the jobs that are listed for it."""

import pytest

from tests.cli.conftest import Redrive
from tests.factories import claim, complete, make_dead_letter, make_job, make_worker
from tests.postgres import Database


def test_a_queue_is_told_to_keep_what_ends(
    redrive: Redrive, database: Database
) -> None:
    """Set with a why, listed by state and key page by page, shown, and off again."""
    keep = ("queue", "set", "default", "--create", "--yes", "--history", "2d")
    said = redrive(*keep, "--why", "support asks")
    assert "kept for 2 days" in said.out
    jobs = [make_job(database.conn, idempotency_key=f"k{n}") for n in range(3)]
    worker = make_worker(database.conn)
    complete(database.conn, worker, *claim(database.conn, worker, 3))

    found = redrive("job", "ls", "--state", "completed,cancelled,ready", "--json").lines
    assert [job["id"] for job in found] == jobs[::-1]
    assert found[0]["state"] == "completed"
    (one,) = redrive("job", "ls", "--state", "completed", "--key", "k1", "--json").lines
    assert one["id"] == jobs[1]
    cut = redrive("job", "ls", "--state", "completed", "--limit", "2", "--json")
    assert f"--after ended/{jobs[1]}" in cut.err
    rest = redrive(
        "job", "ls", "--state", "completed", "--after", f"ended/{jobs[1]}", "--json"
    )
    assert [job["id"] for job in rest.lines] == [jobs[0]]
    assert redrive("job", "show", str(jobs[0]), "--json").json["state"] == "completed"
    off = redrive(
        "queue", "set", "default", "--history", "off", "--why", "nobody asks", "--yes"
    )
    assert "no longer kept" in off.out


@pytest.mark.parametrize("days", ["36h", "0d", "401d", "soon"])
def test_days_are_whole_and_few(redrive: Redrive, days: str) -> None:
    refused = redrive("queue", "set", "mail", "--history", days, "--why", "x")

    assert refused.code == 64
    assert "--history" in refused.err


def test_what_has_ended_is_not_changed(redrive: Redrive) -> None:
    refused = redrive("job", "cancel", "--state", "completed", "--why", "x")

    assert refused.code == 64
    assert "these jobs have ended" in refused.err
    nothing = redrive("queue", "set", "mail", "--why", "x")
    assert "give fair-by, paused or history" in nothing.err


def test_a_list_of_what_has_ended_says_that_nothing_is_kept_and_how_to_keep_it(
    redrive: Redrive, database: Database
) -> None:
    make_job(database.conn, queue="mail")
    listed = redrive("job", "ls", "--state", "completed")

    assert (listed.code, listed.out) == (0, "no such job\n")
    assert "redrive queue set QUEUE --history 7d" in listed.err
    redrive("queue", "set", "mail", "--history", "7d", "--why", "x", "--yes")
    assert redrive("job", "ls", "--state", "completed").err == ""
    assert redrive("job", "ls", "--state", "ready").err == ""


def test_a_job_that_was_redriven_and_succeeded_shows_when(
    redrive: Redrive, database: Database
) -> None:
    conn = database.conn
    dead = make_dead_letter(conn, queue="mail")
    redrive("queue", "set", "mail", "--history", "7d", "--why", "x", "--yes")
    redrive("dlq", "redrive", str(dead), "--why", "x", "--yes", "--json")
    worker = make_worker(conn)
    complete(conn, worker, *claim(conn, worker))

    story = redrive("job", "show", str(dead), "--json").json["story"]
    assert story[-1]["what"].startswith("completed in attempt 1, ")
    assert story[-1]["what"].endswith(" after it was due")
    head, _, row = redrive("job", "ls", "--state", "completed").out.splitlines()[1:4]
    assert "ended at" in head
    assert "ago" in row or "now" in row
