"""The console in a real browser: an incident, accessibility, and injected text."""

import json
import os
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from redrive.database.connections.address import Address
from redrive.dead_letters.campaigns.store import cancel, pause, plan, start
from redrive.dead_letters.campaigns.terms import Terms
from redrive.dead_letters.filter import Filter
from redrive.extras.console.app import application
from redrive.extras.console.security.access import Access, Principal, Role
from redrive.extras.console.security.logins import Logins
from redrive.observability.health import listen
from redrive.rules.payloads.facts import facts_of
from redrive.worker import store
from redrive.worker.protocol import Sampled
from tests.console.conftest import login
from tests.console.test_access import PAGES
from tests.factories import (
    claim,
    failure,
    let_die,
    make_dead_letters,
    make_job,
    make_worker,
)
from tests.flow import typed_work
from tests.flow.harness import workers_on
from tests.postgres import Database

FOUND = shutil.which("chromium") or shutil.which("google-chrome")
CHROMIUM = os.environ.get("REDRIVE_TEST_CHROMIUM") or FOUND or ""
playwright = pytest.importorskip("playwright.sync_api", reason="no playwright here")
Axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="no axe here"
).Axe
pytestmark = [
    pytest.mark.skipif(
        not CHROMIUM, reason="no chromium here: apt-get install chromium"
    ),
    pytest.mark.slow,
    pytest.mark.xdist_group("browser"),  # one for all
]

EVIL = (
    "<script>window.ran = 1</script>",
    '"><img src=x onerror="window.ran = 1">',
    "'><svg onload='window.ran = 1'>",
    "javascript:window.ran=1//",
    "{{ 7 * 7 }}${7*7}</textarea></title></script><script>window.ran = 1</script>",
)


OF_COLOURS = ["color-contrast", "link-in-text-block"]
"""The rules of axe that a theme can break."""

