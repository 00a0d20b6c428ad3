"""Minutes of faults only run if asked for."""

import pytest


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Skip them, but for -m chaos."""
    if "chaos" in (config.option.markexpr or ""):
        return
    for item in items:
        if item.get_closest_marker("chaos"):
            item.add_marker(
                pytest.mark.skip(reason="faults for minutes: make chaos, or -m chaos")
            )
