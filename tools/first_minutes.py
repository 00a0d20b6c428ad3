"""Type the commands of docs/tutorial.md in an empty container, as a new user does.

    make first-minutes

It needs Docker, or the command in FIRST_MINUTES_RUN. FIRST_MINUTES_IMAGE must have Python, and
nothing of ours. The package is the wheel of this repository, and not one from a registry. The
output is printed, and written to docs/first-minutes.md.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools import package
from tools.generated import ROOT

INSTALL = "pip install '.[embedded]'"
RUN = shlex.split(os.environ.get("FIRST_MINUTES_RUN", "docker run"))
IMAGE = os.environ.get("FIRST_MINUTES_IMAGE", "docker.io/library/python:3.13-slim")
TERMINAL = {"COLUMNS": "100", "REDRIVE_ACTOR": "ada", "REDRIVE_LOG_FORMAT": "console"}
"""Variables that a person's terminal sets and a pipe does not."""
PAGE = ROOT / "docs" / "first-minutes.md"
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
HEAD = """\
# The first minutes

This is the output of `make first-minutes`. It types the commands of the [tutorial](tutorial.md) in
a container that has only Python. The package is the wheel of this repository. The number in
brackets is the number of seconds that had passed when a command was typed.
"""
SERVE = """\
python postgres.py > said &
trap "kill $!" EXIT
until [ -s said ]; do kill -0 $!; sleep 0.1; done
cat said
eval "$(sed 's/.*export/export/' said)"
"""
"""Shell lines for the only command that keeps running.

They type the commands that it prints.
"""


def commands() -> Iterator[tuple[str, str]]:
    """Yield each command of the tutorial as shown, and the shell lines that run it."""
    text = (ROOT / "docs" / "tutorial.md").read_text()
    for language, block in BLOCK.findall(text):
        if language == "python":
            file, _, at_end = (
                block.partition("\n")[0].removeprefix("# ").partition(", ")
            )
            body = block.partition("\n")[2] if at_end else block
            to = ">>" if at_end else ">"
            yield (
                f"cat {to} {file} <<'END'\n{body}END",
                f"cat {to} {file} <<'END'\n{body}END\n",
            )
        else:
            for line in re.findall(r"^\$ (.*)", block, re.MULTILINE):
                yield line, SERVE if line == "python postgres.py" else f"{line}\n"


def script(instead: Mapping[str, str]) -> str:
    """Return one script of all commands.

    `instead` replaces the lines of some of them.
    """
    return "set -eu\n" + "".join(
        f"printf '\\n$ %s\\n' {shlex.quote(shown)}\n{instead.get(shown, typed)}\n"
        for shown, typed in commands()
    )


def played(dist: Path, wheel: str) -> Iterator[str]:
    """Yield the lines that the container prints."""
    needed = f"'redrive[embedded] @ file:///dist/{wheel}'"
    instead = {INSTALL: f"pip install --quiet {needed}"}
    command = [
        *RUN,
        "--rm",
        "--interactive",
        "--volume",
        f"{dist}:/dist:ro",
        "--workdir",
        "/home/clone",
    ]
    command += [f"--env={name}={value}" for name, value in TERMINAL.items()]
    command += [IMAGE, "bash"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as container:
        assert container.stdin  # noqa: S101 # both are pipes
        assert container.stdout  # noqa: S101 # as above
        container.stdin.write(script(instead))
        container.stdin.close()
        yield from container.stdout
    if container.returncode:
        sys.exit(f"{RUN[0]} ended with {container.returncode}")


def main() -> None:
    """Run the tutorial and write its output to the page."""
    said: list[str] = []
    with tempfile.TemporaryDirectory() as dist:
        package.build(Path(dist))
        (wheel,) = Path(dist).glob("*.whl")
        began = time.monotonic()
        for line in played(Path(dist), wheel.name):
            passed = (
                f"  [{time.monotonic() - began:.0f} s]" if line.startswith("$ ") else ""
            )
            said.append(f"{line.rstrip()}{passed}")
            print(said[-1], flush=True)
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(said).strip())
    PAGE.write_text(f"{HEAD}\n```text\n{text}\n```\n")


if __name__ == "__main__":
    main()
