"""Identities and access: by token, by proxy, by session, and refusals."""

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl

import psycopg
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from starlette.testclient import TestClient

from redrive.dead_letters.campaigns.store import plan
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.groups.owners import Owner, set_owner
from redrive.errors import InvalidJob, SettingsError
from redrive.extras.console.actions.changes import CHANGES
from redrive.extras.console.app import application
from redrive.extras.console.security import sessions
from redrive.extras.console.security.access import (
    COOKIE,
    Access,
    Role,
    Tokens,
    group_roles,
    networks,
)
from redrive.extras.console.security.logins import MOST_ASKED, MOST_OF_ONE
from redrive.observability.tracing import Tracing
from redrive.verbs.refusal import Refused
from redrive.verbs.verb import Order
from tests.console.conftest import OWN, PROXY, TOKENS, Site, act, csrf, digest, login
from tests.factories import make_dead_letter, make_job

PAGES = (
    *("/", "/groups", "/dead-letters", "/jobs", "/campaigns", "/queues"),
    *("/workers", "/breakers", "/limits", "/schedules", "/audit", "/report"),
    *("/kinds",),
    "/proposals",
)
BLIND = ("/groups", "/dead-letters", "/jobs", "/audit", "/report", "/proposals")
"""What the role redrive_viewer may not see: it quotes payloads, failures or people."""

QUERIES = {
    "redrive": "id=1",
    "dismiss": "id=1",
    "reopen": "id=1",
    "assign": "id=1",
    "note": "id=1",
    "reveal": "id=1",
    "cancel": "id=1",
    "now": "id=1",
    "campaign-plan": "id=1",
    "campaign-start": "campaign=1",
    "campaign-pause": "campaign=1",
    "campaign-resume": "campaign=1",
    "campaign-cancel": "campaign=1",
    "edit": "id=1",
    "pause": "queue=default",
    "resume": "queue=default",
    "set-queue": "queue=default",
    "hold-open": "name=bank",
    "hold-closed": "name=bank",
    "reset": "name=bank",
    "resolve": "group=f1",
    "unresolve": "group=f1",
    "acknowledge": "group=f1",
    "unacknowledge": "group=f1",
    "mute": "group=f1",
    "unmute": "group=f1",
    "retry": "group=f1",
    "hold": "group=f1",
    "release": "group=f1",
    "give-up": "group=f1",
    "set-owner": "pattern=default",
    "remove-owner": "pattern=default",
    "set-objective": "pattern=default",
    "set-retention": "what=groups",
    "limit-names": "what=queues",
    "set-limit": "name=emails",
    "remove-limit": "name=emails",
    "pause-schedule": "name=report.daily",
    "resume-schedule": "name=report.daily",
    "run-schedule": "name=report.daily",
    "proposal-start": "proposal=1",
    "proposal-reject": "proposal=1",
}


def test_nobody_comes_in_without_a_sign_in(site: Site):
    stranger = site.client()

    for path in PAGES:
        answer = stranger.get(path)
        assert (answer.status_code, answer.headers["location"].split("?")[0]) == (
            303,
            "/sign-in",
        )
    for path in (
        "queues",
        "jobs",
        "dead-letters",
        "groups",
        "breakers",
        "audit",
        "jobs/1",
    ):
        answer = stranger.get(f"/api/v1/{path}")
        assert (answer.status_code, answer.headers["www-authenticate"]) == (
            401,
            "Bearer",
        )


def test_probes_and_figures_ask_nobody(site: Site):
    stranger = site.client()
    stranger.get("/dead-letters")

    assert stranger.get("/livez").text == "process: ok\n"
    assert stranger.get("/readyz").text == "database: ok\n"
    assert 'page="/dead-letters",status="303"' in stranger.get("/metrics").text


