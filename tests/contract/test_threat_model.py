"""The threat model names tests; each of them exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text()
ROW = re.compile(r"^\| (V\d+\.[^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def _defined() -> set[str]:
    files = (
        file
        for where in ("tests", "trials")
        for file in (ROOT / where).rglob("test_*.py")
    )
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
    findings = re.findall(r"^\|.*\bS\d+(?=:).*$", PAGE, re.MULTILINE)

    assert len(findings) > 7
    for finding in findings:
        assert "`test_" in finding.rsplit(" | ", 1)[1], finding