PATIENCE = 90_000
"""Milliseconds that a busy machine may take for what is there in a few."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as run:
        browser = run.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=PATIENCE
        )
        yield browser
        browser.close()


@pytest.fixture
def address(database: Database) -> Iterator[str]:
    """Serve a console without sign-in, like --demo, and yield its address."""
    logins = Logins({Role.OPERATOR: Address(login(database, "redrive_operator"))})
    app: Any = application(Access(everybody=Principal("ada", Role.OPERATOR)), logins)
    listener = listen(0, "the port", "127.0.0.1")
    server = uvicorn.Server(
        uvicorn.Config(app, lifespan="off", log_level="critical", ws="none")
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    listener.close()
    logins.close()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """Yield a tab; an error of a script, the policy or a missing file fails the test."""
    complaints: list[str] = []
    with browser.new_context(base_url=address) as context:
        tab = context.new_page()
        tab.set_default_timeout(PATIENCE)
        tab.on("console", lambda said: complaints.append(said.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        yield tab
    assert complaints == []


def test_an_incident_by_clicking(database: Database, page: Any, tmp_path: Path):
    """From the link of a page to the audit log, with a real worker."""
    for _ in range(12):
        make_job(database.conn, "work.typed", {"number": "none", "feed": "partner"})
    facts = [facts_of({"number": n, "feed": "own"}, {}, None) for n in range(30)]
    store.keep_samples(
        database.conn, [Sampled("work.typed", json.dumps(well)) for well in facts]
    )  # as runners offer one a second
    with workers_on(database.url, tmp_path) as workers:
        workers.run(handlers=typed_work.HANDLERS)

        page.goto("/groups?kind=work.typed")
        page.locator(".groups a.title").click()
        findings = page.locator(".findings").inner_text()
        page.get_by_role("link", name="Edit…").click()
        page.get_by_label("JSON Patch").fill(
            '[{"op": "replace", "path": "/number", "value": 7}]'
        )
        page.get_by_role("button", name="Show what changes").click()
        diff = page.locator(".diff").first.inner_text()
        page.get_by_label("Why").fill("the partner left it out")
        page.get_by_role("button", name="Edit 12 payloads").click()
        edited = page.get_by_role("status").inner_text()

        page.get_by_role("link", name="Redrive 12…").click()
        page.wait_for_load_state()  # scripts come last
        page.get_by_label("Canaries").fill("3")
        page.get_by_text("3 go first; if more than 10% of any ten die again").wait_for()
        page.get_by_label("Why").fill("the numbers are there now")
        page.get_by_role("button", name="Redrive 12 open dead letters").click()
        page.wait_for_url(re.compile("/campaigns/1$"))
        told = page.get_by_role("status").inner_text()
        first = page.locator(".stands .state").inner_text()
        workers(handlers=typed_work.HANDLERS)
        page.locator(
            ".stands .state.done"
        ).wait_for()  # as it is told: nobody loads it again

        tally = page.locator(".tally .good dd").inner_text()
        facts = page.locator(".facts").inner_text()
        page.get_by_role("link", name="Audit").click()
        said = page.locator("tbody").inner_text()

    assert "partner" in findings
    assert '-  "number": "none"' in diff
    assert edited == "12 payloads edited."
    assert first == "waiting"
    assert "workers redrive 12 dead letters" in told
    assert tally == "12"
    assert "ended" in facts
    assert (
        database.value("select count(*) from redrive.dead_letters where state = 'open'")
        == 0
    )
    assert "the partner left it out" in said
    assert "the numbers are there now" in said


def test_the_link_of_an_alert_leads_to_cause_and_change_in_one_click(
    database: Database, page: Any
):
    """The link is the one of RedriveDeadLettersGrowingFast."""
    make_dead_letters(database.conn, 12)
    database.rows("update redrive.marks set at = at - interval '6 min'")

    page.goto("/dead-letters?queue=default")
    page.locator("tbody a[href*='/groups/']").first.click()

    change = page.get_by_role("link", name="The first job failed")
    assert change.inner_text() == (
        "The first job failed 6 min after this change: version test started."
    )
    assert page.get_by_text("What they have in common").is_visible()


@pytest.mark.long
def test_anybody_can_use_the_main_pages(database: Database, page: Any):
    """On the overview and a form. axe sees a planted fault."""
    make_dead_letters(database.conn, 2)
    assert_usable(page, "/", "/change/redrive?group=f1")
    page.evaluate(
        "document.querySelector('main').innerHTML += '<img src=/static/icon.svg>'"
    )
    assert faults(page) == ["image-alt"]


@pytest.mark.long
def test_anybody_can_use_each_page(database: Database, page: Any):
    assert_usable(page, *each_page(database))


def assert_usable(page: Any, *paths: str) -> None:
    """Check that axe finds no fault on a phone or a desk, and that nothing is wider than these.

    A theme changes colours only. Widths between have the menu of the one and the tables of the other.
    """
    page.emulate_media(reduced_motion="reduce")  # no colour is on its way to another
    for path in paths:
        page.goto(path)
        if path == "/":
            page.keyboard.press("Control+k")
            page.locator("#palette li").nth(8).wait_for()  # the queues are there, too
        for width in (360, 1400):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme="dark")
            assert faults(page) == [], (path, width, "dark")
            shown = page.evaluate("document.documentElement.scrollWidth")
            assert shown <= width, path
            page.emulate_media(color_scheme="light")
            assert faults(page, runOnly=OF_COLOURS) == [], (path, width, "light")


def each_page(database: Database) -> list[str]:
    """Make something to show, and return the addresses of all pages."""
    _, job = make_dead_letters(database.conn, 2)
    live = make_job(database.conn)
    database.rows("insert into redrive.breakers (name, state) values ('bank', 'open')")
    database.rows("select redrive.pause_v1('default', 'ada', 'x')")
    made = plan(database.conn, Filter(), actor="ada").plan
    return [
        *PAGES,
        "/groups/f1",
        f"/jobs/{job}",
        f"/jobs/{live}",
        f"/campaigns/{made}",
        "/queues/default",
        "/kinds/invoice.charge?from=24h",
        "/dead-letters?sort=attempts",
        "/change/redrive?group=f1",
        "/change/edit?group=f1",
        f"/change/edit?id={job}",
    ]


def faults(page: Any, **options: Any) -> list[str]:
    """Return the rules of axe that a page breaks."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(Axe().axe_script)
    return page.evaluate(
        "options => axe.run(options).then(found => found.violations.map(({id}) => id))",
        {"resultTypes": ["violations"], **options},
    )


