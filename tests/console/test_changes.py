"""Changes: the preview counts, the form asks why, and the audit log records them."""

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from httpx2 import Response
from starlette.testclient import TestClient

from redrive.dead_letters.campaigns import store as campaign
from redrive.dead_letters.campaigns.drive import drive_all
from redrive.worker import store
from tests.console.conftest import Site, act, csrf
from tests.factories import (
    failure,
    let_next_die,
    make_dead_letter,
    make_dead_letters,
    make_job,
    make_jobs,
    make_worker,
)


def audit(site: Site) -> list[tuple[str, str, str, int]]:
    """Return the audit log, oldest first."""
    query = "select actor, action, why, n from redrive.audit order by id"
    return [tuple(row) for row in site.database.rows(query)]  # type: ignore[misc]


def state(site: Site, job: int) -> str:
    """Return the state of a dead letter."""
    query = "select state from redrive.dead_letters where id = %s order by redrives desc limit 1"
    return str(site.database.value(query, job))


def said(client: TestClient, answer: object) -> str:
    """Return the notice on the page after a change."""
    page = client.get(answer.headers["location"]).text  # type: ignore[attr-defined]
    found = re.search(r'<p class="said" role="status">([^<]+)</p>', page)
    assert found
    return found[1]


def test_a_group_is_redriven_after_a_look(site: Site, olaf: TestClient):
    made = make_dead_letters(site.database.conn, 9)

    page = olaf.get("/change/redrive?group=f1")
    answer = act(olaf, "/change/redrive?group=f1", why="the fix is out")

    assert "Redrive 9 open dead letters" in page.text
    assert "redrive dlq redrive --group f1 --why ..." in page.text
    told = said(olaf, answer)
    drive_all(site.database.conn)

    assert told == "Campaign 1 has started; workers redrive 9 dead letters."
    assert {state(site, job) for job in made} == {"redriven"}
    assert site.database.row(
        "select actor, why, matched, redriven from redrive.campaigns"
    ) == ("token:olaf", "the fix is out", 9, 9)
    assert audit(site)[0] == ("token:olaf", "redrive", "the fix is out", 9)


def test_a_redrive_into_the_version_that_failed_says_so(site: Site, olaf: TestClient):
    conn = site.database.conn
    worker = make_worker(conn)
    make_job(conn)
    record = failure(detail={"version": "1.4.2"})
    let_next_die(conn, worker, failure=record)
    warning = "Only version 1.4.2 is running, in which they failed before."
    assert warning not in olaf.get("/change/redrive?group=f1").text

    store.retire(conn, worker)
    conn.execute(
        "select redrive.register_v1('w', '1.4.2', '1 minute', null, null, null, null)"
    )

    assert warning in olaf.get("/change/redrive?group=f1").text


def test_a_rate_spreads_them_out(site: Site, olaf: TestClient):
    make_dead_letters(site.database.conn, 4)

    act(olaf, "/change/redrive?group=f1", why="slowly", rate="0.5")

    assert site.database.value("select rate from redrive.campaigns") == 0.5
    assert site.database.value("select count(*) from redrive.jobs") < 4
    assert "0.5/s" in olaf.get("/campaigns").text
    make_dead_letters(site.database.conn, 1)
    assert (
        act(olaf, "/change/redrive?group=f1", why="x", rate="fast").status_code == 400
    )


def test_what_would_stay_is_said_before(site: Site, olaf: TestClient):
    job = make_dead_letter(site.database.conn, idempotency_key="k1")
    site.database.rows("update redrive.dead_letters set redrives = 7")

    page = olaf.get(f"/change/redrive?id={job}").text

    assert "1 will stay: redriven too often already; add --max-redrives" in page


def test_what_died_after_the_look_is_not_meant(site: Site, olaf: TestClient):
    make_dead_letters(site.database.conn, 3)
    page = olaf.get("/change/redrive?group=f1").text
    action = re.search(r'method="post" action="(/change/redrive[^"]+)"', page)
    assert action
    late = make_dead_letters(site.database.conn, 2)

    form = {"csrf": csrf(olaf), "why": "the fix is out", "seen": "3"}
    olaf.post(action[1].replace("&amp;", "&"), data=form)
    drive_all(site.database.conn)

    assert {state(site, job) for job in late} == {"open"}
    assert site.database.value("select redriven from redrive.campaigns") == 3


