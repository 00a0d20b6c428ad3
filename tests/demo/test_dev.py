"""redrive dev: one command for local development, which leaves nothing running."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import psycopg
import pytest

from redrive.cli.main import main
from redrive.database.embedded import EmbeddedPostgres
from redrive.errors import SettingsError
from redrive.extras.dev import command as dev
from tests.demo.conftest import SECONDS, Place
from tests.flow.harness import wait_for
from tests.postgres import Database

APP = """
import os

from redrive import Handlers

jobs = Handlers()


@jobs.handle("greet")
def greet(payload):
    print("hello", payload["n"], "in", os.environ["DATABASE_URL"].rpartition("/")[2])
"""


class Running:
    """A `redrive dev`, with its output in a file."""

    def __init__(self, place: Place, home: Path, *options: str) -> None:
        self.home = home
        self.log = home / "log"
        command = ("-m", "redrive", "dev", "app:jobs", *options)
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                cwd=home,
                env=place.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def says(self, text: str) -> str:
        """Wait for a line with this text, and return all output."""
        wait_for(
            lambda: text in self.log.read_text() or self.process.poll() is not None,
            SECONDS,
        )
        found = self.log.read_text()
        assert text in found, found
        return found

    def ended(self, number: int | None = None) -> tuple[int, str]:
        """Send a signal, if any, and return exit code and output."""
        if number is not None:
            self.process.send_signal(number)
        return self.process.wait(SECONDS), self.log.read_text()

    def kill(self) -> None:
        """End one of a test that failed; the guard ends the rest."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def environment(self) -> dict[str, str]:
        """What a shell has after `. .redrive/env`."""
        ran = subprocess.run(
            ["sh", "-c", ". ./.redrive/env; env"],
            cwd=self.home,
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        return dict(line.split("=", 1) for line in ran.stdout.splitlines())

    def enqueue(self, kind: str, payload: str = "{}") -> None:
        ran = subprocess.run(
            ["redrive", "enqueue", kind, payload],
            env=self.environment(),
            cwd=self.home,
            check=False,
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr + self.log.read_text()

    def ended_jobs(self) -> str:
        """Return the list of jobs that have ended."""
        return subprocess.check_output(
            ["redrive", "job", "ls", "--state", "completed", "--json"],
            env=self.environment(),
            cwd=self.home,
            text=True,
        )

    def jobs(self) -> int:
        with psycopg.connect(self.environment()["REDRIVE_DATABASE_URL"]) as conn:
            found = conn.execute("select count(*) from redrive.jobs").fetchone()
        assert found
        return found[0]


@pytest.fixture
def home(place: Place) -> Path:
    """Outside of pytest's directory, which each new run of pytest closes for others.

    As root, Postgres runs as another user.
    """
    home = Path(tempfile.mkdtemp(prefix="""it's "my" $HOME `x` """, dir=place.path))
    (home / "app.py").write_text(APP)
    return home


Start = Callable[..., Running]


@pytest.fixture
def start(place: Place, home: Path) -> Iterator[Start]:
    with contextlib.ExitStack() as stack:

        def begin(*options: str, home: Path = home) -> Running:
            running = Running(place, home, *options)
            stack.callback(running.kill)
            return running

        yield begin


@pytest.mark.long
def test_it_runs_everything_reloads_ends_all_of_it_and_keeps_its_data(
    place: Place, home: Path, start: Start
) -> None:
    running = start()
    said = running.says("ready: the console is at ")
    address = said.partition("ready: the console is at ")[2].split()[0]
    assert b"<html" in urlopen(address, timeout=SECONDS).read()

    running.enqueue("greet", '{"n": 17}')
    running.says("worker   hello 17 in postgres")
    own = running.environment()
    assert own["DATABASE_URL"] == own["REDRIVE_DATABASE_URL"]
    (home / "app.saved").write_text(APP.replace("hello", "good day"))
    (home / "app.saved").rename(home / "app.py")
    running.says("code changed")
    wait_for(lambda: running.log.read_text().count("runner ready") == 2, SECONDS)
    running.enqueue("greet", '{"n": 18}')
    running.says("worker   good day 18")
    wait_for(lambda: running.ended_jobs().count('"kind":"greet"') == 2, SECONDS)
    second = start()
    assert second.ended()[0] == 75
    assert f"another redrive dev runs in {home}/.redrive" in second.log.read_text()

    running.enqueue("of.nobody")

    code, said = running.ended(signal.SIGINT)
    assert code == 0, said
    ends(place)
    assert (home / ".redrive" / ".gitignore").read_text() == "*\n"
    assert_data_is_kept_until_it_is_deleted(place, home, start)


def assert_data_is_kept_until_it_is_deleted(
    place: Place, home: Path, start: Start
) -> None:
    """Check that the job of nobody is there again, and that a kill leaves nothing running."""
    again = start()
    again.says("ready:")
    assert again.jobs() == 1
    again.process.kill()
    ends(place)

    shutil.rmtree(home / ".redrive")
    fresh = start()
    fresh.says("ready:")
    assert fresh.jobs() == 0
    assert fresh.ended(signal.SIGTERM)[0] == 0
    ends(place)


@pytest.mark.long
def test_two_that_start_at_once_have_two_consoles(
    place: Place, home: Path, start: Start
) -> None:
    """Both found the usual port free, and one ended when the other's console had it."""
    other = Path(tempfile.mkdtemp(dir=place.path))
    (other / "app.py").write_text(APP)
    first, second = start(), start(home=other)
    said = [running.says("ready: the console is at ") for running in (first, second)]
    consoles = {text.partition("console is at ")[2].split()[0] for text in said}
    assert len(consoles) == 2
    for running in (first, second):
        assert running.ended(signal.SIGTERM)[0] == 0
    ends(place)


def test_a_part_that_ends_is_named_and_ends_the_rest(
    place: Place, home: Path, start: Start, database: Database
) -> None:
    running = start("--database-url", database.url)
    said = running.says("ready:")
    worker = int((home / ".redrive" / "worker.pid").read_text())
    os.kill(worker, signal.SIGKILL)
    code, said = running.ended()

    assert code == 1
    assert "redrive: the worker ended by signal 9; its last lines:" in said
    assert "registered worker=" in said.partition("its last lines:")[2]
    name = database.value("select current_database()")
    assert f"using the database {name} on 127.0.0.1" in said
    ends(place)


def test_what_cannot_work_is_refused_at_once(
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDRIVE_DATABASE_URL", raising=False)

    def refused(*arguments: str) -> str:
        assert main(["dev", *arguments]) == 64
        return capsys.readouterr().err

    assert "No module named 'no'" in refused("no.such:jobs")
    assert "it must be module:attribute" in refused("app")
    own = ("--database-url", database.url)
    (tmp_path / "app.py").write_text(APP)
    with socket.create_server(("", 0)) as taken:
        port = str(taken.getsockname()[1])
        expected = f"--port is {port}; another program uses this port"
        assert expected in refused("app:jobs", "--port", port, *own)
    monkeypatch.setattr(dev, "find_spec", lambda _: None)
    assert "pip install 'redrive[dev]'" in refused("app:jobs", *own)
    assert not (tmp_path / ".redrive").exists()


def test_programs_of_postgres_in_a_path_that_they_cannot_have_are_refused(
    tmp_path: Path,
) -> None:
    programs = tmp_path / 'a "b"' / "bin"
    with pytest.raises(SettingsError, match="must not have any of"):
        EmbeddedPostgres(tmp_path, programs=programs)


def ends(place: Place) -> None:
    """Wait until none of its processes is left."""
    with contextlib.suppress(AssertionError):
        wait_for(lambda: not place.processes())
    assert place.processes() == []
