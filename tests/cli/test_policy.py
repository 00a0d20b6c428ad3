"""`redrive policy show`: the waits of a policy, by category."""

import json
import sys
from pathlib import Path

import pytest

from redrive.cli.main import main
from redrive.rules.model import Category

HANDLERS = """
from datetime import timedelta
from redrive import Handlers, Policy

jobs = Handlers()

@jobs.handle("mail.welcome", policy=Policy(window=timedelta(hours=1), attempts={"bug": 2}))
def send(payload): ...

@jobs.handle("mail.now", policy=Policy(window=10))
def now(payload): ...

@jobs.handle("wire.send", policy=Policy(max_attempts=1))
def wire(payload): ...
"""


def test_the_default_waits_are_shown_by_category(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The default waits are shown."""
    assert main(["policy", "show"]) == 0
    shown = capsys.readouterr().out
    assert main(["policy", "show", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)

    assert "transient, throttled: retried for 2 days, at most 100 attempts" in shown
    assert "lost: retried, at most 10 attempts" in shown
    assert "at most 5 attempts; the same failure 3 times in a row ends it" in shown
    assert "invalid, bug: not retried" in shown
    assert (found["kind"], found["window"]) == (None, 172_800)
    assert found["waits"][:9] == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert found["categories"]["bug"] == {"attempts": 1, "window": None, "plan": []}
    assert found["categories"]["other"]["plan"][1] == {
        "attempt": 3,
        "earliest": 60,
        "latest": 120,
        "after_earliest": 90,
        "after_latest": 180,
    }


def test_the_policy_of_a_kind_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shown_jobs.py").write_text(HANDLERS)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    handlers = ["--handlers", "shown_jobs:jobs"]

    assert main(["policy", "show", "mail.welcome", *handlers, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(["policy", "show", "male.welcome", *handlers]) == 64
    refused = capsys.readouterr().err
    assert main(["policy", "show", "mail.now", *handlers]) == 0
    short = capsys.readouterr().out

    assert main(["policy", "show", "wire.send", *handlers]) == 0
    once = capsys.readouterr().out

    assert once.splitlines() == [f"{', '.join(Category)}: not retried", ""]
    assert "not retried: the first wait exceeds the window of 10 s" in short
    assert (found["kind"], found["window"]) == ("mail.welcome", 3600)
    assert found["categories"]["transient"]["attempts"] is None
    assert found["categories"]["transient"]["plan"][-1]["after_latest"] == 3600
    assert [row["attempt"] for row in found["categories"]["bug"]["plan"]] == [2]
    assert "no handler is registered for 'male.welcome'" in refused
