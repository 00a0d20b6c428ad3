"""Pages show the lists of the command line, with its filters and its words."""

import html
import json
import re
import shlex
from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

from redrive.cli.main import cli, main
from redrive.cli.support.output import printable
from redrive.database.criteria import Criteria
from redrive.dead_letters import triage
from redrive.dead_letters.campaigns import store as campaigns
from redrive.dead_letters.campaigns.terms import Terms
from redrive.dead_letters.edit import store as edits
from redrive.dead_letters.edit.patch import Patch
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.find import FACTS
from redrive.dead_letters.find import show as show_letter
from redrive.extras.console.app import application
from redrive.extras.console.links import Links
from redrive.extras.console.pages.sections.timeline import timeline
from redrive.handlers import Handlers
from redrive.jobs.filter import JobFilter
from redrive.jobs.show import show as story
from redrive.jobs.show import show_with_letter
from redrive.overview.figures import troubles
from redrive.rules.attempts.circumstances import circumstances
from redrive.verbs.query import name_of
from tests.commands import commands
from tests.console.conftest import Site
from tests.factories import (
    failure,
    make_dead_letter,
    make_dead_letters,
    make_job,
    make_jobs,
    make_worker,
    settle_next,
)


def ids(text: str) -> list[int]:
    """Return the jobs that the rows of a page link to, in their order."""
    return [
        int(found)
        for found in re.findall(
            r'<td class="c-id[^"]*"[^>]*><a href="/jobs/(\d+)"', text
        )
    ]


def walked(client: TestClient, path: str | None) -> list[int]:
    """Return the jobs of a list and all its next pages."""
    found: list[int] = []
    while path:
        page = client.get(path)
        assert page.status_code == 200, page.text
        found += ids(page.text)
        onward = re.search(r'<a href="([^"]+)" rel="next"', page.text)
        path = onward and onward[1].replace("&amp;", "&")
    return found


def test_pages_of_dead_letters_hold_each_once(site: Site, olaf: TestClient):
    made = make_dead_letters(site.database.conn, 120)
    other = make_dead_letters(site.database.conn, 5, kind="mail.send")

    assert sorted(walked(olaf, "/dead-letters")) == sorted(made + other)
    assert sorted(walked(olaf, "/dead-letters?kind=invoice.charge")) == made
    assert sorted(walked(olaf, "/dead-letters?state=any&kind=mail.send")) == other


def test_pages_of_live_jobs_hold_each_once_in_their_order(site: Site, olaf: TestClient):
    made = make_jobs(site.database.conn, 120)

    assert walked(olaf, "/jobs") == made
    assert walked(olaf, "/jobs?state=ready&queue=default") == made
    assert walked(olaf, "/jobs?state=running") == []


def test_a_job_tells_its_story_and_why(site: Site, olaf: TestClient):
    conn = site.database.conn
    dead = make_dead_letter(conn, payload={"order": 17, "password": "hunter2"})
    triage.note(conn, dead, "the bank knows", actor="ada")
    waits = make_job(conn, "mail.send", queue="mail")

    page, other = olaf.get(f"/jobs/{dead}").text, olaf.get(f"/jobs/{waits}").text

    for said in (
        "no such invoice",
        "not_retryable",
        "the bank knows",
        "app/jobs.py:3 in charge",
    ):
        assert said in page
    assert "hunter2" not in page
    assert "[redacted]" in page
    assert f"/change/redrive?id={dead}" in page
    why, _, ago = story(conn, waits)["why"]["text"].rpartition(" was seen ")
    assert ago.endswith(" ago")  # a second may have passed
    assert why[1:] in html.unescape(other)
    assert f"/change/cancel?id={waits}" in other
    assert olaf.get("/jobs/999999").status_code == 404
    assert olaf.get("/jobs/x").status_code == 404
    assert olaf.get(f"/find?id={dead}").headers["location"] == f"/jobs/{dead}"


