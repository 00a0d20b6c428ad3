"""Workers that send their spans to a collector of ours."""

from collections.abc import Iterator

import pytest

from tests.flow.conftest import _no_settings, workers
from tests.tracing.collector import Collector, collecting

__all__ = ["_no_settings", "workers"]


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector
