"""Charts: their spans, their SVG and tables, and the changes on their time axes."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from starlette.testclient import TestClient

from redrive.dead_letters.campaigns.store import plan, start
from redrive.dead_letters.campaigns.terms import Terms
from redrive.dead_letters.filter import Filter
from redrive.extras.console.charts import axes
from redrive.extras.console.charts.chart import SECONDS, Chart, Line, Mark
from redrive.extras.console.charts.draw import draw
from redrive.extras.console.charts.span import Span, covering, read
from redrive.extras.console.pages.sections.timeline import headline, timeline
from redrive.extras.console.pages.system import MOST_OF_WORKER, MOST_WORKERS
from redrive.worker import store
from tests.console.conftest import Site
from tests.factories import (
    claim,
    complete,
    make_dead_letters,
    make_job,
    make_jobs,
    make_schedule,
    make_worker,
    silence,
)
from tests.postgres import Connection

NOW = datetime(2026, 11, 25, 12, 34, 56, tzinfo=UTC)
MOST_BYTES = 150_000


def span(**given: str) -> Span:
    return read({name.strip("_"): text for name, text in given.items()}, NOW)


def chart(*values: float | None, **more: object) -> Chart:
    """Return a chart of an hour whose last values these are."""
    an_hour = span(from_="1h")
    missing = len(an_hour.starts()) - len(values)
    line = Line("died", [0.0] * missing + list(values), "bad")
    return Chart("deaths", "Deaths", (line,), an_hour, **more)  # type: ignore[arg-type]


def record(conn: Connection) -> None:
    """Record the minute that has just ended."""
    store.fold(conn)
    assert store.fold_series(conn)


def record_later(conn: Connection) -> None:
    """Record what has happened since `record`, as a minute later."""
    store.fold(conn)
    conn.execute("update redrive.chores set place = place - 1 where name = 'series'")
    conn.execute("update redrive.series set at = at - interval '1 min'")
    assert store.fold_series(conn)


def mark(conn: Connection, minutes: int, what: str, name: str) -> None:
    """Record a change some minutes ago."""
    conn.execute(
        "insert into redrive.marks (at, what, name)"
        " values (clock_timestamp() - %s * interval '1 min', %s, %s)",
        (minutes, what, name),
    )


# ---------------------------------------------------------------------- spans


@pytest.mark.parametrize(
    ("given", "length", "step"),
    [
        ({}, timedelta(hours=3), timedelta(minutes=5)),
        ({"from_": "1h"}, timedelta(hours=1), timedelta(minutes=1)),
        ({"from_": "24h"}, timedelta(hours=24), timedelta(minutes=30)),
        ({"from_": "7d"}, timedelta(days=7), timedelta(hours=3)),
        ({"from_": "90d"}, timedelta(days=35), timedelta(days=1)),
        ({"from_": "1m"}, timedelta(minutes=5), timedelta(minutes=1)),
        (
            {"from_": "2026-11-25T09:00Z", "to": "2026-11-25T10:00Z"},
            timedelta(hours=1),
            timedelta(minutes=1),
        ),
    ],
)
def test_a_span_has_at_most_sixty_steps(
    given: dict[str, str], length: timedelta, step: timedelta
):
    found = span(**given)

    assert (found.length, found.step) == (length, step)
    assert len(found.starts()) <= 61
    assert found.starts()[0] <= found.since


def test_a_span_says_where_one_can_go():
    live, fixed = span(from_="1h"), span(from_="2h", to="1h")

    assert set(live.others()) == {"Earlier", "Zoom out", "Zoom in"}
    assert fixed.others()["Later"]["from"] == "2026-11-25T11:04Z"
    assert "Zoom in" not in span(from_="5m").others()
    assert covering(NOW - timedelta(hours=2), NOW) == "3h"
    assert covering(NOW - timedelta(days=90), NOW) == "35d"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("from=yesterday", "write 2026-03-01T12:00Z, or 2h for two hours ago"),
        ("from=1h&to=2h", "from must be before to, and before now"),
        ("from=2126-03-01", "from must be before to, and before now"),
        ("from=-1e99", "write 2026-03-01T12:00Z, or 2h for two hours ago"),
        ("from=0001-01-05&to=0001-02-05", "to must be later"),
        ("from=0001-01-01T00:00%2B14:00&to=0001-01-09", "to must be later"),
    ],
)
def test_what_is_no_span_is_refused_with_the_rule(
    olaf: TestClient, query: str, said: str
):
    answer = olaf.get(f"/?{query}")

    assert answer.status_code == 400
    assert said in answer.text


def test_a_span_of_another_time_zone_is_shown_in_utc():
    local = span(from_="2026-11-25T11:00+02:00", to="2026-11-25T12:00+02:00")

    assert f"{local.starts()[0]:%H:%M %Z}" == "09:00 UTC"
    assert span(from_="0001-01-01T00:00+14:00").length == timedelta(days=35)


# ---------------------------------------------------------------------- drawing


def test_a_chart_is_drawn_without_inline_style_and_says_what_it_shows():
    svg = draw(chart(1, 4, 0, 2, is_stacked=True, is_summed=True))

    assert svg.count("z") >= 3  # a bar each
    assert "style=" not in svg
    assert 'aria-label="Deaths: 7 died"' in svg


def test_where_nothing_is_known_a_curve_has_a_gap():
    svg = draw(chart(3, None, 5, 6))
    curve = re.search(r'class="curve bad" d="([^"]+)"', svg)

    assert curve
    assert curve[1].count("M") == 2
    assert draw(chart(None, 3, None)).count('class="curve') == 1


def test_marks_are_on_the_axis_and_in_the_table():
    inside = Mark(NOW - timedelta(minutes=9), "deploy", "version <2> started")
    outside = Mark(NOW - timedelta(hours=9), "pause", "ada paused queue mail")
    shown = chart(1, marks=(inside, outside))

    svg = draw(shown)
    rows = [(at, changes) for at, _, changes in shown.rows() if changes]

    assert svg.count('class="mark') == 1
    assert "version &lt;2&gt; started" in svg
    assert rows == [(datetime(2026, 11, 25, 12, 25, tzinfo=UTC), inside.text)]


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (0, "", "0"),
        (12, "", "12"),
        (1234, "", "1.23k"),
        (3_400_000, "", "3.4M"),
        (0.25, SECONDS, "250 ms"),
        (90, SECONDS, "1.5 min"),
        (7200, SECONDS, "2 h"),
        (172_800, SECONDS, "2 d"),
    ],
)
def test_values_are_short(value: float, unit: str, said: str):
    assert axes.short(value, unit) == said


def test_the_top_of_an_axis_is_round():
    assert [axes.top(n) for n in (0, 1, 3, 17, 50, 51, 1001)] == [
        *(1, 1, 5, 20, 50, 100, 2000)
    ]
    assert axes.top(0.03, whole=False) == 0.05


# ---------------------------------------------------------------------- pages


def test_the_overview_draws_what_was_recorded(site: Site, olaf: TestClient):
    conn = site.database.conn
    worker = make_worker(conn)
    make_jobs(conn, 9)
    complete(conn, worker, *claim(conn, worker, 4))
    record(conn)
    mark(conn, 7, "deploy", "2.4.1")

    page = olaf.get("/?from=1h").text

    for title in ("Jobs a minute", "Failures", "Wait before the start", "Backlog"):
        assert f"<h2>{title}</h2>" in page
    assert '<td class="n">9</td>' in page
    assert "Version 2.4.1 started" in page
    assert "/queues/default?from=1h" in page


def test_a_page_of_charts_stays_small(site: Site, olaf: TestClient):
    make_dead_letters(site.database.conn, 3)
    for n in range(40):
        mark(site.database.conn, n * 3, "deploy", f"1.{n}")
    record(site.database.conn)

    pages = ("/", "/queues/default", "/kinds", "/kinds/invoice.charge", "/groups")
    spans = ("", "?from=1h", "?from=24h", "?from=7d", "?from=35d")
    for path in (page + span for page in pages for span in spans):
        answer = olaf.get(path)
        assert answer.status_code == 200, path
        assert len(answer.content) < MOST_BYTES, path


def deaths_told(page: str) -> list[str]:
    """Return how many died, as the headline, the chart, the causes and the queues say."""
    places = (
        r"<dt>died in the last hour</dt><dd>(\d+)</dd>",
        r'aria-label="Failures: (\d+) died',
        r"<small>(\d+) in this span</small>",
        r">(\d+) jobs died in the last five minutes",
    )
    return [count for place in places for count in re.findall(place, page)]


def test_deaths_count_from_the_first_second_and_everywhere_the_same(
    site: Site, olaf: TestClient
):
    """Before the first minute is recorded, and after, when more have died since."""
    conn = site.database.conn
    make_dead_letters(conn, 3)

    first = olaf.get("/?from=1h").text
    record(conn)
    make_dead_letters(conn, 2)
    second = olaf.get("/?from=1h").text
    record_later(conn)
    third = olaf.get("/?from=1h").text

    assert deaths_told(first) == ["3"] * 4
    assert deaths_told(second) == ["5"] * 4
    assert deaths_told(third) == ["5"] * 4


def test_deaths_of_a_cause_that_is_over_stay_on_the_overview(
    site: Site, olaf: TestClient
):
    conn = site.database.conn
    ids = make_dead_letters(conn, 3)
    conn.execute("select redrive.dismiss_v1(%s::bigint[], 'ada', 'x')", (ids,))

    today = olaf.get("/?from=1h").text
    conn.execute("select redrive.fold_groups_v1()")
    conn.execute("update redrive.groups set last_seen = now() - interval '2 h'")
    later = olaf.get("/?from=1h").text

    assert deaths_told(today) == ["3"] * 4
    assert "<strong>0</strong><small>open of 3</small>" in today
    assert "open of 3" not in later


def test_the_pages_of_queues_and_kinds_count_up_to_now(site: Site, olaf: TestClient):
    conn = site.database.conn
    make_dead_letters(conn, 3)
    record(conn)
    make_dead_letters(conn, 2)

    for path in ("/queues/default?from=1h", "/kinds/invoice.charge?from=1h"):
        assert "Failures: 5 died" in olaf.get(path).text, path

    kinds = olaf.get("/kinds?from=1h").text
    assert re.search(r'invoice\.charge</a>.*?<td class="n">5</td>', kinds, re.DOTALL)


def test_a_span_that_is_over_leaves_out_what_happens_now(site: Site, olaf: TestClient):
    make_dead_letters(site.database.conn, 3)

    page = olaf.get("/queues/default?from=3h&to=1h").text

    assert "Failures: nothing in this span" in page


def test_a_group_names_the_change_before_its_first_death(site: Site, olaf: TestClient):
    conn = site.database.conn
    make_dead_letters(conn, 3)
    conn.execute("truncate redrive.marks")
    without = olaf.get("/groups/f1").text
    conn.execute(
        "insert into redrive.marks (at, what, name)"
        " select first_seen - interval '5 min', 'deploy', 'test' from redrive.grouped"
    )

    conn.execute(
        "insert into redrive.marks (at, what, name, queues)"
        " select first_seen - interval '2 min', 'breaker open', 'smtp', '{mail}'"
        " from redrive.grouped"
    )

    page = olaf.get("/groups/f1").text

    assert "smtp" not in page, "it is about another queue"
    assert "Nothing that could cause this is known to have changed" in without
    sentence = "The first job failed 5 min after this change: version test started."
    assert f'<a href="/workers">{sentence}</a>' in page
    assert "Deaths: 3 died" in page


def test_changes_that_say_the_same_are_one_line(site: Site, olaf: TestClient):
    """The time axis keeps each of them."""
    conn = site.database.conn
    make_dead_letters(conn, 1)
    conn.execute("truncate redrive.marks")
    for minutes in (50, 40, 30, 20, 10, 5):
        mark(conn, minutes, "breaker open", "smtp")
        mark(conn, minutes, "breaker half-open", "smtp")
    mark(conn, 25, "deploy", "2.4.1")

    page = olaf.get("/?from=1h").text
    listed = page[page.index('id="what-changed"') :]
    lines = re.findall(r"<li>.*?</li>", listed)[:3]
    said = [re.sub("<[^>]+>", " ", line).split() for line in lines]

    assert " ".join(said[0]) == "5 min ago Breaker smtp is half-open"
    opened = "5 min ago Breaker smtp opened 6 times, the first 50 min ago"
    assert " ".join(said[1]) == opened
    assert " ".join(said[2]) == "25 min ago Version 2.4.1 started"
    assert page.count("<title>Breaker smtp opened</title>") == 6 * 4, "in four charts"


def test_a_breaker_of_another_kind_is_not_on_the_page_of_a_queue(
    site: Site, olaf: TestClient
):
    conn = site.database.conn
    make_jobs(conn, 3, queue="mail", kind="mail.send")
    conn.execute(
        "insert into redrive.marks (what, name, kinds) values"
        " ('breaker open', 'bank', '{bill.send}'), ('breaker open', 'smtp', '{mail.*}')"
    )

    page = olaf.get("/queues/mail?from=1h").text

    assert "Breaker smtp opened" in page
    assert "Breaker bank opened" not in page


def test_the_change_is_looked_for_before_the_first_failure(
    site: Site, olaf: TestClient
):
    """The job was retried for two days before it died."""
    conn = site.database.conn
    make_dead_letters(conn, 1)
    conn.execute("truncate redrive.marks")
    conn.execute(
        "update redrive.dead_letters set first_failed_at = died_at - interval '2 days'"
    )
    for earlier, queue in (("2 days 4 min", "default"), ("3 min", "other")):
        conn.execute(
            "insert into redrive.audit (at, actor, action, why, n, detail)"
            " select died_at - %s::interval, 'ada', 'resume', 'x', 1,"
            " jsonb_build_object('queue', %s::text) from redrive.dead_letters",
            (earlier, queue),
        )

    sentence = (
        "The first job failed 4 min after this change: ada resumed queue default."
    )
    assert sentence in olaf.get("/groups/f1").text


def test_a_schedule_of_another_kind_is_not_named_before_a_cause(
    site: Site, olaf: TestClient
):
    conn = site.database.conn
    make_schedule(conn, "nightly")
    make_dead_letters(conn, 1)
    conn.execute("truncate redrive.marks")
    conn.execute(
        "insert into redrive.audit (at, actor, action, why, n, detail)"
        " select died_at - interval '1 min', 'ada', 'run schedule', 'x', 1,"
        """ '{"schedule": "nightly"}' from redrive.dead_letters"""
    )

    page = olaf.get("/groups/f1").text

    assert "Nothing that could cause this is known to have changed" in page
    assert "nightly" not in page


def test_the_overview_tells_what_changed_before_a_cause_and_whether_it_gets_worse(
    site: Site, olaf: TestClient
):
    conn = site.database.conn
    make_dead_letters(conn, 3)
    conn.execute("truncate redrive.marks")
    conn.execute(
        "insert into redrive.marks (at, what, name, queues)"
        " select first_seen - interval '6 min', 'deploy', 'test', null::text[]"
        " from redrive.grouped union all"
        " select first_seen - interval '2 min', 'breaker open', 'smtp', '{mail}'"
        " from redrive.grouped"
    )
    page, group = olaf.get("/").text, olaf.get("/groups/f1").text

    sentence = "The first job failed 6 min after this change: version test started."
    assert f'<p class="began">{sentence}</p>' in page
    trend = "3 jobs died in the last five minutes, more than in the five minutes before (0)."
    assert trend in page
    assert "3 died in the last hour, more than in the hour before (0)." in group
    assert sentence not in olaf.get("/groups").text


def test_a_deploy_shows_its_version_where_there_is_room():
    hour = span(from_="1h")
    places = ((50, "1.4.0"), (49, "1.4.1"), (20, "1.4.2"), (1, "1.4.3"))
    marks = [
        Mark(
            NOW - timedelta(minutes=ago),
            "deploy",
            f"Version {name} started",
            None,
            name,
        )
        for ago, name in places
    ]
    lines = (Line("died", [0.0] * len(hour.starts())),)
    drawn = str(draw(Chart("deaths", "Deaths", lines, hour, marks)))

    assert re.findall(r">([\d.]+)</text></g>", drawn) == ["1.4.1", "1.4.2"]
    assert drawn.count("<title>Version") == len(marks)


def test_marks_that_repeat_in_a_step_stay_in_order():
    """So the label of a deploy ends before the next mark."""
    hour = span(from_="1h")
    instants = ((50, "breaker"), (40, "deploy"), (20, "breaker"))
    marks = [Mark(NOW - timedelta(minutes=m), kind, kind) for m, kind in instants]
    again = Mark(marks[0].at + timedelta(seconds=2), "breaker", "breaker")
    found = chart(1.0, marks=[again, *marks]).shown_marks

    assert found == marks
    assert hour.starts()[0] < found[0].at


def test_a_group_tells_what_was_tried_and_how_it_went(site: Site, olaf: TestClient):
    conn = site.database.conn
    make_dead_letters(conn, 2)
    assert (
        "Nothing yet: no redrive, no retry and no edit." in olaf.get("/groups/f1").text
    )
    made = plan(conn, Filter(group="f1", state=("open",)), actor="ada").plan
    assert made
    start(conn, made, Terms(), actor="ada", why="the bank is back")

    conn.execute(
        "update redrive.campaigns set redriven = 2, succeeded = 1, dead_again = 1"
    )
    conn.execute(
        "update redrive.dead_letters set campaign = %s, state = 'redriven'", (made,)
    )

    page = olaf.get("/groups/f1").text

    assert f'<a href="/campaigns/{made}">Redrive of 2 jobs</a>' in page
    assert "1 of 2 jobs succeeded, 1 died again." in page
    assert "the bank is back" in page


def test_a_queue_and_a_kind_have_pages(site: Site, olaf: TestClient):
    conn = site.database.conn
    make_dead_letters(conn, 3)
    job = make_job(conn, "mail.send", queue="mail")
    worker = make_worker(conn, "w-mail")
    claim(conn, worker, 5)
    conn.execute(
        "update redrive.workers set progress = jsonb_build_object('running',"
        " jsonb_build_object(%s::text, 7300)) where id = %s",
        (str(job), worker),
    )
    record(conn)

    mail, default = olaf.get("/queues/mail").text, olaf.get("/queues/default").text
    kind, workers = olaf.get("/kinds/mail.send").text, olaf.get("/workers").text

    for page in (mail, kind, workers):
        assert f'<a href="/jobs/{job}">{job}</a>' in page
        assert ">2 h ago</time>" in page
    assert "invoice.charge: ValueError" in default
    assert "/kinds/invoice.charge" in default
    assert "/kinds/mail.send" in olaf.get("/kinds?from=1h").text
    assert olaf.get("/queues/no.such").status_code == 404
    assert olaf.get("/kinds/no.such").status_code == 200


def test_a_worker_whose_jobs_are_not_listed_is_not_idle(site: Site, olaf: TestClient):
    conn = site.database.conn
    worker = make_worker(conn, "w-1")
    conn.execute("update redrive.workers set inflight = 3 where id = %s", (worker,))

    page = olaf.get("/workers").text

    assert "it has not reported them yet" in page
    assert "It runs no job." not in page


def test_many_workers_are_shown_in_parts_and_the_lost_ones_first(
    site: Site, olaf: TestClient
):
    conn = site.database.conn
    made = [make_worker(conn, f"w-{n:03}") for n in range(MOST_WORKERS + 3)]
    silence(conn, made[-1])
    conn.execute("update redrive.workers set version = '1.4.2' where id = %s", made[:1])
    first = olaf.get("/workers").text
    onward = re.search(r'href="(/workers\?after=\d+)" rel="next"', first)
    assert onward
    second = olaf.get(onward[1]).text

    names = [
        re.findall(r'<h2 id="worker-\d+">([^<]+)', page) for page in (first, second)
    ]
    assert [len(page) for page in names] == [MOST_WORKERS, 3]
    assert names[0][0] == "w-050"
    assert sorted([*names[0], *names[1]]) == [
        f"w-{n:03}" for n in range(MOST_WORKERS + 3)
    ]
    assert 'rel="next"' not in second
    sums = re.findall(r'<td>([^<]+)</td><td><span class="state (\w+)">', first)
    assert ("1.4.2", "working") in sums
    assert {state for _, state in sums} == {"working", "silent"}
    rows = site.bearer("olaf").get("/api/v1/workers?after=50").json()["rows"]
    assert [row["name"] for row in rows] == ["w-050"]
    assert olaf.get("/workers?after=x").status_code == 400


def test_each_worker_shows_its_longest_jobs(site: Site, olaf: TestClient):
    """A busy one leaves room for another."""
    conn = site.database.conn
    for name, n in (("w-busy", 300), ("w-calm", 1)):
        worker = make_worker(conn, name)
        make_jobs(conn, n)
        running = {str(job.id): job.id * 1.0 for job in claim(conn, worker, n)}
        conn.execute(
            "update redrive.workers set inflight = %s, progress = jsonb_build_object("
            " 'running', %s::jsonb) where id = %s",
            (n, json.dumps(running), worker),
        )

    page = olaf.get("/workers").text

    shown = re.findall(r'<a href="/jobs/(\d+)">', page)
    assert len(shown) == MOST_OF_WORKER + 1
    assert f"and {300 - MOST_OF_WORKER} more that began later" in page


def test_a_viewer_sees_curves_but_no_failures(site: Site):
    make_dead_letters(site.database.conn, 3)
    record(site.database.conn)
    vera = site.signed_in("vera")

    for path in ("/", "/queues/default", "/kinds/invoice.charge", "/workers"):
        page = vera.get(path)
        assert page.status_code == 200, path
        assert "ValueError" not in page.text


def test_steps_are_in_order_whatever_time_zone_wrote_them():
    letter = {
        "edits": [{"at": NOW, "paths": ["a"], "actor": "ada", "why": "typo"}],
        "notes": [{"at": "2026-11-25T13:30:00+01:00", "actor": "ada", "text": "x"}],
    }

    steps = timeline({"failures": [], "story": []}, letter)

    assert [step["what"] for step in steps] == ["note", "edited: a"]


def test_a_job_has_one_timeline(site: Site, olaf: TestClient):
    (job,) = make_dead_letters(site.database.conn, 1)

    page = olaf.get(f"/jobs/{job}").text

    assert page.count("Attempt 1 failed") == 1
    assert "<h2>Failures</h2>" not in page
    assert "This job died after 1 attempt" in page


def test_a_reason_that_has_no_words_is_shown_as_it_is():
    letter = {"attempts": 2, "time_to_dlq_seconds": None, "failures": [], "reason": "x"}
    job = {"state": "dead", "why": {"code": "ended"}}

    assert headline(job, letter) == "This job died after 2 attempts, because x."
