"""The model checker is fetched by tools/tlc. CI has it and must not skip."""

import os

import pytest

from tools.model import tlc


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs TLC on a machine without it."""
    if tlc.is_there() or os.environ.get("CI") == "true":
        return
    for item in items:
        if item.get_closest_marker("model"):
            item.add_marker(pytest.mark.skip(reason="no TLC here: make model-test"))
