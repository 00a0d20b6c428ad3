"""An application that is installed as libraries are: its frames are its own all the same."""

import os
from pathlib import Path

import pytest

from redrive import Handlers, enqueue
from redrive.rules.attempts.failure import describe
from redrive.worker.run.services import Services
from tests.flow.harness import Workers
from tests.postgres import Database

APPLICATION = """
import json
from redrive import Handlers, Policy

jobs = Handlers()

def first():
    json.loads("{")

def second():
    json.loads("{")

@jobs.handle("bill", policy=Policy(max_attempts=1))
def bill(payload):
    (first if payload["n"] % 2 else second)()
"""

MODULE = """
def charge():
    return check()

def check():
    raise ValueError("no 7")
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A site-packages with the application, as pip leaves it."""
    package = tmp_path / "site-packages" / "acme_billing"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "jobs.py").write_text(APPLICATION)
    return package.parent


def test_two_bugs_of_an_installed_application_are_two_groups(
    database: Database, workers: Workers, installed: Path
) -> None:
    """Nothing but frames under site-packages, so the fingerprint had no place."""
    for n in range(4):
        enqueue(database.conn, "bill", {"n": n})
    path = os.pathsep.join((str(installed), os.environ.get("PYTHONPATH", "")))
    workers.run(handlers="acme_billing.jobs:jobs", pythonpath=path)

    groups = database.column(
        "select count(*)::int from redrive.dead_letters group by fingerprint"
    )
    own = database.column(
        "select distinct s ->> 'function'"
        " from redrive.failures f, jsonb_array_elements(f.detail -> 'stack') s"
        " where (s ->> 'own')::boolean order by 1"
    )

    assert groups == [2, 2]
    assert own == ["bill", "first", "second"]


def _failed(file: str, module: str, own: frozenset[str] = frozenset()) -> str:
    """The fingerprint of a failure of a module's."""
    scope = {"__name__": module}
    exec(compile(MODULE, file, "exec"), scope)
    try:
        scope["charge"]()  # type: ignore[operator]
    except ValueError as error:
        trace = error.__traceback__  # its first frame is this function
        error = error.with_traceback(trace and trace.tb_next)
        return describe(error, "order.charge", own=own).fingerprint
    raise AssertionError("nothing was raised")


IN_PLACE = ("/srv/app/shop/orders.py", "shop.orders")
LIBRARY = ("/venv/lib/python3.12/site-packages/client/orders.py", "client.orders")


def test_fingerprints_of_others_are_what_they_were() -> None:
    """Those of applications in directories of their own, and of libraries' frames alone."""
    assert _failed(*IN_PLACE) == "ecf1621c2526db35"
    assert _failed(*IN_PLACE, own=frozenset({"client"})) == "ecf1621c2526db35"
    assert (
        _failed(*LIBRARY)
        == _failed(*LIBRARY, own=frozenset({"shop"}))
        == "618dfac43f063e65"
    )
    assert _failed(*LIBRARY, own=frozenset({"client"})) != "618dfac43f063e65"


def print_it(payload: dict[str, object]) -> None:
    print(payload)


def test_what_runs_from_its_own_directory_has_no_installed_package() -> None:
    """Not even where a library brought one of its handlers, as HTTP targets do."""
    jobs = Handlers()
    jobs.handle("own")(print_it)
    services = Services(jobs, print, where={})
    services.close()

    assert services.own == frozenset()
