"""What `make mutants` takes for a guard, on SQL that is short enough to see."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools.mutants import runner
from tools.mutants.__main__ import drawn, found, known
from tools.mutants.guards import mutants


def removed(text: str) -> list[str]:
    """What is removed, and the line that is left of it."""
    cases = mutants("sql/a.sql", text)
    return [
        f"{case.kind}: {case.text.splitlines()[case.line - 1].strip()}"
        for case in cases
    ]


def test_each_condition_of_a_where_is_one():
    assert removed(
        "delete from a where x = 1 and (y or z) and n between 1 and 2 returning x;"
    ) == [
        "condition: delete from a where true and (y or z) and n between 1 and 2 returning x;",
        "condition: delete from a where x = 1 and true and n between 1 and 2 returning x;",
        "condition: delete from a where x = 1 and (y or z) and true returning x;",
    ]


def test_a_where_inside_of_another_and_a_case_are_taken_whole_and_looked_into():
    text = "select 1 from a where exists (select from b where b.x = 'a -- b')"
    assert removed(text) == [
        "condition: select 1 from a where true",
        "condition: select 1 from a where exists (select from b where true)",
    ]
    assert removed("select 1 from a where case when x and y then z end = 1") == [
        "condition: select 1 from a where true"
    ]


def test_a_condition_ends_where_its_clause_does():
    assert removed("insert into a select 1 from b where x on conflict do nothing") == [
        "condition: insert into a select 1 from b where true on conflict do nothing"
    ]


def test_locks_branches_refusals_and_what_a_table_demands():
    assert removed("select 1 from a for no key update of a skip locked;") == [
        "lock: select 1 from a ;",
        "skip: select 1 from a for no key update of a ;",
    ]
    assert removed("if not found then return; end if;") == [
        "branch: if false then return; end if;"
    ]
    assert removed(
        "fault := case when n > 1 then 'n: too many' when x then 1 end;"
    ) == ["refusal: fault := case when false then 'n: too many' when x then 1 end;"]
    assert removed("create unique index i on a (x); revoke all on a from public;") == [
        "unique: create  index i on a (x); revoke all on a from public;",
        "revoke: create unique index i on a (x);",
    ]
    assert removed("n int check (n in (1, 2)) not null") == [
        "check: n int check (true) not null"
    ]


def test_comments_texts_and_figures_are_no_guards():
    assert (
        removed("-- delete where x = 1 for update\nselect 'where x = 1 for update';")
        == []
    )
    assert removed("select count(*) filter (where x) from a") == []
    assert removed("create table if not exists a ()") == []


def test_the_fence_of_a_settlement_is_found_in_its_file():
    guards = {mutant.guard for mutant in found("settle/settle.sql")}

    assert any("(select k.is_claimed from checked k)" in guard for guard in guards)


def test_what_is_known_to_survive_is_there() -> None:
    assert known() <= {mutant.name for mutant in found("*")}


def test_what_calls_what_is_asked_again_after_pytest_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was written down then that these tests call nothing, and believed ever after."""
    killed = [
        sys.executable,
        "-c",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    ]
    monkeypatch.setattr(runner, "RESULTS", tmp_path)
    monkeypatch.setattr(runner, "_pytest", lambda *_, **__: subprocess.Popen(killed))

    with pytest.raises(RuntimeError, match="pytest ended"):
        runner._calls()

    assert list(tmp_path.iterdir()) == []


def test_a_sample_stays_the_same_when_another_guard_is_mended():
    chosen = found("settle/*")
    order = sorted(chosen, key=lambda mutant: drawn(mutant, 7))
    without = sorted(chosen[1:], key=lambda mutant: drawn(mutant, 7))

    assert [mutant for mutant in order if mutant is not chosen[0]] == without
    assert order != sorted(chosen, key=lambda mutant: drawn(mutant, 8))