def test_who_came_in_and_who_did_not_is_counted(site: Site):
    stranger = site.client(**OWN)
    site.signed_in("olaf")
    for token in ("guess", "vera-token"):
        stranger.post("/sign-in", data={"token": token})
    site.client(authorization="Bearer guess").get("/api/v1/queues")
    site.client().get("/groups")  # who did not try was not refused

    figures = stranger.get("/metrics").text.splitlines()

    counted = [
        line for line in figures if line.startswith("redrive_console_sign_ins_total")
    ]
    assert sorted(counted) == [
        'redrive_console_sign_ins_total{outcome="accepted"} 2.0',
        'redrive_console_sign_ins_total{outcome="refused"} 2.0',
    ]


def test_each_answer_has_a_span_without_what_was_asked_for(site: Site):
    """The span names the route, because the address holds ids and values of filters."""
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    tracing = Tracing(provider.get_tracer("test"))
    site.app = application(site.access, site.logins, tracing=tracing)

    site.signed_in("olaf").get("/jobs/17?tenant=acme")
    site.client().get("/livez")

    (signing_in, asking) = spans.get_finished_spans()
    assert (signing_in.name, asking.name) == ("POST /sign-in", "GET /jobs/{job}")
    assert asking.kind is SpanKind.SERVER
    assert dict(asking.attributes or {}) == {
        "http.request.method": "GET",
        "http.route": "/jobs/{job}",
        "http.response.status_code": 404,
    }


@pytest.mark.parametrize("name", ["vera", "olaf", "anna"])
def test_postgres_has_the_last_word_on_what_a_role_sees(site: Site, name: str):
    client = site.signed_in(name)

    seen = {path: client.get(path).status_code for path in PAGES}

    blind = BLIND if name == "vera" else ()
    assert seen == {path: 403 if path in blind else 200 for path in PAGES}


def test_each_change_is_in_the_matrix():
    assert set(QUERIES) == set(CHANGES)


def test_a_viewer_changes_nothing_by_any_way(site: Site):
    page, program = site.signed_in("vera"), site.bearer("vera")
    token = csrf(page)
    for word, query in QUERIES.items():
        form = {"csrf": token, "why": "because", "act": "edit"}
        path = f"/change/{word}"
        assert page.get(f"{path}?{query}").status_code == 403
        assert page.post(f"{path}?{query}", data=form).status_code == 403
        asked = program.post(
            f"/api/v1/{word}?{query}", json={"why": "because", "yes": True}
        )
        assert asked.status_code == 403
    assert site.database.value("select count(*) from redrive.audit") == 0


