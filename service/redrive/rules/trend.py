"""Words for whether something happens more or less often than before."""

ABOUT = 1.2
"""Counts within this factor of each other are about the same."""


def compared(now: int, before: int, length: str) -> str:
    """Compare a count with that of the same length of time before, in words."""
    if now > before * ABOUT:
        words = "more than"
    elif now * ABOUT < before:
        words = "fewer than"
    else:
        words = "about as many as"

    return f"{words} in the {length} before ({before:,})"
