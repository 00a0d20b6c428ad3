"""Jobs of HTTP targets, with a real endpoint that answers in many ways."""

import asyncio
import base64
import json
import os
import socket
import ssl
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from standardwebhooks import Webhook, WebhookVerificationError

from redrive import Heal, enqueue
from redrive.cli import main
from redrive.errors import SettingsError
from redrive.extras.targets.caller import register
from redrive.extras.targets.file import load
from redrive.extras.targets.signing import read_keys, signed
from redrive.handlers import Handlers, add_targets
from redrive.handlers.job import Job
from tests.certificates import certificate
from tests.flow import look
from tests.flow.endpoint import Endpoint, bomb, endpoint
from tests.flow.harness import Workers, wait_for
from tests.postgres import Database

# path -> (reason, category, attempts) of its dead letter; None: completed
ENDS: dict[str, tuple[str, str, int] | None] = {
    "200": None,
    "204": None,
    "503/then-200": None,
    "429/then-200": None,
    "408/then-200": None,
    "big/200": None,
    "400": ("invalid_payload", "invalid", 1),
    "401": ("not_retryable", "auth", 1),
    "403": ("not_retryable", "auth", 1),
    "404": ("not_retryable", "missing", 1),
    "410": ("not_retryable", "missing", 1),
    "409": ("not_retryable", "other", 1),
    "422": ("invalid_payload", "invalid", 1),
    "redirect": ("not_retryable", "other", 1),
    "408": ("attempts_exhausted", "transient", 2),
    "429": ("attempts_exhausted", "throttled", 2),
    "500": ("attempts_exhausted", "transient", 2),
    "503": ("attempts_exhausted", "transient", 2),
    "reset": ("attempts_exhausted", "transient", 2),
    "garbage": ("attempts_exhausted", "transient", 2),
    "slow": ("attempts_exhausted", "transient", 2),
    "big/500": ("attempts_exhausted", "transient", 2),
}


@pytest.fixture
def served() -> Iterator[Endpoint]:
    with endpoint() as found:
        yield found


def _kind(path: str) -> str:
    return "to." + path.replace("/", "-")


def _file(home: Path, served: Endpoint, paths: Any, **common: Any) -> Path:
    targets = {
        _kind(path): {
            "url": served.url(path),
            "max_attempts": 2,
            "backoff": 0.05,
            "backoff_cap": 0.1,
            "timeout": 1 if path in {"slow", "drip"} else 30,
        }
        | common
        for path in paths
    }
    file = home / "targets.yaml"
    file.write_text(
        yaml.safe_dump({"allowed_hosts": ["127.0.0.1"], "targets": targets})
    )
    return file


def test_every_answer_has_its_end(
    database: Database, workers: Workers, served: Endpoint
):
    jobs = {path: enqueue(database.conn, _kind(path), {"path": path}) for path in ENDS}

    workers.run(
        handlers="", redrive_targets=_file(workers.home, served, ENDS), redrive_slots=16
    )

    dead = {path: look.dead(database, job) for path, job in jobs.items()}
    ends = {
        path: found and (found.reason, found.category, found.attempts)
        for path, found in dead.items()
    }
    messages = {path: found.message for path, found in dead.items() if found}
    assert ends == ENDS
    assert messages["500"].startswith('127.0.0.1 answered 500: {"error": "no"')
    assert len(messages["big/500"]) < 2_200
    assert "Zx9-canary" not in json.dumps(messages)
    assert served.of("200")[0][1] == b'{"path": "200"}'
    assert len(served.of("200")) == 1, "the redirect was followed"


def test_an_answer_that_drips_ends_with_the_attempt(
    database: Database, workers: Workers, served: Endpoint
):
    """The deadline covers the whole answer, even if some bytes arrive often."""
    job = enqueue(database.conn, "to.drip", max_attempts=1)

    workers.run(
        handlers="", redrive_targets=_file(workers.home, served, ["drip"]), seconds=40
    )

    found = look.dead(database, job)
    assert found is not None
    assert (found.category, found.message) == (
        "transient",
        "127.0.0.1 had not answered after 1 s",
    )