def test_with_the_page_bypassed_postgres_refuses_a_viewer(site: Site):
    with site.logins.changing(Role.VIEWER) as conn:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("select redrive.pause_v1('q', 'vera', 'x')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("select redrive.dismiss_v1('{1}', 'vera', 'x')")


ALLOWED = {Role.VIEWER: False, Role.OPERATOR: True, Role.APPROVER: True}


@pytest.mark.parametrize("role", Role)
def test_with_api_and_page_bypassed_each_change_is_up_to_the_login_of_the_role(
    site: Site, role: Role
):
    """Postgres refuses each change that a role may not make, without the console."""
    conn = site.database.conn
    there = {
        word: make_job(conn, delay=60)
        if word in {"cancel", "now"}
        else make_dead_letter(conn)
        for word in QUERIES
    }
    assert plan(conn, Filter(ids=[there["campaign-start"]]), actor="ada").plan == 1
    set_owner(conn, Owner("default", "*", "payments"), actor="ada", why="theirs")
    more = {
        "for": "2h",
        "rate": "",
        "matched": "1",
        "concurrency": "5",
        "history": "7d",
        "owner": "payments",
        "objective": "dlq_added_5m",
        "value": "5",
        "at-most": "500",
    }
    more["patch"] = '[{"op": "add", "path": "/seen", "value": true}]'
    changes = {word: change.do for word, change in CHANGES.items()}
    refused: set[str] = set()
    for word, query in QUERIES.items():
        asked = [(n, v if n != "id" else str(there[word])) for n, v in parse_qsl(query)]
        try:
            changes[word](
                partial(site.logins.changing, role), Order(asked, "why", "me", more)
            )
        except psycopg.errors.InsufficientPrivilege:
            refused.add(word)
        except (Refused, InvalidJob, psycopg.DatabaseError):  # by a rule: the login may
            pass

    assert refused == (set() if ALLOWED[role] else set(QUERIES))


def test_what_only_reads_cannot_write_whatever_its_login(site: Site):
    with site.logins.reading(Role.OPERATOR) as conn:
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            conn.execute("select redrive.pause_v1('q', 'olaf', 'x')")
        assert conn.execute("show transaction_read_only").fetchone() == ("on",)


# ---------------------------------------------------------------------- forms


def test_a_form_of_another_site_changes_nothing(site: Site):
    make_job(site.database.conn)
    client = site.signed_in("olaf")
    token = csrf(client)
    form = {"csrf": token, "why": "because"}
    others: list[dict[str, str]] = [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "", "origin": "https://evil.test"},
        {"sec-fetch-site": "", "origin": "null"},
        {"sec-fetch-site": ""},
    ]
    for headers in others:
        client.headers.pop("sec-fetch-site", None)
        sent = {name: value for name, value in headers.items() if value}
        answer = client.post("/change/pause?queue=default", data=form, headers=sent)
        assert answer.status_code == 403, headers

    own = {"origin": "https://console.test"}
    assert (
        client.post("/change/pause?queue=default", data=form, headers=own).status_code
        == 303
    )


def test_a_form_without_its_token_or_with_that_of_somebody_else_changes_nothing(
    site: Site,
):
    make_job(site.database.conn)
    olaf, anna = site.signed_in("olaf"), site.signed_in("anna")
    again = site.signed_in("olaf")
    for token in ("", "x", csrf(anna), csrf(again)):
        answer = olaf.post(
            "/change/pause?queue=default", data={"csrf": token, "why": "because"}
        )
        assert answer.status_code == 403
    assert site.database.value("select count(*) from redrive.audit") == 0


def test_an_api_call_with_a_cookie_alone_changes_nothing(site: Site):
    make_job(site.database.conn)
    client = site.signed_in("olaf")

    answer = client.post(
        "/api/v1/pause?queue=default", json={"why": "because", "yes": True}
    )

    assert answer.status_code == 403
    assert "bearer token" in answer.json()["error"]


def test_other_bodies_than_forms_are_refused(site: Site):
    client = site.signed_in("olaf")

    answer = client.post(
        "/change/pause?queue=default", json={"csrf": csrf(client), "why": "x"}
    )

    assert answer.status_code == 415


# ---------------------------------------------------------------------- sessions


def test_a_session_is_a_cookie_that_no_script_and_no_other_site_gets(site: Site):
    client = site.client(**OWN)

    answer = client.post("/sign-in", data={"token": "olaf-token"})

    cookie = answer.headers["set-cookie"].lower()
    assert cookie.startswith("__host-redrive=")
    assert {"httponly", "secure", "samesite=lax", "path=/"} <= set(cookie.split("; "))


def test_a_wrong_token_is_told_and_not_repeated(site: Site):
    answer = site.client(**OWN).post("/sign-in", data={"token": "guessed-by-mallory"})

    assert answer.status_code == 401
    assert "mallory" not in answer.text
    assert "set-cookie" not in answer.headers


def test_a_session_that_somebody_brought_along_is_not_the_one_that_begins(site: Site):
    """Session fixation: an attacker who plants a cookie does not learn the session."""
    client = site.client(**OWN)
    client.cookies.set(COOKIE, "planted", domain="console.test", path="/")
    assert client.get("/").status_code == 303

    first = client.post("/sign-in", data={"token": "olaf-token"}).cookies[COOKIE]
    second = client.post("/sign-in", data={"token": "olaf-token"}).cookies[COOKIE]

    assert len({"planted", first, second}) == 3


