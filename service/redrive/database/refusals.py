"""One backoff per process for a login that the server refuses, shared by all its connections."""

import random
import re
import threading
import time
from dataclasses import dataclass

import psycopg

FIRST_SECONDS, LONGEST_SECONDS = 1.0, 30.0
"""Between two attempts with a login that was refused, at first and at most."""

_REFUSED = re.compile(
    r"authentication failed|auth failed|no password supplied|no such user|no pg_hba\.conf entry"
    r"|not permitted to log in|role .+ does not exist",
    re.IGNORECASE,
)
"""What servers and poolers say to a login they refuse: libpq does not hand on their SQLSTATE.

In English. In another language (lc_messages) it is an outage without a reason, and tried again.
"""


def is_refusal(error: psycopg.Error) -> bool:
    """Tell whether the server was reached and refused the login."""
    return bool(_REFUSED.search(str(error)))


@dataclass(slots=True)
class _Refused:
    """A URL that was refused the last time, and when to try it again."""

    url: str
    error: str
    pause: float = FIRST_SECONDS
    retry_at: float = 0.0

    def put_off(self, now: float) -> None:
        # Jitter only shortens the pause, so that processes do not try together.
        self.retry_at = now + self.pause * random.uniform(0.8, 1.0)
        self.pause = min(2 * self.pause, LONGEST_SECONDS)


class Refusals:
    """The logins that were refused, by where their URL comes from. Thread-safe."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._refused: dict[object, _Refused] = {}

    def check(self, origin: object, url: str) -> None:
        """Let one attempt through when it is time, or when the URL has changed.

        Raises:
            psycopg.OperationalError: it is too early. It has the text of the last refusal.
        """
        with self._turn:
            found = self._refused.get(origin)
            if found is None or found.url != url:
                return
            now = time.monotonic()
            if now < found.retry_at:
                raise psycopg.OperationalError(found.error)
            found.put_off(now)  # the other connections wait for what becomes of this attempt

    def refused(self, origin: object, url: str, error: psycopg.Error) -> None:
        """Note that the server refused this login."""
        with self._turn:
            found = self._refused.get(origin)
            if found is None or found.url != url:
                found = self._refused[origin] = _Refused(url, str(error))
                found.put_off(time.monotonic())

    def accepted(self, origin: object) -> None:
        """Forget what was refused: the login works again."""
        with self._turn:
            self._refused.pop(origin, None)
