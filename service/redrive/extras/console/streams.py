"""Server-sent events: updates of one page until its subject ends or access is lost.

Each update reads the database, so all replicas send the same. A stream reads for at
most a tenth of the time. A user who signed out gets no more updates. A stream lasts one
minute; then the browser reconnects with its current cookie.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool

STREAM_SECONDS = 60.0
READ_SECONDS = 1.0
REST = 9
"""A stream rests for at least this multiple of the time that its last read took."""
MOST_OF_ONE = 4
"""Most streams of a person: a browser opens six connections, and pages need some."""
MOST = 100
LEFT_SECONDS = 5.0
"""How long a stream may last beyond STREAM_SECONDS, because a read is slow."""


class Update(NamedTuple):
    """Update of a stream: HTML, and whether it is the last."""

    html: str
    is_last: bool


@dataclass(eq=False, slots=True)
class Place:
    """Place of a stream: its person, and when it is free again if it never begins."""

    person: str
    until: float


class Streams:
    """All open streams of this process."""

    def __init__(self) -> None:
        self._open: list[Place] = []
        self._lock = Lock()  # requests are handled in threads
        self._is_over = False

    def take(self, person: str) -> Place | None:
        """Take a place for one more stream; return None if there is no room."""
        now = time.monotonic()

        with self._lock:
            self._open = [one for one in self._open if one.until > now]
            own = sum(one.person == person for one in self._open)
            if own >= MOST_OF_ONE or len(self._open) >= MOST:
                return None

            self._open.append(Place(person, now + STREAM_SECONDS + LEFT_SECONDS))
            return self._open[-1]

    def _leave(self, place: Place) -> None:
        with self._lock, suppress(ValueError):
            self._open.remove(place)

    def end(self) -> None:
        """End all streams within a second, and refuse to keep new ones open."""
        self._is_over = True

    async def events(
        self, place: Place, read: Callable[[], Update | None]
    ) -> AsyncIterator[str]:
        """Yield the events that a browser is sent.

        Args:
            place: a place that was taken. It is free again when the stream ends.
            read: blocking call that returns an update; None ends the stream.
        """
        give_up_at = time.monotonic() + STREAM_SECONDS
        try:
            # A browser that loses the connection waits for a second and connects again.
            yield "retry: 1000\n\n"

            last_sent = None
            while not self._is_over and time.monotonic() < give_up_at:
                # The call waits for Postgres. Other requests must go on meanwhile.
                began = time.monotonic()
                update = await run_in_threadpool(read)
                took = time.monotonic() - began
                if update is None:
                    return

                if update.html != last_sent:
                    yield _event("news", update.html)
                    last_sent = update.html

                if update.is_last:
                    yield _event("end", "")
                    return

                await asyncio.sleep(max(READ_SECONDS, REST * took))
        finally:
            self._leave(place)


def _event(name: str, text: str) -> str:
    lines = text.splitlines() or [""]
    data = "".join(f"data: {line}\n" for line in lines)
    return f"event: {name}\n{data}\n"
