"""Jobs whose work is an HTTP endpoint: a real one, in every mood."""

import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from redrive import enqueue
from redrive.cli import main
from redrive.errors import SettingsError
from redrive.targets import load, signature
from tests.flow import look
from tests.flow.endpoint import Endpoint, endpoint
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
            "timeout": 1,
        }
        | common
        for path in paths
    }
    file = home / "targets.yaml"
    file.write_text(yaml.safe_dump({"allowed_hosts": ["127.0.0.1"], "targets": targets}))
    return file


def test_every_answer_has_its_end(database: Database, workers: Workers, served: Endpoint):
    jobs = {path: enqueue(database.conn, _kind(path), {"path": path}) for path in ENDS}

    workers.run(handlers="", redrive_targets=_file(workers.home, served, ENDS), redrive_slots=16)

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
    job = enqueue(database.conn, "to.drip", max_attempts=1)

    workers.run(handlers="", redrive_targets=_file(workers.home, served, ["drip"]), seconds=40)

    found = look.dead(database, job)
    assert found is not None
    assert found.category in {"lost", "transient"}


@pytest.mark.parametrize("path", ["after/7", "after-date/9"])
def test_an_endpoint_is_asked_again_no_sooner_than_it_says(
    database: Database, workers: Workers, served: Endpoint, path: str
):
    job = enqueue(database.conn, _kind(path))
    workers(handlers="", redrive_targets=_file(workers.home, served, [path]))

    wait_for(
        lambda: look.row(database, job)["streak"] == 1 and look.row(database, job)["worker"] is None
    )
    wait = database.value(
        "select extract(epoch from j.run_at - f.at)::float8"
        " from redrive.jobs j join redrive.failures f on f.job = j.id"
    )

    assert 6.9 <= wait <= 9.5
    assert len(served.of(path)) == 1


def test_a_request_says_what_it_is_and_is_signed(
    database: Database, workers: Workers, served: Endpoint
):
    key = workers.home / "key"
    key.write_text("hush\n")
    file = _file(workers.home, served, ["200"], signing_key_file=str(key), headers={"X-Shop": "1"})
    jobs = [enqueue(database.conn, "to.200", {"ü": 1}, idempotency_key=f"k {n}") for n in range(20)]

    workers.run(handlers="", redrive_targets=file, redrive_slots=2)

    headers, body = served.of("200")[0]
    stamp, _, given = headers["redrive-signature"].partition(",v1=")
    at = int(stamp.removeprefix("t="))
    assert len(served.of("200")) == len(jobs)
    assert served.connections <= 2, "connections are kept"
    assert given == hmac.new(b"hush", f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    assert abs(time.time() - at) < 60
    assert headers["redrive-signature"] == signature(b"hush", at, body)
    assert (
        headers["content-type"],
        headers["redrive-kind"],
        headers["redrive-attempt"],
        headers["x-shop"],
    ) == (
        "application/json",
        "to.200",
        "1",
        "1",
    )
    assert headers["idempotency-key"].startswith("k%20")
    assert int(headers["redrive-job-id"]) in jobs
    assert json.loads(body) == {"ü": 1}


REFUSED = {
    "goes to evil.example, which is not among allowed_hosts": {"url": "http://evil.example/x"},
    "holds credentials": {"url": "http://u:p@127.0.0.1/"},
    "must start with http:// or https://": {"url": "file:///etc/passwd"},
    "not among": {"url": "http://127.0.0.1.evil.example/"},
    "timeout": {"url": "http://127.0.0.1/", "timeout": 0},
    "Extra inputs": {"url": "http://127.0.0.1/", "timeuot": 1},
    "cannot be read": {"url": "http://127.0.0.1/", "signing_key_file": "/nonexistent/key"},
}


@pytest.mark.parametrize("said", REFUSED)
def test_a_target_that_is_not_allowed_is_refused_with_one_line(said: str, tmp_path: Path):
    from redrive.handlers import Handlers
    from redrive.targets import register

    file = tmp_path / "targets.yaml"
    file.write_text(
        yaml.safe_dump({"allowed_hosts": ["127.0.0.1"], "targets": {"x": REFUSED[said]}})
    )

    with pytest.raises(SettingsError) as caught:
        register(Handlers(), load(file), 1)

    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "u:p" not in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[]", "", "targets: {}", "a: b: c"])
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
        yaml.safe_dump({"allowed_hosts": [], "targets": {"x": {"url": "http://127.0.0.1/"}}})
    )

    monkeypatch.setenv("REDRIVE_TARGETS", str(file))
    status = main(["worker", "--until-empty", "--http-port", "0", "--database-url", database.url])

    assert status == 64
    assert "not among allowed_hosts" in capfd.readouterr().err
