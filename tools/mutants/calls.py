"""Which tests call which SQL function: a pytest plugin that asks the server after each of them.

    REDRIVE_CALLS=folder python -m pytest -p tools.mutants.calls tests/sql

writes a JSON object a line, {"test": id, "functions": [name, ...]}, to a file for each of theirs.
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
    _close(database)  # a session says what it called when it ends, at the latest
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
    """Write what was called when all of a test is over."""
    _called.clear()
    result = yield
    for database in _open:  # which several tests share; each is said to call what those before did
        _look(database)
    with Path(os.environ["REDRIVE_CALLS"], item.path.name).open("a") as file:
        file.write(json.dumps({"test": item.nodeid, "functions": sorted(_called)}) + "\n")
    return result
