"""What a command imports before it does anything: each starts fast, and pays for what it uses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import redrive
from redrive.database.embedded import free_port
from tests.factories import make_dead_letter
from tests.postgres import Database

NEVER = (
    "opentelemetry",
    "prometheus_client",
    "uvicorn",
    "cryptography",
    "packaging",
    "cronsim",
    "redrive.handlers",
    "redrive.worker",
    "redrive.rules.payloads.redact",
    "redrive.dead_letters.campaigns.store",
)
"""What `queue ls` has no use for."""

PROGRAM = """
import sys
from redrive.cli import main
main(sys.argv[1:])
print(*sys.modules, sep='\\n')
"""


def test_queue_ls_imports_nothing_that_it_does_not_use(database: Database) -> None:
    """The start took 0.5 s of CPU and more; modules are counted, for time depends on others.

    The tables of people want rich, JSON lines do not.
    """
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "redrive", "queue", "ls", "--json"],
        env=os.environ | {"REDRIVE_DATABASE_URL": database.url},
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}

    assert "psycopg" in imported
    assert imported & {*NEVER, "rich"} == set()


LIGHT = {
    "click",
    "msgspec",
    "psycopg",
    "psycopg_binary",
    "redrive",
    "typing_extensions",
}
SETTINGS = {
    "annotated_types",
    "dotenv",
    "pydantic",
    "pydantic_core",
    "pydantic_settings",
    "typing_inspection",
}
EDITS = {"jsonpatch", "jsonpointer"}


@pytest.mark.parametrize(
    ("command", "packages"),
    [
        ("--version", LIGHT),
        ("--help", LIGHT),
        ("dlq ls --json", LIGHT | SETTINGS | EDITS),
        ("dlq ls", LIGHT | SETTINGS | EDITS | {"rich"}),
    ],
)
def test_commands_import_these_packages_and_no_others(
    database: Database, command: str, packages: set[str]
) -> None:
    """A package more makes each start slower; a new one needs a reason."""
    make_dead_letter(database.conn)
    program = (
        f"import runpy, sys; sys.argv[1:] = {command.split()}\n"
        "import atexit; atexit.register(lambda: print('loaded:', *sys.modules))\n"
        "runpy.run_module('redrive', run_name='__main__')"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"REDRIVE_DATABASE_URL": database.url},
        capture_output=True,
        text=True,
        check=True,
    )
    modules = ran.stdout.rpartition("loaded: ")[2].split()
    named = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names
    found = {name for name in named if not name.startswith(("_", "cython_"))}

    assert found == packages
    if command.startswith("--"):
        assert "redrive.settings" not in modules
        groups = (
            "redrive.cli.jobs.",
            "redrive.cli.dead_letters.",
            "redrive.cli.operations.",
        )
        assert [name for name in modules if name.startswith(groups)] == []


def test_help_of_a_command_imports_no_other_command_and_reads_no_settings() -> None:
    """Of 1.26 G instructions 0.83 G are left, half of them psycopg's."""
    program = (
        "import atexit, gc, runpy, sys; sys.argv[1:] = ['queue', 'ls', '--help']\n"
        "show = lambda: print(*sys.modules, gc.get_freeze_count() and 'frozen', sep='\\n')\n"
        "atexit.register(show)\n"
        "runpy.run_module('redrive', run_name='__main__')"
    )
    imported = _imported(program)

    assert "frozen" in imported, "its end costs a sixteenth of the CPU less"
    assert "redrive.cli.jobs.queue" in imported
    unused = {
        "redrive.cli.dead_letters.dlq",
        "redrive.settings",
        "pydantic",
        "pydantic_settings",
    }
    assert imported & {*unused, *NEVER, "rich"} == set()


def test_a_worker_keeps_nothing_that_its_supervisor_does_not_use(
    database: Database, tmp_path: Path
) -> None:
    """Each module stays in memory for as long as the worker runs; a child reads the settings."""
    code = "import redrive\njobs = redrive.Handlers()\njobs.handle('idle')(lambda payload: None)\n"
    (tmp_path / "idle_jobs.py").write_text(code)
    worker = [
        "worker",
        "--until-empty",
        "--http-port",
        "0",
        "--handlers",
        "idle_jobs:jobs",
    ]
    imported = _imported(PROGRAM, *worker, "--database-url", database.url, cwd=tmp_path)

    assert {"psycopg", "redrive.worker.supervisor"} <= imported
    unused = {
        "cronsim",
        "cryptography",
        "difflib",
        "jsonpatch",
        "opentelemetry",
        "packaging",
    }
    assert imported & {*unused, "pydantic", "redrive.settings", "rich"} == set()


def test_an_exporter_keeps_no_library_that_reads_settings(database: Database) -> None:
    """They took 10 MiB of 47."""
    command = [
        "exporter",
        "--http-port",
        str(free_port()),
        "--database-url",
        database.url,
    ]
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as exporter:
        assert exporter.stderr is not None
        next((line for line in exporter.stderr if "serving" in line), None)
        exporter.terminate()
        imported = set(exporter.communicate()[0].splitlines())

    assert "redrive.observability.stats" in imported
    assert imported & {"pydantic", "redrive.settings"} == set()


def test_a_runner_imports_little() -> None:
    """What a handler's code brings comes on top of it."""
    imported = _imported(
        "import sys, redrive.worker.run.process; print(*sys.modules, sep='\\n')"
    )

    unused = {
        "cronsim",
        "difflib",
        "email",
        "importlib.metadata",
        "psycopg",
        "pydantic",
        "zoneinfo",
    }
    assert imported & {*unused, "redrive.worker.supervisor", "tempfile"} == set()


def _imported(program: str, *arguments: str, cwd: Path | None = None) -> set[str]:
    ran = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=cwd,
    )
    return set(ran.stdout.split())


def test_all_that_redrive_offers_is_there_when_asked_for() -> None:
    """Imported when asked for, under the names that it says it has."""
    found = {name: getattr(redrive, name) for name in redrive.__all__}

    assert (
        found["enqueue"].__name__ == "enqueue"
    )  # a function, not the module of its name
    assert found["Handlers"].__name__ == "Handlers"
    assert not hasattr(redrive, "nothing")


def test_dir_lists_what_redrive_offers_and_nothing_else() -> None:
    """A shell completes names from it; Any is no name of ours, and Handlers is."""
    assert sorted(redrive.__all__) == dir(redrive)
