"""The generators notice what is missing, different or left over.

`make check` runs them on the repository.
"""

from pathlib import Path

import pytest

from tools import chart_copies, generated


def test_what_is_missing_different_or_left_over_is_stale_until_it_is_written(
    tmp_path: Path,
):
    same, different, missing, left_over = (
        tmp_path / name for name in ("a", "b", "c/d", "e")
    )
    for path in (same, different, left_over):
        path.write_text("old")
    files = {same: "old", different: "new", missing: "new", left_over: None}

    assert generated.stale(files) == [different, missing, left_over]
    assert generated.write(files) == [different, missing, left_over]
    assert generated.stale(files) == []
    assert not left_over.exists()


def test_a_check_names_what_is_stale_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)

    assert generated.run(lambda: {tmp_path / "page.md": "new"}, check=True) == 1
    assert capsys.readouterr().out == "page.md is stale; run: make generate\n"
    assert not (tmp_path / "page.md").exists()


def test_only_what_is_between_the_marks_is_replaced(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- rows: made -->\nold\n<!-- /rows -->\nafter\n")

    made = generated.between_marks(page, "rows", r"new \1" + "\n")

    assert made == "before\n<!-- rows: made -->\nnew \\1\n<!-- /rows -->\nafter\n"


def test_a_page_without_marks_is_refused(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("<!-- rows: made -->\nno end\n")

    with pytest.raises(ValueError, match="marks of rows 0 times"):
        generated.between_marks(page, "rows", "new\n")


def test_a_copy_whose_original_is_gone_goes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    left_over = tmp_path / "alerts" / "gone.yaml"
    left_over.parent.mkdir()
    left_over.touch()
    monkeypatch.setattr(chart_copies, "CHART_FILES", tmp_path)

    assert chart_copies.files()[left_over] is None
