"""elastic/apm-agent-python #1328, for the agent of Sentry.

A user starts the agent, changes no line of the program, and enqueues as before.
"""

import pytest

from tests.postgres import Database
from trials.strangers.agents import DRIVERS, under_agent


@pytest.mark.parametrize("driver", DRIVERS)
def test_each_call_works_on_connections_that_the_agent_wraps(
    database: Database, driver: str
) -> None:
    under_agent("sentry", driver, database.url)
