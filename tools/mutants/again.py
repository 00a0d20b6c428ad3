"""A pytest plugin that reruns tests on one server, each time without another guard.

    python -m pytest -p tools.mutants.again tests/sql

answers each line {"changed": {"file", "text"} or null, "tests"} with one line: the test
that failed, or null. REDRIVE_PIPES names the pipes. So the process, the server and the
schema are started only once.
"""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NoReturn

import psycopg
import pytest
from _pytest.runner import runtestprotocol

from redrive.database.schema.migrate import functions, migrations
from tests import postgres

PATIENCE_SECONDS = 60
"""Time limit of a test: without its guard a loop may not end."""

_template = postgres.Server.template
_asked: list[postgres.Server] = []


def _ask(server: postgres.Server) -> str:
    _asked.append(server)
    return _template(server)


postgres.Server.template = _ask


def _give_up(*_: object) -> NoReturn:
    pytest.fail("it came to no end")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Answer requests until there are no more."""
    signal.signal(signal.SIGALRM, _give_up)
    items = {item.nodeid: item for item in session.items}
    asked, given = json.loads(os.environ["REDRIVE_PIPES"])
    with os.fdopen(asked) as questions, os.fdopen(given, "w", 1) as answers:
        for line in questions:
            question = json.loads(line)
            with (
                _changed(**question["changed"])
                if question["changed"]
                else nullcontext()
            ):
                failures = (t for t in question["tests"] if _fails_twice(items[t]))
                print(json.dumps(next(failures, None)), file=answers)
    return True


def _fails_twice(item: pytest.Item) -> bool:
    """Return True if a test fails twice: a failure on a busy machine does not recur."""
    return _fails(item) and _fails(item)


def _fails(item: pytest.Item) -> bool:
    # The next test decides what pytest tears down. Before a test of another file, that
    # is all but the session.
    first, *_, last = item.session.items
    other = last if item.path != last.path else first
    signal.alarm(PATIENCE_SECONDS)
    try:
        reports = runtestprotocol(item, log=False, nextitem=other)
    finally:
        signal.alarm(0)
    return any(report.failed for report in reports)


@contextmanager
def _changed(file: str, text: str) -> Iterator[None]:
    path = Path(file)
    original = path.read_text()
    _write(path, text)
    try:
        yield
    finally:
        _write(path, original)


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    functions.cache_clear()
    migrations.cache_clear()
    if not _asked:
        return
    server, *_ = _asked  # the first one stays
    if "functions" in path.parts:
        with psycopg.connect(server.url_of(server.template()), autocommit=True) as conn:
            conn.execute(text.encode())
    else:
        server.close()
