"""Redrives from the console: plan, start, pause, live progress; and edits."""

import html
import re

import pytest
from psycopg.conninfo import make_conninfo
from pydantic import BaseModel
from starlette.testclient import TestClient

from redrive.database.connections.address import Address
from redrive.dead_letters.campaigns.drive import drive_all
from redrive.dead_letters.campaigns.store import plan
from redrive.dead_letters.filter import Filter
from redrive.extras.console.app import application
from redrive.extras.console.security.access import Role
from redrive.extras.console.security.logins import Logins
from redrive.handlers import Handlers
from redrive.verbs import redrives
from redrive.verbs import verb as change
from tests.console.conftest import Site, act, login
from tests.factories import make_dead_letter, make_dead_letters
from tests.postgres import Database
from tests.sql.test_edit import edit

IBAN = [{"op": "replace", "path": "/iban", "value": "DE02"}]
WRONG = '[{"op": "replace", "path": "/currency", "value": "EUR"}]'


def shown(database: Database, *columns: str) -> tuple[object, ...]:
    """Return the last campaign, as the database has it."""
    query = (
        f"select {', '.join(columns)} from redrive.campaigns order by id desc limit 1"
    )
    return database.row(query)  # type: ignore[arg-type, no-any-return]


def test_a_redrive_to_another_queue_is_asked_for_in_the_form(
    site: Site, olaf: TestClient
):
    """The form and the API take the queue, and warn if nobody works there."""
    (job,) = make_dead_letters(site.database.conn, 1)
    path = f"/change/redrive?id={job}"

    assert 'name="to-queue"' in olaf.get(path).text
    told = olaf.get(f"/estimate/redrive?id={job}&seen=1&to-queue=slow").text
    assert "They go to the queue slow. No live worker works on any kind in" in told
    assert f"redrive dlq redrive --id {job} --to-queue slow --why ..." in told
    body = {"why": "w", "yes": True, "to_queue": "slow queue"}
    api = site.bearer("olaf")
    refused = api.post(f"/api/v1/redrive?id={job}", json=body)
    assert (refused.status_code, "to-queue is" in refused.text) == (400, True)
    done = api.post(f"/api/v1/redrive?id={job}", json=body | {"to_queue": "slow"})
    assert done.status_code == 200
    drive_all(site.database.conn)
    assert site.database.value("select queue from redrive.jobs") == "slow"


def test_terms_are_kept_and_the_next_page_is_the_campaigns(
    site: Site, olaf: TestClient
):
    make_dead_letters(site.database.conn, 12)
    terms = {"rate": "4", "canaries": "2", "abort-share": "0.5"}
    terms |= {"when-breaker": "bank:closed", "when-version": ">=1.4"}

    answer = act(olaf, "/change/redrive?group=f1", why="the fix is out", **terms)
    page = olaf.get(answer.headers["location"]).text

    assert shown(site.database, "rate", "canaries", "abort_share", "conditions") == (
        4.0,
        2,
        0.5,
        {"breakers": {"bank": "closed"}, "version": ">=1.4"},
    )
    assert "Campaign 1" in page
    assert 'hx-get="/campaigns/1"' in page
    assert "Pause…" in page


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rate", "0"),
        ("canaries", "-1"),
        ("abort-share", "2"),
        ("not-before", "soon"),
        ("when-breaker", "bank"),
        ("when-version", "new"),
    ],
)
def test_a_bad_term_is_named_and_nothing_is_planned(
    site: Site, olaf: TestClient, field: str, value: str
):
    make_dead_letter(site.database.conn)

    answer = act(olaf, "/change/redrive?group=f1", why="x", **{field: value})

    assert (
        answer.status_code,
        f"{field} is {value!r}" in answer.text.replace("&#39;", "'"),
    ) == (400, True)
    assert site.database.value("select count(*) from redrive.campaigns") == 0


def test_what_terms_mean_is_said_while_they_are_typed_and_the_command_has_them(
    olaf: TestClient,
):
    def told(word: str, query: str) -> tuple[str, str]:
        text, _, command = olaf.get(f"/estimate/{word}?{query}").text.partition(
            "<span "
        )
        return text, html.unescape(
            command.partition("<code>")[2].partition("</code>")[0]
        )

    usual = "seen=12000&canaries=3&abort-share=0.1"
    text, command = told("redrive", f"group=f1&{usual}&rate=5")
    assert text.startswith(
        "Takes 40 min at least. 3 go first; if more than 10% of any ten"
    )
    assert command == "redrive dlq redrive --group f1 --rate 5 --why ..."
    text, _ = told("redrive", f"group=f1&{usual}&rate=5&allowed=2")
    assert text.startswith("Takes 100 min at least."), "its handler allows no more"
    _, command = told(
        "redrive", "id=17&seen=1&canaries=0&abort-share=0.1&when-version=>=1.4"
    )
    assert command == ("redrive dlq redrive --id 17 --when-version '>=1.4' --why ...")
    _, command = told("campaign-start", f"campaign=9&{usual}&canaries=7&rate=<b>")
    assert command == ""
    _, command = told(
        "campaign-start", "campaign=9&seen=12000&canaries=7&abort-share=0.1"
    )
    assert command == "redrive campaign start 9 --canaries 7 --why ..."
    assert "rate is" in told("redrive", "id=1&seen=1&rate=<b>")[0]
    assert "<b>" not in told("redrive", "id=1&seen=1&rate=<b>")[0]


