"""Type what docs/tutorial.md shows, in an empty container: what a new user's first minutes are.

    make first-minutes

It wants Docker, or what FIRST_MINUTES_RUN names, with more of its options; FIRST_MINUTES_IMAGE has
Python and nothing of ours. The package is the wheel of this repository, in place of a registry's.
What is said is printed, and kept as docs/first-minutes.md.
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

INSTALL = "pip install 'redrive[embedded]'"
RUN = shlex.split(os.environ.get("FIRST_MINUTES_RUN", "docker run"))
IMAGE = os.environ.get("FIRST_MINUTES_IMAGE", "docker.io/library/python:3.13-slim")
TERMINAL = {"COLUMNS": "100", "REDRIVE_ACTOR": "ada", "REDRIVE_LOG_FORMAT": "console"}
"""What a person's terminal has, and a pipe has not."""
PAGE = ROOT / "docs" / "first-minutes.md"
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
HEAD = """\
# The first minutes

What `make first-minutes` says: a container with Python and nothing else, in which somebody types
what the [tutorial](tutorial.md) shows. The package is the wheel of this repository. In brackets:
how many seconds have passed when a command is typed.
"""
SERVE = """\
python postgres.py > said &
trap "kill $!" EXIT
until [ -s said ]; do kill -0 $!; sleep 0.1; done
cat said
eval "$(sed 's/.*export/export/' said)"
"""
"""The one command that stays: it has a terminal of its own, and says what to type in the other."""


def commands() -> Iterator[tuple[str, str]]:
    """What the tutorial shows, and the shell lines that do it."""
    text = (ROOT / "docs" / "tutorial.md").read_text()
    for language, block in BLOCK.findall(text):
        if language == "python":
            file, _, at_end = block.partition("\n")[0].removeprefix("# ").partition(", ")
            body = block.partition("\n")[2] if at_end else block
            to = ">>" if at_end else ">"
            yield f"cat {to} {file} <<'END'\n{body}END", f"cat {to} {file} <<'END'\n{body}END\n"
        else:
            for line in re.findall(r"^\$ (.*)", block, re.MULTILINE):
                yield line, SERVE if line == "python postgres.py" else f"{line}\n"


def script(instead: Mapping[str, str]) -> str:
    """One script of all; `instead` has other lines for some of the commands."""
    return "set -eu\n" + "".join(
        f"printf '\\n$ %s\\n' {shlex.quote(shown)}\n{instead.get(shown, typed)}\n"
        for shown, typed in commands()
    )


def played(dist: Path, wheel: str) -> Iterator[str]:
    """The lines that the container says."""
    needed = f"'redrive[embedded] @ file:///dist/{wheel}'"
    instead = {INSTALL: f"pip install --quiet {needed}"}
    command = [*RUN, "--rm", "--interactive", "--volume", f"{dist}:/dist:ro", "--workdir", "/home"]
    command += [f"--env={name}={value}" for name, value in TERMINAL.items()]
    command += [IMAGE, "bash"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as container:
        assert container.stdin  # noqa: S101 # both are pipes
        assert container.stdout  # noqa: S101 # as above
        container.stdin.write(script(instead))
        container.stdin.close()
        yield from container.stdout
    if container.returncode:
        sys.exit(f"{RUN[0]} ended with {container.returncode}")


def main() -> None:
    """Play it, and keep what was said."""
    said: list[str] = []
    with tempfile.TemporaryDirectory() as dist:
        package.build(Path(dist))
        (wheel,) = Path(dist).glob("*.whl")
        began = time.monotonic()
        for line in played(Path(dist), wheel.name):
            passed = f"  [{time.monotonic() - began:.0f} s]" if line.startswith("$ ") else ""
            said.append(f"{line.rstrip()}{passed}")
            print(said[-1], flush=True)
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(said).strip())
    PAGE.write_text(f"{HEAD}\n```text\n{text}\n```\n")


if __name__ == "__main__":
    main()
