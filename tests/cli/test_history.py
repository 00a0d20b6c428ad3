"""redrive queue set --history, and the jobs that are listed for it."""

import pytest

from tests.cli.conftest import Redrive
from tests.factories import claim, complete, make_job, make_worker
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
    assert "--no-paused or --history" in nothing.err
