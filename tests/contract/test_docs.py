"""The pages lead to each other."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_links_of_all_pages_lead_to_files_and_headings():
    broken: list[str] = []
    places = (
        "docs/*.md",
        "docs/*/*.md",
        "*.md",
        "alerts/runbook.md",
        "examples/*/README.md",
    )
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
    return anchor in {
        re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings
    }
