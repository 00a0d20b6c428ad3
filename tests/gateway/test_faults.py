"""Nothing is lost while gateway, broker and Postgres are killed; see tests.gateway.faults."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway import faults
from tests.gateway.broker import Broker


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that no other test uses."""
    running = Broker(tmp_path)
    yield running
    running.end()


@pytest.mark.slow
def test_nothing_is_lost_and_each_duplicate_is_counted(
    own_broker: Broker, tmp_path: Path
) -> None:
    found = faults.run(own_broker, tmp_path, messages=3_000, kills=5, seed=1)
    assert sum(found.kills.values()) == 5
    assert set(found.kills) == {"gateway", "postgres", "broker"}
    assert found.lost == 0
    assert found.left_in_queue == 0
    assert found.doubles_with_id == 0
    assert found.doubles == found.counted_doubles