def test_the_page_of_a_dead_letter_reads_each_table_of_its_facts_once(
    site: Site, olaf: TestClient, monkeypatch: pytest.MonkeyPatch
):
    dead = make_dead_letter(site.database.conn)
    execute = psycopg.Cursor.execute
    said: list[str] = []

    def noted(cursor: Any, statement: Any, *rest: Any, **more: Any) -> Any:
        said.append(" ".join(str(statement).split()))
        return execute(cursor, statement, *rest, **more)

    monkeypatch.setattr(psycopg.Cursor, "execute", noted)
    assert olaf.get(f"/jobs/{dead}").status_code == 200

    for facts in ("failures", "side_effects", "edits"):
        read = [one for one in said if f"from redrive.{facts} where job" in one]
        assert len(read) == 1, facts


def test_the_page_of_a_job_knows_its_steps_by_kind_and_not_by_words(site: Site):
    conn = site.database.conn
    dead = make_dead_letter(conn)
    triage.note(conn, dead, "the bank knows", actor="ada")
    told = show_with_letter(conn, dead)
    assert told is not None
    for step in told.job["story"]:
        step["what"] = "in other words"

    steps = timeline(told.job, told.letter)

    assert [(step["kind"], step["look"]) for step in steps] == [
        ("enqueued", "run"),
        ("failure", "bad"),
        ("death", "bad"),
        ("note", "off"),
    ]
    assert steps[1]["failure"]["error_class"] == "ValueError"


def test_the_page_of_a_dead_letter_names_the_campaign_that_will_redrive_it(
    site: Site, olaf: TestClient
):
    dead = make_dead_letter(site.database.conn)
    planned = campaigns.plan(site.database.conn, Filter(), actor="ada").plan
    assert planned is not None
    assert "This job died after" in olaf.get(f"/jobs/{dead}").text

    campaigns.start(site.database.conn, planned, Terms(), actor="ada", why="fixed")

    assert f"campaign {planned} will redrive it." in olaf.get(f"/jobs/{dead}").text


def test_each_edit_of_a_payload_is_shown_without_its_secrets(
    site: Site, olaf: TestClient
):
    conn = site.database.conn
    dead = make_dead_letter(conn, payload={"currency": "EURO", "password": "hunter2"})
    for path, value in (("currency", "EUR"), ("password", "hunter3")):
        patch: Patch = [{"op": "replace", "path": f"/{path}", "value": value}]
        seen = edits.preview(edits.find(conn, Filter(ids=(dead,))), patch, Handlers())
        edits.edit(
            conn, seen, patch, handlers=Handlers(), why=f"new {path}", actor="ada"
        )

    page = olaf.get(f"/jobs/{dead}").text

    assert re.search("<del>-.*EURO.*</del>", page)
    assert re.search("<ins>.*EUR&#34;.*</ins>", page)
    assert "new currency" in page
    assert "The change is secret and not shown." in page
    assert "hunter" not in page


def test_a_failure_leads_to_its_trace_and_a_job_to_its_log_lines(site: Site):
    dead = make_dead_letter(site.database.conn)
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    site.database.rows(
        "update redrive.failures set detail = detail || %s::jsonb",
        f'{{"trace_id": "{trace}"}}',
    )
    links = Links("https://t.example/{trace_id}", "https://l.example/?job={job_id}&x=1")
    site.app = application(site.access, site.logins, links=links)

    page = site.signed_in("olaf").get(f"/jobs/{dead}").text

    assert f'<a href="https://t.example/{trace}" rel="noreferrer">{trace}</a>' in page
    assert f'<a href="https://l.example/?job={dead}&amp;x=1" rel="noreferrer">' in page


def test_an_alert_about_a_failing_kind_leads_to_its_cause_and_its_jobs(
    site: Site, olaf: TestClient
):
    """From the link of the alert to the group, and to a job that waits."""
    conn = site.database.conn
    worker = make_worker(conn)
    job, *_ = make_jobs(conn, 20, "webhook.deliver")
    for _ in range(20):
        fault = failure(fingerprint="f503", category="transient", message="503")
        settle_next(conn, worker, "retry", delay=3600, failure=fault)

    overview = olaf.get("/").text
    causes = olaf.get("/groups?kind=webhook.deliver").text
    group = olaf.get("/groups/f503").text
    of_job = olaf.get(f"/jobs/{job}").text
    report = olaf.get("/report").text

    sentence = "webhook.deliver: 100% of attempts fail since"
    assert sentence in overview
    assert 'href="/groups/f503"' in causes
    assert "/change/retry?group=f503" in group
    assert re.search(r"Failures of [a-z.]+, for all causes", group)
    assert "failed attempts" in group
    assert f"/jobs/{job}" in group
    assert re.search(rf'<a href="/groups/f503">{sentence}', of_job)
    assert "20 failing now; they are retried." in report
    assert sentence in report


