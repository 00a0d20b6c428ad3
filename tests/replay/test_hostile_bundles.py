"""Hostile bundles: a file that a stranger sent to be replayed."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from redrive.extras.replay.bundle import read_bundle
from redrive.extras.replay.regression import test_source as source_of
from tests.cli.conftest import Redrive
from tests.postgres import Database
from tests.replay import apps
from tests.replay.test_replay import REPLAY, died

SECRET = "Zx9-canary-77"
BREAK_OUT = '"""\nopen("stolen", "w")\n"""\'\'\'{0}{{}}%s\\'


@pytest.fixture
def bundle(redrive: Redrive, database: Database) -> dict[str, Any]:
    job = died(database, "order.book", {"lines": [{}]}, apps.book)
    return redrive("dlq", "export", str(job)).json


def _replayed(redrive: Redrive, home: Path, content: str, *options: str) -> Any:
    file = home / "letter.json"
    file.write_text(content)
    return redrive(*REPLAY, "--bundle", str(file), *options)


@pytest.mark.parametrize(
    "place", ["/etc/hostname", "../../secret", "secret", "file:///etc/hostname"]
)
def test_a_place_in_a_bundle_is_not_opened(
    redrive: Redrive, bundle: dict[str, Any], tmp_path: Path, place: str
) -> None:
    (tmp_path / "secret").write_text(SECRET)
    frame = {"file": place, "module": place, "function": "f", "line": 1, "own": True}
    bundle["failures"][-1]["detail"] = {"stack": [frame]}

    found = _replayed(redrive, tmp_path, json.dumps(bundle))

    assert found.code == 1
    text = found.out + found.err
    assert SECRET not in text
    assert Path("/etc/hostname").read_text().strip() not in text


HUGE: dict[str, str] = {
    "deep": '{"payload": ' + "[" * 200_000,
    "deep and closed": '{"payload": {"a": ' + "[" * 50_000 + "]" * 50_000 + "}}",
    "a number of 5,000 digits": '{"bundle": 1' + "0" * 5_000 + "}",
    "an attempt without end": '{"bundle": 1, "attempt": 1e999}',
    "no JSON": "PK\x03\x04" + "\x00" * 100,
    "empty": "",
}


@pytest.mark.parametrize("name", HUGE)
def test_a_bundle_that_is_huge_or_none_is_refused_with_one_line(
    redrive: Redrive, tmp_path: Path, name: str
) -> None:
    """Depth ended in a traceback."""
    found = _replayed(redrive, tmp_path, HUGE[name])

    assert (found.code, found.err.count("\n")) == (64, 1), found.err[-500:]
    assert len(found.err) < 500


ODD: dict[str, dict[str, Any]] = {
    "an id of 19 digits": {"id": 2**63 - 1},
    "an id below zero": {"id": -1},
    "an attempt of 19 digits": {"attempt": 2**63 - 1},
    "deliveries of 19 digits": {"deliveries": 2**63 - 1},
    "the first year": {
        "started_at": "0001-01-01T00:00:00",
        "created_at": "0001-01-01T00:00:00",
    },
    "the last year": {
        "started_at": "9999-12-31T23:59:59Z",
        "created_at": "9999-12-31T23:59:59Z",
    },
    "a kind that is a path": {"kind": "../../order.book"},
    "a seed that is a program": {"seed": BREAK_OUT},
}


@pytest.mark.parametrize("name", ODD)
def test_odd_values_of_a_bundle_are_no_traceback_of_ours(
    redrive: Redrive, bundle: dict[str, Any], tmp_path: Path, name: str
) -> None:
    found = _replayed(redrive, tmp_path, json.dumps(bundle | ODD[name]))

    assert found.code in {1, 64}
    assert "redrive/extras/replay" not in found.out + found.err


def test_no_text_of_a_bundle_is_code_in_the_test_that_is_written(
    bundle: dict[str, Any],
) -> None:
    bundle["payload"] |= {BREAK_OUT: BREAK_OUT}
    bundle["headers"] = {BREAK_OUT: [BREAK_OUT]}
    bundle["failures"][-1]["error_class"] = BREAK_OUT
    frame = bundle["failures"][-1]["detail"]["stack"][-1]
    frame.update(module=BREAK_OUT, function=BREAK_OUT)
    names = ("kind", "seed", "tenant", "queue", "idempotency_key", "ordering_key")
    bundle.update(dict.fromkeys(names, BREAK_OUT))
    read = read_bundle(json.dumps(bundle).encode(), "it")

    written = ast.walk(ast.parse(source_of(read, "app.jobs:jobs", needs=())))

    assert "open" not in [node.id for node in written if isinstance(node, ast.Name)]


def test_a_test_is_not_written_through_a_link(
    redrive: Redrive, bundle: dict[str, Any], tmp_path: Path
) -> None:
    """A link to a file that did not exist yet was followed."""
    test = tmp_path / "test_it.py"
    test.symlink_to(tmp_path / "elsewhere")

    found = _replayed(redrive, tmp_path, json.dumps(bundle), "--pytest", str(test))

    assert (found.code, "test_it.py exists" in found.err) == (64, True)
    assert not (tmp_path / "elsewhere").exists()
