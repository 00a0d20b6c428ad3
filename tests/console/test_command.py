"""`redrive console` as a process: required settings, start and end."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest

from redrive.errors import SettingsError
from redrive.extras.console.security.ways_in import guarded
from redrive.settings import load
from tests.console.conftest import digest
from tests.postgres import Database

ADDRESS = re.compile(r"the console is at (http://\S+)")


def environment(**more: str) -> dict[str, str]:
    """Return an environment without settings of Redrive."""
    inherited = {n: v for n, v in os.environ.items() if not n.startswith("REDRIVE_")}
    return inherited | {"REDRIVE_CONSOLE_PORT": "0"} | more


def refused(**settings: object) -> str:
    """Return the error of a console that does not start."""
    with pytest.raises(SettingsError) as error:
        guarded([load(**settings)])
    return str(error.value)


def test_it_does_not_start_open():
    """Without a way to sign in, the console does not start."""
    done = subprocess.run(
        [sys.executable, "-m", "redrive", "console"],
        env=environment(
            REDRIVE_CONSOLE_OPERATOR_URL="postgresql://nobody@127.0.0.1:1/x"
        ),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert (done.returncode, "nobody could sign in" in done.stderr) == (64, True)


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in os.environ if name.startswith("REDRIVE_")]:
        monkeypatch.delenv(name)
    url, tokens = "postgresql://nobody@127.0.0.1:1/x", tmp_path / "tokens"
    tokens.write_text(f"{digest('x')} operator ada\n")

    assert "no role of the console has a login" in refused(database_url=url)
    assert "nobody could sign in" in refused(console_viewer_url=url)
    assert "REDRIVE_CONSOLE_OPERATOR_URL is not set" in refused(
        console_viewer_url=url, console_tokens=tokens
    )
    nobody = "no user of the proxy or the provider has a role"
    assert nobody in refused(console_viewer_url=url, console_proxies="10.0.0.1")
    short = refused(console_viewer_url=url, console_key="a-short-one")
    assert "text of 32 to" in short
    assert "a-short-one" not in short
    assert "REDRIVE_CONSOLE_VIEWER_URL" in refused(console_viewer_url="nonsense")


def test_what_a_provider_needs_is_named(tmp_path: Path):
    def wanting(**settings: object) -> str:
        given: dict[str, object] = {
            "console_viewer_url": "postgresql://nobody@127.0.0.1:1/x",
            "console_groups": "staff=viewer",
            "console_url": "https://redrive.internal",
            "console_oidc_issuer": "https://id.internal",
            "console_oidc_client_id": "redrive",
        }
        return refused(**given | settings)

    assert "REDRIVE_CONSOLE_OIDC_CLIENT_ID is not" in wanting(
        console_oidc_client_id=None
    )
    assert "REDRIVE_CONSOLE_URL is not set" in wanting(console_url=None)
    assert "REDRIVE_CONSOLE_URL is 'http://a.b'" in wanting(console_url="http://a.b")
    assert "must have no path" in wanting(console_url="https://a.b/redrive/")
    assert "REDRIVE_CONSOLE_OIDC_ISSUER is 'http" in wanting(
        console_oidc_issuer="http://a.b"
    )
    assert "must begin with https://" in wanting(console_oidc_issuer="https://[")
    assert "must contain openid" in wanting(console_oidc_scopes="email")
    assert "no user of the proxy or the provider" in wanting(console_groups="")
    missing = tmp_path / "secret"
    assert f"SECRET_FILE is {missing}" in wanting(
        console_oidc_client_secret_file=missing
    )


@contextmanager
def started(
    *arguments: str, **more: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield a console that answers, and its address."""
    with subprocess.Popen(
        [sys.executable, "-m", "redrive", "console", *arguments],
        env=environment(**more),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr
            said = next(
                (found for line in process.stderr if (found := ADDRESS.search(line))),
                None,
            )
            assert said
            yield process, said[1]
        finally:
            process.kill()


def test_slow_clients_keep_nobody_out(database: Database):
    """200 connections that said nothing, and all others got 503, also the probes."""
    with (
        started("--demo", REDRIVE_DATABASE_URL=database.url) as (_, address),
        ExitStack() as crowd,
    ):
        port = int(address.rpartition(":")[2])
        heads = (
            b"",
            b"GET / HTTP/1.1\r\nHost: localhost\r\n",
            b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\na",
        )
        for n in range(240):
            client = socket.create_connection(("127.0.0.1", port), timeout=300)
            crowd.enter_context(client).sendall(heads[n % 3])

        assert httpx2.get(f"{address}/livez", timeout=300).status_code == 200


def test_a_client_that_does_not_finish_a_request_is_let_go(database: Database):
    """It sends nothing, half a request, half a request after a whole one, or half a body."""
    whole = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    body = b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\na"
    with (
        started("--demo", REDRIVE_DATABASE_URL=database.url) as (_, address),
        ExitStack() as clients,
    ):
        port = int(address.rpartition(":")[2])
        waiting: list[socket.socket] = []
        for text in (b"", b"GET / HT", whole + b"GET /livez HT", body):
            client = socket.create_connection(("127.0.0.1", port), timeout=300)
            waiting.append(clients.enter_context(client))
            client.sendall(text)
        answers = [b"".join(iter(lambda c=c: c.recv(4096), b"")) for c in waiting]

    assert [answer[:13] for answer in answers] == [
        b"",
        b"",
        b"HTTP/1.1 200 ",
        b"HTTP/1.1 408 ",
    ]


def test_the_demo_is_open_on_this_machine_alone(database: Database):
    settings = {"REDRIVE_DATABASE_URL": database.url, "REDRIVE_ACTOR": "ada"}
    with started("--demo", **settings) as (process, address):
        port = int(address.rpartition(":")[2])
        rebound = httpx2.get(
            f"{address}/", headers={"host": f"evil.test:{port}"}, timeout=300
        )
        page = httpx2.get(f"{address}/", timeout=300)
        others = {
            i[4][0]
            for i in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
        }
        for other in others - {"127.0.0.1"}:
            with (
                pytest.raises(OSError),
                socket.create_connection((other, port), timeout=5),
            ):
                pass
        process.send_signal(signal.SIGTERM)
        code = process.wait(300)

    assert (page.status_code, "ada" in page.text, rebound.status_code) == (
        200,
        True,
        421,
    )
    assert code == 0


def test_two_replicas_are_one_console(database: Database, tmp_path: Path):
    """Each replica accepts sessions and forms of the other, because they keep no state."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{digest('olaf-token')} operator olaf\n")
    settings = {
        "REDRIVE_CONSOLE_OPERATOR_URL": database.url,
        "REDRIVE_CONSOLE_TOKENS": str(tokens),
        "REDRIVE_CONSOLE_KEY": "k" * 32,
    }
    own = {"sec-fetch-site": "same-origin"}
    with started(**settings) as (_, one), started(**settings) as (_, other):
        data = {"token": "olaf-token"}
        answer = httpx2.post(f"{one}/sign-in", data=data, headers=own, timeout=300)
        cookie = {"cookie": answer.headers["set-cookie"].split(";")[0]}
        page = httpx2.get(f"{one}/", headers=cookie, timeout=300)
        csrf = re.search(r'name="csrf" value="([^"]+)"', page.text)
        assert csrf
        data, headers = {"csrf": csrf[1]}, cookie | own
        ended = httpx2.post(
            f"{other}/sign-out", data=data, headers=headers, timeout=300
        )

    assert (page.status_code, ended.status_code) == (200, 303)
