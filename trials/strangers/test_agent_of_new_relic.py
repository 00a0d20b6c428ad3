"""open-telemetry/opentelemetry-python-contrib #1097, for the agent of New Relic.

A user starts the agent, changes no line of the program, and enqueues as before.
"""

import pytest

from tests.postgres import Database
from trials.strangers.agents import DRIVERS, under_agent


@pytest.mark.parametrize("driver", DRIVERS)
def test_each_call_works_on_connections_that_the_agent_wraps(
    database: Database, driver: str
) -> None:
    under_agent("new_relic", driver, database.url)
