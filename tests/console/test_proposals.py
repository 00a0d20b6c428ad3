"""The page of proposals: what agents propose, and the changes that start or reject it."""

from starlette.testclient import TestClient

from redrive.dead_letters.edit import store as edits
from redrive.dead_letters.edit.store import Letter
from redrive.dead_letters.filter import Filter
from redrive.extras.proposals import store as proposals
from redrive.extras.proposals.store import Agent
from tests.console.conftest import Site, act
from tests.factories import make_dead_letter

ADAS = Agent("claude", "ada")
NAME = 'agent "claude" on behalf of "ada"'
PATCH = [{"op": "replace", "path": "/currency", "value": "EUR"}]
PAYLOAD = "select payload from redrive.dead_letters"


def propose(site: Site) -> int:
    """Let an agent propose a plan, a mute and an edit; return the edit's id."""
    conn = site.database.conn
    make_dead_letter(conn, payload={"currency": "EURO", "password": "hunter2"})
    proposals.propose_campaign(conn, ADAS, Filter(group="f1"), "fixed in 2")
    proposals.propose(
        conn, "mute", ADAS, "<b>noise</b>", {"group": "f1", "seconds": 7200}
    )
    found = edits.find(conn, Filter(state=("open",)))
    letters = [one for one in found if isinstance(one, Letter)]
    return proposals.propose_edit(conn, ADAS, letters, PATCH, "EURO is none")


def test_proposals_stand_on_a_page_and_in_the_api(site: Site, olaf: TestClient):
    assert "No agent proposes anything" in olaf.get("/proposals").text
    propose(site)
    page = olaf.get("/proposals").text

    assert page.count(NAME.replace('"', "&#34;")) == 3
    assert "&lt;b&gt;noise" in page
    assert 'href="/campaigns/1"' in page
    rows = site.bearer("olaf").get("/api/v1/proposals").json()["rows"]
    assert {row["action"] for row in rows} == {"redrive", "edit", "mute"}


def test_an_edit_is_looked_at_and_started(site: Site, olaf: TestClient):
    number = propose(site)
    path = f"/change/proposal-start?proposal={number}"
    page = olaf.get(path).text

    assert '<span class="add">+  &#34;currency&#34;: &#34;EUR&#34;' in page
    assert "hunter2" not in page
    answer = act(olaf, path, why="it is right")
    assert answer.headers["location"].startswith("/proposals?said=")
    assert site.database.value(PAYLOAD)["currency"] == "EUR"
    assert site.database.row(
        "select actor, action, why from redrive.audit order by id desc limit 1"
    ) == ("token:olaf", "edit", f"proposal {number} of {NAME}: it is right")
    assert "There is no open proposal" in olaf.get(path).text


def test_a_mute_is_rejected(site: Site, olaf: TestClient):
    number = propose(site) - 1
    act(olaf, f"/change/proposal-reject?proposal={number}", why="no")

    assert site.database.value("select muted_until from redrive.grouped") is None
    actions = {row["action"] for row in proposals.find(site.database.conn)}
    assert actions == {"redrive", "edit"}


def test_an_edit_that_no_longer_applies_stays_open(site: Site, olaf: TestClient):
    number = propose(site)
    site.database.rows("update redrive.dead_letters set payload = '{}'")
    answer = act(olaf, f"/change/proposal-start?proposal={number}", why="why")

    assert answer.status_code == 400
    assert proposals.show(site.database.conn, number) is not None


def test_a_number_of_no_proposal_is_refused(olaf: TestClient):
    for text in ("0", "-1", "x", "9" * 30, "\u0661"):
        answer = olaf.get("/change/proposal-start", params={"proposal": text})
        assert answer.status_code == 400
