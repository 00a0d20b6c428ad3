"""Build the pages as a site, into build/html: those of the repository, and a reference from code.

Pages keep their places, so that links between them are what they are in the repository. Those to
other files lead to the repository, where it is known (--home); else they are plain text. The build
is strict: a link or an anchor that leads nowhere ends it.
"""

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import click
import yaml

from redrive.cli.main import cli
from tools.generated import ROOT
from tools.versions import version

STAGE = ROOT / "build" / "pages"
BUILDER = ROOT / "build" / "site" / "bin" / "zensical"
PAGES = (
    "README.md",
    "docs/*.md",
    "docs/decisions/*.md",
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
"""Of the terminal that the reference of the command line is for."""
SECTION = re.compile(r"^## (.*)\n((?:\n|\|.*\n)+)", re.MULTILINE)
ROW = re.compile(r"^\| \[([^]]+)]\(([^)]+)\)", re.MULTILINE)
REFERENCE = {
    "Python": "reference/python.md",
    "Command line": "reference/cli.md",
    "SQL": "reference/sql.md",
}
PYTHON = {
    "Enqueue": "enqueue enqueue_many JobFields JobOptions open_batch close_batch wait Ended",
    "Handle": "Handlers Job JobFunction Policy Rule Category Schedule Heal idempotent",
    "Signals of a handler": "Retry Snooze GiveUp Cancel",
    "Set up": "migrate cell_of",
    "Test": "testing testing.enqueued",
    "Errors": "RedriveError InvalidJob StaleClaim",
}
"""The reference, in the order in which one meets it."""
NAMESAKES = {"enqueue": "enqueue.enqueue", "testing.enqueued": "testing.enqueued.enqueued"}
"""Functions that are named like their module, which hides them."""


def staged() -> dict[str, str]:
    """Each page by its place."""
    found = {
        str(path.relative_to(ROOT)): path.read_text()
        for pattern in PAGES
        for path in sorted(ROOT.glob(pattern))
    }
    enqueue = (ROOT / "sql" / "functions" / "enqueue" / "enqueue.sql").read_text()
    return found | {
        "reference/python.md": "# Python\n" + "".join(_python()),
        "reference/cli.md": "# Command line\n" + "".join(_commands()),
        "reference/sql.md": f"# SQL\n\n```sql\n{enqueue}```\n",
    }


def _python() -> Iterator[str]:
    for part, names in PYTHON.items():
        yield f"\n## {part}\n"
        yield from (f"\n::: redrive.{NAMESAKES.get(name, name)}\n" for name in names.split())


def _commands(group: click.Group = cli, typed: str = "redrive") -> Iterator[str]:
    context = click.Context(group, info_name=typed, terminal_width=WIDTH)
    yield f"\n## {typed}\n\n```text\n{group.get_help(context)}\n```\n"
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None  # noqa: S101 # it has just been listed
        if isinstance(command, click.Group):
            yield from _commands(command, f"{typed} {name}")
        else:
            within = click.Context(command, info_name=f"{typed} {name}", terminal_width=WIDTH)
            yield f"\n## {typed} {name}\n\n```text\n{command.get_help(within)}\n```\n"


def linked(text: str, place: str, pages: dict[str, str], home: str | None) -> str:
    """The page with links that lead somewhere on a site."""

    def lead(link: re.Match[str]) -> str:
        picture, words, target, _ = link.groups()
        path = (ROOT / place).parent.joinpath(target).resolve().relative_to(ROOT)
        if picture or str(path) in pages:
            return link[0]
        return f"[{words}]({home}/blob/v{version()}/{path})" if home else words

    return LINK.sub(lead, text)


def pictures(pages: dict[str, str]) -> set[str]:
    """What pages show, by its place; the build does not ask whether it is there."""
    return {
        str((ROOT / place).parent.joinpath(target).resolve().relative_to(ROOT))
        for place, text in pages.items()
        for picture, _, target, _ in LINK.findall(text)
        if picture
    }


def nav() -> list[dict[str, object]]:
    """The sections of the index, docs/README.md, and their order."""
    index = (ROOT / "docs" / "README.md").read_text()
    about = ("CHANGELOG.md", "ROADMAP.md", "CONTRIBUTING.md", "SECURITY.md")
    return [
        {"Redrive": "README.md"},
        {"All pages": "docs/README.md"},
        *(
            {section: [{name: _place(to)} for name, to in ROW.findall(rows)]}
            for section, rows in SECTION.findall(index)
        ),
        {"Reference": [{name: place} for name, place in REFERENCE.items()]},
        {"Project": list(about)},
    ]


def _place(link: str) -> str:
    return str((ROOT / "docs" / link).resolve().relative_to(ROOT))


def main() -> None:
    """Stage the pages, and build the site from them."""
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
