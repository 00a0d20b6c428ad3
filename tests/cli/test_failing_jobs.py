"""dlq retry, hold, release and give-up: what they show, and what a held job says."""

from redrive.worker import store
from tests.cli.conftest import Redrive
from tests.factories import claim_one, failure, make_job, make_worker, settle
from tests.postgres import Database

GROUP = "f1f1f1f1f1f1f1f1"


def fails(database: Database, count: int) -> None:
    """Let jobs fail that are retried in an hour."""
    worker = make_worker(database.conn)
    said = failure(fingerprint=GROUP, category="transient", message="503 from hooks")
    for _ in range(count):
        make_job(database.conn)
        job = claim_one(database.conn, worker)
        settle(database.conn, worker, job, "retry", delay=3600, failure=said)


def test_a_group_is_shown_before_a_job_is_dead(
    database: Database, redrive: Redrive
) -> None:
    fails(database, 2)

    shown = redrive("dlq", "show", GROUP[:4]).out

    assert "2 jobs failing since" in shown
    assert "0 open of 0 ever" in shown
    assert f"failing:  redrive job ls --group {GROUP}" in shown
    assert "a sample: redrive job show 1" in shown
    assert [g["failing"] for g in redrive("dlq", "groups", "--json").lines] == [2]
    assert redrive("dlq", "groups", "--dead").out == "no such groups\n"


def test_a_retry_shows_what_it_costs_and_then_starts(
    database: Database, redrive: Redrive
) -> None:
    fails(database, 12)

    preview = redrive("dlq", "retry", GROUP).out
    assert "503 from hooks" in preview
    assert "3 go first; if more than 10% of any ten fail again" in preview

    done = redrive("dlq", "retry", GROUP, "--yes", "--why", "back", "--json").json
    assert (done["matched"], done["redriven"], done["state"]) == (12, 3, "canary")
    again = redrive("dlq", "retry", GROUP, "--yes", "--why", "back")
    assert "has the same jobs" in again.err
    shown = redrive("campaign", "show", str(done["campaign"])).out
    assert "3 of 12 retried: 0 succeeded, 0 failed again" in shown


def test_lists_do_not_say_of_a_retry_that_its_jobs_died(
    database: Database, redrive: Redrive
) -> None:
    """They said `dead again` of jobs that only failed again."""
    fails(database, 12)
    redrive("dlq", "retry", GROUP, "--yes", "--why", "back")
    database.conn.execute("update redrive.campaigns set dead_again = 2")

    listed = redrive("campaign", "ls").out
    report = redrive("dlq", "report", "--since", "1h")

    assert "2 failed" in listed
    assert "dead" not in listed
    assert "| 2 failed" in report.out.replace("`", "")
    assert "Nothing was redriven." in report.out
    (row,) = redrive("campaign", "ls", "--json").lines
    assert (row["is_retry"], row["dead_again"]) == (True, 2)


def test_a_held_job_says_who_holds_its_group(
    database: Database, redrive: Redrive
) -> None:
    fails(database, 2)
    assert redrive("dlq", "release", GROUP, "--yes", "--why", "x").code == 2
    hold = redrive(
        "dlq", "hold", GROUP, "--yes", "--why", "until Monday", "--actor", "ada"
    )
    assert hold.code == 0
    store.hold_failing(database.conn)

    (group,) = redrive("dlq", "groups", "--json").lines
    job = redrive("job", "show", "1").out

    assert (group["held_by"], group["next_retry"]) == ("ada", None)
    assert "ada holds its group since" in job
    assert "until Monday; its last attempt failed: ValueError: 503 from hooks" in job
    assert "9990" not in redrive("job", "ls", "--json").out
    assert "held" in redrive("dlq", "show", GROUP).out
    assert redrive("dlq", "release", GROUP, "--yes", "--why", "x").code == 0


def test_jobs_are_given_up_after_a_look(database: Database, redrive: Redrive) -> None:
    fails(database, 3)

    assert redrive("dlq", "give-up", GROUP, "--json").json == {
        "matched": 3,
        "given_up": 0,
    }
    done = redrive("dlq", "give-up", GROUP, "--yes", "--why", "they left").out
    assert done == "3 jobs given up; they are dead letters now\n"
    assert redrive("dlq", "give-up", GROUP, "--yes", "--why", "x").code == 2
    assert [d["reason"] for d in redrive("dlq", "ls", "--json").lines] == [
        "gave_up"
    ] * 3
