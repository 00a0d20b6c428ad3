"""Sizes of the steps of a search: small first, then larger, until its time is up."""

import time
from collections.abc import Iterator

STEP = 4
"""Each step is larger than the last by this factor."""


def widening(first: int, most: int, seconds: float) -> Iterator[int]:
    """Yield sizes of steps, until the next one would likely end after `seconds`.

    Args:
        first: size of the first step.
        most: largest size.
        seconds: time for all steps together. The caller does a step's work before it
            asks for the next size.
    """
    give_up_at = time.monotonic() + seconds
    looks = first

    while True:
        began = time.monotonic()
        yield looks
        now = time.monotonic()
        if now + STEP * (now - began) > give_up_at:
            return

        looks = min(most, looks * STEP)