def test_a_group_gathers_what_died_of_the_same(site: Site, olaf: TestClient):
    make_dead_letters(site.database.conn, 7)

    page = olaf.get("/groups").text
    one = olaf.get("/groups/f1").text

    assert "invoice.charge: ValueError" in page
    assert "<strong>7</strong>" in page
    assert '<svg class="spark bad"' in page
    assert "/change/redrive?group=f1" in one
    assert len(ids(one)) == 7
    assert olaf.get("/groups/nothing").status_code == 404


def test_the_stack_comes_first_with_its_source(site: Site, olaf: TestClient):
    frame = {"file": "app/jobs.py", "line": 3, "function": "charge", "own": True}
    frame |= {"first_line": 2, "source": ["rate = 0", "return total / rate"]}
    dead = make_dead_letter(site.database.conn)
    site.database.rows(
        "update redrive.failures set detail = %s::jsonb", json.dumps({"stack": [frame]})
    )

    group = olaf.get("/groups/f1").text
    job = olaf.get(f"/jobs/{dead}").text

    line = '<span class="here"><i>3</i> return total / rate</span>'
    assert (
        group.index("no such invoice") < group.index(line) < group.index("first seen")
    )
    assert job.index("no such invoice") < job.index(line) < job.index("Timeline")
    assert job.count(line) == 1


def test_the_overview_counts_all_live_workers(site: Site, olaf: TestClient):
    """Also more than the 50 workers that a list shows, and no lost one."""
    for n in range(52):
        make_worker(site.database.conn, f"w{n}")
    site.database.rows(
        "update redrive.workers set lost_at = clock_timestamp() where name = 'w0'"
    )

    assert '<a href="/workers">51</a>' in olaf.get("/").text


def test_the_page_of_a_job_says_where_it_failed(site: Site, olaf: TestClient):
    """With the same words as on the command line."""
    detail = {
        "exit": "killed by signal 9",
        "peak_memory_bytes": 52 << 20,
        "pod": "worker-7d9f4",
        "node": "n<1>",
        "version": "1.4.2",
    }
    (job,) = make_dead_letters(site.database.conn, 1)
    site.database.rows("update redrive.failures set detail = %s", json.dumps(detail))

    page = html.unescape(olaf.get(f"/jobs/{job}").text)

    known = "killed by signal 9, peak memory 52 MiB, pod worker-7d9f4, node n<1>"
    assert f"{known}, version 1.4.2" in page
    assert known in ", ".join(circumstances(detail))


def test_a_fact_of_a_dead_letter_is_in_both_commands_and_on_its_page(
    site: Site, olaf: TestClient, capsys: pytest.CaptureFixture[str]
):
    """One line of `FACTS` is enough for all three."""
    conn = site.database.conn
    job = make_dead_letter(conn, tenant="acme", ordering_key="k 1", max_attempts=7)
    triage.assign(conn, [job], "ada", actor="bo", why="she knows the bank")
    letter = show_letter(conn, job)
    assert letter is not None

    page = olaf.get(f"/jobs/{job}").text
    for words in (("dlq", "show"), ("job", "show")):
        assert main([*words, str(job), "--database-url", site.database.url]) == 0
        shown = capsys.readouterr().out
        for name in FACTS:
            label = name.replace("_", " ")
            assert f"{label} {printable(letter[name])}" in shown
            assert f"<dt>{label}</dt>" in page

    assert {letter[name] for name in FACTS} > {"ada", "acme", "k 1", 7}


