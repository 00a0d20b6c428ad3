"""A directory for demos, and a check that they leave nothing behind."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.alerts.conftest import tool

__all__ = ["tool"]

SECONDS = 240
"""For a demo on a machine that runs other tests at the same time; alone it takes about 20."""


class Place:
    """A directory instead of /tmp; all processes of a demo inherit it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("REDRIVE_")
        }
        self.environment |= {"TMPDIR": str(path), "COLUMNS": "100"}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a demo, without a terminal."""
        return subprocess.Popen(
            [sys.executable, "-m", "redrive", "demo", *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def processes(self) -> list[str]:
        """Return the processes that run here."""
        found: list[str] = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if (
                    process.environ().get("TMPDIR") == str(self.path)
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    found.append(" ".join(process.cmdline()))
        return found

    def what_is_left(self, seconds: float = 180) -> list[str]:
        """Return the remaining processes and files, after waiting for them to end."""
        deadline = time.monotonic() + seconds
        while (
            left := self.processes() + list(map(str, self.path.iterdir()))
        ) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    path = Path(tempfile.mkdtemp(prefix="redrive-tests-"))
    try:
        yield Place(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """Return the output of a demo up to the line with `text`."""
    said = ""
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        if text in line:
            return said
    msg = f"the demo ended before it said {text!r}:\n{said}"
    raise AssertionError(msg)