@pytest.mark.parametrize("path", ["after/80", "after-date/100"])
def test_an_endpoint_is_asked_again_no_sooner_than_it_says(
    database: Database, workers: Workers, served: Endpoint, path: str
):
    job = enqueue(database.conn, _kind(path))
    workers(handlers="", redrive_targets=_file(workers.home, served, [path]))

    wait_for(lambda: look.row(database, job)["streak"] == 1)
    wait = database.value(
        "select extract(epoch from j.run_at - f.at)::float8"
        " from redrive.jobs j join redrive.failures f on f.job = j.id"
    )

    assert 79 <= wait <= 130
    assert len(served.of(path)) == 1


def test_a_request_says_what_it_is_and_is_signed(
    database: Database, workers: Workers, served: Endpoint
):
    """Two keys sign id, instant and body, and either signature verifies."""
    keys = [f"whsec_{base64.b64encode(os.urandom(32)).decode()}" for _ in range(2)]
    key = workers.home / "key"
    key.write_text("# the next one\n" + "\n".join(keys))
    file = _file(
        workers.home,
        served,
        ["200"],
        signing_key_file=str(key),
        headers={"X-Shop": "1"},
    )
    jobs = [
        enqueue(database.conn, "to.200", {"ü": 1}, idempotency_key=f"k.{n}")
        for n in range(20)
    ]

    workers.run(handlers="", redrive_targets=file, redrive_slots=2)

    headers, body = served.of("200")[0]
    assert len(served.of("200")) == len(jobs)
    assert served.connections <= 2, "connections are kept"
    for secret in keys:
        assert Webhook(secret).verify(body, headers) == {"ü": 1}
        for altered in (
            {"webhook-id": "k%2E99"},
            {"webhook-timestamp": str(int(time.time()) + 9)},
        ):
            with pytest.raises(WebhookVerificationError):
                Webhook(secret).verify(body, headers | altered)
    assert headers["accept-encoding"] == "identity"
    assert (
        headers["content-type"],
        headers["redrive-kind"],
        headers["redrive-attempt"],
        headers["x-shop"],
    ) == ("application/json", "to.200", "1", "1")
    assert headers["idempotency-key"].startswith("k.")
    assert headers["webhook-id"] == headers["idempotency-key"].replace(".", "%2E")
    assert int(headers["redrive-job-id"]) in jobs
    assert json.loads(body) == {"ü": 1}


REFUSED = {
    "goes to evil.example, which is not among allowed_hosts": {
        "url": "http://evil.example/x"
    },
    "holds credentials": {"url": "http://u:p@127.0.0.1/"},
    "must start with http:// or https://": {"url": "file:///etc/passwd"},
    "not among": {"url": "http://127.0.0.1.evil.example/"},
    "timeout": {"url": "http://127.0.0.1/", "timeout": 0},
    "Extra inputs": {"url": "http://127.0.0.1/", "timeuot": 1},
    "cannot be read": {
        "url": "http://127.0.0.1/",
        "signing_key_file": "/nonexistent/key",
    },
    "holds no key": {"url": "http://127.0.0.1/", "signing_key_file": os.devnull},
    "key or certificate": {"url": "http://127.0.0.1/", "ca_file": "/nonexistent/ca"},
    "is not a URL": {"url": "http://[::1/"},
    "host or port cannot be read": {"url": "http://127.0.0.1:65536/"},
    "must be ASCII": {"url": "http://127.0.0.1/\u202e"},
    "headers": {"url": "http://127.0.0.1/", "headers": {"X-Shop": "1\r\nHost: inner"}},
    # A second opinion where a request ends
    "is set by the worker itself": {
        "url": "http://127.0.0.1/",
        "headers": {"Transfer-Encoding": "chunked"},
    },
    "headers.Content-Length": {
        "url": "http://127.0.0.1/",
        "headers": {"Content-Length": "5"},
    },
    "redrive_rate: Input": {"url": "http://127.0.0.1/", "redrive_rate": 0},
    "redrive_rate: Value error, must be a number": {
        "url": "http://127.0.0.1/",
        "redrive_rate": True,
    },
    "window: Value error, must be a number": {
        "url": "http://127.0.0.1/",
        "window": True,
    },
    "backoff: Input": {"url": "http://127.0.0.1/", "backoff": 1e12},
    "repeatable: false forbids that": {
        "url": "http://127.0.0.1/",
        "heal": {},
        "repeatable": False,
    },
    "heal.canaries: Input": {"url": "http://127.0.0.1/", "heal": {"canaries": 0}},
}


