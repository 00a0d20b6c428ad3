"""The script, run as cron would run it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from redrive.testing import postgres

Run = Callable[..., str]


@pytest.fixture
def run() -> Iterator[Run]:
    """Run Python with these arguments, on a Postgres of its own."""
    with postgres() as url:
        yield (
            lambda *arguments: (
                subprocess.run(
                    [sys.executable, *map(str, arguments)],
                    check=True,
                    env=os.environ
                    | {"REDRIVE_DATABASE_URL": url, "REDRIVE_HTTP_PORT": "0"},
                    stdout=subprocess.PIPE,
                    text=True,
                    timeout=60,
                ).stdout
            )
        )


def test_each_subscriber_gets_each_issue_once(run: Run, tmp_path: Path) -> None:
    subscribers = tmp_path / "subscribers.txt"
    worker = (
        "-m",
        "redrive",
        "worker",
        "--handlers",
        "newsletter:jobs",
        "--until-empty",
    )
    subscribers.write_text("ada\nbob\n")

    assert run("newsletter.py", "2026-11", subscribers) == "2 enqueued\n"
    assert "mail to bob: the newsletter of 2026-11" in run(*worker)
    subscribers.write_text("ada\nbob\neve\n")
    assert run("newsletter.py", "2026-11", subscribers) == "1 enqueued\n"
    assert "mail to bob" not in run(*worker)
