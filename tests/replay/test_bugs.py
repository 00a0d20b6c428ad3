"""Each seeded bug: replay stops at its line, and the test fails until it is fixed."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from redrive.enqueue import enqueue
from tests.cli.conftest import Redrive
from tests.postgres import Database
from tests.replay.bugs import BUGS, module, payload_of

LATER = (
    "import sys, time, time_machine, pytest\n"
    "with time_machine.travel(time.time() + 400 * 86400):\n"
    "    sys.exit(pytest.main(sys.argv[1:]))"
)
QUIET = ("-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist")


WHOLE = bool(os.environ.get("REDRIVE_TEST_BUGS"))  # make replay-test
CHOSEN = [bug for n, bug in enumerate(BUGS) if WHOLE or n % 5 == 0 or bug.special]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(module(fixed=False))
    return tmp_path


@pytest.mark.long
def test_replay_stops_where_it_failed_and_its_test_fails_until_the_fix(
    redrive: Redrive, database: Database, shop: Path
) -> None:
    letters = all_died(database, shop)
    wrong: dict[str, Any] = {}
    for kind, job in letters.items():
        file = shop / f"test_{kind.replace('.', '_')}.py"
        options = ("--handlers", "shop:jobs", "--pytest", str(file), "--json")
        ran = redrive("job", "replay", str(job), *options, PYTHONPATH=str(shop))
        if ran.code or not ran.json["same_line"]:
            wrong[kind] = ran

    assert not wrong
    assert set(letters) == {bug.kind for bug in CHOSEN}
    # A year later, so that only `Past` makes them fail.
    assert outcomes(shop, "-c", LATER) == dict.fromkeys(letters, "FAILED")
    (shop / "shop.py").write_text(module(fixed=True))
    assert outcomes(shop, "-m", "pytest") == dict.fromkeys(letters, "PASSED")


def all_died(database: Database, shop: Path) -> dict[str, int]:
    """Let a worker run each handler; return the dead letters by kind."""
    for bug in CHOSEN:
        enqueue(database.conn, bug.kind, payload_of(bug), **bug.options)
    options = ("--handlers", "shop:jobs", "--http-port", "0", "--until-empty")
    subprocess.run(
        [sys.executable, "-m", "redrive", "worker", *options],
        check=True,
        cwd=shop,
        env=os.environ | {"REDRIVE_DATABASE_URL": database.url},
        stderr=subprocess.DEVNULL,
        timeout=120,
    )
    return dict(database.rows("select kind, id from redrive.dead_letters order by id"))


def outcomes(shop: Path, *python: str) -> dict[str, str]:
    """Run the tests; return how that of each kind ended."""
    ran = subprocess.run(
        [sys.executable, *python, *QUIET, "-rA", "--tb=no", str(shop)],
        check=False,
        cwd=shop,
        env=os.environ | {"PYTHONPATH": str(shop)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = re.findall(r"^(PASSED|FAILED) test_(\w+)\.py::", ran.stdout, re.MULTILINE)
    kinds = {bug.kind.replace(".", "_"): bug.kind for bug in BUGS}
    assert found, ran.stdout + ran.stderr
    return {kinds[name]: outcome for outcome, name in found}


def test_there_are_enough_of_them() -> None:
    assert len({bug.kind for bug in BUGS}) == len(BUGS) >= 30
