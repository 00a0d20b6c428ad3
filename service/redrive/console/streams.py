"""Server-sent events: news of one thing, until it ends, or whoever listens may no longer.

Each look asks the database, so that every replica tells the same. After a minute a browser asks
anew: whoever has signed out elsewhere is not let in again.
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
    """What a look found: HTML, and whether nothing more will come."""

    html: str
    is_last: bool


class Stream:
    """One that somebody listens to. `session`: of who listens, as forms know it."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.is_ended = False


class Streams:
    """All of this process."""

    def __init__(self) -> None:
        self._open: set[Stream] = set()

    def has_room(self, session: str) -> bool:
        """Whether one more is not too many."""
        of_one = sum(stream.session == session for stream in list(self._open))
        return of_one < MOST_OF_ONE and len(self._open) < MOST

    def end(self, session: str | None = None) -> None:
        """End those of a session, within a second; None = all, as at shutdown."""
        for stream in list(self._open):
            stream.is_ended |= session in {None, stream.session}

    async def events(self, session: str, look: Callable[[], News | None]) -> AsyncIterator[str]:
        """What a browser is sent.

        Args:
            look: blocks; None = whoever listens may no longer, or it cannot be told now.
        """
        stream, give_up_at = Stream(session), time.monotonic() + LASTS_SECONDS
        self._open.add(stream)
        try:
            yield "retry: 1000\n\n"
            told = None
            while not stream.is_ended and time.monotonic() < give_up_at:
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
            self._open.discard(stream)


def _event(name: str, text: str) -> str:
    data = "".join(f"data: {line}\n" for line in text.splitlines() or [""])
    return f"event: {name}\n{data}\n"
