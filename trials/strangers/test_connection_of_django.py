"""elastic/apm-agent-python #1789.

A view enqueues on the connection of Django that its models use.
"""

from tests.postgres import Database
from trials.strangers.agents import under_agent


def test_each_call_works_on_a_connection_of_django(database: Database) -> None:
    under_agent("no_agent", "django", database.url)
