"""The project that `redrive quickstart` writes."""

import json
import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from redrive.cli.main import main
from redrive.extras.quickstart import command as quickstart
from tests.commands import commands
from tools import first_minutes

ROOT = Path(__file__).parents[2]
OURS = ("MAKE", "MFLAGS", "PYTHON", "REDRIVE_")
"""Of the environment: make's reach a make within, and Python's hide what is left in a buffer."""
UNLIKE = (
    r" key \d+-\d+",
    r"/\S*/(?=handlers)",
    r"\b([\d.]+ (s|min)( ago)?|now)\b",
    r"(?<=127\.0\.0\.1:)\d+",
    r"(?<= in )[\d.]+s.*",
    "─+",
)
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
ENVIRONMENT = {n: v for n, v in os.environ.items() if not n.startswith(OURS)}


def plain(text: str) -> list[str]:
    """The lines without what is another one each time: keys, places, ages, and room in tables."""
    for pattern in UNLIKE:
        text = re.sub(pattern, "", text)
    return [" ".join(line.split()) for line in text.splitlines()]


def missing(shown: str, happened: str) -> list[str]:
    """Lines that are shown, and did not come in this order; `...` is what is left out."""
    said = iter(plain(happened))
    return [line for line in plain(shown) if line != "..." and line not in said]


def said_by(command: list[str], home: Path, **env: str) -> str:
    """What a command that ends well writes."""
    ran = subprocess.run(
        command,
        cwd=home,
        env=ENVIRONMENT | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


def test_the_first_project_of_the_readme_is_what_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of it is real, on a Postgres of its own: some six seconds."""
    page = (ROOT / "README.md").read_text()
    blocks = re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (block,) = (text for text in blocks if "redrive quickstart" in text)
    install, first, after = re.split(
        r"^\$ (?=redrive quickstart|make)", block, flags=re.MULTILINE
    )
    clone = tmp_path / "clone"
    clone.mkdir()
    monkeypatch.chdir(clone)
    assert "$ pip install '.[embedded]'" in install
    written, make = first.splitlines(), after.splitlines()

    assert main(shlex.split(written[0])[1:]) == 0
    assert capsys.readouterr().out.splitlines() == written[1:]

    # no redrive there
    happened = said_by(shlex.split(make[0]), clone, PATH="/usr/bin:/bin", COLUMNS="80")
    assert missing("\n".join(make[1:]), happened) == []


@pytest.mark.long
def test_the_tutorial_is_what_happens(tmp_path: Path) -> None:
    """Each command of it but those that install, and the demo, which the README shows."""
    begun = ("python3 -m venv", "pip ", "python demo.py")
    script = first_minutes.script(
        {shown: "" for shown, _ in first_minutes.commands() if shown.startswith(begun)}
    )
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    more = first_minutes.TERMINAL | {"PATH": path, "REDRIVE_HTTP_PORT": "0"}
    clone = tmp_path / "clone"
    clone.mkdir()
    happened = said_by(["bash", "-c", script], clone, **more)

    shown = re.findall(r"^```console\n(.*?)^```", TUTORIAL, re.MULTILINE | re.DOTALL)
    assert missing("".join(shown), happened) == []


def test_the_first_minutes_are_those_of_the_tutorial() -> None:
    """`make first-minutes` writes the page anew."""
    page = iter(first_minutes.PAGE.read_text().splitlines())
    typed = [f"$ {shown}".splitlines()[0] for shown, _ in first_minutes.commands()]

    assert [
        each for each in typed if not any(line.startswith(each) for line in page)
    ] == []


def test_it_keeps_what_is_there_unless_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "handlers.py"
    mine.write_text("mine")

    assert main(["quickstart", str(tmp_path)]) == 64
    assert "is not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["handlers.py"]

    assert main(["quickstart", str(tmp_path), "--force", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["directory"] == str(tmp_path)
    assert said["files"] == sorted(path.name for path in tmp_path.iterdir())
    assert mine.read_text() != "mine"


def test_what_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()

    assert main(["quickstart", str(tmp_path / "file" / "orders")]) == 64
    assert f"{tmp_path}/file" in capsys.readouterr().err


@pytest.mark.parametrize("python", ["/home/ada lovelace/bin/python", sys.executable])
def test_another_machine_makes_an_environment_of_the_same_version(
    python: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """So does this one where it has no Postgres to embed, or make cannot name its Python."""
    monkeypatch.setattr("sys.executable", python)
    if " " not in python:
        monkeypatch.setattr(quickstart, "find_spec", lambda _: None)

    assert main(["quickstart", str(tmp_path / "orders")]) == 0
    assert not (tmp_path / "orders" / "local.mk").exists()
    planned = subprocess.run(
        ["make", "-n", "-C", tmp_path / "orders", "demo"],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    assert (
        ".venv/bin/python -m pip install --quiet --requirement requirements.txt"
        in planned
    )
    needed = (tmp_path / "orders" / "requirements.txt").read_text()
    assert f"redrive[dev]=={version('redrive')}\n" in needed


def test_where_there_is_no_make_it_says_what_make_would_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    assert main(["quickstart", str(tmp_path)]) == 0
    assert f"\n  cd {tmp_path} && {sys.executable} demo.py\n" in capsys.readouterr().out


def test_compose_starts_commands_that_there_are(tmp_path: Path) -> None:
    assert main(["quickstart", str(tmp_path)]) == 0
    services = yaml.safe_load((tmp_path / "compose.yaml").read_text())["services"]
    started = {f"redrive {s['command']}" for s in services.values() if "command" in s}

    assert started == {"redrive migrate", "redrive worker"}
    assert started <= dict(commands()).keys()
    assert f"redrive=={version('redrive')}\n" in (tmp_path / "Dockerfile").read_text()
