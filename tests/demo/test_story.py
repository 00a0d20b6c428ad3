"""The demo, as a new user sees it."""

import contextlib
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.demo.conftest import SECONDS, Place, read_until
from tests.flow.harness import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("demo")]


def without_what_differs(text: str) -> list[str]:
    """Return the lines without numbers, groups, widths and times, which differ by run."""
    text = re.sub(r"[0-9a-f]{16}", "<group>", text).replace("half_open", "open")
    # Its canaries may be over before it is shown.
    text = re.sub(r"(campaign \d+: )\w+(?=; see)", r"\1canary", text)
    text = re.sub(r"\bnow\b|\bin \d+ s\b|\d+ s ago", "0", text)
    text = re.sub(r"(?<=\S)([ ─])\1+", r"\1", text)
    # A job that is retried meanwhile adds the column of failing jobs, the first one.
    text = re.sub(r"(?m)^\s*failing (?=open )", "", text)
    lines = [re.sub(r"\s*\d+", "<n>", line.strip()) for line in text.splitlines()]
    return [re.sub(r"^(<n>)+", "<n>", line) for line in lines if line]


def shown_on_the_page() -> list[str]:
    """Return the lines that docs/demo.md says the demo prints."""
    page = (Path(__file__).parents[2] / "docs" / "demo.md").read_text()
    shown = "".join(
        re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    )
    shown = shown.replace(" In another terminal:", "").replace(
        "/tmp/redrive-demo", "<n>"
    )
    return [line for line in without_what_differs(shown) if line != "$ make incident"]


def opening(lines: list[str]) -> list[str]:
    """Return the lines before the first command."""
    return lines[
        : next(n for n, line in enumerate(lines) if "jobs are dead letters" in line)
    ]


def assert_the_story_ends_well(said: str, place: Place) -> None:
    """Check the output of a demo that ran with --once, and that nothing is left of it."""
    assert "14 jobs are dead letters now, for 3 causes." in said
    states = [
        line.split()[1] for line in said.splitlines() if line.startswith(" smtp ")
    ]
    assert states in (["open", "closed"], ["half_open", "closed"])
    assert "[redacted]" in said
    assert "tok_" not in said
    assert [
        line
        for line in shown_on_the_page()
        if "in a browser" not in line  # nobody has the time to, while it plays
        and line
        not in without_what_differs(
            said.replace(str(place.path / "redrive-demo"), "<n>")
        )
    ] == []
    assert 'payload.till = "lyon"; 0 of ' in said
    assert "1 dead letter redriven by campaign 1." in said
    assert "campaign 2  aborted: 3 of 3 died again" in said
    assert "campaign 3  done\n5 of 8 redriven: 5 succeeded" in said
    assert "3 dead letters redriven by campaign 4." in said
    assert re.search(r"EUR +104 of 104 +16,691\.73 +16,691\.73 +yes", said)
    assert "194 receipts are with the mail server" in said
    assert "All is well" in said
    assert place.what_is_left() == []


class Running(NamedTuple):
    """A demo that waits for commands."""

    process: subprocess.Popen[str]
    said: str

    @property
    def source(self) -> str:
        return next(
            line.strip()
            for line in self.said.splitlines()
            if line.startswith("  source ")
        )

    @property
    def commands(self) -> list[str]:
        return [
            line.strip()
            for line in self.said.splitlines()
            if line.startswith("  redrive ")
        ]

    def type(self, command: str) -> subprocess.CompletedProcess[str]:
        """Type a command in another terminal."""
        script = f"{self.source} && {command}"
        return subprocess.run(
            ["bash", "-c", script],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            cwd="/",
        )


def hold(holder: socket.socket, port: int) -> None:
    """Take a port. If somebody has it, wait: they may give it back before the demo begins."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            holder.bind(("", port))
            holder.listen()
            return
        time.sleep(0.2)


@pytest.fixture(scope="module")
def running(place: Place) -> Iterator[Running]:
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        hold(holder, 9808)
        process = place.start()
        try:
            yield Running(process, read_until(process, "Ctrl-C ends the demo"))
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=SECONDS)


def page_of(url: str) -> bytes:
    """Return a page; nothing while its server does not listen yet."""
    try:
        with urlopen(url, timeout=300) as answer:
            return answer.read()
    except HTTPError:
        raise
    except OSError:
        return b""


@pytest.mark.long
def test_what_it_prints_works_when_it_is_typed(place: Place, running: Running):
    # The port of the metrics is taken, so another was found.
    url = re.search(r"http://127.0.0.1:(\d+)/metrics", running.said)
    assert url
    assert url[1] != "9808"
    with urlopen(url[0], timeout=300) as answer:
        assert b"redrive_dlq_depth" in answer.read()

    # The console shows it in a browser.
    console = re.search(
        r"look at it in a browser: (http://127.0.0.1:\d+)", running.said
    )
    assert console
    said = without_what_differs(
        running.said.replace(str(place.path / "redrive-demo"), "<n>")
    )
    assert opening(said) == opening(shown_on_the_page())
    # The demo does not wait for its console.
    groups = wait_for(lambda: page_of(f"{console[1]}/groups"), SECONDS)
    assert b"IndexError" in groups

    # It changes nothing without --yes, and says so.
    redrives = [command for command in running.commands if "dlq redrive" in command]
    preview = running.type(redrives[0].removesuffix(" --yes"))
    assert preview.returncode == 0, preview.stderr
    assert "nothing was changed" in preview.stdout

    # Everything it printed, in its order. The campaign before the fix aborts.
    done = {command: running.type(command) for command in running.commands}
    failed = {command: ended for command, ended in done.items() if ended.returncode}
    assert list(failed) == ["redrive campaign watch 2"], [
        e.stderr for e in failed.values()
    ]
    assert "3 of 3 died again" in failed["redrive campaign watch 2"].stdout
    assert len(done) >= 17

    # It sees by itself that all is well.
    read_until(running.process, "All is well")
    ledger = running.type("redrive demo ledger").stdout
    assert ledger.count("yes") == 3
    assert "194 receipts" in ledger
    assert "no dead letters" in running.type("redrive dlq ls").stdout

    running.process.send_signal(signal.SIGINT)
    said, _ = running.process.communicate(timeout=SECONDS)
    assert "nothing is left of it" in said
    assert running.process.returncode == 0
    assert place.what_is_left() == []
