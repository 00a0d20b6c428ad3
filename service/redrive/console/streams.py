"""Server-sent events: updates of one page until its subject ends or access is lost.

Each update reads the database, so all replicas send the same. A user who signed out
gets no more updates. A stream lasts one minute; then the browser reconnects with its
current cookie.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool

STREAM_SECONDS = 60.0
READ_SECONDS = 1.0
MOST_OF_ONE = 4
"""Most streams per session: a browser opens six connections, and pages need some."""
MOST = 100


class Update(NamedTuple):
    """Update of a stream: HTML, and whether it is the last."""

    html: str
    is_last: bool


class Streams:
    """All open streams of this process."""

    def __init__(self) -> None:
        self._open: list[str] = []  # the session of each stream
        self._is_over = False

    def has_room(self, session: str) -> bool:
        """Return True if one more stream fits."""
        own = self._open.count(session)
        return own < MOST_OF_ONE and len(self._open) < MOST

    def end(self) -> None:
        """End all streams within a second, and refuse to keep new ones open."""
        self._is_over = True

    async def events(
        self, session: str, read: Callable[[], Update | None]
    ) -> AsyncIterator[str]:
        """Yield the events that a browser is sent.

        Args:
            session: session of the user, as in the tokens of forms.
            read: blocking call that returns an update; None ends the stream.
        """
        give_up_at = time.monotonic() + STREAM_SECONDS
        self._open.append(session)
        try:
            # A browser that loses the connection waits for a second and connects again.
            yield "retry: 1000\n\n"

            last_sent = None
            while not self._is_over and time.monotonic() < give_up_at:
                # The call waits for Postgres. Other requests must go on meanwhile.
                update = await run_in_threadpool(read)
                if update is None:
                    return

                if update.html != last_sent:
                    yield _event("news", update.html)
                    last_sent = update.html

                if update.is_last:
                    yield _event("end", "")
                    return

                await asyncio.sleep(READ_SECONDS)
        finally:
            self._open.remove(session)


def _event(name: str, text: str) -> str:
    lines = text.splitlines() or [""]
    data = "".join(f"data: {line}\n" for line in lines)
    return f"event: {name}\n{data}\n"