def test_of_very_many_all_are_counted_and_the_oldest_looked_at(
    site: Site, olaf: TestClient, monkeypatch: pytest.MonkeyPatch
):
    conn = site.database.conn
    first = make_dead_letters(conn, 3)
    make_dead_letters(conn, 2, kind="mail.send")
    conn.execute(
        "update redrive.dead_letters set redrives = 5 where id = %s", (first[0],)
    )
    for module in (redrives, change):
        monkeypatch.setattr(module, "MOST", 3)

    page = olaf.get("/change/redrive?queue=default").text
    few = olaf.get("/change/redrive?kind=mail.send").text
    done = act(olaf, "/change/redrive?group=f1", why="x")

    assert '<p class="big">5 <small>open dead letters</small></p>' in page
    assert "Causes and exclusions below cover only the oldest 4." in page
    assert "1 will stay" in page
    assert "cover only the oldest" not in few
    assert done.status_code == 303
    assert site.database.value("select matched from redrive.campaigns") == 5


def test_a_plan_is_started_by_somebody_in_another_role(site: Site):
    """Each role has its own login, and Postgres tells two people apart by their logins."""
    conn = site.database.conn
    make_dead_letters(conn, 3)
    edit(
        conn,
        make_dead_letter(conn, payload={"iban": "DE01"}),
        {"iban": "DE02"},
        patch=IBAN,
    )
    conn.execute(
        "select redrive.say_approvals_v1('{invoice.charge}', '{invoice.charge}')"
    )
    conn.execute(
        "do $$ begin create role redrive_test_approver login in role redrive_operator,"
        " redrive_console;"
        " exception when duplicate_object then end $$"
    )
    other = make_conninfo(site.database.url, user="redrive_test_approver")
    urls = {
        Role.OPERATOR: login(site.database, "redrive_operator"),
        Role.APPROVER: other,
    }
    logins = Logins({role: Address(url) for role, url in urls.items()})
    site.app = application(site.access, logins)
    olaf, anna = site.signed_in("olaf"), site.signed_in("anna")

    page = olaf.get("/change/redrive?group=f1").text
    action, hidden = _form(page, "formaction")
    planned = olaf.post(action, data=hidden)
    alone = olaf.get("/change/campaign-start?campaign=1").text
    seen = anna.get("/change/campaign-start?campaign=1").text
    started = act(anna, "/change/campaign-start?campaign=1", why="looked at it")
    drive_all(conn)

    assert "needs two people. Plan the redrive here" in page
    assert planned.headers["location"].startswith("/campaigns/1?")
    assert "a user in another role must start it" in alone
    assert "1 payload was edited by ada (login" in seen, "the second person sees it"
    assert "replace /iban: &#34;DE02&#34;" in seen
    assert "a typo" in seen
    assert started.headers["location"].startswith("/campaigns/1?")
    assert shown(site.database, "planned_by", "actor", "redriven") == (
        "token:olaf",
        "token:anna",
        3,
    )
    logins.close()


def _form(page: str, attribute: str) -> tuple[str, dict[str, str]]:
    """Return the address of a button of the form, and the hidden fields."""
    action = re.search(rf'{attribute}="([^"]+)"', page)
    assert action
    fields = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page)
    return action[1].replace("&amp;", "&"), dict(fields)


def test_a_plan_that_found_nothing_is_not_offered(site: Site, olaf: TestClient):
    """A scheduled run leaves such a plan each hour while all is well."""
    planned = "Planned, not started"
    plan(site.database.conn, Filter(kind=("no.such",)), actor="redrive")
    assert planned not in olaf.get("/campaigns").text

    make_dead_letter(site.database.conn)
    plan(site.database.conn, Filter(), actor="olaf")

    assert planned in olaf.get("/campaigns").text


