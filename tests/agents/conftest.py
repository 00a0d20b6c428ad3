"""Fixtures: the MCP server on the test's database, with the login that a deployment has."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import msgspec
import pytest
from mcp import Client
from mcp.types import Implementation

from redrive.database.connections.address import Address
from redrive.extras.agents.desk import Budget, Desk
from redrive.extras.agents.server import server
from tests.postgres import Database

DATA = re.compile(r"<data>\n(.*)\n</data>\Z", re.DOTALL)
PLENTY = Budget(1_000_000, 1_000_000)

Call = tuple[str, dict[str, Any]]
Told = tuple[str, bool]
"""Text of an answer, and whether the call failed."""


class Agent:
    """A client of the server, as the SDK connects one."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._server = server(desk, "ada")
        self.calls = 0

    def ask(self, *calls: Call) -> list[Told]:
        """Make calls in one session; return the answers."""
        return anyio.run(self._ask, calls)

    def data(self, name: str, **arguments: Any) -> Any:
        """Make one call that succeeds; return its data."""
        ((text, is_error),) = self.ask((name, arguments))
        assert not is_error, text
        return data_of(text)

    async def _ask(self, calls: Sequence[Call]) -> list[Told]:
        found: list[Told] = []
        me = Implementation(name="claude", version="1")
        async with Client(self._server, client_info=me) as client:
            for name, arguments in calls:
                answer = await client.call_tool(name, arguments)
                self.calls += 1
                (content,) = answer.content
                found.append((content.text, answer.is_error))  # type: ignore[union-attr] # always a text
        return found


def data_of(text: str) -> Any:
    """Return the data of an answer."""
    found = DATA.search(text)
    assert found, text
    return msgspec.json.decode(found[1])


@pytest.fixture
def make_agent(database: Database) -> Callable[[Budget], Agent]:
    """Return a function that makes an agent with a budget."""

    def make(budget: Budget = PLENTY) -> Agent:
        return Agent(Desk(Address(database.url), budget))

    return make


@pytest.fixture
def agent(make_agent: Callable[[], Agent]) -> Agent:
    """An agent that works for ada, with a large budget."""
    return make_agent()