OVERFLOWING = """[...document.querySelectorAll('.scroll')]
    .filter(one => !one.closest('.chart') && one.scrollWidth > one.clientWidth)
    .map(one => one.querySelector('caption').textContent)"""


@pytest.mark.long
def test_lists_stay_compact(database: Database, page: Any):
    """Long messages and many kinds, on a desk and on a phone."""
    for n in range(98):
        make_job(database.conn, f"shop_of_the_north.kind_number_{n}")
    make_dead_letters(database.conn, 2, kind="shop_of_the_north.reconcile_invoices")
    database.rows(
        "update redrive.dead_letters set message = repeat('upstream timeout\n', 180),"
        " error_class = 'provider.client.errors.ServiceUnavailable', owner = 'payments'"
    )
    store.fold(database.conn)
    assert store.fold_series(database.conn)

    heights: dict[int, int] = {}
    for width in (390, 1400):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto("/kinds")
        heights[width] = page.evaluate("document.documentElement.scrollHeight")
        for path in ("/dead-letters", "/kinds", "/queues/default", "/"):
            page.goto(path)
            assert page.evaluate(OVERFLOWING) == [], (width, path)
    page.goto("/dead-letters")
    row = page.locator("tbody tr").first.bounding_box()

    assert heights[390] < 98 * 60
    assert row["height"] < 120, "long names wrap"


def test_the_palette_leads_anywhere(database: Database, page: Any):
    (job,) = make_dead_letters(database.conn, 1)
    page.goto("/")
    for typed, path in (
        (str(job), f"/jobs/{job}"),
        ("letters of def", "/dead-letters?queue=*"),
    ):
        page.keyboard.press("Control+k")
        page.get_by_label("A page, a queue").fill(typed)
        if not typed.isdigit():
            page.locator("#palette li", has_text="Dead letters of default").wait_for()
        page.keyboard.press("Enter")
        page.wait_for_url(f"**{path}")


def test_times_are_exact_where_somebody_asks(database: Database, page: Any):
    (job,) = make_dead_letters(database.conn, 1)
    page.goto(f"/jobs/{job}")
    died = page.locator(".story time").last
    before = died.inner_text()

    page.keyboard.press("t")

    exact = page.evaluate(
        "new Date(document.querySelector('.story time').dateTime).toLocaleString()"
    )
    assert before.endswith("ago")
    assert page.locator(".story time").first.inner_text() == exact
    assert re.fullmatch(
        r".+ ago, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", died.get_attribute("title")
    )


def test_the_overview_updates_as_one(database: Database, page: Any):
    """Its headline and its charts agree, before an update and after."""
    make_dead_letters(database.conn, 2)
    page.clock.install()
    page.goto("/?from=1h")
    page.locator("details.cells, #now").first.wait_for()
    make_dead_letters(database.conn, 3)

    page.locator(".stage").first.focus()
    page.clock.run_for(20_000)
    in_use = page.locator("figure[data-chart=failures] .legend").inner_text()
    page.locator(".stage").first.blur()
    page.clock.run_for(20_000)
    page.locator("#now dd", has_text=re.compile("^5$")).first.wait_for()
    later = page.locator("figure[data-chart=failures] .legend").inner_text()
    page.locator("figure[data-chart=failures] .stage").hover()

    assert in_use.split()[:2] == ["died", "2"]
    assert later.split()[:2] == ["died", "5"]
    assert page.locator("figure[data-chart=failures] .readout").inner_text()