def test_what_handlers_cannot_take_is_left_out_and_not_edited_in(site: Site):
    """The console has the handlers."""
    jobs = Handlers()

    @jobs.handle("invoice.charge")
    def charge(payload: Invoice) -> None:
        del payload

    good, bad = (
        make_dead_letter(site.database.conn, payload={"n": n}) for n in (1, "one")
    )
    site.app = application(site.access, site.logins, jobs)
    olaf, wrong = site.bearer("olaf"), [{"op": "replace", "path": "/n", "value": "x"}]

    edited = olaf.post(f"/api/v1/edit?id={good}", json={"patch": wrong}).json()
    planned = olaf.post("/api/v1/campaign-plan?group=f1", json={"yes": True}).json()
    olaf.post("/api/v1/campaign-start?campaign=1", json={"why": "x", "yes": True})
    drive_all(site.database.conn)

    assert (edited["invalid"], planned["plan"]) == (1, 1)
    assert shown(site.database, "redriven") == (1,)
    assert site.database.column("select id from redrive.jobs") == [good]
    page = site.signed_in("vera").get("/campaigns/1").text
    assert "invalid: n: int parsing" in page
    assert "Pause…" not in page
    assert site.database.column(
        "select state from redrive.dead_letters where id = %s", bad
    ) == ["open"]


class Invoice(BaseModel):
    """Payload of the handler."""

    n: int


def test_a_campaign_is_paused_resumed_and_cancelled(site: Site, olaf: TestClient):
    make_dead_letters(site.database.conn, 120)
    act(olaf, "/change/redrive?group=f1", why="the fix is out")
    seen: list[object] = []
    for word in ("pause", "resume", "cancel"):
        act(olaf, f"/change/campaign-{word}?campaign=1", why=f"to {word}")
        drive_all(site.database.conn)
        seen += shown(site.database, "state")

    assert seen == ["paused", "canary", "cancelled"]
    assert (
        "Campaign 1 is cancelled; only a running campaign"
        in olaf.get("/change/campaign-pause?campaign=1").text
    )
    assert site.database.value("select count(*) from redrive.jobs") == 0
    assert site.database.column("select why from redrive.audit order by id") == [
        "the fix is out",
        "to pause",
        "to resume",
        "to cancel",
    ]
    assert olaf.get("/campaigns/7").status_code == 404


# ---------------------------------------------------------------------- progress


def test_a_page_asks_for_its_progress_until_the_campaign_is_over(
    site: Site, olaf: TestClient
):
    make_dead_letter(site.database.conn)
    act(olaf, "/change/redrive?group=f1", why="x")

    going = olaf.get("/campaigns/1").text
    act(olaf, "/change/campaign-cancel?campaign=1", why="x")
    over = olaf.get("/campaigns/1").text

    assert 'hx-get="/campaigns/1" hx-trigger="every 2s"' in going
    assert "hx-get" not in over


# ---------------------------------------------------------------------- edits


def test_a_group_is_edited_after_a_look_at_the_diff(site: Site, olaf: TestClient):
    for currency in ("EURO", "EURO", "EUR"):
        make_dead_letter(
            site.database.conn, payload={"currency": currency, "token": "s3cret"}
        )

    form = _form(
        olaf.get("/change/edit?group=f1").text, 'class="act" method="post" action'
    )
    look = olaf.post(form[0], data=form[1] | {"patch": WRONG}).text
    path, hidden = _form(look, 'class="act" method="post" action')
    hidden["patch"] = WRONG
    done = olaf.post(path, data=hidden | {"why": "the importer wrote EURO"})

    assert "2 to edit" in look
    assert "1 will stay: it changes nothing." in look
    assert '<span class="add">+  &#34;currency&#34;: &#34;EUR&#34;' in look
    assert "s3cret" not in look
    assert done.headers["location"].startswith("/groups/f1?")
    assert (
        site.database.column("select payload ->> 'currency' from redrive.dead_letters")
        == ["EUR"] * 3
    )
    assert site.database.row("select action, why, n, actor from redrive.audit") == (
        "edit",
        "the importer wrote EURO",
        2,
        "token:olaf",
    )


def test_one_payload_is_edited_as_it_reads_and_its_secrets_stay(
    site: Site, olaf: TestClient
):
    job = make_dead_letter(
        site.database.conn, payload={"lines": [1], "token": "s3cret"}
    )
    page = olaf.get(f"/change/edit?id={job}").text
    path, hidden = _form(page, 'class="act" method="post" action')

    look = olaf.post(
        path, data=hidden | {"payload": '{"lines": [1, 2], "token": "[redacted]"}'}
    )
    lost = olaf.post(
        path, data=hidden | {"payload": '{"lines": [1], "token": "no [redacted]"}'}
    )

    assert "s3cret" not in page
    assert "&#34;lines&#34;: [\n" in page
    assert "1 to edit" in look.text
    assert "[redacted] stands for a value that is not shown" in lost.text