def test_an_empty_overview_says_how_to_begin(site: Site, olaf: TestClient):
    """It has no charts of nothing. A worker without jobs leaves one step to do."""
    empty = html.unescape(olaf.get("/").text)
    make_worker(site.database.conn)
    alive = html.unescape(olaf.get("/").text)
    make_jobs(site.database.conn, 1)
    begun = olaf.get("/").text
    make_dead_letters(site.database.conn, 1)
    died = olaf.get("/").text

    for page, worker in ((empty, 1), (alive, 0)):
        assert page.count("redrive worker --handlers module:jobs") == worker
        assert "redrive enqueue KIND '{}'" in page
        assert "<figure" not in page
    assert "<figure" not in begun
    assert (
        "No job ran in this span. Curves begin when the first minute is over." in begun
    )
    assert died.count("<figure") == 4
    assert died.count("Known when the first minute is over.") == 3, "deaths are known"


def test_without_a_worker_the_overview_says_it_once_with_the_command(
    site: Site, olaf: TestClient
):
    for queue in ("mail", "bills", "reports"):
        make_jobs(site.database.conn, 2, queue=queue)

    page = olaf.get("/").text

    assert "No worker is alive for 6 due jobs." in page
    assert "no live worker serves" not in page
    assert "<code>redrive worker --handlers module:jobs</code>" in page


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/dead-letters", "<code>redrive dlq ls --state any</code>"),
        ("/jobs", "<code>redrive enqueue KIND &#39;{}&#39;</code>"),
        ("/kinds", "<code>redrive enqueue KIND &#39;{}&#39;</code>"),
        ("/campaigns", "<code>redrive dlq redrive --group GROUP --why TEXT</code>"),
        ("/workers", "<code>redrive worker --handlers module:jobs</code>"),
        ("/groups", '<a href="/groups?closed=yes">Groups that are over</a>'),
    ],
)
def test_an_empty_page_says_what_to_do_next(olaf: TestClient, path: str, said: str):
    assert said in olaf.get(path).text


@pytest.mark.parametrize(
    ("path", "is_open"),
    [
        ("/dead-letters", False),
        ("/dead-letters?state=open", False),
        ("/dead-letters?state=any", True),
        ("/dead-letters?kind=a.b", True),
        ("/jobs", False),
        ("/jobs?queue=mail", True),
        ("/groups", False),
        ("/groups?kind=a.b", True),
        ("/audit", False),
        ("/audit?actor=ada", True),
    ],
)
def test_a_filter_is_folded_until_it_is_used(
    olaf: TestClient, path: str, is_open: bool
):
    page = olaf.get(path).text

    assert ('<details class="filtering" open>' in page) is is_open


def test_a_long_message_is_cut_in_lists(site: Site, olaf: TestClient):
    make_dead_letters(site.database.conn, 1)
    long = "503 of the mail server\n" + "<html> upstream connect error " * 100
    site.database.rows("update redrive.dead_letters set message = %s", long)
    site.database.rows("update redrive.groups set message = %s", long)
    site.database.rows("update redrive.group_deltas set message = %s", long)

    for path in ("/dead-letters", "/groups", "/"):
        page = html.unescape(olaf.get(path).text)
        assert "503 of the mail server <html> upstream" in page, path
        assert page.count("upstream connect error") < 20, path


def test_the_overview_says_what_is_wrong(site: Site, olaf: TestClient):
    conn = site.database.conn
    assert "No worker is alive." in olaf.get("/").text
    kinds = dict(zip("abcde", range(9, 4, -1), strict=True))
    queue = {"queue": "mail", "ready": 40, "why": None, "unhandled": kinds}
    assert list(troubles([queue], [], [], 1)) == [
        ("No worker for 35 due jobs of a, b, c and 2 more kinds in mail.", "/queues")
    ]
    queue["why"] = {"code": "no_worker", "text": "no live worker serves mail"}
    assert [text for text, _ in troubles([queue], [], [], 0)] == [
        "No worker is alive for 40 due jobs."
    ]
    make_jobs(conn, 3)
    conn.execute("select redrive.pause_v1('default', 'ada', 'the bank is down')")
    conn.execute(
        "insert into redrive.breakers (name, state, forced_by, forced_why)"
        " values ('bank', 'open', 'ada', 'their status page')"
    )

    page = olaf.get("/").text

    assert "the bank is down" in page
    assert "The breaker bank is open, held by ada." in page


