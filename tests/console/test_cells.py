"""One console for several databases: each address names one of them."""

import json
import os
import re
import signal
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from redrive.database.connections.address import Address
from redrive.database.embedded import NEWEST
from redrive.errors import SettingsError
from redrive.extras.console.app import NO_ANSWER, application
from redrive.extras.console.pages import cells as pages
from redrive.extras.console.security import logins as connections
from redrive.extras.console.security import sessions, ways_in
from redrive.extras.console.security.access import COOKIE, Role
from redrive.extras.console.security.logins import Logins
from redrive.settings import load
from tests.console.conftest import Site, act, csrf, digest, logins_of
from tests.console.test_access import PAGES
from tests.factories import make_dead_letters, make_job
from tests.flow.harness import children
from tests.postgres import Database, Server, embedded

GONE = "postgresql://user:p4ss@127.0.0.1:1/x"
OF_ALL = re.compile(r"/|/static/.*|/sign-out|#main|/cells/(us|ap|sa)/([a-z-]+)?")
"""What a page of eu links to besides its own: what is of all, and the same list elsewhere."""


@pytest.fixture
def three(server: Server) -> Iterator[dict[str, Database]]:
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(server.database()) for name in ("eu", "us", "ap")
        }


@pytest.fixture
def fleet(
    three: dict[str, Database], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Site]:
    """Yield a console of three databases, one for viewers only, and an unreachable one."""
    for asked in (pages, sessions):
        monkeypatch.setattr(asked, "PATIENCE_SECONDS", 60)  # this machine may be slow
    with ExitStack() as stack:
        site = Site(three["eu"], tmp_path, stack)
        logins = {"eu": site.logins, "us": logins_of(three["us"], stack)}
        logins["ap"] = logins_of(three["ap"], stack, Role.VIEWER)
        logins["sa"] = Logins(dict.fromkeys(Role, Address(GONE)))
        site.app = application(site.access, logins)
        yield site


def test_the_first_page_shows_all_cells_and_one_that_is_gone_hides_no_other(
    fleet: Site, three: dict[str, Database]
):
    for n, database in enumerate(three.values(), 1):
        make_dead_letters(database.conn, n)
    make_job(three["us"].conn, "mail.send", queue="mail")

    page = fleet.signed_in("vera").get("/")
    rows = fleet.bearer("olaf").get("/api/v1/cells").json()["rows"]

    eu, us, ap, sa = page.text.split("<section ")[1:]
    assert 'href="/cells/eu/workers">No worker is alive.' in eu
    assert '<a href="/cells/us/dead-letters">2</a>' in us
    assert '<a href="/cells/ap/dead-letters">3</a>' in ap
    assert pages.SILENT in sa
    assert "p4ss" not in page.text
    told = {r["cell"]: (r["dead"], r["ready"], r["workers"], r["fault"]) for r in rows}
    assert told == {
        "eu": (1, 0, 0, None),
        "us": (2, 1, 0, None),
        "ap": (None, None, None, "Your role, operator, has no login there."),
        "sa": (None, None, None, pages.SILENT),
    }
    assert fleet.client().get("/readyz").text == "database: ok\n"


def test_pages_of_a_cell_are_about_it_alone(fleet: Site, three: dict[str, Database]):
    make_dead_letters(three["eu"].conn, 60)
    live = make_job(three["eu"].conn, "mail.send", queue="mail")
    olaf = fleet.signed_in("olaf")
    more = (
        "/groups/f1",
        "/explain/f1",
        "/jobs/1",
        f"/jobs/{live}",
        "/change/edit?id=1",
    )
    changes = (
        "/change/redrive?group=f1",
        "/change/cancel?queue=mail",
        "/change/pause?queue=mail",
    )

    for path in (*PAGES, *more, *changes, "/dead-letters?kind=invoice.charge"):
        page = olaf.get(f"/cells/eu{path}")
        assert page.status_code == 200, path
        assert "<title>" in page.text
        assert " · eu · Redrive</title>" in page.text
        assert " --cell eu</code>" in page.text
        links = re.findall(r'(?:href|src|action|hx-get)="([^"]*)"', page.text)
        strays = {link for link in links if not link.startswith("/cells/eu/")}
        assert not [link for link in strays if not OF_ALL.fullmatch(link)], path
    for path in PAGES:
        assert olaf.get(f"/cells/sa{path}").status_code == 503
        assert olaf.get(f"/cells/ap{path}").status_code == 403
    assert olaf.get("/cells/eu").status_code == 200
    assert olaf.get("/cells/eu/find?id=7").headers["location"] == "/cells/eu/jobs/7"
    assert (
        olaf.get("/cells/eu/dead-letters/7").headers["location"] == "/cells/eu/jobs/7"
    )


