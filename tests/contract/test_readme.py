"""The README shows what is there: commands, settings, files, and a handler that runs."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from redrive.cli.main import cli

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands() -> Iterator[str]:
    for text in (*blocks("sh"), *blocks("console")):
        for line in text.splitlines():
            command = line.removeprefix("$ ").partition(" < ")[0]
            if command.startswith("redrive ") and (line.startswith("$ ") or text in blocks("sh")):
                yield command


@pytest.mark.parametrize("command", sorted(set(commands())))
def test_a_command_is_understood_as_it_is_shown(command: str):
    arguments = shlex.split(command, comments=True)[1:]
    group: click.Command = cli
    context = click.Context(cli, info_name="redrive")
    while isinstance(group, click.Group) and arguments and not arguments[0].startswith("-"):
        found = group.get_command(context, arguments[0])
        assert found is not None, f"there is no {arguments[0]}"
        group, context = found, click.Context(found, parent=context, info_name=arguments.pop(0))

    group.make_context(context.info_name, arguments, parent=context.parent)

    assert group.get_help(context)


def test_make_has_the_targets_that_are_named():
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"`make (\w+)`|^\$ make (\w+)", README, re.MULTILINE))

    assert [t for pair in named for t in pair if t and f"\n{t}:" not in makefile] == []


def test_links_lead_to_files():
    targets = [t.partition("#")[0] for t in re.findall(r"\]\(([^)]+)\)", README) if "://" not in t]

    assert [target for target in targets if target and not (ROOT / target).exists()] == []


def test_the_handler_runs_as_it_is_written(database, tmp_path: Path):
    (source,) = (text for text in blocks("python") if text.startswith("# app/jobs.py"))
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "jobs.py").write_text(source)
    environment = os.environ | {
        "REDRIVE_DATABASE_URL": database.url,
        "REDRIVE_LOG_FORMAT": "console",
    }
    first, second = (
        shlex.split(c) for c in blocks("sh")[0].splitlines() if "--key" in c or "--delay" in c
    )

    def run(*arguments: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "redrive", *arguments],
            check=True,
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=120,
        ).stdout

    job = run(*first[1:]).strip()
    assert run(*first[1:]).strip() == job
    assert run(*second[1:]).strip() > job
    (statement,) = blocks("sql")
    assert database.value(statement) == int(job)
    database.conn.execute(
        "delete from redrive.jobs where run_at > clock_timestamp() + interval '1 minute'"
    )
    said = run("worker", "--handlers", "app.jobs:jobs", "--http-port", "0", "--until-empty")

    assert "charging 49.90 for invoice 17, key invoice-17, attempt 1" in said
