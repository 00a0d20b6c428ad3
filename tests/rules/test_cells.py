"""Which cell a key is in, and the file of cells: docs/cells.md is what other languages go by."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import cell_of
from redrive.database.connections.cells import read
from redrive.errors import SettingsError
from redrive.settings import load

PAGE = (Path(__file__).parents[2] / "docs" / "cells.md").read_text()
VECTORS = re.findall(r"^\| `(.+)` \| `(\w+)` \| `(\w+)` \|$", PAGE, re.MULTILINE)
CELLS = ("ap", "eu", "us")


def test_keys_are_where_the_page_says() -> None:
    assert len(VECTORS) == 5
    assert [
        (key, cell_of(key, CELLS), cell_of(key, (*CELLS, "sa"))) for key, *_ in VECTORS
    ] == VECTORS
    assert {cell for key, *cells in VECTORS for cell in cells} == {*CELLS, "sa"}


@given(st.text(), st.permutations(CELLS))
def test_neither_order_nor_another_cell_moves_a_key(key: str, cells: list[str]) -> None:
    before = cell_of(key, CELLS)

    assert cell_of(key, cells) == before
    assert cell_of(key, {*cells, "sa"}) in {before, "sa"}
    assert (
        cell_of(key, [name for name in cells if name != "ap"]) == before
        or before == "ap"
    )


def test_a_new_cell_takes_its_share_from_all_others() -> None:
    keys = [f"customer-{n}" for n in range(4000)]
    before = [cell_of(key, CELLS) for key in keys]
    moved = [
        old
        for key, old in zip(keys, before, strict=True)
        if cell_of(key, (*CELLS, "sa")) == "sa"
    ]

    assert [1233 < before.count(cell) < 1433 for cell in CELLS] == [True] * 3
    assert 900 < len(moved) < 1100
    assert [moved.count(cell) > 250 for cell in CELLS] == [True] * 3


def test_what_is_no_key_and_what_is_no_cell_are_refused() -> None:
    with pytest.raises(TypeError, match="key must be str, not int"):
        cell_of(17, CELLS)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cells is empty"):
        cell_of("customer-17", ())


def test_a_moved_key_is_in_its_new_cell_and_no_other_key_is() -> None:
    moved = {"customer-17": "us"}

    assert cell_of("customer-17", CELLS, moved=moved) == "us"
    assert cell_of("customer-1", CELLS, moved=moved) == cell_of("customer-1", CELLS)
    with pytest.raises(ValueError, match=r"'sa'; it must be one of"):
        cell_of("customer-17", CELLS, moved={"customer-17": "sa"})


def test_a_file_of_cells_is_read(tmp_path: Path) -> None:
    lines = [
        {"name": "eu", "url_file": "eu.url", "role": "redrive_viewer"},
        {"name": "us", "url": "postgresql://u:p4ss@h/d"},
    ]
    (tmp_path / "eu.url").write_text("host=eu\n")
    for file in ("cells.json", "cells.yaml"):  # YAML takes JSON
        (tmp_path / file).write_text(json.dumps(lines))
        eu, us = read(tmp_path / file)

        assert (eu.name, eu.address.read(), eu.address.role) == (
            "eu",
            "host=eu",
            "redrive_viewer",
        )
        assert (us.name, us.address.read(), us.address.role) == (
            "us",
            lines[1]["url"],
            None,
        )
        assert "p4ss" not in repr(us)


URL = 'url: "postgresql://u:p4ss@h/d"'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "it cannot be read: No such file or directory"),
        ("- {name: eu, [", "it is not valid YAML at line 1"),
        ("[]", "the file: List should have at least 1 item after validation, not 0"),
        (f"- {{{URL}}}", "0.name: Field required"),
        (f"- {{name: EU, {URL}}}", "0.name: String should match pattern"),
        (
            f"- {{name: eu, urll: p4ss, {URL}}}",
            "0.urll: Extra inputs are not permitted (a cell has: name, url, ",
        ),
        (
            f"- {{name: eu, {URL}, role: viewer}}",
            "0.role: Input should be 'redrive_viewer', 'redrive_op",
        ),
        (f"- {{name: eu, {URL}}}\n- {{name: eu, {URL}}}", "two cells are named eu"),
        ("- {name: eu}", "cell eu must have either url or url_file"),
        (
            f"- {{name: eu, {URL}, url_file: x}}",
            "cell eu must have either url or url_file",
        ),
    ],
)
def test_a_file_that_is_wrong_is_refused_without_a_url(
    text: str | None, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "cells.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SettingsError) as refused:
        load(databases=path).address()

    assert str(refused.value).startswith(f"REDRIVE_DATABASES is {path}; {said}")
    assert "p4ss" not in str(refused.value)


def test_what_a_cell_points_to_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "cells.json"
    path.write_text(
        '[{"name": "eu", "url": "host=h bogus=p4ss"}, {"name": "us", "url_file": "x"}]'
    )
    said: list[str] = []
    for cell in ("eu", "us", "ap", None):
        with pytest.raises(SettingsError) as refused:
            load(databases=path, cell=cell).address().read()
        said.append(str(refused.value))

    assert said[0].startswith(
        "REDRIVE_DATABASES: cell eu: url has the parameter 'bogus'"
    )
    assert said[1].startswith(
        f"REDRIVE_DATABASES: cell us: url_file is {tmp_path / 'x'}; it cannot be"
    )
    assert said[2] == "there is no cell 'ap' in REDRIVE_DATABASES; there are: eu, us"
    assert said[3].endswith(
        "has several cells; name one by --cell or REDRIVE_CELL: eu, us"
    )
    assert "p4ss" not in "".join(said)


def test_a_cell_without_a_file_is_refused() -> None:
    with pytest.raises(SettingsError, match="REDRIVE_DATABASES, which is not set"):
        load(cell="eu", database_url="host=h").address()
