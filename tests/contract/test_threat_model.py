"""The threat model names tests; each of them exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text()
ROW = re.compile(r"^\| (V\d+\.[^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def _defined() -> set[str]:
    files = (ROOT / "tests").rglob("test_*.py")
    found = (
        re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE) for file in files
    )
    return {name for names in found for name in names}


def test_each_test_that_the_page_names_exists():
    named = set(re.findall(r"`(test_\w+)`", PAGE))

    assert len(named) > 30
    assert named - _defined() == set()


def test_each_requirement_has_a_test_or_says_that_it_is_not_met_here():
    rows = ROW.findall(PAGE)

    assert len(rows) > 30
    for requirement, met_by, tests in rows:
        is_met = not met_by.startswith("not ")
        assert is_met == bool(re.search("`test_", tests)), requirement


def test_each_finding_has_a_test():
    found = set(re.findall(r"\bS\d+(?=:)", PAGE))
    files = (ROOT / "tests").rglob("test_*.py")
    tested = {
        name for file in files for name in re.findall(r"\bS\d+\b", file.read_text())
    }

    assert len(found) > 7
    assert found - tested == set()