def test_signing_out_ends_it_at_every_replica(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    """A copy of the cookie used to stay valid until two hours after its last use."""
    monkeypatch.setattr(sessions, "PATIENCE_SECONDS", 60)
    client, other, vera = (site.signed_in(name) for name in ("olaf", "olaf", "vera"))
    copied, form = client.cookies[COOKIE], {"csrf": csrf(client)}
    site.app = application(Access(tokens=Tokens(site.file), key="k" * 32), site.logins)
    copy = site.client(**OWN)
    copy.cookies.set(COOKIE, copied, domain="console.test", path="/")
    assert copy.get("/").status_code == 200

    answer = client.post("/sign-out", data=form)

    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in")
    assert client.get("/").status_code == copy.get("/").status_code == 303
    assert copy.get("/api/v1/queues").status_code == 401
    assert (
        copy.post("/change/pause?queue=default", data=form | {"why": "x"}).status_code
        == 303
    )
    assert other.get("/").status_code == vera.get("/").status_code == 200
    vera.post("/sign-out", data={"csrf": csrf(vera)})
    assert site.database.value("select count(*) from redrive.ended_sessions") == 2


def test_whoever_signs_out_as_one_too_many_is_told_that_it_is_not_kept(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    """If the sign-out cannot be recorded, the page says so."""
    monkeypatch.setattr(sessions, "PATIENCE_SECONDS", 60)
    for _ in range(2):
        client = site.signed_in("olaf")
        answer = client.post("/sign-out", data={"csrf": csrf(client)})
        site.database.rows(
            "insert into redrive.ended_sessions (session)"
            " select split_part(session, '.', 1) || '.' || n"
            " from redrive.ended_sessions, generate_series(1, 1000) n on conflict do nothing"
        )

    assert COOKIE not in client.cookies
    assert "could not record it" in client.get(answer.headers["location"]).text


def test_a_token_that_is_taken_out_ends_its_sessions(site: Site):
    client, program = site.signed_in("olaf"), site.bearer("olaf")
    assert client.get("/").status_code == 200

    site.write({"anna": Role.APPROVER})

    assert client.get("/").status_code == 303
    assert program.get("/api/v1/queues").status_code == 401


def test_a_session_ends_with_time(site: Site, monkeypatch: pytest.MonkeyPatch):
    client = site.signed_in("olaf")
    now = time.time()

    monkeypatch.setattr(time, "time", lambda: now + 12 * 3600 + 2)

    assert client.get("/").status_code == 303


@pytest.mark.parametrize(
    "onward",
    [
        "https://evil.test/",
        "//evil.test/",
        "/\\evil.test/",
        "\\\\evil.test",
        "javascript:alert(1)",
        "/\t/evil.test",
        "/\n/evil.test",
        "evil.test",
    ],
)
def test_signing_in_leads_nowhere_else(site: Site, onward: str):
    client = site.client(**OWN)

    answer = client.post(
        "/sign-in", params={"next": onward}, data={"token": "olaf-token"}
    )

    assert (answer.status_code, answer.headers["location"]) == (303, "/")


def test_signing_in_goes_on_where_one_was(site: Site):
    client = site.client(**OWN)
    away = client.get("/dead-letters?kind=a.b").headers["location"]

    answer = client.post(away, data={"token": "olaf-token"})

    assert answer.headers["location"] == "/dead-letters?kind=a.b"


# ---------------------------------------------------------------------- the proxy


def test_a_trusted_proxy_says_who_it_is(site: Site):
    client = site.client(
        PROXY, x_forwarded_user="ada@example", x_forwarded_groups="all, oncall"
    )

    assert "ada@example" in client.get("/").text


def test_its_headers_from_elsewhere_say_nothing(site: Site):
    mallory = site.client(x_forwarded_user="ada@example", x_forwarded_groups="oncall")

    assert mallory.get("/").status_code == 303
    assert mallory.get("/api/v1/queues").status_code == 401


def test_a_header_that_is_there_twice_is_refused(site: Site):
    """A client added its own header to the header of the proxy."""
    client = site.client(PROXY)
    headers = [
        ("x-forwarded-user", "mallory"),
        ("x-forwarded-user", "ada"),
        ("x-forwarded-groups", "oncall"),
    ]

    assert client.get("/", headers=headers).status_code == 400


@pytest.mark.parametrize(
    ("user", "groups", "status"),
    [
        ("ada", "guests", 403),
        ("ada", "", 403),
        ("ada,bob", "oncall", 403),
        ("", "oncall", 303),
    ],
)
def test_a_proxy_without_a_name_or_a_role_lets_nobody_in(
    site: Site, user: str, groups: str, status: int
):
    client = site.client(PROXY, x_forwarded_user=user, x_forwarded_groups=groups)

    assert client.get("/").status_code == status


def test_what_the_proxy_lets_in_still_needs_our_own_form(site: Site):
    make_job(site.database.conn)
    client = site.client(
        PROXY, x_forwarded_user="ada", x_forwarded_groups="oncall", **OWN
    )

    assert (
        client.post("/change/pause?queue=default", data={"why": "x"}).status_code == 403
    )
    assert act(client, "/change/pause?queue=default", why="x").status_code == 303
    assert site.database.row("select actor, action from redrive.audit") == (
        "proxy:ada",
        "pause",
    )


# ---------------------------------------------------------------------- bounds


def test_a_large_body_is_refused_announced_or_not(site: Site):
    client = site.bearer("olaf")

    def chunks():
        for _ in range(80):
            yield b"x" * 1024

    assert client.post("/api/v1/pause", content=b"x" * 70_000).status_code == 413
    assert client.post("/api/v1/pause", content=chunks()).status_code == 413


def test_one_address_does_not_ask_for_ever(site: Site):
    client = site.client("198.51.100.9")
    assert site.app._window._most == 600
    site.app._window._most = 20  # a busy machine answers 600 in more than the minute

    answers = [client.get("/sign-in").status_code for _ in range(21)]

    assert answers == [200] * 20 + [429]
    assert client.get("/livez").status_code == 200
    assert site.client("198.51.100.10").get("/sign-in").status_code == 200


def test_one_session_does_not_use_up_what_another_may_ask_from_the_same_address(
    site: Site,
):
    """Behind an Ingress, all requests share an address. A forged cookie is no session."""
    olaf, anna = site.signed_in("olaf"), site.signed_in("anna")
    site.app._window._most = 3

    def asks(client: TestClient) -> list[int]:
        return [client.get("/static/icon.svg").status_code for _ in range(4)]

    assert asks(olaf) == [200, 200, 200, 429]
    assert asks(anna) == [200, 200, 200, 429]
    for planted in ("a", "b"):
        olaf.cookies.set(COOKIE, planted, domain="console.test", path="/")
        answers = asks(olaf)
    assert answers == [429] * 4


def test_a_field_that_is_there_twice_is_refused(site: Site, olaf: TestClient):
    """The last one counted, so a proxy that looked at the first was passed by."""
    body = f"csrf={csrf(olaf)}&why=x&why=y"
    headers = {"content-type": "application/x-www-form-urlencoded"}

    answer = olaf.post("/change/pause?queue=default", content=body, headers=headers)

    assert answer.status_code == 400
    assert "there more than once" in answer.text


def test_the_sessions_and_tokens_of_a_person_share_one_limit(site: Site):
    """A person began a session for each 600 requests, and a stranger kept programs out."""
    first, second = site.signed_in("olaf"), site.signed_in("olaf")
    program, other = site.bearer("olaf"), site.bearer("anna")
    stranger = site.client("198.51.100.20", authorization="Bearer guess")
    site.app._window._most = 3

    def ask(client: TestClient) -> int:
        return client.get("/static/icon.svg").status_code

    assert [ask(one) for one in (first, second, program)] == [200] * 3
    assert [ask(one) for one in (first, second, program)] == [429] * 3
    assert [ask(stranger) for _ in range(4)] == [200, 200, 200, 429]
    assert ask(other) == 200


def test_one_person_does_not_take_all_connections_of_a_role(site: Site):
    """Eight slow pages let others wait for five seconds, and then refused them."""
    site.write(TOKENS | {"otto": Role.OPERATOR})
    first, second = [site.bearer("olaf") for _ in range(12)], site.bearer("otto")
    waiting = "select count(*) from pg_locks where not granted and relation = 'redrive.jobs'::regclass"
    with ThreadPoolExecutor(12) as pool:
        with site.database.conn.transaction():
            site.database.rows("lock table redrive.jobs")
            slow = [pool.submit(client.get, "/api/v1/jobs") for client in first]
            while site.database.value(waiting) < MOST_OF_ONE:
                time.sleep(0.01)
            time.sleep(0.3)

            other = second.get("/api/v1/audit")
        answers = [one.result() for one in slow]

    assert other.status_code == 200
    codes = [answer.status_code for answer in answers]
    assert codes.count(200) >= MOST_OF_ONE
    assert codes.count(503) >= 12 - MOST_ASKED
    assert {*codes} == {200, 503}
    refused = next(answer for answer in answers if answer.status_code == 503)
    assert "too many requests" in refused.json()["error"]


def test_every_answer_has_its_headers(site: Site):
    client = site.signed_in("olaf")
    for path in (
        "/",
        "/nothing",
        "/static/console.css",
        "/api/v1/queues",
        "/sign-in",
        "/livez",
    ):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


# ---------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    "line",
    ["olaf", "abc operator olaf", f"{'a' * 64} boss olaf", f"{'a' * 64} operator"],
)
def test_a_line_that_is_no_token_is_named_and_not_shown(tmp_path: Path, line: str):
    file = tmp_path / "tokens"
    file.write_text(f"# one\n{digest('x')} viewer vera\n{line}\n")

    with pytest.raises(SettingsError, match="line 3 of") as error:
        Tokens(file).read()

    assert "a" * 64 not in str(error.value)


def test_what_is_wrong_with_the_proxys_settings_is_said():
    with pytest.raises(SettingsError, match=r"10\.0\.0\.300"):
        networks("10.0.0.300")
    with pytest.raises(SettingsError, match=r"oncall=boss.*viewer, operator, approver"):
        group_roles("staff=viewer,oncall=boss")


def test_the_logins_of_the_tests_have_the_rights_of_their_roles(site: Site):
    for role in ("redrive_viewer", "redrive_operator"):
        with psycopg.connect(login(site.database, role)) as conn:
            assert conn.execute("select current_user").fetchone() == (role,)


def test_an_operator_without_a_login_is_told(site: Site):
    make_dead_letter(site.database.conn)
    del site.logins._addresses[Role.OPERATOR]

    answer = site.bearer("olaf").get("/api/v1/dead-letters")

    assert answer.status_code == 403
    assert "no login" in answer.json()["error"]


def test_a_name_has_one_spelling(tmp_path: Path):
    """Two spellings of a name were two people."""
    file = tmp_path / "tokens"
    wide = f"{'a' * 64} operator \uff21da@corp\n"
    file.write_text(wide)
    assert [token.name for token in Tokens(file).read().values()] == ["Ada@corp"]

    file.write_text(wide + f"{'b' * 64} approver Ada\u200b@corp\n")
    with pytest.raises(SettingsError, match="line 2"):
        Tokens(file).read()
