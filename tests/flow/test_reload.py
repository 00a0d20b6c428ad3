"""`redrive worker --reload`: an editor on one side, a real worker on the other."""

import contextlib
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from redrive import enqueue
from redrive.worker.processes.reload import CodeWatch, code_of
from tests.flow.harness import Worker, Workers, wait_for
from tests.postgres import Database

CODE = """
import time
from pathlib import Path
from redrive import Handlers

HOME = Path({home!r})
jobs = Handlers()

@jobs.handle("edit")
def edit(payload):
    while payload.get("until") and not (HOME / payload["until"]).exists():
        time.sleep(0.01)
    written = HOME / ("." + payload["to"])
    written.write_text({said!r})
    written.rename(HOME / payload["to"])
"""


def write(home: Path, said: str) -> Path:
    return save(home, CODE.format(home=str(home), said=said))


def save(home: Path, text: str) -> Path:
    """As one change: a file that is written in place is seen empty first."""
    file, saved = home / "edited_app.py", home / "edited_app.saved"
    saved.write_text(text)
    return saved.rename(file)


def start(workers: Workers) -> Worker:
    path = os.pathsep.join((str(workers.home), os.environ.get("PYTHONPATH", "")))
    worker = workers("--reload", handlers="edited_app:jobs", pythonpath=path)
    opened = Path(f"/proc/{worker.pid}/fdinfo")

    def is_watching() -> bool:
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            return any("inotify wd:" in one.read_text() for one in opened.iterdir())
        return False

    wait_for(is_watching)
    return worker


def events(worker: Worker, name: str) -> list[dict[str, object]]:
    return [e for e in worker.events() if e["event"] == name]


def test_changed_code_runs_what_is_started_from_then_on_and_running_jobs_end(
    database: Database, workers: Workers
) -> None:
    """A job that runs ends with the code it began with; nothing is lost, nothing done twice."""
    file = write(workers.home, "the first")
    worker = start(workers).wait_ready()
    enqueue(database.conn, "edit", {"to": "a", "until": "go"})
    wait_for(lambda: database.value("select count(*) from redrive.claims") == 1)
    (old,) = worker.runners

    write(workers.home, "the second version")
    wait_for(lambda: len(events(worker, "runner ready")) == 2)
    enqueue(database.conn, "edit", {"to": "b"})
    wait_for((workers.home / "b").exists)
    assert old in worker.runners
    (workers.home / "go").touch()
    wait_for(lambda: old not in worker.runners)

    assert (workers.home / "a").read_text() == "the first"
    assert (workers.home / "b").read_text() == "the second version"
    assert events(worker, "code changed")[0]["files"] == [str(file)]
    assert not events(worker, "runner died")
    assert worker.stop()[0] == 0
    assert database.rows("select id from redrive.jobs") == []
    assert database.value("select count(*) from redrive.failures") == 0


def test_broken_code_is_shown_once_and_what_ran_goes_on_until_the_next_change(
    database: Database, workers: Workers
) -> None:
    """No loop of crashes, and no worker that ends because somebody saved half a line."""
    file = write(workers.home, "the first")
    worker = start(workers).wait_ready()
    save(workers.home, "jobs = Handlers(\n")
    said = "the code cannot be loaded; waiting for its next change"
    wait_for(lambda: events(worker, said))
    enqueue(database.conn, "edit", {"to": "a"})
    wait_for((workers.home / "a").exists)

    write(workers.home, "the mended version")
    wait_for(lambda: len(events(worker, "runner ready")) == 2)
    enqueue(database.conn, "edit", {"to": "b"})
    wait_for((workers.home / "b").exists)

    assert (workers.home / "a").read_text() == "the first"
    assert (workers.home / "b").read_text() == "the mended version"
    text = worker.log.read_text()
    assert (
        text.count("SyntaxError: '(' was never closed")
        == len(events(worker, said))
        == 1
    )
    assert f'File "{file}", line 1' in text
    assert worker.stop()[0] == 0


def test_a_runner_that_is_killed_while_the_code_is_broken_leaves_its_job_to_the_mended_code(
    database: Database, workers: Workers
) -> None:
    """kill -9 while nothing else can run it: it is neither lost nor tried without end."""
    write(workers.home, "the first")
    worker = start(workers).wait_ready()
    enqueue(database.conn, "edit", {"to": "a", "until": "go"})
    wait_for(lambda: database.value("select count(*) from redrive.claims") == 1)
    (old,) = worker.runners
    save(workers.home, "1 / 0\n")
    said = "the code cannot be loaded; waiting for its next change"
    wait_for(lambda: events(worker, said))
    os.kill(old, signal.SIGKILL)
    (workers.home / "go").touch()
    wait_for(lambda: len(events(worker, said)) == 2)
    write(workers.home, "the mended version")
    wait_for((workers.home / "a").exists)

    assert (workers.home / "a").read_text() == "the mended version"
    assert len(events(worker, said)) == 2, (
        "one try for the runner that died, and no loop"
    )
    assert worker.stop()[0] == 0
    assert database.rows("select id from redrive.jobs") == []


def test_a_worker_that_starts_with_broken_code_waits_for_its_change(
    database: Database, workers: Workers
) -> None:
    (workers.home / "edited_app.py").write_text("1 / 0\n")
    worker = start(workers)
    wait_for(lambda: "ZeroDivisionError" in worker.log.read_text())
    job = enqueue(database.conn, "edit", {"to": "a"})
    write(workers.home, "the mended version")
    wait_for((workers.home / "a").exists)

    assert job
    assert worker.stop()[0] == 0


def test_what_is_saved_before_the_watch_is_up_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first runner may have loaded what it was before, and nobody heard of it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    files = [write(tmp_path, "the first"), tmp_path / "gone.py", tmp_path / "same.py"]
    for file in files:
        file.touch()
        os.utime(file, (1, 1))
    told = threading.Event()
    watch = CodeWatch("edited_app:jobs", told.set)
    write(tmp_path, "the second")
    (tmp_path / "gone.py").unlink()
    watch.start()

    assert told.wait(60)
    assert watch.take() == [str(tmp_path / "edited_app.py"), str(tmp_path / "gone.py")]


def test_without_the_library_it_looks_at_the_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    monkeypatch.syspath_prepend(tmp_path)
    file = write(tmp_path, "the first")
    for ignored in (".venv", "__pycache__", "site-packages"):
        (tmp_path / ignored).mkdir()
    told = threading.Event()
    watch = CodeWatch("edited_app:jobs", told.set)
    watch.start()
    (tmp_path / ".venv" / "other.py").touch()
    (tmp_path / "notes.txt").touch()

    for text in ("the second", "the third one"):
        assert not watch.take()
        write(tmp_path, text)
        assert told.wait(60)
        assert watch.take() == [str(file)]
        told.clear()


def test_the_directory_of_the_application_is_watched_but_not_all_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "site-packages"
    for package in (tmp_path / "own_app", packages / "installed_app"):
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
    (tmp_path / "single_app.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(packages), *sys.path])

    assert code_of("own_app.jobs:jobs") == tmp_path
    assert code_of("single_app:jobs") == tmp_path
    assert code_of("installed_app.jobs:jobs") == packages / "installed_app"
    assert code_of("no_such_app:jobs") == Path.cwd()
