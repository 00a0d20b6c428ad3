"""The list of guards is true of the SQL."""

import pytest

from tools.generated import ROOT
from tools.mutants.__main__ import found, known
from trials.model.mutants import NAMED, Mistake, listed


def test_every_listed_guard_is_in_the_sql_and_some_test_needs_it():
    there = {mutant.name for mutant in found("*")} - known()

    assert [mistake.name for mistake in listed() if mistake.name not in there] == []


@pytest.mark.parametrize("mistake", NAMED, ids=lambda mistake: mistake.name)
def test_each_mistake_of_others_can_be_made(mistake: Mistake):
    assert mistake.sql != (ROOT / mistake.file).read_text()
