"""The commands of the README, typed on a clean clone as a stranger types them."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = ("ARGS", "MAKE", "MFLAGS", "PYTHON", "PYTEST", "REDRIVE_", "VIRTUAL_ENV", "CI")
TYPED = re.compile(r"^\$ ((?:make|pip|python3|redrive quickstart) .*)", re.MULTILINE)
"""What the reader types; the other commands in a block are what the demo prints."""
VARIES = (r"[0-9a-f]{16}", r"\d+")
"""Groups and numbers: on a busy machine, fewer jobs have succeeded when the demo asks."""
A_FEW = "tests/rules/test_judgement.py"
"""What `make test` runs here; CI runs all of it after `make demo`, on a clean checkout."""

pytestmark = [pytest.mark.package, pytest.mark.xdist_group("package")]


@pytest.fixture(scope="module")
def clone() -> Iterator[Path]:
    """The files that a commit of the working tree has, and nothing that was made of them.

    Not below pytest's own directory: Postgres, which never runs as root, could not read its
    own files there.
    """
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True)
    with tempfile.TemporaryDirectory(prefix="redrive_tests_") as directory:
        Path(directory).chmod(0o755)
        clone = Path(directory, "clone")
        for name in filter(None, names.stdout.split("\0")):
            if os.path.lexists(ROOT / name):
                (clone / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, clone / name, follow_symlinks=False)
        yield clone


def blocks() -> list[str]:
    page = (ROOT / "README.md").read_text()
    return re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def plain(text: str) -> list[str]:
    """The lines without what each run has of its own."""
    for pattern in VARIES:
        text = re.sub(pattern, "", text)
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.mark.parametrize("block", blocks(), ids=("first screen", "install"))
def test_each_command_works_on_a_clean_clone_and_prints_what_is_shown(
    block: str, clone: Path
) -> None:
    """Each block in a shell of its own, so the second does not need the first."""
    typed = TYPED.findall(block)
    assert typed
    script = "set -eu\n" + "\n".join(
        f"ARGS={A_FEW} {line}" if line == "make test" else line for line in typed
    )
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=clone,
        env={n: v for n, v in os.environ.items() if not n.startswith(OURS)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout

    printed = iter(plain(ran.stdout))
    shown = [line for line in plain(TYPED.sub("...", block)) if line != "..."]
    assert [line for line in shown if line not in printed] == []