@pytest.mark.parametrize(
    "kind",
    ["", "mail send", "1", "ma*il", "**", ".*", "a\nb", "\x1b[2J", "é", "k" * 64],
)
def test_a_kind_that_no_job_can_have_is_refused_with_one_line(
    kind: str, tmp_path: Path
):
    """The target was accepted, and no job ever reached it."""
    targets = {kind: {"url": "http://127.0.0.1/"}}
    file = tmp_path / "targets.yaml"
    file.write_text(
        yaml.safe_dump({"allowed_hosts": ["127.0.0.1"], "targets": targets})
    )

    with pytest.raises(SettingsError, match="a kind must match") as caught:
        load(file)

    assert str(caught.value).isprintable()


@pytest.mark.parametrize("kind", ["*", "a", "mail.*", "k" * 63, "k" * 62 + "*"])
def test_kinds_and_prefixes_are_accepted(kind: str, tmp_path: Path):
    file = tmp_path / "targets.yaml"
    targets = {kind: {"url": "http://127.0.0.1/"}}
    file.write_text(
        yaml.safe_dump({"allowed_hosts": ["127.0.0.1"], "targets": targets})
    )

    assert list(load(file).targets) == [kind]


@pytest.mark.parametrize("said", REFUSED)
def test_a_target_that_is_not_allowed_is_refused_with_one_line(
    said: str, tmp_path: Path
):
    """Each invalid target gets an error of one line."""
    file = tmp_path / "targets.yaml"
    file.write_text(
        yaml.safe_dump(
            {"allowed_hosts": ["127.0.0.1"], "targets": {"x": REFUSED[said]}}
        )
    )

    with pytest.raises(SettingsError) as caught:
        register(Handlers(), load(file), 1)

    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "u:p" not in str(caught.value)


def test_a_target_heals_as_a_handler_does_but_not_by_its_prefix(tmp_path: Path):
    file = tmp_path / "targets.yaml"

    def loaded(kind: str) -> Handlers:
        target = {"url": "http://127.0.0.1/", "heal": {"max_rate": 20}}
        file.write_text(
            yaml.safe_dump({"allowed_hosts": ["127.0.0.1"], "targets": {kind: target}})
        )
        register(handlers := Handlers(), load(file), 1)
        return handlers

    handler = loaded("x").get("x")
    assert handler
    assert handler.heal == Heal(canaries=3, max_rate=20)
    with pytest.raises(
        SettingsError, match=r"targets\.x\.\*\.heal: give each kind that heals"
    ):
        loaded("x.*")


def test_a_schedule_of_a_target_is_fired_and_tells_its_slot(
    database: Database, workers: Workers, served: Endpoint
):
    file = _file(workers.home, served, ["200"])
    content = yaml.safe_load(file.read_text())
    content["schedules"] = [
        {
            "kind": "to.200",
            "cron": "@every 1s",
            "catch_up": "all",
            "payload": {"days": 1},
        }
    ]
    file.write_text(yaml.safe_dump(content))

    workers(handlers="", redrive_targets=file)
    wait_for(lambda: len(served.of("200")) >= 3)

    slots = [
        datetime.fromisoformat(headers["redrive-scheduled-for"])
        for headers, _ in served.of("200")
    ]
    assert {body for _, body in served.of("200")} == {b'{"days": 1}'}
    assert len(set(slots)) == len(slots)
    assert {slot.microsecond for slot in slots} == {0}


