"""Build the pages as a site in build/html, with a reference of all commands.

Pages keep their paths, so links between them work as in the repository. Links to other
files lead to the repository if --home gives its address; otherwise they become plain
text. The build is strict: a broken link or anchor makes it fail.
"""

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import yaml

from redrive.cli.main import cli
from tools.generated import ROOT
from tools.versions import version

STAGE = ROOT / "build" / "pages"
BUILDER = Path(sys.executable).with_name("zensical")
PAGES = (
    "README.md",
    "docs/*.md",
    "docs/internals/**/*.md",
    "docs/model/*.md",
    "docs/moving/*.md",
    "alerts/runbook.md",
    "helm/redrive/README.md",
    "examples/[!.]*/README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "ROADMAP.md",
    "SECURITY.md",
)
LINK = re.compile(r"(!?)\[([^]]*)]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")
WIDTH = 100
"""Width of the terminal for the command-line reference."""
SECTION = re.compile(r"^## (.*)\n((?:\n|\|.*\n)+)", re.MULTILINE)
ROW = re.compile(r"^\| \[([^]]+)]\(([^)]+)\)", re.MULTILINE)
REFERENCE = {"Command line": "reference/cli.md", "SQL": "reference/sql.md"}


def staged() -> dict[str, str]:
    """Return each page by its path."""
    found = {
        str(path.relative_to(ROOT)): path.read_text()
        for pattern in PAGES
        for path in sorted(ROOT.glob(pattern))
    }
    enqueue = (ROOT / "sql" / "functions" / "enqueue" / "enqueue.sql").read_text()
    return found | {
        "reference/cli.md": "# Command line\n" + "".join(_commands()),
        "reference/sql.md": f"# SQL\n\n```sql\n{enqueue}```\n",
    }


def _commands(group: click.Group = cli, typed: str = "redrive") -> Iterator[str]:
    context = click.Context(group, info_name=typed, terminal_width=WIDTH)
    yield f"\n## {typed}\n\n```text\n{group.get_help(context)}\n```\n"
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None  # noqa: S101 # it has just been listed
        if isinstance(command, click.Group):
            yield from _commands(command, f"{typed} {name}")
        else:
            within = click.Context(
                command, info_name=f"{typed} {name}", terminal_width=WIDTH
            )
            yield f"\n## {typed} {name}\n\n```text\n{command.get_help(within)}\n```\n"


def linked(text: str, place: str, pages: dict[str, str], home: str | None) -> str:
    """Return the page with links that work on a site."""

    def lead(link: re.Match[str]) -> str:
        picture, words, target, _ = link.groups()
        path = (ROOT / place).parent.joinpath(target).resolve().relative_to(ROOT)
        if picture or str(path) in pages:
            return link[0]
        return f"[{words}]({home}/blob/v{version()}/{path})" if home else words

    return LINK.sub(lead, text)


def pictures(pages: dict[str, str]) -> set[str]:
    """Return the paths of pictures on the pages.

    The build does not check that they exist.
    """
    return {
        str((ROOT / place).parent.joinpath(target).resolve().relative_to(ROOT))
        for place, text in pages.items()
        for picture, _, target, _ in LINK.findall(text)
        if picture
    }


def nav() -> list[dict[str, object]]:
    """Return the sections of the two indexes in their order."""
    about = (
        "CHANGELOG.md",
        "ROADMAP.md",
        "CONTRIBUTING.md",
        "docs/internals/README.md",
        "SECURITY.md",
    )
    return [
        {"Redrive": "README.md"},
        {"All pages": "docs/README.md"},
        *_sections("docs"),
        *_sections("docs/internals"),
        {"Reference": [{name: place} for name, place in REFERENCE.items()]},
        {"Project": list(about)},
    ]


def _sections(folder: str) -> Iterator[dict[str, object]]:
    """Yield the sections of a folder's index, with the pages in their tables."""
    index = (ROOT / folder / "README.md").read_text()
    for section, rows in SECTION.findall(index):
        places = {
            name: str((ROOT / folder / to).resolve().relative_to(ROOT))
            for name, to in ROW.findall(rows)
        }
        yield {section: [{name: place} for name, place in places.items()]}


def main() -> None:
    """Stage the pages and build the site from them."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--home", help="where the repository is, as people open it")
    given = options.parse_args()
    shutil.rmtree(STAGE, ignore_errors=True)
    pages = staged()
    for place, text in pages.items():
        path = STAGE / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(linked(text, place, pages, given.home))
    for picture in pictures(pages):
        shutil.copy(ROOT / picture, STAGE / picture)
    config = STAGE.with_suffix(".yml")
    config.write_text(yaml.safe_dump({"INHERIT": "../mkdocs.yml", "nav": nav()}))
    command = (BUILDER, "build", "--strict", "--clean", "--config-file", config)
    sys.exit(subprocess.run(command, check=False).returncode)


if __name__ == "__main__":
    main()
