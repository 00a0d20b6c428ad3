"""Sizes of the steps of a search: small first, then larger, until its time is up."""

import time
from collections.abc import Iterator

STEP = 4
"""By so much more is looked at each time."""


def widening(first: int, most: int, seconds: float) -> Iterator[int]:
    """At how many to look next, until the next time would likely end after so many seconds."""
    give_up_at, looks = time.monotonic() + seconds, first
    while True:
        began = time.monotonic()
        yield looks
        now = time.monotonic()
        if now + STEP * (now - began) > give_up_at:
            return
        looks = min(most, looks * STEP)
