"""Fixtures: the whole console over HTTP, with the logins that a deployment has."""

import hashlib
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo
from starlette.testclient import TestClient

from redrive.database.connections.address import Address
from redrive.extras.console.app import application
from redrive.extras.console.security.access import Access, Proxy, Role, Tokens, networks
from redrive.extras.console.security.logins import Logins
from tests.postgres import Database

TOKENS = {"vera": Role.VIEWER, "olaf": Role.OPERATOR, "anna": Role.APPROVER}
"""Users and their roles; the token of each is `<name>-token`."""

RIGHTS = {
    Role.VIEWER: "redrive_viewer",
    Role.OPERATOR: "redrive_operator",
    Role.APPROVER: "redrive_operator",
}
OWN = {"sec-fetch-site": "same-origin"}
PROXY = "10.9.0.1"


def digest(token: str) -> str:
    """Return the hash of a token, as the tokens file holds it."""
    return hashlib.sha256(token.encode()).hexdigest()


class Site:
    """A console and its clients."""

    def __init__(self, database: Database, home: Path, stack: ExitStack) -> None:
        self.database, self._stack = database, stack
        self.file = home / "tokens"
        self.write(TOKENS)
        self.logins = logins_of(database, stack)
        self.access = Access(
            tokens=Tokens(self.file),
            proxy=Proxy(networks(PROXY)),
            groups={"oncall": Role.OPERATOR, "staff": Role.VIEWER},
            key="k" * 32,
        )
        self.app: Any = application(self.access, self.logins)

    def write(self, tokens: dict[str, Role]) -> None:
        """Write the file of tokens."""
        lines = [
            f"{digest(f'{name}-token')} {role.word} {name}"
            for name, role in tokens.items()
        ]
        self.file.write_text("\n".join(("# who may come in", "", *lines)) + "\n")

    def client(self, peer: str = "203.0.113.7", **headers: str) -> TestClient:
        """Return a client at an address."""
        client = TestClient(
            self.app,
            base_url="https://console.test",
            client=(peer, 4711),
            follow_redirects=False,
        )
        client.headers |= {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        return self._stack.enter_context(client)

    def signed_in(self, name: str) -> TestClient:
        """Return a browser with a session."""
        client = self.client(**OWN)
        answer = client.post("/sign-in", data={"token": f"{name}-token"})
        assert answer.status_code == 303
        return client

    def bearer(self, name: str) -> TestClient:
        """Return a program with a bearer token."""
        return self.client(authorization=f"Bearer {name}-token")


def logins_of(database: Database, stack: ExitStack, *roles: Role) -> Logins:
    """Return the logins of a database for all roles, or for some."""
    addresses = {
        role: Address(login(database, RIGHTS[role])) for role in roles or RIGHTS
    }
    logins = Logins(addresses)
    stack.callback(logins.close)
    return logins


def login(database: Database, role: str) -> str:
    """Return the URL of a login that has exactly the rights of a role."""
    return make_conninfo(database.url, options=f"-c role={role}")


def csrf(client: TestClient, path: str = "/") -> str:
    """Return the token in the forms of a page."""
    found = re.search(r'name="csrf" value="([^"]+)"', client.get(path).text)
    assert found
    return found[1]


def act(client: TestClient, path: str, **fields: str) -> Any:
    """Preview a change, and send its form as a browser does."""
    page = client.get(path)
    assert page.status_code == 200, page.text
    action = re.search(r'<form class="act" method="post" action="([^"]+)"', page.text)
    assert action, page.text
    hidden = dict(
        re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page.text)
    )
    return client.post(action[1].replace("&amp;", "&"), data=hidden | fields)


@pytest.fixture
def site(database: Database, tmp_path: Path) -> Iterator[Site]:
    """A console on the test's database."""
    with ExitStack() as stack:
        yield Site(database, tmp_path, stack)


@pytest.fixture
def olaf(site: Site) -> TestClient:
    """An operator in a browser."""
    return site.signed_in("olaf")