def test_deaths_are_in_the_picture_from_the_first(site: Site, olaf: TestClient):
    """The first dead letters of a queue count before the next sample of the counters."""
    conn = site.database.conn
    conn.execute("select redrive.sample_v1()")
    make_dead_letters(conn, 9)

    page = olaf.get("/").text

    assert "9 jobs died in the last five minutes, more than in the five" in page
    assert "<dt>died in the last hour</dt><dd>9</dd>" in page


def test_a_history_of_which_nothing_is_known_is_no_growth(site: Site, olaf: TestClient):
    """What the last worker did in the evening is no peak in this minute."""
    conn = site.database.conn
    make_dead_letters(conn, 9)
    conn.execute("update redrive.chores set place = 29000000 where name = 'series'")

    assert "jobs died" not in olaf.get("/").text


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (
            "/dead-letters?foo=1",
            "there is no filter &#39;foo&#39;; there are: id, kind",
        ),
        (
            "/dead-letters?state=opened",
            "must be one of: open, redriven, resolved, dismissed, any",
        ),
        ("/dead-letters?id=x", "it must be a whole number above 0"),
        (
            "/dead-letters?since=yesterday",
            "write 2026-03-01T12:00Z, or 2h for two hours ago",
        ),
        ("/dead-letters?after=x", "use the link on the previous page"),
        ("/dead-letters?kind=%00", "no NUL"),
        ("/jobs?category=bgu", "must be one of: transient"),
        ("/jobs?after=x", "use the link on the previous page"),
        ("/groups?category=bgu", "must be one of: transient"),
        ("/groups?knd=x", "there is no filter"),
        ("/audit?who=x", "there are: since, until, actor, login, action"),
    ],
)
def test_what_cannot_be_read_is_named_with_what_there_is(
    olaf: TestClient, path: str, said: str
):
    answer = olaf.get(path)

    assert answer.status_code == 400
    assert said in answer.text


@pytest.mark.parametrize(
    ("of", "words"), [(Filter, "redrive dlq ls"), (JobFilter, "redrive job ls")]
)
def test_the_filters_are_those_of_the_command_line(of: type[Criteria], words: str):
    command = dict(commands())[words]
    options = {o for p in command.params for o in p.opts}

    assert {f"--{name_of(field)}" for field in of.criteria()} <= options


def test_the_shell_can_repeat_what_a_page_shows(site: Site, olaf: TestClient):
    """click accepts the command under a page, with the same filter."""
    for path in (
        "/dead-letters?kind=invoice.charge&since=2h&state=any",
        "/dead-letters?error-class=--json&tenant=a%20b",
        "/jobs?state=ready&queue=default",
        "/groups?category=bug&closed=yes",
        "/report?since=2d",
        "/audit?action=pause",
        "/queues",
        "/breakers",
        "/workers",
        "/limits",
        "/schedules",
        "/kinds",
        "/kinds/mail.send?from=24h",
    ):
        page = olaf.get(path).text
        shown = re.search(
            r'In a shell</span> <span id="command"><code>([^<]+)</code>', page
        )
        assert shown, path
        words = shlex.split(html.unescape(shown[1]))

        assert words[0] == "redrive"
        group, arguments = cli, words[1:]
        while hasattr(group, "get_command"):
            with group.make_context(
                "redrive", [arguments[0], "--help"], resilient_parsing=True
            ) as ctx:
                group, arguments = group.get_command(ctx, arguments[0]), arguments[1:]
        assert group.make_context("it", arguments), path


