"""The wheel as it is published, and the Pythons and environments that it is installed in."""

import os
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "package" / "bin"
UV = Path(sys.executable).with_name("uv")
HOME = "https://git.example/me/redrive"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
PYTHONS = ("3.11", "3.12", "3.13")


def run(*command: str | Path, **environment: str) -> str:
    """Run a program with nothing of ours around it. Returns what it said."""
    of_ours = ("MAKE", "MFLAGS", "PYTHON", "PYTEST", "REDRIVE_", "VIRTUAL_ENV")
    inherited = {n: v for n, v in os.environ.items() if not n.startswith(of_ours)}
    done = subprocess.run(
        command,
        env=inherited | environment,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}"
    return done.stdout


def build(checkout: Path, output: Path) -> Path:
    """Build wheel and sdist of a checkout. Returns the directory that they are in."""
    command = [BUILD / "python", "-m", "tools.package", "--home", HOME]
    command += ["--output", output]
    subprocess.run(command, cwd=checkout, check=True, stdout=subprocess.DEVNULL)
    return output


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with wheel and sdist, as a release has them."""
    return build(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    return built / f"redrive-{VERSION}-py3-none-any.whl"


@cache
def interpreter(python: str) -> Path | None:
    """A Python of this version that runs, wherever people have one."""
    name = f"python{python}"
    usual = shutil.which(name)
    managed = (Path.home() / ".pyenv" / "versions").glob(f"*/bin/{name}")
    for path in (*([Path(usual)] if usual else []), *managed):
        if (
            subprocess.run(
                [path, "-c", ""], check=False, capture_output=True
            ).returncode
            == 0
        ):
            return path
    return None