def test_what_is_another_by_now_is_looked_at_again(site: Site, olaf: TestClient):
    job = make_dead_letter(site.database.conn, payload={"currency": "EURO"})
    form = {"patch": WRONG, "mark": "of another look", "why": "x"}
    _, hidden = _form(olaf.get(f"/change/edit?id={job}").text, "action")

    answer = olaf.post(f"/change/edit?id={job}", data=hidden | form)

    assert (
        answer.status_code,
        "some dead letters have changed; look at the preview again" in answer.text,
    ) == (409, True)
    assert site.database.value("select count(*) from redrive.audit") == 0


def test_the_api_edits_as_the_page_does(site: Site):
    make_dead_letter(site.database.conn, payload={"currency": "EURO"})
    api = site.bearer("olaf")
    patch = [{"op": "replace", "path": "/currency", "value": "EUR"}]

    shown_first = api.post("/api/v1/edit?group=f1", json={"patch": patch}).json()
    bad = api.post("/api/v1/edit?group=f1", json={"patch": [{"op": "put"}]})
    done = api.post(
        "/api/v1/edit?group=f1", json={"patch": patch, "why": "x", "yes": True}
    ).json()

    assert (shown_first["done"], shown_first["matched"]) == (False, 1)
    assert '+  "currency": "EUR"' in shown_first["remarks"][0]
    assert (bad.status_code, "must be one of add, remove" in bad.json()["error"]) == (
        400,
        True,
    )
    assert (done["done"], done["edited"], done["invalid"]) == (True, 1, 0)


def test_the_rate_of_the_handler_is_in_the_estimate(site: Site, olaf: TestClient):
    """As on the command line: of the form, of a plan, and of what is left to do."""
    conn = site.database.conn
    said = '{"invoice.charge": {"rate": 0.5, "repeatable": true}}'
    conn.execute("select redrive.declare_redrives_v1('{invoice.charge}', %s)", (said,))
    make_dead_letters(conn, 15)

    form = olaf.get("/change/redrive?group=f1").text
    act(olaf, "/change/campaign-plan?group=f1", rate="4")
    plan = olaf.get("/change/campaign-start?campaign=1").text
    act(olaf, "/change/campaign-start?campaign=1", rate="4", why="x")
    drive_all(conn)
    campaign = olaf.get("/campaigns/1").text

    assert "Takes 30 s at least." in form
    assert '<input type="hidden" name="allowed" value="0.5">' in form
    assert "Takes 30 s at least." in plan
    assert re.search(r"2\d s left at the full rate", campaign)


def test_the_console_asks_for_a_word_and_the_api_for_a_field(
    site: Site, olaf: TestClient
):
    """The preview names what stays; only ids can be repeated."""
    conn = site.database.conn
    said = '{"invoice.charge": {"rate": 2, "repeatable": false}}'
    conn.execute("select redrive.declare_redrives_v1('{invoice.charge}', %s)", (said,))
    once, bad = make_dead_letter(conn), make_dead_letter(conn, "read")
    conn.execute(
        "update redrive.dead_letters set category = 'invalid' where id = %s", (bad,)
    )
    api = site.bearer("olaf")
    by_id, by_kind = f"redrive?id={once}", "redrive?kind=read"
    yes = {"why": "x", "yes": True}

    page = olaf.get(f"/change/{by_id}").text
    assert "type repeat" in page
    assert "at most 2 per second over all campaigns" in page
    assert "type include" in olaf.get(f"/change/{by_kind}").text
    assert "type repeat" not in olaf.get("/change/redrive?kind=invoice.charge").text
    assert "A redrive leaves it where it is" in olaf.get(f"/jobs/{bad}").text
    remarks = api.post(f"/api/v1/{by_id}", json={}).json()["remarks"]
    assert any("must not run twice" in remark for remark in remarks)
    assert api.post(f"/api/v1/{by_id}", json=yes).json()["redriven"] == 0
    wrong = api.post("/api/v1/redrive?queue=default", json=yes | {"repeat": True})
    assert (wrong.status_code, "needs ids" in wrong.text) == (400, True)
    assert act(olaf, f"/change/{by_id}", why="x", repeat="yes").status_code == 400
    act(olaf, f"/change/{by_id}", why="x", repeat="repeat")
    drive_all(conn)
    assert shown(site.database, "redriven") == (1,)
    assert "at most 2 a second" in olaf.get("/campaigns/2").text
    done = api.post(f"/api/v1/{by_kind}", json=yes | {"include_invalid": True})
    assert done.status_code == 200
    drive_all(conn)
    assert shown(site.database, "redriven") == (1,)
