"""Workers, limits and schedules: shown and changed as on the command line."""

from html import unescape

import pytest
from starlette.testclient import TestClient

from tests.console.conftest import Site, act
from tests.console.test_changes import said
from tests.factories import make_limited_worker, make_schedule, make_worker


def limits(site: Site) -> list[tuple[object, ...]]:
    """Return the limits."""
    return site.database.rows("select name, concurrency, rate from redrive.limits")


def test_a_limit_is_set_and_removed(site: Site, olaf: TestClient):
    """The empty page explains limits, and a command sets the same limit."""
    make_limited_worker(site.database.conn, "emails")
    assert "There are no limits." in olaf.get("/limits").text
    form = {"concurrency": "20", "rate": "30/1m", "why": "the provider allows no more"}

    done = act(olaf, "/change/set-limit?name=emails", **form)
    again = olaf.get("/change/set-limit?name=emails").text

    assert said(olaf, done) == "emails: 20 at once, 30/m."
    assert limits(site) == [("emails", 20, 0.5)]
    assert "redrive limit set emails --concurrency 20 --rate 30/m --why ..." in again
    assert "/change/remove-limit?name=emails" in olaf.get("/limits").text

    act(olaf, "/change/remove-limit?name=emails", why="the new provider has none")

    assert limits(site) == []


@pytest.mark.parametrize(
    ("name", "ends"), [("emals", "; did you mean emails?"), ("somewhere", "")]
)
def test_a_limit_that_no_handler_has_jobs_for_is_set_and_said(
    site: Site, olaf: TestClient, name: str, ends: str
):
    """As on the command line."""
    make_limited_worker(site.database.conn, "emails", "customer:{customer_id}")
    text = f"no handler has jobs that count under '{name}' yet{ends}"
    sentence = "N" + text[1:] + ("" if ends else ".")
    address = f"/change/set-limit?name={name}"
    asked = {"why": "x", "concurrency": 1, "yes": True}

    seen = site.bearer("olaf").post(f"/api/v1/set-limit?name={name}", json={}).json()
    assert sentence in seen["remarks"]
    assert sentence in unescape(olaf.get(address).text)
    done = act(olaf, address, concurrency="1", why="x")
    assert unescape(said(olaf, done)) == f"{name}: 1 at once. {sentence}"
    assert sentence not in unescape(olaf.get(address).text), (
        "it is a limit that there is"
    )

    act(olaf, f"/change/remove-limit?name={name}", why="x")
    again = [
        site.bearer("olaf")
        .post(f"/api/v1/set-limit?name={one}", json=asked)
        .json()["warning"]
        for one in (name, "emails", "customer:17")
    ]
    assert again == [text, None, None]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ({"concurrency": -1}, "concurrency is '-1'"),
        ({"concurrency": 10**7}, "concurrency is '10000000'"),
        ({"rate": -1}, "rate: "),
        ({}, "give concurrency, rate or both"),
    ],
)
def test_a_limit_that_is_none_is_named(site: Site, body: dict[str, object], fault: str):
    asked = {"why": "x", "yes": True} | body

    answer = site.bearer("olaf").post("/api/v1/set-limit?name=emails", json=asked)

    assert (answer.status_code, fault in answer.json()["error"]) == (400, True)
    assert limits(site) == []


def test_a_schedule_is_paused_resumed_and_run(site: Site, olaf: TestClient):
    make_schedule(site.database.conn, "report.daily")

    assert "/change/pause-schedule?name=report.daily" in olaf.get("/schedules").text
    act(olaf, "/change/pause-schedule?name=report.daily", why="the warehouse moves")
    assert "olaf: the warehouse moves" in olaf.get("/schedules").text
    assert (
        "is paused already" in olaf.get("/change/pause-schedule?name=report.daily").text
    )
    run = act(olaf, "/change/run-schedule?name=report.daily", why="by hand, then")
    act(olaf, "/change/resume-schedule?name=report.daily", why="it has moved")

    (job,) = site.database.column("select id from redrive.jobs")
    assert (
        said(olaf, run)
        == f"report.daily has enqueued job {job}; redrive job show {job}."
    )
    assert "There is no schedule x." in olaf.get("/change/run-schedule?name=x").text


@pytest.mark.parametrize(
    ("name", "code", "fault"),
    [
        ("report.daily", 409, "report.daily was not paused"),
        ("x", 404, "there is no schedule x"),
    ],
)
def test_a_schedule_that_is_not_paused_is_a_conflict(
    site: Site, name: str, code: int, fault: str
):
    make_schedule(site.database.conn, "report.daily")
    asked = {"why": "it has moved", "yes": True}
    path = f"/api/v1/resume-schedule?name={name}"
    answer = site.bearer("olaf").post(path, json=asked)

    assert (answer.status_code, answer.json()["error"]) == (code, fault)


def test_the_api_lists_limits_schedules_and_workers(site: Site):
    make_schedule(site.database.conn, "report.daily")
    make_worker(site.database.conn, "w1")
    api = site.bearer("vera")
    changing = site.bearer("olaf")
    changing.post("/api/v1/set-limit?name=a", json={"why": "x", "yes": True, "rate": 1})

    listed = {what: api.get(f"/api/v1/{what}").json()["rows"] for what in LISTS}

    assert [row["rate"] for row in listed["limits"]] == ["1/s"]
    assert [row["name"] for row in listed["schedules"]] == ["report.daily"]
    assert [(row["name"], row["state"]) for row in listed["workers"]] == [
        ("w1", "working"),
        ("worker-1", "working"),
    ]
    assert "w1" in site.signed_in("vera").get("/workers").text


LISTS = ("limits", "schedules", "workers")
