"""The server as programs reach it: over stdio, and over HTTP with tokens."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from psycopg.conninfo import make_conninfo
from starlette.testclient import TestClient

from redrive.cli.main import main
from redrive.database.connections.address import Address
from redrive.database.connections.connect import CALL_SECONDS, OwnConnection
from redrive.database.embedded import free_port
from redrive.extras.agents.desk import Answer, Desk
from redrive.extras.agents.server import application
from redrive.extras.console.security import guard
from redrive.extras.console.security.access import Access, Proxy, Role, Tokens, networks
from redrive.extras.proposals.store import Agent
from tests.agents.conftest import PLENTY, data_of
from tests.factories import make_dead_letter
from tests.flow.harness import wait_for
from tests.postgres import Database

ASK = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "list_groups", "arguments": {}},
}
BEGIN = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "helper", "version": "1"},
    },
}
ACCEPT = {"accept": "application/json, text/event-stream"}


@pytest.mark.waits
def test_an_agent_starts_the_command_and_talks_to_it(database: Database) -> None:
    make_dead_letter(database.conn)
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "redrive", "mcp", "--actor", "ada"],
        env={"REDRIVE_DATABASE_URL": database.url},
    )

    async def ask() -> str:
        async with Client(parameters) as client:
            answer = await client.call_tool("list_groups", {})
            (content,) = answer.content
            return content.text  # type: ignore[union-attr] # always a text

    assert len(data_of(anyio.run(ask))) == 1
    (actor,) = database.column("select actor from redrive.audit")
    assert actor.endswith('on behalf of "ada"')


def _line(token: bytes, role: str, owner: str) -> str:
    return f"{hashlib.sha256(token).hexdigest()} {role} {owner}\n"


def _tokens(home: Path) -> Path:
    file = home / "tokens"
    owners = {b"vera-token": "vera", b"vera-second": "vera", b"otto-token": "otto"}
    lines = [_line(token, "viewer", owner) for token, owner in owners.items()]
    lines += [_line(b"olga-token", "operator", "olga")]
    lines += [_line(b"abel-token", "approver", "abel")]
    file.write_text("".join(lines))
    return file


@pytest.fixture
def client(database: Database, tmp_path: Path) -> Iterator[TestClient]:
    """A program that reaches the server over HTTP."""
    file = _tokens(tmp_path)
    desk = Desk(Address(database.url), PLENTY)
    app: Any = application(desk, Access(tokens=Tokens(file)))
    with TestClient(app, base_url="https://mcp.test") as made:
        made.headers |= ACCEPT
        yield made


def _begin(client: TestClient, token: str) -> dict[str, str]:
    """Begin like a client does; return the headers of its further requests."""
    mine = {"authorization": f"Bearer {token}", "user-agent": "helper"}
    answer = client.post("/mcp", json=BEGIN, headers=mine)
    assert answer.status_code == 200, answer.text
    return mine


def test_over_http_the_owner_of_the_token_is_the_person(
    database: Database, client: TestClient
) -> None:
    make_dead_letter(database.conn)
    answer = client.post("/mcp", json=ASK, headers=_begin(client, "vera-token")).json()

    assert len(data_of(answer["result"]["content"][0]["text"])) == 1
    assert database.column("select actor from redrive.audit") == [
        'agent "helper" on behalf of "token:vera"'
    ]


@pytest.mark.parametrize("token", [None, "guess", ""])
def test_nobody_comes_in_without_a_token(
    database: Database, client: TestClient, token: str | None
) -> None:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    for headers_of_session in ({}, _begin(client, "vera-token")):
        mine = {k: v for k, v in headers_of_session.items() if k != "authorization"}
        answer = client.post("/mcp", json=ASK, headers=mine | headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (
            401,
            "Bearer",
        )
    assert database.value("select count(*) from redrive.audit") == 0


def _rpc(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 2, "method": method, "params": params}


@pytest.mark.parametrize(
    ("token", "proposals"), [("vera-token", 0), ("olga-token", 1), ("abel-token", 1)]
)
def test_the_role_of_a_token_bounds_what_its_agents_may_do(
    database: Database, client: TestClient, token: str, proposals: int
) -> None:
    make_dead_letter(database.conn)
    group = database.value("select fingerprint from redrive.dead_letters")
    mute = {"action": "mute", "group": group, "hours": 1, "why": "the provider is down"}
    mine = _begin(client, token)

    listed = client.post("/mcp", json=_rpc("tools/list"), headers=mine).json()
    call = _rpc("tools/call", name="propose_change", arguments=mute)
    answer = client.post("/mcp", json=call, headers=mine).json()["result"]

    names = {tool["name"] for tool in listed["result"]["tools"]}
    assert ("propose_change" in names) == bool(proposals)
    assert {"list_groups", "report"} <= names
    assert answer["isError"] == (not proposals), answer
    assert ("role viewer" in answer["content"][0]["text"]) == (not proposals)
    assert database.value("select count(*) from redrive.proposals") == proposals
    assert database.value("select count(*) from redrive.audit where action = 'call'")


def test_nothing_is_left_of_a_request_that_another_could_use(
    database: Database, client: TestClient
) -> None:
    """There are no sessions: none to take over, and none to use up."""
    vera = _begin(client, "vera-token") | {"mcp-session-id": "1"}
    otto = _begin(client, "otto-token") | {"mcp-session-id": "1"}
    for headers in (vera, otto):
        answer = client.post("/mcp", json=ASK, headers=headers)
        assert "mcp-session-id" not in answer.headers

    actors = database.column("select actor from redrive.audit order by id")
    assert [actor.rpartition(" ")[2] for actor in actors] == [
        '"token:vera"',
        '"token:otto"',
    ]


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
def test_no_stream_holds_a_connection(client: TestClient, method: str) -> None:
    answer = client.request(method, "/mcp", headers=_begin(client, "vera-token"))
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


def test_a_body_that_drips_ends(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.2)
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        await anyio.sleep(0.05)
        return {"type": "http.request", "body": b" ", "more_body": True}

    async def send(event: Any) -> None:
        sent.append(event.get("status"))

    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": []}
    anyio.run(client.app, scope, receive, send)

    assert sent[0] == 408


def test_a_page_of_another_site_sends_nothing_through_a_proxy(
    database: Database,
) -> None:
    desk = Desk(Address(database.url), PLENTY)
    proxy = Proxy(networks("127.0.0.1"))
    app: Any = application(desk, Access(proxy=proxy, groups={"oncall": Role.OPERATOR}))
    ada = ACCEPT | {"x-forwarded-user": "ada", "x-forwarded-groups": "oncall"}

    with TestClient(
        app, base_url="https://mcp.test", client=("127.0.0.1", 1)
    ) as client:

        def status(**headers: str) -> int:
            return client.post("/mcp", json=BEGIN, headers=ada | headers).status_code

        assert status() == 200
        assert status(origin="https://mcp.test") == 200
        assert status(origin="https://evil.test") == 403
        assert status(origin="null") == 403


@pytest.mark.waits
def test_the_command_answers_over_http(database: Database, tmp_path: Path) -> None:
    """The command answers requests like the application does."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "redrive", "mcp", "--http", "--port", str(port)],
        env=os.environ
        | {
            "REDRIVE_DATABASE_URL": database.url,
            "REDRIVE_CONSOLE_TOKENS": str(_tokens(tmp_path)),
        },
        stderr=subprocess.DEVNULL,
    )

    def ask(token: str) -> int:
        """Return the status of an answer; 0 before the server is up."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/mcp",
            json.dumps(BEGIN).encode(),
            ACCEPT
            | {"content-type": "application/json", "authorization": f"Bearer {token}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    try:
        assert wait_for(lambda: ask("vera-token")) == 200
        assert ask("guess") == 401
    finally:
        process.terminate()
        process.wait(60)


def test_a_frozen_database_ends_a_call_and_not_the_server(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(Address(database.url), PLENTY)
    ada = Agent("claude", "ada")

    def freeze(conn: OwnConnection, *_: object) -> Answer:
        """Answer a call of a connection whose server is frozen."""
        backend = conn.info.backend_pid
        assert conn.patience == CALL_SECONDS
        conn.patience = 0.5
        os.kill(backend, signal.SIGSTOP)
        try:
            conn.execute("select")
        finally:
            os.kill(backend, signal.SIGCONT)
        raise AssertionError

    with monkeypatch.context() as patch:
        patch.setattr(Desk, "_answer", lambda _, *given: freeze(*given))
        answer = desk.call(ada, "list_groups", {})
    after = desk.call(ada, "list_groups", {})

    assert (answer.is_error, after.is_error) == (True, False)
    assert answer.text == "the database refused the call (no connection)"


def test_http_needs_a_way_to_sign_in(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mcp", "--http", "--database-url", database.url]) == 64
    assert "nobody could sign in" in capsys.readouterr().err


def test_a_login_without_the_role_is_refused(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may do more or other things than an agent, so the session does not begin."""
    database.rows(
        "do $$ begin create role redrive_test_other login;"
        " exception when duplicate_object or unique_violation then null; end $$"
    )
    url = make_conninfo(database.url, user="redrive_test_other")
    assert main(["mcp", "--database-url", url]) == 1
    assert "redrive_agent" in capsys.readouterr().err
