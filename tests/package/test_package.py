"""What is published, as a stranger gets it: built, looked into, installed alone, and run."""

import json
import os
import shutil
import tarfile
import tempfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import psycopg
import pytest

from redrive.testing import postgres
from tests.package.conftest import (
    BUILD,
    HOME,
    PYTHONS,
    ROOT,
    UV,
    VERSION,
    build,
    interpreter,
    run,
)
from tools.package import PARTS

pytestmark = [pytest.mark.package, pytest.mark.xdist_group("package")]


def held(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def ours() -> dict[str, bytes]:
    """The package's files in the repository, by their place in the wheel. Links are followed."""
    service = ROOT / "service"
    found = (
        Path(place) / name
        for place, _, names in os.walk(service / "redrive", followlinks=True)
        for name in names
    )
    return {
        str(path.relative_to(service)): path.read_bytes()
        for path in found
        if "__pycache__" not in path.parts
    }


def metadata(wheel: Path) -> Message:
    return message_from_bytes(held(wheel)[f"redrive-{VERSION}.dist-info/METADATA"])


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    """Each file byte for byte: code, SQL, the console's pages, what the demo and quickstart use."""
    there = {
        name: text for name, text in held(wheel).items() if ".dist-info/" not in name
    }
    expected = ours()

    assert there.keys() == expected.keys()
    assert [name for name in there if there[name] != expected[name]] == []
    assert {
        "redrive/py.typed",
        "redrive/sql/roles.sql",
        "redrive/extras/quickstart/project/.gitignore",
    } <= set(there)


def test_the_sdist_is_enough_to_build_from_and_has_no_tests(built: Path) -> None:
    """The wheel was made from it."""
    with tarfile.open(built / f"redrive-{VERSION}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert {
        "LICENSE",
        "CHANGELOG.md",
        "README.md",
        "pyproject.toml",
        "PKG-INFO",
    } <= names
    assert [
        n for n in names if n.startswith(("tests", "tools", "bench", ".ci", ".github"))
    ] == []


def test_a_second_build_gives_the_same_bytes(built: Path, tmp_path: Path) -> None:
    """In another directory, with other times and permissions of the files, and the same Python."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for part in (*PARTS, "tools"):
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, checkout / part, symlinks=True)
        else:
            shutil.copy(ROOT / part, checkout / part)
    for path in (found for found in checkout.rglob("*") if not found.is_symlink()):
        os.utime(path, (1_600_000_000, 1_600_000_000))
        path.chmod(path.stat().st_mode & 0o700)
    again = build(checkout, tmp_path / "dist")

    assert {path.name: path.read_bytes() for path in again.iterdir()} == {
        path.name: path.read_bytes() for path in built.iterdir()
    }


def test_the_registry_would_take_it(built: Path) -> None:
    run(BUILD / "twine", "check", "--strict", *built.iterdir())


def test_its_page_leads_to_the_files_of_its_release(wheel: Path) -> None:
    """Links that lead to a file beside it lead nowhere on a registry's page."""
    told = metadata(wheel)
    page = str(told.get_payload())

    assert f"]({HOME}/blob/v{VERSION}/docs/README.md)" in page
    assert f"]({HOME}/raw/v{VERSION}/docs/console-group.png)" in page
    assert "](docs/" not in page
    assert f"Issues, {HOME}/issues" in told.get_all("Project-URL", [])
    assert {f"Programming Language :: Python :: {python}" for python in PYTHONS} <= set(
        told.get_all("Classifier", [])
    )


@pytest.fixture(scope="module", params=PYTHONS)
def alone(request: pytest.FixtureRequest, wheel: Path):
    """An environment with the wheel and what it asks for.

    Not below pytest's own directory: each session that begins closes that one to other users, and
    Postgres, which never runs as root, would no longer read its own files.
    """
    python = interpreter(request.param)
    if python is None:
        pytest.skip(f"no Python {request.param} is here")
    with tempfile.TemporaryDirectory(prefix="redrive_tests_") as environment:
        run(UV, "venv", "--quiet", "--clear", "--python", python, environment)
        run(
            UV,
            "pip",
            "install",
            "--quiet",
            "--python",
            f"{environment}/bin/python",
            wheel,
        )
        yield Path(environment, "bin")


@pytest.fixture(scope="module")
def url():
    """A Postgres with nothing in it."""
    with postgres() as url:
        yield url


def test_the_wheel_alone_runs_a_job_and_with_a_postgres_its_quickstart(
    alone: Path, wheel: Path, url: str, tmp_path: Path
) -> None:
    """A new user's first minutes: what pip install brings is enough, for each Python."""
    orders = tmp_path / "orders"
    database = alone.parent.name
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(f'create database "{database}"')
    address = url.rpartition("/")[0] + f"/{database}"
    environment = {
        "REDRIVE_DATABASE_URL": address,
        "DATABASE_URL": address,
        "REDRIVE_HANDLERS": "handlers:jobs",
        "REDRIVE_HTTP_PORT": "0",
        "PYTHONPATH": str(orders),
    }
    paid = {"order": "1", "customer": "Ada", "email": "ada@example.com"}
    payment = json.dumps(paid | {"amount": "49.90", "currency": "EUR"})

    assert run(alone / "redrive", "--version") == f"redrive, version {VERSION}\n"
    run(alone / "redrive", "quickstart", orders)
    assert not (orders / "local.mk").exists(), "no Postgres to embed is there yet"
    run(alone / "redrive", "migrate", **environment)
    run(alone / "redrive", "enqueue", "payment.book", payment, **environment)
    said = run(alone / "redrive", "worker", "--until-empty", **environment)
    assert "to ada@example.com: Order 1: 49.90 EUR paid" in said

    everything = f"redrive[embedded,console,crypto,http,otlp,reload] @ file://{wheel}"
    run(UV, "pip", "install", "--quiet", "--python", alone / "python", everything)
    run(alone / "redrive", "quickstart", orders, "--force")
    said = run("make", "-C", orders, "demo")
    assert "Order 5: 5.90 EUR paid" in said.partition("2 dead letters redriven")[2]
