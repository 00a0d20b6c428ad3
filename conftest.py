"""Real Postgres for every test that asks for `database`; nothing is mocked.

REDRIVE_TEST_POSTGRES says which:
  (not set)         the newest of the embedded binaries
  embedded:16       that version of them (`make test-older`), or several, as in embedded:16,18:
                    then tests/sql and tests marked `every_version` run on each, others on the last
  debian            the newest that Debian's or Ubuntu's packages have installed, with JIT as most
                    builds have it: a test fails if JIT compiles a statement inside of a function
  debian:15         that version of it
  testcontainers    a container of REDRIVE_TEST_POSTGRES_IMAGE (postgres:18)
  <url>             a server that runs already, as a user who may create databases and roles
"""

import contextlib
import gc
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.postgres import (
    CHOICE,
    DEBIAN,
    VERSIONS,
    Database,
    Server,
    container,
    embedded,
    external,
    installed,
    migrated,
)

IMAGE = os.environ.get("REDRIVE_TEST_POSTGRES_IMAGE", "postgres:18")
SQL_TESTS = Path(__file__).parent / "tests" / "sql"
STARTED_ONCE = ("broker", "helm")
"""Fixtures that take seconds of CPU to start: one process runs all tests with them."""

SAMPLE = 8
"""--sample has one of so many tests."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """How much is tested on servers that other runs are not on."""
    parser.addoption(
        "--sample",
        action="store_true",
        help=f"run only tests marked every_version, and of the others one in {SAMPLE}",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare our markers, and leave time out of what fails a test: the machine may be busy."""
    _keep_compiled()
    # Programs in Go collect garbage all the time; the memory of a test is small.
    os.environ.setdefault("GOGC", "800")
    patient = {
        "deadline": None,
        "suppress_health_check": [HealthCheck.too_slow],
        "max_examples": 100 if os.environ.get("CI") == "true" else 40,
    }
    settings.register_profile("patient", settings(), **patient)  # type: ignore[arg-type]
    settings.load_profile("patient")
    config.addinivalue_line(
        "markers",
        "every_version: what it tests depends on the version of Postgres (plans, DDL, locks,"
        " rights), so that no sample leaves it out",
    )


def _keep_compiled() -> None:
    """Keep compiled modules, also where images set PYTHONDONTWRITEBYTECODE.

    Each of the many processes of the tests would compile them all again.
    """
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_report_header() -> str:
    """Name the servers."""
    return f"postgres: {', '.join(_server_names())}"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage among thousands of tests that stay: a sixth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out what is not in the sample, and keep groups together."""
    if config.getoption("sample"):
        items[:], left_out = _split(items, _is_in_sample)
        config.hook.pytest_deselected(items=left_out)
    if config.getoption("loadgroup", default=False):  # several processes
        items[:] = _spread(items)
        for item in items:
            _name_group(item)


def _spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """Put slow tests and groups between the first half of the others.

    Slow tests mostly wait. At the end one of them would keep all processes waiting.
    """
    slow, others = _split(items, lambda item: _is_slow(item) or bool(_group(item)))
    every = max(1, len(others) // (2 * len(slow) + 1))
    spread: list[pytest.Item] = []
    for n, item in enumerate(others):
        spread += slow[n // every : n // every + 1] if n % every == 0 else []
        spread.append(item)
    return spread + slow[-(-len(others) // every) :]


def _split(
    items: list[pytest.Item], belongs: Callable[[pytest.Item], bool]
) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the tests that belong and the others, in their order."""
    chosen = {item for item in items if belongs(item)}
    return [item for item in items if item in chosen], [
        item for item in items if item not in chosen
    ]


def _is_slow(item: pytest.Item) -> bool:
    return bool(item.get_closest_marker("slow") or item.get_closest_marker("waits"))


def _name_group(item: pytest.Item) -> None:
    """Tell --dist loadgroup. xdist 3.8 does so by a field that pytest 9.2 no longer reads."""
    group = _group(item)
    if group is not None and hasattr(item, "id"):
        item._id = type(item.id).parse(f"{item.nodeid}@{group}")


