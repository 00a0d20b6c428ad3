"""Links that act: signed, once, for fifteen minutes, and only after a confirmation."""

import random
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from itsdangerous import URLSafeTimedSerializer
from starlette.testclient import TestClient

from redrive.dead_letters.campaigns import store as campaign
from redrive.dead_letters.filter import Filter
from redrive.extras.console.security.act_links import LINK_SECONDS, ActLinks
from tests.console.conftest import Site, act, csrf
from tests.factories import make_dead_letter

KEY = "k" * 32
FORGERIES = 1_000
PAUSED = "select count(*) from redrive.queues where paused_at is not null"
MUTED = "select muted_until - clock_timestamp() from redrive.grouped"


def signed(word: str = "pause", target: str = "default", cell: str = "") -> str:
    return ActLinks(KEY).sign(cell, word, target)


def offered(client: TestClient, query: str = "queue=default") -> dict[str, str]:
    """Return the links of the page of an alert, by their texts."""
    page = client.get(f"/act?{query}").text
    found = re.findall(r'<a class="button" href="(/act/[^"]+)">([^<]+)…</a>', page)
    return {text: path for path, text in found}


def test_an_alert_offers_to_mute_to_pause_and_to_start_a_plan(
    site: Site, olaf: TestClient
):
    make_dead_letter(site.database.conn)
    campaign.plan(site.database.conn, Filter(queue=("default",)), actor="ada")
    links = offered(olaf)

    assert list(links) == [
        "Mute invoice.charge: ValueError (1 open)",
        "Pause queue default",
        "Start plan 1: redrive 1 dead letter",
    ]
    assert list(offered(olaf, "group=f1")) == [
        "Mute invoice.charge: ValueError (1 open)"
    ]
    rows = site.bearer("olaf").get("/api/v1/links?queue=default").json()["rows"]
    assert [row["text"] for row in rows] == list(links)


def test_each_link_acts_once_and_after_a_confirmation(site: Site, olaf: TestClient):
    make_dead_letter(site.database.conn)
    campaign.plan(site.database.conn, Filter(queue=("default",)), actor="ada")
    database = site.database
    effects = {
        "Mute invoice.charge: ValueError (1 open)": (
            MUTED,
            lambda v: v and 7000 < v.total_seconds() <= 7200,
        ),
        "Pause queue default": (PAUSED, lambda v: v == 1),
        "Start plan 1: redrive 1 dead letter": (
            "select actor from redrive.campaigns where started_at is not null",
            lambda v: v == "token:olaf",
        ),
    }
    for text, path in offered(olaf).items():
        effect, holds = effects[text]
        more = {"for": "2h"} if text.startswith("Mute") else {}
        before = database.column(effect)  # type: ignore[arg-type]
        assert olaf.get(path).status_code == 200
        assert database.column(effect) == before  # type: ignore[arg-type]
        answer = act(olaf, path, why="the page", **more)
        assert answer.status_code == 303, answer.text
        assert holds(database.value(effect)), text  # type: ignore[arg-type,operator]

        lines = database.value("select count(*) from redrive.audit")
        again = olaf.post(path, data={"csrf": csrf(olaf), "why": "again"} | more)
        assert (again.status_code, olaf.get(path).status_code) == (410, 410)
        assert database.value("select count(*) from redrive.audit") == lines


def test_of_two_requests_at_once_one_acts(site: Site, olaf: TestClient):
    make_dead_letter(site.database.conn)
    path = f"/act/{signed('mute', 'f1')}"
    form = {"csrf": csrf(olaf), "why": "why", "for": "2h"}
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: olaf.post(path, data=form), range(4)))

    assert sorted(a.status_code for a in answers) == [303, 410, 410, 410]
    assert site.database.value("select count(*) from redrive.audit") == 1