def test_the_report_is_a_page_and_a_call_of_the_api(site: Site, olaf: TestClient):
    """A review of everything had no page."""
    (job,) = make_dead_letters(site.database.conn, 1)
    site.database.conn.execute("update redrive.dead_letters set error_class = '<b>Bad'")

    page = olaf.get("/report?since=2d").text
    found = site.bearer("olaf").get("/api/v1/report?since=2d").json()

    assert "1 open." in page
    assert f'<a href="/jobs/{job}">{job}</a>' in page
    assert "&lt;b&gt;Bad" in page
    assert 'href="/report" data-key="r" aria-current="page"' in page
    assert (found["new"], found["owners"][0]["open"]) == (1, 1)
    assert olaf.get("/report?since=soon").status_code == 400
    assert olaf.get("/report?kind=a").status_code == 400


def test_the_page_of_a_dead_letter_says_how_long_it_took_to_die(
    site: Site, olaf: TestClient
):
    """Died after how long, and how many attempts."""
    (job,) = make_dead_letters(site.database.conn, 1)
    site.database.conn.execute(
        "update redrive.dead_letters"
        " set attempts = 8, created_at = died_at - interval '192 min'"
    )

    page = olaf.get(f"/jobs/{job}").text

    said = (
        "This job died after 8 attempts in 3 h 12 min, because a retry would not help."
    )
    assert said in page


def test_what_deceives_is_spelled_out(site: Site, olaf: TestClient):
    job = make_job(site.database.conn, tenant="\u202eevil", ordering_key="<b>\u2028")

    page = olaf.get(f"/jobs/{job}").text

    assert "\\u202eevil" in page
    assert "&lt;b&gt;\\u2028" in page


def test_the_api_lists_what_the_command_line_does(site: Site):
    conn = site.database.conn
    dead, live = make_dead_letters(conn, 150), make_jobs(conn, 3)
    conn.execute("select redrive.pause_v1('default', 'ada', 'x')")
    api = site.bearer("olaf")

    first = api.get("/api/v1/dead-letters?limit=100").json()
    rest = api.get("/api/v1/dead-letters", params={"after": first["after"]}).json()
    jobs = api.get("/api/v1/jobs").json()["rows"]

    assert sorted(r["id"] for r in first["rows"] + rest["rows"]) == dead
    assert rest["after"] is None
    assert [row["id"] for row in jobs] == live
    assert {row["waiting_for"] for row in jobs} == {"queue_paused"}
    assert api.get("/api/v1/queues").json()["rows"][0]["why"]["code"] == "queue_paused"
    assert api.get("/api/v1/audit").json()["rows"][0]["action"] == "pause"
    assert api.get("/api/v1/groups").json()["rows"][0]["open"] == 150
    assert api.get(f"/api/v1/jobs/{dead[0]}").json()["why"]["code"] == "ended"
    assert api.get("/api/v1/breakers").json() == {"rows": [], "after": None}


def test_openapi_tells_every_call_and_filter(site: Site):
    told = site.bearer("vera").get("/api/v1/openapi.json").json()
    parameters = told["paths"]["/api/v1/dead-letters"]["get"]["parameters"]
    state = next(p for p in parameters if p["name"] == "state")

    assert {p["name"] for p in parameters} == {
        *map(name_of, Filter.criteria()),
        "after",
    }
    assert state["schema"]["items"]["enum"] == [
        "open",
        "redriven",
        "resolved",
        "dismissed",
        "any",
    ]
    assert "/api/v1/redrive" in told["paths"]
    assert not any(path.startswith("/change") for path in told["paths"])


@pytest.mark.parametrize(
    "path", ["queues", "jobs", "dead-letters", "groups", "breakers", "audit"]
)
def test_odd_queries_are_no_fault_of_ours(site: Site, path: str):
    api = site.bearer("olaf")
    for name in (
        "id",
        "kind",
        "queue",
        "state",
        "since",
        "until",
        "limit",
        "after",
        "group",
        "x",
    ):
        for value in (
            "",
            "0",
            "-1",
            "9" * 30,
            "\0",
            "\ud7ff",
            "'",
            "%",
            "1e400",
            "x" * 5000,
            "٣",
        ):
            answer = api.get(f"/api/v1/{path}", params={name: value})
            assert answer.status_code in {200, 400}, (name, value, answer.text)
            assert isinstance(json.loads(answer.text), dict)