WRONG_SCHEDULES = {
    "schedules.0: the schedule of 'y' needs a handler": {"kind": "y", "cron": "@daily"},
    "schedules.0: '7' is not a cron expression": {"kind": "x", "cron": "7"},
    "schedules.0: tz is 'Moon'": {"kind": "x", "cron": "@daily", "tz": "Moon"},
    "schedules.0.catch_up: Input should be 'skip'": {
        "kind": "x",
        "cron": "7",
        "catch_up": "no",
    },
    "schedules.0.crons: Extra inputs": {
        "kind": "x",
        "cron": "@daily",
        "crons": "@daily",
    },
}


@pytest.mark.parametrize("said", WRONG_SCHEDULES)
def test_a_schedule_that_is_wrong_is_refused_with_one_line(said: str, tmp_path: Path):
    content = {
        "allowed_hosts": ["127.0.0.1"],
        "targets": {"x": {"url": "http://127.0.0.1/"}},
        "schedules": [WRONG_SCHEDULES[said]],
    }
    file = tmp_path / "targets.yaml"
    file.write_text(yaml.safe_dump(content))

    with pytest.raises(SettingsError) as caught:
        register(Handlers(), load(file), 1)

    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[]", "", "targets: {}", "a: b: c", "[" * 9999])
def test_a_file_that_is_none_is_refused_with_one_line(text: str, tmp_path: Path):
    file = tmp_path / "targets.yaml"
    file.write_text(text)

    with pytest.raises(SettingsError) as caught:
        load(file)

    assert "\n" not in str(caught.value)


def test_a_worker_does_not_start_with_a_host_that_is_not_allowed(
    database, workers, monkeypatch, capfd
):
    file = workers.home / "targets.yaml"
    file.write_text(
        yaml.safe_dump(
            {"allowed_hosts": [], "targets": {"x": {"url": "http://127.0.0.1/"}}}
        )
    )

    monkeypatch.setenv("REDRIVE_TARGETS", str(file))
    status = main(
        ["worker", "--until-empty", "--http-port", "0", "--database-url", database.url]
    )

    assert status == 64
    assert "not among allowed_hosts" in capfd.readouterr().err


def test_until_empty_waits_for_what_a_target_by_prefix_is_for(
    database: Database, workers: Workers, served: Endpoint
):
    """The worker ended too early, because a prefix names no kind."""
    soon = database.value("select now() + interval '3 s'")
    enqueue(database.conn, "to.200", run_at=soon)
    file = workers.home / "targets.yaml"
    targets = {"to.*": {"url": served.url("200")}}
    file.write_text(
        yaml.safe_dump({"allowed_hosts": ["127.0.0.1"], "targets": targets})
    )

    workers.run(handlers="", redrive_targets=file)

    assert len(served.of("200")) == 1


KEYS = {
    "an old one, as it stands": "hush",
    "too short": "whsec_" + base64.b64encode(b"k" * 23).decode(),
    "too long": "whsec_" + base64.b64encode(b"k" * 65).decode(),
    "no base64": "whsec_" + "!" * 40,
    "empty": "whsec_",
    "only a comment": "# whsec_",
}

HARMLESS = {"empty", "only a comment"}


@pytest.mark.parametrize("name", KEYS)
def test_a_key_that_would_not_protect_is_refused(name: str, tmp_path: Path):
    """A key has at least 24 bytes and is never shown."""
    key = tmp_path / "key"
    key.write_text(KEYS[name] + "\n")

    with pytest.raises(SettingsError) as caught:
        read_keys(key)

    assert "holds no key; a key is whsec_ and the base64 of 24 to 64 bytes" in str(
        caught.value
    )
    assert (
        KEYS[name].removeprefix("whsec_")[:30] not in str(caught.value)
        or name in HARMLESS
    )


def test_a_signature_is_that_of_the_specification(tmp_path: Path):
    """The example comes from the libraries of Standard Webhooks."""
    key = tmp_path / "key"
    key.write_text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")

    headers = signed(
        read_keys(key),
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
    )

    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def _called(
    home: Path, url: str, of_target: Mapping[str, Any] | None = None, **fields: Any
) -> Callable[[], Any]:
    """Call a target once, and return the error."""
    file = home / "targets.yaml"
    target = {"url": url, **(of_target or {})}
    file.write_text(yaml.safe_dump(fields | {"targets": {"x": target}}))
    handlers = Handlers()
    register(handlers, load(file), 1)
    handler = handlers.get("x")
    assert handler is not None
    job = Job(id=1, kind="x", deadline=datetime.max.replace(tzinfo=UTC))

    async def call() -> BaseException | None:
        (error,) = await asyncio.gather(
            handler.function("{}", job), return_exceptions=True
        )
        await handler.function._pool.aclose()
        return error

    return lambda: asyncio.run(call())


def test_a_compressed_answer_is_not_inflated(tmp_path: Path, served: Endpoint):
    """1,300 bytes that were compressed five times would inflate to 100 MB."""
    bomb()  # made before somebody waits for it
    call = _called(tmp_path, served.url("bomb"), allowed_hosts=["127.0.0.1"])
    tracemalloc.start()

    error = call()

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert str(error) == "127.0.0.1 answered 500"
    assert peak < 10_000_000
    assert served.of("bomb")[0][0]["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    ("networks", "said"),
    [
        ([], "localhost leads inwards, to "),
        (["10.0.0.0/8"], "localhost leads inwards, to "),
        (["127.0.0.0/8"], None),
    ],
)
def test_a_name_that_leads_inwards_is_refused_unless_its_network_is_named(
    tmp_path: Path, served: Endpoint, networks: list[str], said: str | None
):
    """An allowed name is not enough, because DNS decides its address."""
    url = served.url("200").replace("127.0.0.1", "localhost")
    call = _called(
        tmp_path, url, allowed_hosts=["LOCALHOST"], allowed_networks=networks
    )

    error = call()

    assert (said or "") in str(error)
    assert (error is None, served.connections) == ((False, 0) if said else (True, 1))


def test_a_name_is_looked_at_whenever_it_is_connected_to(
    tmp_path: Path, served: Endpoint, monkeypatch: pytest.MonkeyPatch
):
    """DNS rebinding: no connection is made to the address of the second answer."""
    answers = iter(["127.0.0.1", "127.0.0.2"])
    resolve = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *rest, **more: resolve(
            next(answers) if host == "shop.example" else host, *rest, **more
        ),
    )
    url = served.url("reset").replace("127.0.0.1", "shop.example")
    call = _called(
        tmp_path, url, allowed_hosts=["shop.example"], allowed_networks=["127.0.0.1/32"]
    )

    errors = [type(call()).__name__ for _ in range(2)]

    assert errors == ["ReadError", "AddressRefused"]
    assert served.connections == 1