def test_a_link_needs_a_sign_in_and_a_role_that_may_change(site: Site):
    make_dead_letter(site.database.conn)
    path = f"/act/{signed()}"
    for ask in (path, "/act?queue=default"):
        stranger = site.client().get(ask)
        assert (stranger.status_code, stranger.headers["location"][:9]) == (
            303,
            "/sign-in?",
        )
        assert site.signed_in("vera").get(ask).status_code == 403
    assert site.bearer("vera").get("/api/v1/links?queue=default").status_code == 403
    vera = site.signed_in("vera")
    form = {"csrf": csrf(vera, "/queues"), "why": "why"}
    assert vera.post(path, data=form).status_code == 403
    assert site.database.value(PAUSED) == 0


def test_a_form_of_another_site_cannot_use_a_link(site: Site, olaf: TestClient):
    make_dead_letter(site.database.conn)
    path = f"/act/{signed()}"
    assert olaf.post(path, data={"why": "why"}).status_code == 403
    assert olaf.post(path, data={"csrf": "guess", "why": "why"}).status_code == 403
    assert site.database.value(PAUSED) == 0


@pytest.mark.parametrize("query", ["", "queue=", "queue=A%20b", "queue=%00"])
def test_an_alert_without_a_queue_or_group_is_refused(olaf: TestClient, query: str):
    assert olaf.get(f"/act?{query}").status_code == 400


def test_an_alert_about_nothing_open_offers_nothing_wrong(olaf: TestClient):
    assert offered(olaf, "group=nothing") == {}
    assert offered(olaf, "group=%00") == {}


def test_no_forged_link_is_read() -> None:
    """Changed, cut, or signed with another key or for another purpose: 1,000 of them."""
    chance, links = random.Random(1), ActLinks(KEY)
    content = ["", "pause", "default", "id"]
    others = [
        URLSafeTimedSerializer(KEY, salt="redrive form"),
        URLSafeTimedSerializer("x" * 32, salt="redrive act"),
        URLSafeTimedSerializer("", salt="redrive act"),
    ]
    read = [links.read(_forged(chance, others, content)) for _ in range(FORGERIES)]

    assert read == [None] * FORGERIES
    assert links.read(signed()) is not None


def _forged(chance: random.Random, others: list[Any], content: list[str]) -> str:
    link = signed(target=f"q{chance.random()}")
    place = chance.randrange(len(link) - 2)
    match chance.randrange(4):
        case 0:
            changed = chance.choice([c for c in "AbZ9-_." if c != link[place]])
            return link[:place] + changed + link[place + 1 :]
        case 1:
            return link[:place]
        case 2:
            return str(chance.choice(others).dumps(content))
        case _:
            other = signed(target=f"q{chance.random()}")
            return link.split(".")[0] + "." + ".".join(other.split(".")[1:])


def test_no_old_link_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made at 1,000 moments that are fifteen minutes ago, or longer."""
    chance, links, now = random.Random(2), ActLinks(KEY), time.time()
    old: list[str] = []
    for _ in range(FORGERIES):
        at = now - LINK_SECONDS - 2 - chance.random() * 10**7
        monkeypatch.setattr(time, "time", lambda at=at: at)
        old.append(signed())
    monkeypatch.setattr(time, "time", lambda: now)

    assert [link for link in old if links.read(link)] == []


def test_no_replayed_link_acts(site: Site) -> None:
    """The database knows each link that was used: 10,000 replays of 50 links."""
    ids = [f"link{n}" for n in range(50)]
    use = "select redrive.use_link_v1(%s)"
    for link in ids:
        assert site.database.value(use, link)

    again = "select count(*) from unnest(%s::text[]) l, generate_series(1, 200) where redrive.use_link_v1(l)"
    assert site.database.value(again, ids) == 0


def test_a_link_for_another_cell_is_refused(site: Site, olaf: TestClient):
    assert olaf.get(f"/act/{signed(cell='us')}").status_code == 410
    read = ActLinks(KEY).read(signed(cell="us"))
    assert read
    assert read.cell == "us"
