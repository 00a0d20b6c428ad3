"""redrive schedule, as it is typed, and what redrive job show tells of a schedule's job."""

from datetime import UTC, datetime, timedelta

import pytest

from redrive.worker import store
from tests.cli.conftest import Redrive
from tests.factories import let_next_die, make_job, make_schedule, make_worker
from tests.postgres import Database

LISTED = {
    *("name", "kind", "queue", "cron", "tz", "catch_up", "state", "next_at", "last_at"),
    *("last_job", "paused_at", "paused_by", "paused_why", "versions"),
}
ACTS = "select action, actor, why, n, detail from redrive.audit order by id"


@pytest.fixture
def worker(database: Database) -> int:
    """One that declares a schedule, which comes at 7 each day."""
    return make_schedule(database.conn, "report.daily")


def test_ls_tells_what_comes_next_and_who_declares_it(
    redrive: Redrive, database: Database, worker: int
) -> None:
    database.rows("update redrive.schedules set next_at = '2030-01-01 07:00Z'")
    listed = redrive("schedule", "ls", "--json").json

    assert listed.keys() == LISTED
    assert (
        listed["name"],
        listed["kind"],
        listed["cron"],
        listed["tz"],
        listed["catch_up"],
    ) == (*("report.daily", "report", "0 7 * * *", "UTC", "one"),)
    assert (listed["state"], listed["versions"]) == ("active", ["1"])
    assert datetime.fromisoformat(listed["next_at"]) == datetime(
        2030, 1, 1, 7, tzinfo=UTC
    )
    store.retire(database.conn, worker)

    shown = redrive("schedule", "ls", COLUMNS="120").out
    assert "report.daily" in shown
    assert "undeclared" in shown


def test_without_any_it_says_how_to_declare_one(redrive: Redrive) -> None:
    assert "@jobs.every(" in redrive("schedule", "ls").out


def test_a_preview_shows_the_times_and_a_name_of_no_schedule_is_refused(
    redrive: Redrive, database: Database, worker: int
) -> None:
    for verb in ("now", "pause", "resume"):
        if verb == "resume":
            redrive("schedule", "pause", "report.daily", "--why", "w", "--yes")
        assert "0 7 * * *" in redrive("schedule", verb, "report.daily").out
        missing = redrive("schedule", verb, "nothing", "--why", "w", "--yes")
        no_such = (2, "redrive: there is no schedule nothing\n")
        assert (missing.code, missing.err) == no_such


def test_now_says_what_it_would_enqueue_and_what_it_has_enqueued(
    redrive: Redrive, database: Database, worker: int
) -> None:
    shown = redrive("schedule", "now", "report.daily", "--why", "w").out
    assert "report.daily: one job of report" in shown
    assert "nothing was changed" in shown

    done = redrive("schedule", "now", "report.daily", "--why", "w", "--yes").out
    job = database.value("select max(id) from redrive.jobs")
    assert f"enqueued job {job}; redrive job show {job}" in done


def test_pause_resume_and_now_are_on_record(
    redrive: Redrive, database: Database, worker: int
) -> None:
    said = ("report.daily", "--why", "stocktaking", "--yes", "--json")
    name = {"name": "report.daily"}
    assert redrive("schedule", "pause", *said).json == name | {"paused": True}
    listed = redrive("schedule", "ls", "--json").json
    assert (
        listed["state"],
        listed["paused_by"],
        listed["paused_why"],
        listed["next_at"],
    ) == (*("paused", "tester", "stocktaking", None),)
    job = database.value("select coalesce(max(id), 0) + 1 from redrive.jobs")
    assert redrive("schedule", "now", *said).json == name | {"job": job}
    assert (
        "report.daily: paused by tester: stocktaking" in redrive("schedule", "ls").out
    )
    assert redrive("schedule", "resume", *said).json == name | {"resumed": True}
    assert redrive("schedule", "resume", *said).code == 2

    of_schedule = {"schedule": "report.daily"}
    assert database.rows(ACTS) == [
        ("pause schedule", "tester", "stocktaking", 1, of_schedule),
        ("run schedule", "tester", "stocktaking", 1, of_schedule | {"ids": [job]}),
        ("resume schedule", "tester", "stocktaking", 1, of_schedule),
    ]
    story = [(step["what"], step["by"]) for step in _shown(redrive, job)["story"]]
    assert story[0][0].startswith("enqueued by schedule report.daily for ")
    assert ("run schedule", "tester") in story


def _shown(redrive: Redrive, job: int) -> dict[str, object]:
    return redrive("job", "show", str(job), "--json").json


def test_the_story_of_a_job_names_its_schedule_and_its_slot(
    redrive: Redrive, database: Database, worker: int
) -> None:
    """Live and dead; a producer's job with headers of these names tells nothing wrong."""
    slot = datetime(2026, 11, 22, 7, tzinfo=UTC)
    database.rows("update redrive.schedules set next_at = %s", slot)
    (due,) = store.due_schedules(database.conn)
    (job,) = (
        store.fire_schedule(database.conn, due, [slot], slot + timedelta(days=1)) or []
    )
    told = {"name": "report.daily", "scheduled_for": "2026-11-22T07:00:00Z"}
    text = "enqueued by schedule report.daily for 2026-11-22T07:00:00Z"

    for is_live in (True, False):
        shown = _shown(redrive, job)
        assert shown["schedule"] == told
        assert next(step["what"] for step in shown["story"]) == text  # type: ignore[attr-defined,index] # JSON
        if is_live:
            claimer = make_worker(database.conn)
            let_next_die(database.conn, claimer)
    other = make_job(database.conn, headers={"schedule": 7, "scheduled_for": []})
    assert _shown(redrive, other)["schedule"] is None
