"""The first change that CONTRIBUTING.md walks through can still be made."""

import imaplib
import re
from pathlib import Path

import pytest

from redrive.rules.attempts import categories
from redrive.rules.attempts.categories import category_of, evidence_of
from redrive.rules.attempts.known_failures import BY_CLASS
from redrive.rules.model import Category

ROOT = Path(__file__).parents[2]


def test_the_test_fails_before_the_change_and_passes_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    test, change = re.findall(
        r"^ +```diff\n +\+(.*?)^ +```", page, re.MULTILINE | re.DOTALL
    )
    places = {"Category": Category, "imaplib": imaplib}
    ((error, expected),) = eval(f"[{test}]", places)  # lines of ours

    def category() -> Category:
        return category_of(evidence_of(error, str(error)))

    assert category() == "other"
    monkeypatch.setattr(
        categories, "BY_CLASS", BY_CLASS | eval(f"{{{change}}}", places)
    )
    assert category() == expected
    assert "test_exceptions_that_people_meet" in page
    assert (
        "def test_exceptions_that_people_meet"
        in (ROOT / "tests" / "rules" / "test_judgement.py").read_text()
    )


def test_the_places_of_the_table_are_there() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    table = page.partition("## Where to change what")[2].partition("\n## ")[0]
    places = re.findall(r"\]\(([^)]+)\)", table)

    assert len(places) > 100
    assert [place for place in places if not (ROOT / place).exists()] == []
