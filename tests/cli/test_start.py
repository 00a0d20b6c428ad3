"""What a command imports before it does anything: each starts fast, and pays for what it uses."""

import os
import subprocess
import sys

import redrive
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
    "redrive.rules.redact",
    "redrive.dead_letters.campaign",
)
"""What `queue ls` has no use for."""


def test_queue_ls_imports_nothing_that_it_does_not_use(database: Database) -> None:
    """U13: the start took 0.5 s of CPU and more; modules are counted, for time depends on others.

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


def test_help_of_a_command_imports_no_other_command_and_reads_no_settings() -> None:
    """U13: of 1.26 G instructions 0.83 G are left, half of them psycopg's."""
    program = (
        "import sys; from redrive.cli import main; main(['queue', 'ls', '--help'])\n"
        "print(*sys.modules, sep='\\n')"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    imported = set(ran.stdout.split())
    assert "redrive.cli.queue" in imported
    unused = {"redrive.cli.dlq", "redrive.settings", "pydantic", "pydantic_settings"}
    assert imported & {*unused, *NEVER, "rich"} == set()


def test_a_worker_imports_nothing_that_its_supervisor_does_not_use() -> None:
    """Each module stays in memory for as long as the worker runs."""
    program = (
        "import sys; import redrive.cli.worker, redrive.settings; redrive.settings.load()\n"
        "print(*sys.modules, sep='\\n')"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    imported = set(ran.stdout.split())
    assert "psycopg" in imported
    unused = {"cryptography", "jsonpatch", "opentelemetry", "packaging", "rich"}
    assert imported & unused == set()


def test_all_that_redrive_offers_is_there_when_asked_for() -> None:
    """U13: imported when asked for, under the names that it says it has."""
    found = {name: getattr(redrive, name) for name in redrive.__all__}

    assert found["enqueue"].__name__ == "enqueue"  # a function, not the module of its name
    assert found["Handlers"].__name__ == "Handlers"
    assert not hasattr(redrive, "nothing")
