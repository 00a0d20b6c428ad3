"""Shared code of generators.

Each generator declares the content of files. This module writes or compares them.
"""

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]

Files = Mapping[Path, str | None]
"""Content that each file should have; None = the file should not exist."""


def stale(files: Files) -> list[Path]:
    """Return the files with other content."""
    return [path for path, text in files.items() if _held(path) != text]


def _held(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def write(files: Files) -> list[Path]:
    """Write the stale files and return them."""
    changed = stale(files)
    for path in changed:
        text = files[path]
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return changed


def between_marks(page: Path, name: str, text: str, held: str | None = None) -> str:
    """Return the page with `text` between `<!-- NAME: ... -->` and `<!-- /NAME -->`.

    `held` is the content of the page if other marks of it were filled already.

    Raises:
        ValueError: the page does not have both marks exactly once.
    """
    marks = re.compile(rf"(<!-- {name}:.*?-->\n).*?(<!-- /{name} -->)", re.DOTALL)
    made, found = marks.subn(
        lambda mark: mark[1] + text + mark[2],
        page.read_text() if held is None else held,
    )
    if found != 1:
        message = f"{page} has the marks of {name} {found} times"
        raise ValueError(message)
    return made


def main(*generators: Callable[[], Files]) -> None:
    """Run generators as a program with the exit status of `run`."""
    options = argparse.ArgumentParser()
    add_check(options)
    sys.exit(run(*generators, check=options.parse_args().check))


def add_check(options: argparse.ArgumentParser) -> None:
    """Add the option that every generator has."""
    options.add_argument(
        "--check", action="store_true", help="write nothing, name what is stale"
    )


def run(*generators: Callable[[], Files], check: bool) -> int:
    """Write the generated files in order, as some read files written before them.

    Returns the exit status: 1 if this is a check and a file is stale.
    """
    act = stale if check else write
    changed = [
        os.path.relpath(path) for generator in generators for path in act(generator())
    ]
    for path in changed:
        print(f"{path} is stale; run: make generate" if check else f"wrote {path}")
    return int(check and bool(changed))
