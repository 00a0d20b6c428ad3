"""Sparklines: small charts made of characters."""

from collections.abc import Sequence

LEVELS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw the last values, one character for each; 0 is a space.

    The largest value has the full height.
    """
    shown = values[-width:]
    largest = max(shown, default=0)
    return "".join(_level(value, largest) for value in shown)


def _level(value: float, largest: float) -> str:
    if value <= 0:
        return " "

    place = int(value / largest * len(LEVELS))
    return LEVELS[min(place, len(LEVELS) - 1)]
