"""One backoff per process for a refused login, shared by all its connections."""

import random
import re
import threading
import time
from dataclasses import dataclass

import psycopg

FIRST_SECONDS, LONGEST_SECONDS = 1.0, 30.0
"""Seconds between two attempts with a refused login, at first and at most."""

_REFUSED = re.compile(
    r"authentication failed|auth failed|no password supplied|no such user|no pg_hba\.conf entry"
    r"|not permitted to log in|role .+ does not exist",
    re.IGNORECASE,
)
"""Messages of servers and poolers that refuse a login.

libpq does not pass on a SQLSTATE. The messages are in English. In another language
(lc_messages) a refusal looks like an outage without a reason, and is retried.
"""


def is_refusal(error: psycopg.Error) -> bool:
    """Return True if the server was reached and refused the login."""
    return bool(_REFUSED.search(str(error)))


@dataclass(slots=True)
class _Refused:
    """URL that was refused the last time, and when to try it again."""

    url: str
    error: str
    pause: float = FIRST_SECONDS
    retry_at: float = 0.0

    def put_off(self, now: float) -> None:
        # Jitter only shortens the pause, so that processes do not retry together.
        self.retry_at = now + (self.pause * random.uniform(0.8, 1.0))

        self.pause = min(2 * self.pause, LONGEST_SECONDS)


class Refusals:
    """Refused logins, by the origin of their URL. Thread-safe."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._refused: dict[object, _Refused] = {}

    def check(self, origin: object, url: str) -> None:
        """Let one attempt through when it is due, or when the URL has changed.

        Raises:
            psycopg.OperationalError: it is too early. It has the text of the last
                refusal.
        """
        with self._turn:
            found = self._refused.get(origin)
            if found is None or found.url != url:
                return

            now = time.monotonic()
            if now < found.retry_at:
                raise psycopg.OperationalError(found.error)

            # The other connections wait for the result of this attempt.
            found.put_off(now)

    def refused(self, origin: object, url: str, error: psycopg.Error) -> None:
        """Note that the server refused this login."""
        with self._turn:
            found = self._refused.get(origin)
            # For the same URL, the next attempt has been put off already.
            if found is None or found.url != url:
                found = self._refused[origin] = _Refused(url, str(error))
                found.put_off(time.monotonic())

    def accepted(self, origin: object) -> None:
        """Forget the refusal, because the login works again."""
        with self._turn:
            self._refused.pop(origin, None)
