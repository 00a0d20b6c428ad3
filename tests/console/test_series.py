"""The JSON API of the series and the marks."""

from datetime import datetime

import pytest

from redrive.extras.console.pages.json_api import series
from redrive.observability.series import each_point, now_of, shortest
from redrive.worker import store
from tests.console.conftest import Site
from tests.factories import make_job, make_jobs
from tests.postgres import Database
from tests.sql.test_series import let_pass, record

FIELDS = [
    *("at", "queue", "kind", "enqueued", "completed", "failed", "retried", "died"),
    *("redriven", "duration_p50", "duration_p95", "wait_p95"),
]


def recorded(database: Database) -> None:
    """Record two minutes, an hour apart, with jobs of two queues."""
    conn = database.conn
    make_jobs(conn, 3, queue="mail")
    make_jobs(conn, 4, queue="bills", kind="invoice.send")
    measured = store.Measured("mail", "invoice.charge", [0, 9, *[0] * 15], [0] * 18)
    store.count_times(conn, [measured])
    record(conn)
    let_pass(conn, 60)
    make_job(conn, queue="mail")
    record(conn)


def test_a_viewer_reads_the_series_and_the_marks(site: Site) -> None:
    recorded(site.database)
    site.database.rows("select redrive.pause_v1('mail', 'ada', 'a secret reason')")
    vera = site.bearer("vera")

    rows = vera.get("/api/v1/series").json()["rows"]
    (mark,) = vera.get("/api/v1/marks?queue=mail").json()["rows"]
    assert [list(row) for row in rows] == [FIELDS] * 3
    assert vera.get("/api/v1/series?kind=invoice.send").json()["rows"] == rows[:1]
    assert (rows[1]["queue"], rows[1]["enqueued"]) == ("mail", 3)
    assert rows[1]["at"].endswith(":00Z")
    assert 0.005 < rows[1]["duration_p50"] < rows[1]["duration_p95"] <= 0.01
    assert vera.get("/api/v1/series?since=30m").json()["rows"] == rows[2:]
    assert mark["text"] == "paused queue mail"
    assert "secret" not in str(mark)


def test_a_time_or_filter_that_is_none_is_refused(site: Site) -> None:
    vera = site.bearer("vera")
    for path in ("series?since=never", "series?state=open", "marks?since=never"):
        assert vera.get(f"/api/v1/{path}").status_code == 400, path
    long_ago = {"since": "0001-01-01T00:30+14:00"}
    for path in ("series", "marks"):
        answer = vera.get(f"/api/v1/{path}", params=long_ago)
        assert answer.status_code == 200, path


def test_pages_hold_whole_steps_and_all_of_them(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "MOST_POINTS", 2)
    recorded(site.database)
    vera = site.bearer("vera")

    conn = site.database.conn
    recent = shortest(conn, now_of(conn) - series.RECENT)
    points = each_point(conn, recent)
    assert [point.enqueued for point in points] == [4, 3, 1]

    first = vera.get("/api/v1/series").json()
    second = vera.get("/api/v1/series", params={"after": first["after"]}).json()
    assert [row["enqueued"] for row in first["rows"]] == [4, 3]
    assert [row["enqueued"] for row in second["rows"]] == [1]
    assert second["after"] is None
    assert datetime.fromisoformat(first["after"]) == datetime.fromisoformat(
        second["rows"][0]["at"]
    )
