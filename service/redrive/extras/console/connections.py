"""Connections of the console's HTTP servers, which slow clients cannot use up.

A browser keeps a connection for several requests, and a page may receive live updates
for a minute. So only the time between requests is limited.
"""

import asyncio
from typing import Any, cast

from redrive.observability.health import Connection

HEAD_SECONDS = 10.0
"""A client has this time for the head of a request, and twice this time at most."""


class PageConnection(Connection):
    """Connection that is closed unless its client sends requests in time.

    If there are too many, one without a request is closed first.
    """

    most = 200

    def until_deadline(self) -> asyncio.TimerHandle:
        """Return the timer that looks whether the client has sent a request."""
        return self.loop.call_later(HEAD_SECONDS, self._look, cast("Any", self.cycle))

    def _look(self, before: object) -> None:
        """Close the connection if no request began since the look before."""
        # A new request has a new cycle. An answer may take as long as it needs.
        if self.cycle is before and not self.is_asking:
            self.transport.abort()
        else:
            self.deadline = self.until_deadline()