def test_what_is_something_else_by_now_is_looked_at_again(site: Site, olaf: TestClient):
    make_dead_letters(site.database.conn, 3)
    form = {"csrf": csrf(olaf), "why": "the fix is out", "seen": "2"}

    answer = olaf.post("/change/redrive?group=f1", data=form)

    assert answer.status_code == 409
    assert "3 match now, but the preview showed 2; look at it again" in answer.text
    assert audit(site) == []
    assert site.database.value("select count(*) from redrive.campaigns") == 0


def test_two_who_redrive_the_same_at_once_start_one_campaign(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Two replicas plan first, then both start: only the database can decide."""
    made, both_planned = make_dead_letters(site.database.conn, 120), Barrier(2)
    planning = campaign.plan

    def plan(*arguments: Any, **named: Any) -> campaign.Plan:
        planned = planning(*arguments, **named)
        both_planned.wait(30)
        return planned

    def redrive(client: TestClient) -> Response:
        return client.post("/api/v1/redrive?group=f1", json={"why": "now", "yes": True})

    monkeypatch.setattr(campaign, "plan", plan)
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        replica = Site(site.database, tmp_path, stack)
        answers = list(pool.map(redrive, (site.bearer("olaf"), replica.bearer("anna"))))
    monkeypatch.undo()
    again = redrive(site.bearer("anna"))

    assert sorted(answer.status_code for answer in answers) == [200, 409]
    (other,) = (
        answer.json()["error"] for answer in answers if answer.status_code == 409
    )
    assert re.fullmatch(r"campaign \d of token:(olaf|anna) has the same jobs.*", other)
    assert again.status_code == 409
    started = site.database.column(
        "select matched from redrive.campaigns where started_at < now()"
    )
    assert started == [len(made)]


def test_dismiss_reopen_and_note(site: Site, olaf: TestClient):
    job = make_dead_letter(site.database.conn)

    act(olaf, f"/change/note?id={job}", why="the order was withdrawn")
    dismissed = act(olaf, f"/change/dismiss?id={job}", why="won't fix")
    assert (said(olaf, dismissed), state(site, job)) == (
        "1 dead letter dismissed.",
        "dismissed",
    )
    act(olaf, f"/change/reopen?id={job}", why="they want it after all")

    assert state(site, job) == "open"
    assert [line[1] for line in audit(site)] == ["note", "dismiss", "reopen"]
    assert "the order was withdrawn" in olaf.get(f"/jobs/{job}").text


def test_cancel_and_run_now(site: Site, olaf: TestClient):
    ready = make_jobs(site.database.conn, 12)
    later = make_job(
        site.database.conn, "mail.send", run_at=datetime(2099, 1, 1, tzinfo=UTC)
    )

    due = act(olaf, f"/change/now?id={later}", why="the bank is back")
    ended = act(olaf, "/change/cancel?kind=invoice.charge", why="the model is wrong")

    assert said(olaf, due) == "1 job due at once."
    assert said(olaf, ended) == "12 jobs cancelled, 0 running jobs asked to stop."
    assert site.database.column("select id from redrive.jobs") == [later]
    assert len(ready) == 12


def test_a_queue_is_paused_and_resumed(site: Site, olaf: TestClient):
    make_job(site.database.conn)

    assert (
        said(olaf, act(olaf, "/change/pause?queue=default", why="x"))
        == "default is paused."
    )
    assert "default is paused already." in olaf.get("/change/pause?queue=default").text
    assert (
        said(olaf, act(olaf, "/change/resume?queue=default", why="y"))
        == "default is resumed."
    )
    assert (
        "No job has been in a queue &#39;nosuch&#39; yet."
        in olaf.get("/change/pause?queue=nosuch").text
    )
    assert [line[1] for line in audit(site)] == ["pause", "resume"]


def test_a_breaker_is_held_and_reset(site: Site, olaf: TestClient):
    site.database.rows("insert into redrive.breakers (name) values ('bank')")

    act(olaf, "/change/hold-open?name=bank", why="their status page")
    assert "olaf: their status page" in olaf.get("/breakers").text
    act(olaf, "/change/reset?name=bank", why="it is back")

    assert site.database.value("select state from redrive.breakers") == "closed"
    assert "There is no breaker bnak." in olaf.get("/change/reset?name=bnak").text


def test_a_group_is_muted_and_unmuted(site: Site, olaf: TestClient):
    make_dead_letters(site.database.conn, 2)

    act(olaf, "/change/mute?group=f1", why="the fix is on its way")
    assert (
        "2 will stay: its group is muted." in olaf.get("/change/redrive?group=f1").text
    )
    act(olaf, "/change/unmute?group=f1", why="it is out")

    assert "will stay" not in olaf.get("/change/redrive?group=f1").text


def test_a_group_is_resolved_in_a_version_and_opened_again(
    site: Site, olaf: TestClient
):
    make_dead_letters(site.database.conn, 2)

    refused = act(olaf, "/change/resolve?group=f1", why="fixed", **{"in": "3f2a91c"})
    assert "in: &#39;3f2a91c&#39; has no order" in refused.text
    fixes = {"in": "1.4.2, 1.3.9"}
    act(olaf, "/change/resolve?group=f1", why="null amounts", **fixes)
    page = olaf.get("/groups/f1").text
    assert "resolved in 1.3.9, 1.4.2 (0 since)</span> by token:olaf" in page
    assert "null amounts" in page
    assert "/change/unresolve?group=f1" in page
    assert "resolved in 1.3.9, 1.4.2" in olaf.get("/groups?state=resolved").text
    assert "resolved in" not in olaf.get("/groups?state=regressed").text
    assert "state is" in olaf.get("/groups?state=done").text

    act(olaf, "/change/unresolve?group=f1", why="it was not the fix")
    page = olaf.get("/groups/f1").text
    assert "resolved in" not in page
    assert "/change/unresolve" not in page
    seen = olaf.get("/change/unresolve?group=f1").text
    assert "The group is not resolved." in seen


def test_a_group_is_acknowledged_and_shows_its_owner(site: Site, olaf: TestClient):
    """A page says whose a group is, and whether somebody works on it."""
    make_dead_letters(site.database.conn, 2)
    site.database.rows("select redrive.set_owner_v1('*', '*', 'money', null, 'a', 'b')")
    waiting = "/groups?unacknowledged=yes&owner=money"
    found = olaf.get(waiting).text
    assert "owner money" in found
    assert "redrive dlq groups --unacknowledged --owner money" in found

    act(olaf, "/change/acknowledge?group=f1", why="on the phone")

    assert "No group matches" in olaf.get(waiting).text
    page = olaf.get("/groups/f1").text
    assert "by token:olaf: on the phone" in page
    assert "Unacknowledge…" in page
    (listed,) = olaf.get("/api/v1/groups?owner=money").json()["rows"]
    assert (listed["owner"], listed["acknowledged_by"]) == ("money", "token:olaf")
    act(olaf, "/change/unacknowledge?group=f1", why="ill")
    assert "owner money" in olaf.get(waiting).text
    assert "money" in olaf.get("/queues").text


@pytest.mark.parametrize(
    ("path", "said_so"),
    [
        ("/change/redrive", "Choose a filter first."),
        ("/change/redrive?kind=no.such", "Nothing matches"),
        ("/change/cancel", "Choose a filter first."),
    ],
)
def test_what_cannot_be_done_has_no_form(olaf: TestClient, path: str, said_so: str):
    page = olaf.get(path).text

    assert said_so in page
    assert 'class="act"' not in page


def test_nobody_changes_everything_by_leaving_the_filter_out(site: Site):
    dead, live = make_dead_letter(site.database.conn), make_job(site.database.conn)
    api, patch = site.bearer("olaf"), [{"op": "add", "path": "/n", "value": 1}]

    for word in ("redrive", "campaign-plan", "dismiss", "cancel", "now", "edit"):
        body = {"why": "x", "yes": True} | ({"patch": patch} if word == "edit" else {})
        answer = api.post(f"/api/v1/{word}", json=body)
        assert (answer.status_code, "Choose a filter" in answer.text) == (400, True), (
            word
        )

    assert (state(site, dead), audit(site)) == ("open", [])
    assert site.database.column("select id from redrive.jobs") == [live]


def test_the_api_shows_first_and_does_with_yes(site: Site):
    make_dead_letters(site.database.conn, 3)
    api = site.bearer("olaf")

    shown = api.post("/api/v1/redrive?group=f1", json={"why": "x"}).json()
    none = api.post("/api/v1/redrive?group=f1", json={"yes": True})
    done = api.post("/api/v1/redrive?group=f1", json={"why": "x", "yes": True}).json()

    assert (shown["matched"], shown["done"]) == (3, False)
    assert (none.status_code, "why is missing" in none.json()["error"]) == (400, True)
    assert done["done"]
    assert (done["matched"], done["state"], done["campaign"]) == (3, "waiting", 1)
    assert api.get("/api/v1/campaigns").json()["rows"][0]["why"] == "x"


@pytest.mark.parametrize(
    "body",
    [
        *(b"{", b"[]", b'{"why": 1}', b'{"whyy": "x"}', b"\xff", b'{"rate": "fast"}'),
        b'{"why": "x", "why": "y"}',
    ],
)
def test_a_body_that_is_none_is_refused(site: Site, body: bytes):
    headers = {"content-type": "application/json"}

    answer = site.bearer("olaf").post(
        "/api/v1/redrive?id=1", content=body, headers=headers
    )

    assert answer.status_code == 400
    assert answer.json()["error"].startswith("the body")


def test_more_than_one_request_may_change_is_for_the_command_line(
    site: Site, olaf: TestClient, monkeypatch: pytest.MonkeyPatch
):
    make_dead_letters(site.database.conn, 6)
    monkeypatch.setattr("redrive.verbs.verb.MOST", 5)

    page = olaf.get("/change/dismiss?group=f1").text
    asked = site.bearer("olaf").post(
        "/api/v1/dismiss?group=f1", json={"why": "x", "yes": True}
    )

    assert "More than 5 match." in page
    assert asked.status_code == 409
    assert audit(site) == []


def test_the_console_comes_back_with_its_database(site: Site, olaf: TestClient):
    """The connections were cut, as by a restart; the next page opens new ones."""
    assert olaf.get("/").status_code == 200
    site.database.rows(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name like 'redrive console%' and datname = current_database()"
    )

    assert olaf.get("/").status_code == 200


def test_many_go_after_their_canaries(site: Site, olaf: TestClient):
    make_dead_letters(site.database.conn, 120)

    page = olaf.get("/change/redrive?group=f1").text
    done = act(olaf, "/change/redrive?group=f1", why="the fix is out")

    assert (
        "3 go first; if more than 10% of any ten die again, it stops after at most 21"
        in page
    )
    assert "workers redrive 120 dead letters" in said(olaf, done)
    drive_all(site.database.conn)
    assert site.database.value("select count(*) from redrive.jobs") == 3


def test_a_kind_that_needs_two_needs_two_logins(site: Site, olaf: TestClient):
    job = make_dead_letter(site.database.conn)
    site.database.rows("insert into redrive.approvals (kind) values ('invoice.charge')")

    answer = act(olaf, f"/change/redrive?id={job}", why="alone")

    assert (answer.status_code, "approval" in answer.text) == (409, True)
    assert state(site, job) == "open"


def test_a_payload_is_revealed_once_to_who_says_why(site: Site, olaf: TestClient):
    """Only the response holds the payload; no address and no log does."""
    dead = make_dead_letter(site.database.conn, payload={"password": "hunter2"})
    live = make_job(site.database.conn, payload={"password": "hunter3"})

    page = act(olaf, f"/change/reveal?id={dead}", why="the bank asks")
    call = site.bearer("olaf").post(
        f"/api/v1/reveal?id={live}", json={"why": "they ask again", "yes": True}
    )

    assert (page.status_code, "hunter2" in page.text) == (200, True)
    assert page.headers["cache-control"] == "no-store"
    assert call.json()["payload"] == {"password": "hunter3"}
    assert "hunter2" not in olaf.get(f"/jobs/{dead}").text
    assert audit(site) == [
        ("token:olaf", "reveal", "the bank asks", 1),
        ("token:olaf", "reveal", "they ask again", 1),
    ]
    assert "No payload of job 999 is kept." in olaf.get("/change/reveal?id=999").text
