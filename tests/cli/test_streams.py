"""Where output goes: terminals of any encoding, pipes that end, disks that are full, and Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.factories import make_dead_letter, make_job
from tests.postgres import Database

Shell = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment(database: Database) -> dict[str, str]:
    return os.environ | {"REDRIVE_DATABASE_URL": database.url, "COLUMNS": "80"}


@pytest.fixture
def shell(environment: dict[str, str]) -> Shell:
    """Run a line of bash, in which `redrive` is a process of its own."""

    def run(
        line: str, encoding: str = "utf-8", **more: str
    ) -> subprocess.CompletedProcess[str]:
        function = f'redrive() {{ "{sys.executable}" -m redrive "$@"; }}; '
        return subprocess.run(
            ["bash", "-c", function + line],
            env=environment | {"PYTHONIOENCODING": encoding} | more,
            capture_output=True,
            encoding=encoding,
            check=False,
        )

    return run


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_lacks_characters_shows_others_as_wide(
    shell: Shell, database: Database, encoding: str
) -> None:
    """Lines and charts have stand-ins, and other characters are escaped."""
    payload = {"to": "Zo\xeb \u2603"}
    letter = make_dead_letter(
        database.conn, "notification.send", payload, queue="notifications"
    )

    done = shell("redrive dlq ls", encoding)
    assert (done.returncode, done.stderr) == (0, "")
    _, head, ruler, row, message, _ = done.stdout.split("\n", 5)
    assert set(ruler) == {" ", "-"}
    assert len(head) == len(ruler) == len(row) <= 80
    assert message.strip() == "ValueError: no such invoice"

    shown = shell(f"redrive dlq show {letter}", encoding)
    assert (shown.returncode, shown.stderr) == (0, "")
    escaped = "Zo\\u00eb" if encoding == "ascii" else "Zo\xeb"
    assert f'"to": "{escaped} \\u2603"' in shown.stdout
    group = shell("redrive dlq show f1", encoding)
    assert (group.returncode, group.stderr) == (0, "")


def test_json_for_an_ascii_reader_is_json(shell: Shell, database: Database) -> None:
    payload = {"to": "Zo\xeb \u2603 \U0001f600"}
    job = make_job(database.conn, "mail.send", payload)

    done = shell(f"redrive job show {job} --json", "ascii")

    assert json.loads(done.stdout)["payload"] == payload


def test_an_error_names_what_was_typed_in_any_encoding(shell: Shell) -> None:
    done = shell("redrive queue ls --n\xf6", "ascii")

    assert done.returncode == 64
    assert "No such option" in done.stderr
    assert "--n\\u00f6" in done.stderr


@pytest.mark.parametrize("command", ["dlq ls", "dlq ls --json", "--help", "--version"])
def test_a_reader_that_leaves_is_no_error(
    shell: Shell, database: Database, command: str
) -> None:
    make_dead_letter(database.conn)

    done = shell(f"redrive {command} | true")

    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("command", ["dlq ls", "dlq ls --json", ""])
def test_a_full_disk_is_one_sentence(
    shell: Shell, database: Database, command: str
) -> None:
    make_dead_letter(database.conn)
    done = shell(f"redrive {command} > /dev/full")

    assert done.returncode == 1
    assert done.stderr == "redrive: No space left on device\n"


@pytest.mark.parametrize(
    ("command", "closed"),
    [
        ("dlq ls", ">&-"),
        ("dlq ls", "2>&-"),
        ("dlq ls", "<&- >&- 2>&-"),
        ("dlq redrive --kind invoice.charge --why fixed", "<&-"),
        ("dlq redrive --kind invoice.charge --why fixed", ">&- 2>&-"),
    ],
)
def test_a_command_needs_no_open_stream(
    shell: Shell, database: Database, command: str, closed: str
) -> None:
    make_dead_letter(database.conn)

    done = shell(f"redrive {command} {closed}")

    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_at_any_moment_prints_no_traceback(environment: dict[str, str]) -> None:
    """During the imports of the command line and during its work."""
    program = """
import sys

class Finder:
    def find_spec(name, *_):
        if name == "redrive.cli":
            print(flush=True)

sys.meta_path.insert(0, Finder)
from redrive.__main__ import run
sys.exit(run())
"""
    for milliseconds in range(0, 300, 50):
        with subprocess.Popen(
            [sys.executable, "-c", program, "dlq", "ls"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as command:
            assert command.stdout
            command.stdout.readline()
            time.sleep(milliseconds / 1000)
            command.send_signal(signal.SIGINT)
            _, said = command.communicate()

        assert said.strip() in {"", "redrive: stopped"}


@pytest.mark.parametrize("busy_seconds", [0, 0.7])
def test_ctrl_c_within_a_callback_of_the_interpreter_is_not_lost(
    environment: dict[str, str], busy_seconds: float
) -> None:
    """Python drops exceptions there, for example while it imports a module."""
    program = """
import signal, sys, time, weakref
signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell ignores it in the background
from redrive import __main__
from redrive.cli import main

set_timer = signal.setitimer

def set_on_a_busy_machine(*times):
    set_timer(*times)
    end = time.monotonic() + busy_seconds
    while time.monotonic() < end:
        pass
    signal.setitimer = set_timer

signal.setitimer = set_on_a_busy_machine

class Thing: pass

def connect(*_, **__):
    thing = Thing()
    watch = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
    del thing
    time.sleep(10)

import psycopg
psycopg.connect = psycopg.Connection.connect = connect
busy_seconds = float(sys.argv.pop())
__main__.sys.exit(__main__.run())
"""
    done = subprocess.run(
        [sys.executable, "-c", program, "dlq", "ls", str(busy_seconds)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr.strip()) == (1, "redrive: stopped")


def test_a_url_may_end_with_a_line(shell: Shell, database: Database) -> None:
    """As it does in a file, from which it is often read."""
    done = shell("redrive queue ls", REDRIVE_DATABASE_URL=f" {database.url}\n")

    assert (done.returncode, done.stderr) == (0, "")
