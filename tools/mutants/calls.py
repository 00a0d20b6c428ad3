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
_close = postgres.Database.close
_called: set[str] = set()


def _look_and_close(database: postgres.Database) -> None:
    _close(database)  # a session says what it called when it ends, at the latest
    with psycopg.connect(database.url) as conn:
        names = conn.execute(
            "select funcname from pg_stat_user_functions where schemaname = 'redrive'"
        )
        _called.update(name for (name,) in names)


postgres.Database.close = _look_and_close


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Write what was called when all of a test is over."""
    _called.clear()
    result = yield
    with Path(os.environ["REDRIVE_CALLS"], item.path.name).open("a") as file:
        file.write(json.dumps({"test": item.nodeid, "functions": sorted(_called)}) + "\n")
    return result