def test_a_change_goes_where_its_page_says(fleet: Site, three: dict[str, Database]):
    for database in three.values():
        make_dead_letters(database.conn, 2)
    olaf, program = fleet.signed_in("olaf"), fleet.bearer("olaf")
    path = "/cells/us/change/redrive?group=f1"
    seen = olaf.get(path).text
    shown = program.post("/cells/us/api/v1/redrive?group=f1").json()

    olaf.get("/cells/eu/change/redrive?group=f1")  # in another tab, meanwhile
    done = act(olaf, path, why="the fix is out")
    asked = {"why": "x", "yes": True}
    again = program.post("/cells/eu/api/v1/dismiss?id=1", json=asked)

    assert "<h1>Redrive open dead letters <small>in us</small></h1>" in seen
    assert ">Redrive 2 open dead letters in us</button>" in seen
    assert shown["command"].endswith("--cell us")
    assert (done.status_code, again.status_code) == (303, 200)
    assert done.headers["location"].startswith("/cells/us/campaigns/1?said=")
    query = "select min(action) from redrive.audit"
    audits = {name: database.value(query) for name, database in three.items()}
    assert audits == {"eu": "dismiss", "us": "redrive", "ap": None}
    assert olaf.post(path, data={"why": "x"}).status_code == 403, "no form of ours"
    assert (
        fleet.signed_in("vera").get("/cells/ap/change/redrive?group=f1").status_code
        == 403
    )


def test_an_address_without_a_cell_asks_for_one(fleet: Site):
    olaf, program, stranger = (
        fleet.signed_in("olaf"),
        fleet.bearer("olaf"),
        fleet.client(),
    )

    page = olaf.get("/dead-letters?queue=mail&limit=5")
    assert page.status_code == 404
    assert '<a href="/cells/us/dead-letters?queue=mail&amp;limit=5">us</a>' in page.text
    assert (
        "there is no cell &#39;uk&#39;; there are: eu, us"
        in olaf.get("/cells/uk/groups").text
    )
    unknown = program.get("/cells/uk/api/v1/queues").json()
    assert unknown["error"].startswith("there is no cell 'uk'; there are: eu, us")
    refused = program.get("/api/v1/queues")
    assert refused.status_code == 404
    assert (
        "write /cells/NAME/api/v1/queues, where NAME is one of: eu, us, ap, sa"
        in refused.json()["error"]
    )
    assert (
        program.post(
            "/api/v1/pause?queue=a", json={"why": "x", "yes": True}
        ).status_code
        == 404
    )
    schema = program.get("/cells/us/api/v1/openapi.json").json()
    assert schema["servers"] == [{"url": "/cells/us"}]

    for path in ("/", "/groups", "/cells/uk/groups", "/cells/eu/groups?kind=a"):
        answer = stranger.get(path)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/sign-in?next=%2F")
    onward = stranger.get("/cells/eu/groups?kind=a").headers["location"]
    assert onward == "/sign-in?next=%2Fcells%2Feu%2Fgroups%3Fkind%3Da"


def test_ids_name_their_cell_and_are_found_by_it(
    fleet: Site, three: dict[str, Database]
):
    """Job 17 exists in each cell."""
    (job,) = make_dead_letters(three["eu"].conn, 1)
    olaf = fleet.signed_in("olaf")

    assert f">eu:{job}</a>" in olaf.get("/cells/eu/dead-letters").text
    assert f"<h1>Job eu:{job} " in olaf.get(f"/cells/eu/jobs/{job}").text
    assert f">eu:{job}</a>" in olaf.get("/cells/eu/report").text
    found = olaf.get(f"/cells/us/find?id=eu:{job}")
    assert found.headers["location"] == f"/cells/eu/jobs/{job}"
    assert olaf.get("/cells/eu/find?id=zz:7").status_code == 400


def test_a_console_of_one_database_has_no_cells(site: Site):
    assert site.bearer("olaf").get("/api/v1/cells").json() == {
        "rows": [],
        "after": None,
    }
    assert site.signed_in("olaf").get("/cells").headers["location"] == "/"
    assert "--cell" not in site.signed_in("olaf").get("/").text


def test_a_database_that_hung_is_left_alone_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(connections, "HANGS_SECONDS", -1.0)
    logins = Logins({Role.VIEWER: Address(GONE)})

    def refusal() -> str:
        with (
            pytest.raises(psycopg.OperationalError) as error,
            logins.reading(Role.VIEWER),
        ):
            pass
        return str(error.value)

    first, second = refusal(), refusal()
    monkeypatch.setattr(logins, "_away_until", 0.0)

    assert "refused" in first
    assert second == "the database did not answer a moment ago"
    assert "refused" in refusal()


