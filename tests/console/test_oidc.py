"""Sign-in through a real OpenID Connect provider, which runs in its own process."""

import base64
import hashlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest
from starlette.testclient import TestClient

from redrive.database.embedded import free_port
from redrive.extras.console.app import application
from redrive.extras.console.security.access import COOKIE, PENDING, Access, Role, Tokens
from redrive.extras.console.security.oidc import Client, Provider
from tests.console.conftest import OWN, Site, csrf, login
from tests.console.test_browser import CHROMIUM
from tests.console.test_command import started
from tests.postgres import Database

PEOPLE = {
    "ada": {"email": "ada@example", "groups": ["all", "oncall"]},
    "vera": {"email": "vera@example", "groups": "staff"},
    "guest": {"email": "guest@example", "groups": ["all"]},
    "mallory": {"email": "ada@example", "email_verified": False, "groups": ["oncall"]},
    "malory": {"email": "ada@example", "email_verified": "false", "groups": ["oncall"]},
    "nobody": {"groups": ["oncall"]},
    "two": {"email": "ada,bob", "groups": ["oncall"]},
}
GROUPS = {"oncall": Role.OPERATOR, "staff": Role.VIEWER}


@contextmanager
def provider(*arguments: str) -> Iterator[str]:
    """Run the provider, and yield its issuer."""
    people = [
        f"--user-claims={json.dumps({'sub': sub} | said)}"
        for sub, said in PEOPLE.items()
    ]
    command = [
        sys.executable,
        "-m",
        "oidc_provider_mock",
        "--port=0",
        *people,
        *arguments,
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr
            found = (
                re.search(r"running on (http://[\d.:]+)", line)
                for line in process.stderr
            )
            yield next(match[1] for match in found if match)
        finally:
            process.kill()


@pytest.fixture(scope="session")
def issuer() -> Iterator[str]:
    with provider() as found:
        yield found


class Door(Site):
    """A console with a provider, and people who sign in with it."""

    def __init__(
        self, database: Database, home: Path, stack: ExitStack, **client: Any
    ) -> None:
        super().__init__(database, home, stack)
        at = {"client_id": "console", "client_secret": "quiet"} | client
        redirect = "https://console.test/sign-in/callback"
        self.provider = Provider(Client(redirect=redirect, **at))
        self.access = Access(
            tokens=Tokens(self.file),
            provider=self.provider,
            groups=GROUPS,
            key="k" * 32,
        )
        self.app = application(self.access, self.logins)

    def begun(self, onward: str = "/") -> tuple[TestClient, str]:
        """Return a client that begins to sign in, and the address of the provider."""
        client = self.client(**OWN)
        answer = client.get("/sign-in/provider", params={"next": onward})
        assert answer.status_code == 302, answer.text
        return client, answer.headers["location"]

    def enters(self, sub: str, onward: str = "/") -> tuple[TestClient, Any]:
        """Sign in, and return the response to the callback."""
        client, there = self.begun(onward)
        return client, client.get(said_yes(there, sub))


def said_yes(there: str, sub: str) -> str:
    """Sign in at the provider, and return the address of the callback."""
    answer = httpx2.post(there, data={"sub": sub})
    assert answer.status_code == 302, answer.text
    return answer.headers["location"]


def edited(url: str, **values: str) -> str:
    """Return the address with other parameters."""
    query = {
        name: found[0] for name, found in parse_qs(urlsplit(url).query).items()
    } | values
    return f"{url.partition('?')[0]}?{urlencode(query)}"


@pytest.fixture
def opened(database: Database, tmp_path: Path) -> Iterator[Any]:
    """Function that opens a console whose provider has an issuer."""
    with ExitStack() as stack:
        yield lambda issuer, **more: Door(
            database, tmp_path, stack, issuer=issuer, **more
        )


@pytest.fixture
def door(opened: Any, issuer: str) -> Door:
    return opened(issuer)


def test_somebody_signs_in_and_goes_on_where_they_were(door: Door):
    stranger = door.client(**OWN)
    page = stranger.get(stranger.get("/groups?kind=a.b").headers["location"]).text
    assert (
        'href="/sign-in/provider?next=/groups%3Fkind%3Da.b">Sign in with 127.0.0.1'
        in page
    )

    client, answer = door.enters("ada", "/groups?kind=a.b")

    assert (answer.status_code, answer.headers["location"]) == (303, "/groups?kind=a.b")
    home = client.get("/").text
    assert "ada@example <small>operator</small>" in home
    assert client.post("/sign-out", data={"csrf": csrf(client)}).status_code == 303
    assert client.get("/").status_code == 303


def test_the_highest_role_of_their_groups_is_theirs(door: Door):
    client, answer = door.enters("vera")

    assert answer.status_code == 303
    assert "<small>viewer</small>" in client.get("/").text
    assert client.get("/change/pause?queue=default").status_code == 403


def test_whom_the_provider_knows_and_we_do_not_stays_outside(door: Door):
    reasons = {
        "guest": "none of your groups has a role here",
        "stranger": "none of your groups has a role here",
        "mallory": "did not verify your email",
        "malory": "did not verify your email",  # Some providers send text
        "nobody": "did not send your name",
        "two": "must send one name",
    }
    for sub, says in reasons.items():
        client, answer = door.enters(sub)

        assert (answer.status_code, says in answer.text) == (403, True), sub
        assert COOKIE not in client.cookies
        assert client.get("/").status_code == 303


def test_the_address_holds_what_only_this_browser_can_answer(door: Door):
    """PKCE: a stolen code is worth nothing without the verifier."""
    client, there = door.begun()

    asked = parse_qs(urlsplit(there).query)
    kept = door.access.read_pending(client.cookies[PENDING])
    (sign_in,) = [
        value["data"] for name, value in kept.items() if name.startswith("_state_")
    ]
    digest = hashlib.sha256(sign_in["code_verifier"].encode()).digest()
    challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    assert asked["code_challenge"] == [challenge]
    assert (asked["code_challenge_method"], asked["response_type"]) == (
        ["S256"],
        ["code"],
    )
    assert asked["nonce"] == [sign_in["nonce"]]
    assert asked["redirect_uri"] == ["https://console.test/sign-in/callback"]
    assert "quiet" not in there


def test_a_wrong_state_is_refused(door: Door):
    client, there = door.begun()

    answer = client.get(edited(said_yes(there, "ada"), state="other"))

    assert answer.status_code == 403
    assert COOKIE not in client.cookies


def test_a_sign_in_that_another_browser_began_is_not_taken_over(door: Door):
    """Login CSRF: a victim who follows a link with a code would act as the attacker."""
    _, theirs = door.begun()
    back = said_yes(theirs, "ada")
    client, _ = door.begun()

    for browser in (door.client(**OWN), client):
        assert browser.get(back).status_code == 403
        assert COOKIE not in browser.cookies


def test_a_code_is_good_once(door: Door):
    client, there = door.begun()
    kept = client.cookies[PENDING]
    back = said_yes(there, "ada")
    assert client.get(back).status_code == 303
    assert PENDING not in client.cookies

    client.cookies.set(PENDING, kept, domain="console.test", path="/")

    assert client.get(back).status_code == 403


def test_a_wrong_nonce_is_refused(door: Door):
    """The ID token belongs to another sign-in."""
    client, there = door.begun()

    assert client.get(said_yes(edited(there, nonce="other"), "ada")).status_code == 403


def test_a_token_for_another_client_is_refused(door: Door):
    client, there = door.begun()
    door.provider.client = Client(
        door.provider.client.issuer, "another", "quiet", door.provider.client.redirect
    )

    assert client.get(said_yes(there, "ada")).status_code == 403


def test_an_expired_token_is_refused(opened: Any):
    with provider("--token-max-age=-600") as issuer:
        _, answer = opened(issuer).enters("ada")

    assert answer.status_code == 403


def test_what_the_provider_refuses_is_told_without_its_words(door: Door):
    client, there = door.begun()
    state = parse_qs(urlsplit(there).query)["state"][0]
    refusal = {
        "error": "access_denied",
        "error_description": "call 555",
        "state": state,
    }

    answer = client.get("/sign-in/callback", params=refusal)

    assert (answer.status_code, "555" in answer.text) == (403, False)


def test_a_provider_that_is_another_or_away_lets_nobody_in(opened: Any, issuer: str):
    """The console asks the provider again at each sign-in."""
    for at, says in (
        (f"{issuer}/", "differs from REDRIVE_CONSOLE_OIDC_ISSUER"),
        ("http://127.0.0.1:1", "does not answer"),
    ):
        client = opened(at).client(**OWN)
        for _ in range(2):
            answer = client.get("/sign-in/provider")
            assert (answer.status_code, says in answer.text) == (503, True)


def test_coming_back_leads_nowhere_else(door: Door):
    elsewhere = ("https://evil.test/", "//evil.test/", "/\\evil.test/", "")
    for onward in (*elsewhere, "/groups?kind=" + "a" * 5000):
        _, answer = door.enters("ada", onward)

        assert (answer.status_code, answer.headers["location"]) == (303, "/"), onward


def test_a_session_that_was_planted_is_not_the_one_that_begins(door: Door):
    client, there = door.begun()
    client.cookies.set(COOKIE, "planted", domain="console.test", path="/")

    client.get(said_yes(there, "ada"))

    assert COOKIE in {c.name for c in client.cookies.jar if c.value != "planted"}


def test_a_role_that_is_taken_from_a_group_is_taken_from_its_sessions(door: Door):
    client, _ = door.enters("ada")
    door.access._groups = {"staff": Role.VIEWER}

    assert client.get("/").status_code == 403

    door.access.provider = None

    assert client.get("/").status_code == 303


def test_a_session_lasts_while_it_is_used_and_twelve_hours_in_all(
    door: Door, monkeypatch: pytest.MonkeyPatch
):
    client, _ = door.enters("ada")
    cookie = {"cookie": f"{COOKIE}={client.cookies[COOKIE]}"}
    now, hour = time.time(), 3600.0

    def at(seconds: float, **headers: str) -> int:
        monkeypatch.setattr(time, "time", lambda: now + seconds)
        return client.get("/", headers=headers).status_code

    assert at(2 * hour - 2) == 200
    assert [at(hours * hour) for hours in range(2, 13)] == [200] * 10 + [303]
    client.cookies.clear()
    assert at(2 * hour - 2, **cookie) == 200
    assert at(2 * hour + 2, **cookie) == 303


def test_a_sign_out_is_not_undone_by_the_session_it_ends(
    door: Door, monkeypatch: pytest.MonkeyPatch
):
    client, _ = door.enters("ada")
    token, now = csrf(client), time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600)

    answer = client.post("/sign-out", data={"csrf": token})

    assert answer.headers.get_list("set-cookie")[0].startswith(f"{COOKIE}=;")
    assert len(answer.headers.get_list("set-cookie")) == 1