def _group(item: pytest.Item) -> str | None:
    """Return the tests that must run in one process, by a marker or by what they share."""
    marker = item.get_closest_marker("xdist_group")
    if marker is not None:
        return str(marker.args[0])
    used = getattr(item, "fixturenames", ())
    return next((name for name in STARTED_ONCE if name in used), None)


def _is_in_sample(item: pytest.Item) -> bool:
    """By a hash of its name: spread, the same in each run, and whatever is added besides."""
    is_chosen = zlib.crc32(item.nodeid.encode()) % SAMPLE == 0
    return is_chosen or bool(item.get_closest_marker("every_version"))


def pytest_xdist_auto_num_workers() -> int:
    """Four more than there are cores: many tests wait for a process of their own or a clock."""
    return len(os.sched_getaffinity(0)) + 4 if hasattr(os, "sched_getaffinity") else 6


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that is for every version on each of several servers."""
    names = _server_names()
    if len(names) == 1 or "server_name" not in metafunc.fixturenames:
        return  # a parameter for each of thousands of tests costs a second per process
    if SQL_TESTS in metafunc.definition.path.parents or (
        metafunc.definition.get_closest_marker("every_version")
    ):
        metafunc.parametrize("server_name", names, scope="session")


@cache
def _server_names() -> list[str]:
    kind, _, versions = CHOICE.partition(":")
    if kind not in {"embedded", "debian"}:
        return ["testcontainers" if CHOICE == "testcontainers" else "external"]
    if versions:
        return [f"pg{version}" for version in versions.split(",")]
    chosen = (VERSIONS if kind == "embedded" else installed())[-1:]
    if not chosen:
        msg = f"REDRIVE_TEST_POSTGRES={CHOICE}: {DEBIAN} is empty; install the package postgresql"
        raise pytest.UsageError(msg)
    return [f"pg{version}" for version in chosen]


class _Servers:
    """The servers in use; each is started when the first test asks for it."""

    def __init__(self, stack: contextlib.ExitStack, shared: Path | None) -> None:
        self._stack = stack
        self._shared = shared
        self._running: dict[str, Server] = {}

    def get(self, name: str) -> Server:
        if name not in self._running:
            start = {
                "external": partial(external, CHOICE),
                "testcontainers": partial(container, IMAGE),
            }.get(name)
            self._running[name] = self._stack.enter_context(
                start() if start else self._embedded(int(name.removeprefix("pg")))
            )
        return self._running[name]

    def _embedded(self, version: int) -> contextlib.AbstractContextManager[Server]:
        like = self._shared and migrated(version, self._shared)
        return embedded(version, like)


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Servers]:
    """The servers of this process. Several processes share what they are made from."""
    is_one_of_several = "PYTEST_XDIST_WORKER" in os.environ
    shared = tmp_path_factory.getbasetemp().parent if is_one_of_several else None
    with contextlib.ExitStack() as stack:
        yield _Servers(stack, shared)


@pytest.fixture(scope="session")
def server_name() -> str:
    """The newest server, unless a test runs on each of several."""
    return _server_names()[-1]


@pytest.fixture(scope="session")
def server(servers: _Servers, server_name: str) -> Server:
    """A running Postgres."""
    return servers.get(server_name)


@pytest.fixture(autouse=True)
def _without_jit(request: pytest.FixtureRequest) -> Iterator[None]:
    """See that JIT compiles nothing: it takes 0.4 s for a statement that runs for 1 ms."""
    yield
    if "server" in request.fixturenames:
        server: Server = request.getfixturevalue("server")
        assert server.compiled() == []


@pytest.fixture
def database(server: Server) -> Iterator[Database]:
    """A migrated database of the test's own."""
    with server.database() as database:
        yield database


@pytest.fixture(scope="module")
def second_server(server_name: str) -> Iterator[Server]:
    """A server that nobody else uses."""
    if not server_name.startswith("pg"):
        pytest.skip("needs a server that can be thrown away")
    with embedded(int(server_name.removeprefix("pg"))) as server:
        yield server


@pytest.fixture
def fresh_server(second_server: Server) -> Iterator[Server]:
    """A server that has never seen a role of ours."""
    yield second_server
    for role in second_server.roles():
        second_server.drop_role(role)