def test_a_frozen_cell_fails_its_own_pages_and_no_others(
    fleet: Site, monkeypatch: pytest.MonkeyPatch
):
    """A frozen server keeps its connections open and never answers."""
    monkeypatch.setattr(connections, "AWAY_SECONDS", 600)  # while this test asks
    with ExitStack() as stack:
        server = stack.enter_context(embedded(NEWEST))
        us = stack.enter_context(server.database())
        by_cell = {"eu": fleet.logins, "us": logins_of(us, stack)}
        fleet.app = application(fleet.access, by_cell)
        vera = fleet.signed_in("vera")
        assert vera.get("/cells/us/queues").status_code == 200
        stack.enter_context(frozen(server))
        monkeypatch.setattr(pages, "PATIENCE_SECONDS", 600)

        of_all = vera.get("/")
        own = vera.get("/cells/us/queues")
        healthy = vera.get("/cells/eu/queues")

    eu, us_card = of_all.text.split("<section ")[1:]
    assert pages.SILENT not in eu
    assert pages.SILENT in us_card
    assert (own.status_code, healthy.status_code) == (503, 200)
    assert NO_ANSWER in own.text


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    """Freeze a server and its processes for a while."""
    with psycopg.connect(server.url) as conn:
        row = conn.execute("show data_directory").fetchone()
    assert row
    postmaster = int((Path(row[0]) / "postmaster.pid").read_text().split()[0])
    os.kill(postmaster, signal.SIGSTOP)  # from here on it starts no process
    backends = children(postmaster)
    try:
        _signal(backends, signal.SIGSTOP)
        yield
    finally:
        _signal((postmaster, *backends), signal.SIGCONT)


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # one that was ending has ended
            os.kill(pid, number)


def test_cells_have_logins_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in [name for name in os.environ if name.startswith("REDRIVE_")]:
        monkeypatch.delenv(name)
    file, tokens = tmp_path / "cells.json", tmp_path / "tokens"
    tokens.write_text(f"{digest('x')} operator ada\n")
    (tmp_path / "us").write_text(GONE)

    def guarded(us: dict[str, object], **more: object) -> list[dict[Role, Address]]:
        eu = {"name": "eu", "url": GONE, "console": {"viewer": {"url": GONE}}}
        file.write_text(json.dumps([eu, {"name": "us", "url": GONE, "console": us}]))
        given = {"databases": file, "console_tokens": tokens, **more}
        _, logins = ways_in.guarded([load(cell=cell, **given) for cell in ("eu", "us")])
        return list(logins)

    eu, us = guarded({"operator": {"url_file": "us", "role": "redrive_operator"}})
    assert (list(eu), list(us)) == ([Role.VIEWER], [Role.OPERATOR])
    assert (us[Role.OPERATOR].file, us[Role.OPERATOR].role) == (
        tmp_path / "us",
        "redrive_operator",
    )
    wrong: list[tuple[dict[str, object], str]] = [
        (
            {},
            "no role of the console has a login to cell us: give it some in REDRIVE_DATABASES",
        ),
        (
            {"viewer": {"url": GONE}},
            "no cell of REDRIVE_DATABASES has console.operator",
        ),
        (
            {"operator": {}},
            "cell us: console.operator must have either url or url_file",
        ),
        ({"boss": {"url": GONE}}, "1.console.boss"),
        ({"operator": {"url_file": "gone"}}, "cell us: console.operator: url_file is "),
    ]
    for console, said in wrong:
        with pytest.raises(SettingsError) as error:
            guarded(console)
        assert said in str(error.value)
        assert "p4ss" not in str(error.value)
    with pytest.raises(
        SettingsError, match="REDRIVE_CONSOLE_OPERATOR_URL is for one database"
    ):
        guarded({"operator": {"url": GONE}}, console_operator_url=GONE)


def test_signing_out_of_all_says_where_it_is_not_known(fleet: Site):
    """A copy of the cookie is valid in no cell that recorded the sign-out."""
    olaf = fleet.signed_in("olaf")
    copy = fleet.client(cookie=f"{COOKIE}={olaf.cookies[COOKIE]}")
    form = {"csrf": csrf(olaf, "/")}
    assert copy.get("/cells/us/").status_code == 200

    answer = olaf.post("/sign-out", data=form)

    assert COOKIE not in olaf.cookies
    assert "could not record it" in olaf.get(answer.headers["location"]).text
    assert [copy.get(f"/cells/{cell}/").status_code for cell in ("eu", "us")] == [
        303,
        303,
    ]
    assert copy.get("/").text.count("You signed out.") == 2