def test_without_a_provider_its_addresses_lead_nowhere(site: Site):
    client = site.client(**OWN)

    assert client.get("/sign-in/provider").status_code == 404
    assert client.get("/sign-in/callback?code=x&state=y").status_code == 404


@pytest.mark.skipif(not CHROMIUM, reason="no chromium here: apt-get install chromium")
@pytest.mark.long
def test_a_browser_a_console_and_a_provider_agree(
    database: Database, issuer: str, tmp_path: Path
):
    """A real browser, console and provider sign a user in."""
    playwright = pytest.importorskip("playwright.sync_api")
    address = f"http://localhost:{(port := free_port())}"
    secret = tmp_path / "secret"
    secret.write_text("quiet\n")
    settings = {
        "REDRIVE_CONSOLE_PORT": str(port),
        "REDRIVE_CONSOLE_URL": address,
        "REDRIVE_CONSOLE_OPERATOR_URL": login(database, "redrive_operator"),
        "REDRIVE_CONSOLE_GROUPS": "oncall=operator",
        "REDRIVE_CONSOLE_OIDC_ISSUER": issuer,
        "REDRIVE_CONSOLE_OIDC_CLIENT_ID": "redrive",
        "REDRIVE_CONSOLE_OIDC_CLIENT_SECRET_FILE": str(secret),
    }
    with started(**settings), playwright.sync_playwright() as run:
        browser = run.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_context(base_url=address).new_page()
        page.goto("/breakers")
        page.get_by_role("link", name="Sign in with 127.0.0.1").click()
        page.get_by_role("button", name="ada").click()
        page.wait_for_url(f"{address}/breakers")
        who = page.locator(".who").inner_text()
        other = page.context.new_page()
        other.goto("/queues")
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url(f"{address}/sign-in")
        other.wait_for_url(f"{address}/sign-in")
        browser.close()

    assert who == "ada@example operator"
