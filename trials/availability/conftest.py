"""Half an hour of faults only runs if asked for."""

import pytest


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Skip them, but for -m availability."""
    if "availability" in (config.option.markexpr or ""):
        return
    for item in items:
        if item.get_closest_marker("availability"):
            item.add_marker(pytest.mark.skip(reason="faults for minutes: make ha-test"))
