"""DataDog/dd-trace-py #383.

A user starts the agent, changes no line of the program, and enqueues as before.
"""

import pytest

from tests.postgres import Database
from trials.strangers.agents import DRIVERS, under_agent


@pytest.mark.parametrize("driver", DRIVERS)
def test_each_call_works_on_connections_that_the_agent_wraps(
    database: Database, driver: str
) -> None:
    under_agent("datadog", driver, database.url)
