"""The way of a job through the code is as docs/internals/one-job.md tells it."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "internals" / "one-job.md"


class Hop(NamedTuple):
    """Function on the way of a job; its name has the class of a method."""

    path: str
    function: str

    def source(self) -> str | None:
        """Return the text of the function; of SQL, the whole file. None: there is none."""
        text = (ROOT / self.path).read_text()
        if self.path.endswith(".sql"):
            head = f"create or replace function redrive.{self.function}("
            return text if head in text else None

        node: ast.AST = parsed(text)
        for name in self.function.split("."):
            named = [
                child
                for child in ast.iter_child_nodes(node)
                if isinstance(
                    child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
                )
                and child.name == name
            ]
            if not named:
                return None
            node = named[-1]  # after its overloads

        return ast.get_source_segment(text, node)


parsed = cache(ast.parse)


def tables() -> dict[str, list[Hop]]:
    """Return the hops of each table of the page."""
    found: dict[str, list[Hop]] = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        hops = re.findall(
            r"^\| \[`[^`]+`\]\(\.\./\.\./([^)]+)\) \| `([^`]+)` \|",
            section,
            re.MULTILINE,
        )
        if hops:
            found[section.partition("\n")[0]] = [Hop(*hop) for hop in hops]

    return found


TABLES = tables()


def test_the_page_tells_the_whole_way():
    assert list(TABLES) == [
        *("Enqueue", "Claim", "Hand out", "Run", "Settle", "The next round trip"),
        *("Dead letter", "Redrive"),
    ]
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| [")]
    assert len(rows) == sum(map(len, TABLES.values()))


def test_each_hop_is_there():
    hops = {hop for hops in TABLES.values() for hop in hops}
    assert [hop for hop in sorted(hops) if hop.source() is None] == []


@pytest.mark.parametrize("table", TABLES)
def test_each_function_is_called_by_one_above_it(table: str):
    hops = TABLES[table]
    for n, hop in enumerate(hops[1:], 1):
        assert any(calls(above, hop) for above in hops[:n]), hop


def calls(above: Hop, hop: Hop) -> bool:
    """Return True if a function names another one, or its insert fires that trigger."""
    source = above.source() or ""
    if not hop.path.endswith(".sql"):
        name = hop.function.rpartition(".")[2]
        return re.search(rf"\b{name}\b", source) is not None

    trigger = re.search(
        r"create or replace trigger \w+ after (insert) on redrive\.(\w+)",
        (ROOT / hop.path).read_text(),
    )
    if trigger is not None:
        return f"{trigger[1]} into redrive.{trigger[2]} " in source

    # Statements are often constants of the module.
    return f"redrive.{hop.function}(" in (ROOT / above.path).read_text()
