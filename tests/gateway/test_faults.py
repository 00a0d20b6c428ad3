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


@pytest.mark.chaos
def test_nothing_is_lost_and_each_duplicate_is_counted(
    own_broker: Broker, tmp_path: Path
) -> None:
    found = faults.run(own_broker, tmp_path, messages=400, back=200, kills=6, seed=1)
    parts = {"gateway": 1, "postgres": 1, "broker": 1}
    assert found.kills == found.kills_of_the_way_back == parts
    assert found.lost == 0
    assert found.left_in_queue == 0
    assert found.doubles_with_id == 0
    assert found.doubles == found.counted_doubles
    assert found.not_sent == 0
    assert found.sent_twice_unnoticed == 0
    assert found.still_open == 0
    assert found.campaigns == 1, "an outage does not end a campaign"
