"""The handler in the README runs the jobs that docs/enqueue.md enqueues."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
ENQUEUE = (ROOT / "docs" / "enqueue.md").read_text()


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def test_the_handler_runs_as_it_is_written(database, tmp_path: Path):
    (source,) = (
        text for text in blocks(README, "python") if text.startswith("# app/jobs.py")
    )
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "jobs.py").write_text(source)
    environment = os.environ | {
        "REDRIVE_DATABASE_URL": database.url,
        "REDRIVE_LOG_FORMAT": "console",
    }
    commands = blocks(ENQUEUE, "sh")[0].splitlines()
    first, second = (shlex.split(c) for c in commands if "--key" in c or "--delay" in c)

    def run(*arguments: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "redrive", *arguments],
            check=True,
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=300,
        ).stdout

    job = run(*first[1:]).strip()
    assert run(*first[1:]).strip() == job
    assert run(*second[1:]).strip() > job
    (statement,) = blocks(ENQUEUE, "sql")
    assert [statement] == blocks(README, "sql")
    assert database.value(statement) == int(job)
    database.conn.execute(
        "delete from redrive.jobs where run_at > clock_timestamp() + interval '1 minute'"
    )
    said = run(
        "worker", "--handlers", "app.jobs:jobs", "--http-port", "0", "--until-empty"
    )

    assert "charging 49.90 for invoice 17, key invoice-17, attempt 1" in said


FIRST_SCREEN = "".join(README.splitlines(keepends=True)[:40])


def test_the_first_screen_has_two_commands_that_do_their_whole_set_up():
    """A stranger with a clone types them; tests/package types them on a clean one."""
    typed = re.findall(
        r"^\$ (make .*)", "".join(blocks(FIRST_SCREEN, "console")), re.MULTILINE
    )

    assert typed == ["make demo", "make test"]


def test_ci_types_the_first_screen_on_a_clean_checkout():
    steps = re.findall(
        r"^run \d+ (\S+)", (ROOT / ".ci" / "run").read_text(), re.MULTILINE
    )

    assert steps[0] == "demo"
    assert "test" in steps


def test_the_readme_is_read_in_three_minutes():
    """It has had 471 lines, most of them reference."""
    assert README.count("\n") <= 211
