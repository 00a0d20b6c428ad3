"""The pages lead to each other."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_links_of_all_pages_lead_to_files_and_headings():
    broken: list[str] = []
    places = ("docs/**/*.md", "*.md", "alerts/runbook.md", "examples/*/README.md")
    for page in (page for place in places for page in ROOT.glob(place)):
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            file, _, anchor = target.partition("#")
            where = page.parent / file if file else page
            if "://" not in target and not (where.exists() and _has(where, anchor)):
                broken.append(f"{page.name}: {target}")

    assert broken == []


@pytest.mark.parametrize(
    ("folder", "pattern"), [("docs", "*.md"), ("docs/internals", "**/*.md")]
)
def test_the_index_lists_every_page(folder: str, pattern: str):
    """Users have one index. Why Redrive is as it is has another."""
    home = ROOT / folder
    index = (home / "README.md").read_text()
    pages = {str(path.relative_to(home)) for path in home.glob(pattern)} - {"README.md"}

    assert pages
    assert {name for name in pages if f"]({name})" not in index} == set()


def test_each_page_that_installs_redrive_leads_to_how():
    """Only the README says where Redrive comes from: a clone, or one day an index."""
    shows = re.compile(r"pip install (?:--\S+ )*'?(?:redrive|\.\[)")
    printed = ROOT / "docs" / "first-minutes.md"  # what the tutorial prints
    pages = {
        page
        for place in ("docs", "alerts", "helm", "examples")
        for page in (ROOT / place).rglob("*.md")
        if shows.search(page.read_text()) and page != printed
    }

    assert len(pages) > 5
    assert [
        str(page.relative_to(ROOT))
        for page in sorted(pages)
        if "README.md#install)" not in page.read_text()
    ] == []


def test_pages_of_users_say_what_holds_and_not_what_held():
    """What a change brought is in docs/internals, docs/faults.md has a ledger of runs."""
    past = re.compile(
        r"\b(earlier runs?|(hours|days?) before\b(?! it)|before (that|this) change"
        r"|since then \*\*|(no longer|not) as before|\| before \| now)",
        re.IGNORECASE,
    )
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]

    assert {
        page.name: found.group()
        for page in pages
        if (found := past.search(page.read_text()))
    } == {}


def _has(page: Path, anchor: str) -> bool:
    """Whether a page has a heading with this anchor, as GitHub makes it."""
    if not anchor:
        return True
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return anchor in {
        re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings
    }
