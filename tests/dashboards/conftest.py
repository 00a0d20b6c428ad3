"""The dashboards as they are committed, and the programs that judge them."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.programs import missing

ROOT = Path(__file__).parents[2]
BOARDS = {
    path.name: json.loads(path.read_text())
    for path in sorted((ROOT / "dashboards").glob("*.json"))
}

SELECTOR = re.compile(
    r"(?P<call>\w*)\(?(?P<metric>\b(?:redrive[_:][\w:]+|ALERTS))\{(?P<matchers>[^}]*)\}(?:\[(?P<range>[^\]]+)\])?"
)


class Query(NamedTuple):
    """A query and where it stands."""

    board: str
    panel: str
    expression: str


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    """All panels that are no rows."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def queries(name: str | None = None) -> Iterator[Query]:
    """The queries of panels."""
    for board_name, board in BOARDS.items():
        if name in {None, board_name}:
            for panel in panels(board):
                for target in panel.get("targets", ()):
                    yield Query(board_name, panel["title"], target["expr"])


def other_queries() -> Iterator[Query]:
    """The queries of annotations and variables."""
    for name, board in BOARDS.items():
        for annotation in board["annotations"]["list"]:
            yield Query(name, f"annotation {annotation['name']}", annotation["expr"])
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                asked = re.fullmatch(
                    r"label_values\((.+), \w+\)", variable["query"]["query"]
                )
                assert asked, variable["query"]
                yield Query(name, f"variable {variable['name']}", asked[1])


@pytest.fixture(scope="session")
def tool() -> Callable[[str], str]:
    """Find a program of Prometheus. Missing, it skips the test with what to install; in CI it fails
    it.
    """

    def find(name: str) -> str:
        return shutil.which(name) or missing(name, "Debian: apt-get install prometheus")

    return find
