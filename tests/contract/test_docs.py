"""The pages lead to each other, and the glossary names what there is."""

import re
from pathlib import Path

from redrive.settings import PREFIX, Settings
from tests.commands import commands

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "glossary.md").read_text()
NAMED = sorted(set(re.findall(r"`([^`]+)`", PAGE)))


def test_tables_and_functions():
    schema = "".join(path.read_text() for path in (ROOT / "sql").rglob("*.sql"))
    named = [name for name in NAMED if re.match(r"redrive\.\w", name)]

    assert named
    assert [n for n in named if n.removesuffix("(...)") not in schema] == []


def test_metrics():
    known = (ROOT / "docs" / "metrics.md").read_text()
    named = [name for name in NAMED if name.startswith("redrive_")]

    assert named
    assert [name for name in named if f"`{name}`" not in known] == []


def test_settings():
    named = {name for name in NAMED if name.startswith(PREFIX)}

    assert named
    assert named - {PREFIX + field.upper() for field in Settings.model_fields} == set()


def test_commands_and_their_options():
    there = dict(commands())
    options = {name for command in there.values() for each in command.params for name in each.opts}

    assert {name for name in NAMED if name.startswith("redrive ")} <= there.keys()
    assert {name for name in NAMED if name.startswith("--")} <= options


def test_links_of_all_pages_lead_to_files_and_headings():
    broken: list[str] = []
    places = ("docs/*.md", "docs/*/*.md", "*.md", "alerts/runbook.md", "examples/*/README.md")
    for page in (page for place in places for page in ROOT.glob(place)):
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            file, _, anchor = target.partition("#")
            where = page.parent / file if file else page
            if "://" not in target and not (where.exists() and _has(where, anchor)):
                broken.append(f"{page.name}: {target}")

    assert broken == []


def test_the_index_lists_every_page():
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}

    assert {name for name in pages if f"]({name})" not in index} == set()


def _has(page: Path, anchor: str) -> bool:
    """Whether a page has a heading with this anchor, as GitHub makes it."""
    if not anchor:
        return True
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return anchor in {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}