def test_a_campaign_updates_until_it_is_over(database: Database, page: Any):
    make_dead_letters(database.conn, 2)
    made = plan(database.conn, Filter(), actor="ada").plan
    assert made
    page.clock.install()
    page.goto(f"/campaigns/{made}")
    page.locator("#now .state.planned").wait_for()

    cancel(database.conn, made, actor="ada", why="no")
    page.clock.run_for(3_000)

    page.locator("#now .state.cancelled").wait_for()
    assert page.locator("#now").get_attribute("hx-get") is None


def test_keys_lead_through_a_list(database: Database, page: Any):
    made = make_dead_letters(database.conn, 3)
    page.goto("/dead-letters")

    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/jobs/\d+$"))
    assert int(page.url.rpartition("/")[2]) in made
    page.keyboard.press("g")
    page.keyboard.press("q")
    page.wait_for_url("**/queues")


def test_a_chart_tells_its_values_by_pointer_and_by_key(database: Database, page: Any):
    make_dead_letters(database.conn, 3)
    page.goto("/groups/f1?from=1h")
    chart = page.locator("figure", has=page.get_by_role("slider", name="Deaths"))
    stage, told = chart.locator(".stage"), chart.locator(".readout")

    stage.hover()
    by_pointer = told.inner_text()
    stage.focus()
    page.keyboard.press("End")
    by_key = told.inner_text()
    value = stage.get_attribute("aria-valuetext")

    assert re.fullmatch(r"\d\d:\d\d · died 0", by_pointer)
    assert re.match(r"\d\d:\d\d · died [03]", by_key)
    assert value == by_key


def test_one_can_zoom_by_dragging_and_by_keys(database: Database, page: Any):
    make_dead_letters(database.conn, 3)
    page.goto("/groups/f1?from=24h")
    stage = page.get_by_role("slider", name="Deaths")
    stage.scroll_into_view_if_needed()
    box = stage.bounding_box()
    y = box["y"] + 60
    page.mouse.move(box["x"] + box["width"] * 0.3, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, y)
    page.mouse.up()
    page.wait_for_url("**from=*Z&to=*Z")
    dragged = page.url

    stage.focus()
    for _ in range(6):
        page.keyboard.press("Shift+ArrowLeft")
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: url != dragged)

    assert re.search(r"/groups/f1\?from=[^&]+Z&to=[^&]+Z$", page.url)
    assert page.locator("input[name=to]").input_value().endswith("Z")


def test_rows_are_selected_and_dismissed(database: Database, page: Any):
    make_dead_letters(database.conn, 3)
    page.goto("/dead-letters")
    dismiss = page.get_by_role("button", name="Dismiss…")
    before = dismiss.is_disabled()

    page.get_by_label("Select all rows of this page").check()
    page.locator("input[name=id][type=checkbox]").first.uncheck()
    page.get_by_text("2 selected:").wait_for()
    dismiss.click()

    page.wait_for_url("**/change/dismiss?id=*")
    assert before
    assert page.locator(".big").inner_text().startswith("2 ")