@pytest.mark.parametrize(
    ("named", "error"), [("shop.example", None), ("evil.example", "Connect")]
)
def test_the_certificate_is_that_of_the_name_and_not_of_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, error: str | None
):
    """The certificate must match the name, although we connect to an address."""
    resolve = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda _host, *rest, **more: resolve("127.0.0.1", *rest, **more),
    )
    authority = certificate(tmp_path, "authority")
    own = certificate(
        tmp_path, "own", names=f"DNS:{named},IP:127.0.0.1", signer=authority
    )
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(own, own.with_suffix(".key"))
    with endpoint(tls) as served:
        call = _called(
            tmp_path,
            f"https://shop.example:{served.port}/200",
            {"ca_file": str(authority)},
            allowed_hosts=["shop.example"],
            allowed_networks=["127.0.0.1/32"],
        )

        found = call()

        assert type(found).__name__.startswith(error) if error else found is None, found
        assert len(served.of("200")) == (0 if error else 1)
        assert error or served.of("200")[0][0]["host"] == f"shop.example:{served.port}"


def test_a_file_without_the_extra_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delitem(sys.modules, "redrive.extras.targets.caller")
    monkeypatch.setitem(sys.modules, "httpcore2", None)

    with pytest.raises(SettingsError, match=r"pip install 'redrive\[http\]'"):
        add_targets(Handlers(), tmp_path / "targets.yaml", slots=1)
