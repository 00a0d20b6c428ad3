"""Server-sent events: news of one thing, until it ends, or whoever listens may no longer.

Each look asks the database, so that every replica tells the same, and nobody who has signed out.
After a minute a browser asks anew, with the cookie that it has then.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool

LASTS_SECONDS = 60.0
LOOK_SECONDS = 1.0
MOST_OF_ONE = 4
"""Of one session; a browser has six connections to a site, and wants some for pages."""
MOST = 100


class News(NamedTuple):
    """Update of a stream: HTML, and whether it is the last."""

    html: str
    is_last: bool


class Streams:
    """All of this process."""

    def __init__(self) -> None:
        self._open: list[str] = []  # the session of each
        self._is_over = False

    def has_room(self, session: str) -> bool:
        """Return True if one more stream fits."""
        return self._open.count(session) < MOST_OF_ONE and len(self._open) < MOST

    def end(self) -> None:
        """End all within a second, and whatever would begin."""
        self._is_over = True

    async def events(self, session: str, look: Callable[[], News | None]) -> AsyncIterator[str]:
        """Yield the events that a browser is sent.

        Args:
            session: of whoever listens, as forms know it.
            look: blocks; None = whoever listens may no longer, or it cannot be told now.
        """
        give_up_at = time.monotonic() + LASTS_SECONDS
        self._open.append(session)
        try:
            yield "retry: 1000\n\n"
            told = None
            while not self._is_over and time.monotonic() < give_up_at:
                news = await run_in_threadpool(look)
                if news is None:
                    return
                if news.html != told:
                    yield _event("news", news.html)
                    told = news.html
                if news.is_last:
                    yield _event("end", "")
                    return
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._open.remove(session)


def _event(name: str, text: str) -> str:
    data = "".join(f"data: {line}\n" for line in text.splitlines() or [""])
    return f"event: {name}\n{data}\n"