@pytest.mark.long
def test_nothing_that_a_producer_writes_runs(database: Database, page: Any):
    """Put a script into each field of a job, a failure and a reason; open every page."""
    conn, worker = database.conn, make_worker(database.conn, EVIL[1])
    for n, evil in enumerate(EVIL):
        fields = {"tenant": evil, "ordering_key": f"{evil}{n}", "idempotency_key": evil}
        make_job(
            conn, f"evil.j{n}", {evil: evil}, headers={"traceparent": evil}, **fields
        )
        (job,) = claim(conn, worker, 10)
        detail = {
            "stack": [
                {
                    "file": evil,
                    "line": 3,
                    "function": evil,
                    "first_line": 3,
                    "source": [evil],
                }
            ],
            "causes": [{"error_class": evil, "message": evil}],
            "trace_id": evil,
            "version": evil,
            "environment": evil,
        }
        said = {
            "error_class": evil,
            "message": evil,
            "fingerprint": f"{evil}{n}",
            "detail": detail,
        }
        let_die(conn, worker, job, failure=failure(**said))
        conn.execute("select redrive.note_v1(%s, %s, %s)", (job.id, evil, evil))
        conn.execute(
            "select redrive.assign_v1(%s::bigint[], %s, %s, %s)",
            ([job.id], *[evil] * 3),
        )
        conn.execute(
            "select redrive.mute_v1(%s, now() + '1 h', %s, %s)",
            (f"{evil}{n}", evil, evil),
        )
    for n, evil in enumerate(EVIL):
        make_job(conn, f"evil.j{n}", {"n": n}, tenant=evil, ordering_key=evil)
    conn.execute("select redrive.pause_v1('default', %s, %s)", (EVIL[0], EVIL[0]))
    conn.execute(
        "insert into redrive.breakers (name, state, forced_by, forced_why)"
        " values ('bank', 'open', %s, %s)",
        (EVIL[0], EVIL[1]),
    )
    made = plan(conn, Filter(kind=("evil.j0",)), actor=EVIL[0]).plan
    assert made
    start(conn, made, Terms(breakers={EVIL[2]: "open"}), actor=EVIL[0], why=EVIL[1])
    pause(conn, made, actor=EVIL[0], why=EVIL[4])
    paths = [
        f"/campaigns/{made}",
        "/campaigns",
        "/change/edit?kind=evil.j0",
        "/change/edit?kind=evil.j1&limit=1",
    ]
    paths += [
        "/",
        "/groups?closed=yes",
        "/dead-letters?state=any",
        "/jobs",
        "/queues",
        "/breakers",
    ]
    paths += [
        "/audit",
        "/report",
        "/change/redrive?kind=evil.j0",
        "/change/cancel?kind=evil.j1",
    ]
    paths += [
        f"/jobs/{job}" for job in database.column("select id from redrive.dead_letters")
    ]
    paths += [
        f"/jobs/{job}" for job in database.column("select id from redrive.jobs limit 1")
    ]
    page.goto("/groups?closed=yes")
    groups = [a.get_attribute("href") for a in page.locator(".groups a.title").all()]
    paths += ["/queues/default", "/kinds", "/workers", "/kinds/evil.j0"]
    paths += [*groups, *(path.replace("/groups/", "/explain/") for path in groups)]

    for path in paths:
        answer = page.goto(path)
        assert answer.status == 200, path
        assert page.evaluate("window.ran") is None, path
        assert (
            page.locator("main script, main img, main [onload], main [onerror]").count()
            == 0
        )
        assert page.locator('a[href^="javascript"]').count() == 0


def test_a_card_of_a_phone_shows_each_part_of_a_cell(database: Database, page: Any):
    """Links stand beside the name of their column, and rows can be selected."""
    make_dead_letters(database.conn, 1)
    database.rows("insert into redrive.breakers (name, state) values ('bank', 'open')")
    page.set_viewport_size({"width": 360, "height": 740})

    page.goto("/breakers")
    card = page.locator("tbody tr").bounding_box()
    links = [link.bounding_box() for link in page.locator("tbody td a").all()]
    page.goto("/dead-letters")
    pick = page.get_by_label("Select job").bounding_box()

    assert len(links) == 3
    assert all(link["x"] >= card["x"] + 96 for link in links)
    assert pick["width"] >= 10


def test_reading_works_without_javascript(
    database: Database, browser: Any, address: str
):
    make_dead_letters(database.conn, 60)
    with browser.new_context(base_url=address, java_script_enabled=False) as context:
        context.set_default_timeout(PATIENCE)
        tab = context.new_page()
        tab.goto("/dead-letters")
        assert tab.locator("tbody tr").count() == 50
        tab.get_by_role("link", name="Next page").click()
        tab.wait_for_url("**after=*")  # until the whole page has come
        assert tab.locator("tbody tr").count() == 10
        assert tab.get_by_role("button", name="Copy").count() == 0
