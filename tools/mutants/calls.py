"""A pytest plugin that records which SQL functions each test calls.

    REDRIVE_CALLS=folder python -m pytest -p tools.mutants.calls tests/sql

asks the server after each test. It writes a JSON object per line, {"test": id,
"functions": [name, ...]}, to one file for each file of tests.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests import postgres

postgres.SETTINGS["track_functions"] = "all"
_init, _close = postgres.Database.__init__, postgres.Database.close
_open: list[postgres.Database] = []
_called: set[str] = set()


def _open_and_keep(database: postgres.Database, url: str) -> None:
    _init(database, url)
    _open.append(database)


def _close_and_look(database: postgres.Database) -> None:
    _open.remove(database)
    _close(database)  # a session reports its calls at its end, at the latest
    _look(database)


def _look(database: postgres.Database) -> None:
    with psycopg.connect(database.url) as conn:
        names = conn.execute(
            "select funcname from pg_stat_user_functions where schemaname = 'redrive'"
        )
        _called.update(name for (name,) in names)


postgres.Database.__init__ = _open_and_keep
postgres.Database.close = _close_and_look


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Write the called functions after a test is completely over."""
    _called.clear()
    result = yield
    for database in _open:  # shared by tests: each gets the calls of earlier ones too
        _look(database)
    with Path(os.environ["REDRIVE_CALLS"], item.path.name).open("a") as file:
        file.write(
            json.dumps({"test": item.nodeid, "functions": sorted(_called)}) + "\n"
        )
    return result
