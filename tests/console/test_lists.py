"""Lists can be sorted, have the columns that one chooses, and become files."""

import csv
import html
import json
import re
from io import StringIO

import pytest
from starlette.testclient import TestClient

from tests.console.conftest import Site
from tests.console.test_pages import ids
from tests.factories import claim, complete, make_dead_letters, make_jobs, make_worker


def heads(page: str) -> list[str]:
    """Return the columns of the list on a page."""
    found = re.findall(
        r'<th scope="col" role="columnheader" class[^>]*>(.*?)</th>', page
    )
    return [re.sub("<[^>]+>|[↑↓]", "", head).strip() for head in found]


def test_a_list_is_sorted_by_a_column_and_back(site: Site, olaf: TestClient):
    made = make_dead_letters(site.database.conn, 60)
    site.database.rows("update redrive.dead_letters set attempts = id % 7")

    up = olaf.get("/dead-letters?sort=attempts").text
    down = olaf.get("/dead-letters?sort=-attempts&kind=invoice.charge").text

    assert [job % 7 for job in ids(up)] == sorted(job % 7 for job in made)
    assert [job % 7 for job in ids(down)] == sorted(
        (job % 7 for job in made), reverse=True
    )
    assert 'aria-sort="descending"' in down
    assert '/dead-letters?kind=invoice.charge&amp;state=open&amp;sort=attempts"' in down
    assert len(ids(olaf.get("/jobs?sort=run_at").text)) == 0


def test_a_list_has_the_columns_of_its_address(site: Site, olaf: TestClient):
    make_dead_letters(site.database.conn, 60)

    page = olaf.get("/dead-letters?columns=id&columns=error_class&columns=died_at").text

    assert heads(page) == ["id", "error class", "died at"]
    onward = re.search(r'<a href="([^"]+)" rel="next"', page)
    assert onward
    assert "columns=id%2Cerror_class%2Cdied_at" in onward[1]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (
            "/dead-letters?columns=payload",
            "columns is &#39;payload&#39;; it must be one of: id",
        ),
        (
            "/dead-letters?sort=payload",
            "sort is &#39;payload&#39;; it must be one of: id",
        ),
        ("/jobs?sort=waiting_for", "sort is &#39;waiting_for&#39;"),
        ("/export/jobs.xml", "there is no such file"),
        ("/export/secrets.csv", "there is no such file"),
    ],
)
def test_what_a_list_does_not_have_is_refused(olaf: TestClient, path: str, said: str):
    answer = olaf.get(path)

    assert answer.status_code in {400, 404}
    assert said in answer.text


def test_rows_can_be_selected_and_changed(site: Site, olaf: TestClient):
    made = make_dead_letters(site.database.conn, 3)

    page = olaf.get("/dead-letters").text
    seen = olaf.get(f"/change/redrive?id={made[0]}&id={made[2]}").text

    assert page.count('type="checkbox" name="id"') == 3
    assert '<button formaction="/change/redrive">' in page
    assert '<p class="big">2 ' in seen
    assert "formaction" not in site.signed_in("vera").get("/workers").text


def test_jobs_that_have_ended_are_not_called_live_and_show_when(
    site: Site, olaf: TestClient
):
    conn = site.database.conn
    conn.execute("select redrive.set_history_v1('mail', 7, 'ada', 'why')")
    make_jobs(conn, 1, queue="mail")
    worker = make_worker(conn)
    complete(conn, worker, *claim(conn, worker, 1))

    page = olaf.get("/jobs?state=completed").text

    assert "<title>Jobs that have ended" in page
    assert "Live jobs</h1>" not in page
    assert "ended at" in heads(page)
    assert len(ids(page)) == 1
    assert "<title>Live jobs" in olaf.get("/jobs").text


def test_names_in_upper_case_have_pages_and_are_in_files(site: Site, olaf: TestClient):
    kind, queue = "app.tasks.SendMail", "Default"
    make_dead_letters(site.database.conn, 2, kind=kind, queue=queue)

    for page in (f"/kinds/{kind}", f"/queues/{queue}", f"/dead-letters?kind={kind}"):
        assert kind in olaf.get(page).text

    sheet = olaf.get(f"/export/dead-letters.csv?kind={kind}&columns=kind,queue")
    rows = list(csv.reader(StringIO(sheet.text)))
    assert rows == [["kind", "queue"], [kind, queue], [kind, queue]]


def test_a_list_becomes_a_file(site: Site, olaf: TestClient):
    conn = site.database.conn
    made = make_dead_letters(conn, 60)
    make_dead_letters(conn, 2, kind="mail.send")
    conn.execute(
        "update redrive.dead_letters set message = '=cmd()' where id = %s", made[:1]
    )
    query = "kind=invoice.charge&columns=id,message"

    sheet = olaf.get(f"/export/dead-letters.csv?{query}")
    found = olaf.get(f"/export/dead-letters.json?{query}").json()

    rows = list(csv.reader(StringIO(sheet.text)))
    assert rows[0] == ["id", "message"]
    assert sorted(int(row[0]) for row in rows[1:]) == made
    assert (
        sheet.headers["content-disposition"]
        == 'attachment; filename="dead-letters.csv"'
    )
    assert {row["id"] for row in found} == set(made)
    assert {row[1] for row in rows[1:] if row[0] == str(made[0])} == {"'=cmd()"}
    assert (
        f"/export/dead-letters.csv?{query.split('&', maxsplit=1)[0]}"
        in olaf.get("/dead-letters?kind=invoice.charge").text
    )


@pytest.mark.parametrize(
    "text", ["=1+1", " =1+1", "\u3000@SUM(1)", "\uff1d1+1", "\t-1"]
)
def test_no_text_in_a_file_is_a_formula(text: str, site: Site, olaf: TestClient):
    """Spreadsheets skip blanks, and some take signs of full width."""
    made = make_dead_letters(site.database.conn, 1)
    site.database.rows("update redrive.dead_letters set message = %s", text)

    sheet = olaf.get("/export/dead-letters.csv?columns=id,message").text

    _, (job, message) = csv.reader(StringIO(sheet))
    assert job == str(made[0])
    assert message.startswith(("'", "\\t"))


def test_live_jobs_become_a_file_too(site: Site, olaf: TestClient):
    made = make_jobs(site.database.conn, 5)

    rows = olaf.get("/export/jobs.json?state=ready").json()

    assert [row["id"] for row in rows] == made
    assert "waiting_for" in rows[0]
    assert site.signed_in("vera").get("/export/jobs.csv").status_code == 403


def test_a_repeated_filter_of_groups_keeps_all_its_values(site: Site, olaf: TestClient):
    """In the files, in other spans, in the form, and in the command."""
    for kind in ("a.one", "a.two", "a.three"):
        make_dead_letters(site.database.conn, 1, kind=kind)
    page = html.unescape(olaf.get("/groups?kind=a.one&kind=a.two").text)

    for path in ("/export/groups.csv?", "/export/groups.json?", "/groups?"):
        assert f"{path}kind=a.one&kind=a.two" in page
    file = re.search(r'"(/export/groups\.json[^"]*)"', page)
    assert file
    assert [row["kind"] for row in olaf.get(file[1]).json()] == ["a.one"]
    assert re.findall(r'name="kind" value="([^"]*)" size', page) == ["a.one", "a.two"]
    assert "dlq groups --kind a.one --kind a.two" in page


def test_groups_and_the_audit_log_become_files(site: Site, olaf: TestClient):
    conn = site.database.conn
    make_dead_letters(conn, 2)
    make_dead_letters(conn, 1, kind="mail.send")
    conn.execute("select redrive.pause_v1('default', 'ada', 'the bank is down')")

    page = olaf.get("/groups?kind=invoice.charge&from=7d").text
    found = olaf.get("/export/groups.json?kind=invoice.charge").json()
    lines = olaf.get("/export/audit.csv?action=pause").text

    assert "/export/groups.csv?kind=invoice.charge" in page
    assert [row["kind"] for row in found] == ["invoice.charge"]
    assert "the bank is down" in lines
    (line,) = csv.DictReader(StringIO(lines))
    assert json.loads(line["detail"])["queue"] == "default"
    assert olaf.get("/export/groups.csv?action=pause").status_code == 400
