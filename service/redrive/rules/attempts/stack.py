"""Stack of a failure as people read it: all frames of their own code, few of libraries."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from redrive.rules.rows import Fields

MAX_OF_LIBRARIES = 2
"""Frames of libraries in a row that are shown: the innermost."""


class Place(NamedTuple):
    """Frame to show.

    Attributes:
        source: number and text of each line, and whether it is the line of the frame.
        left_out: number of frames before it that are not shown.
    """

    frame: Fields
    source: Sequence[tuple[int, str, bool]]
    left_out: int


def places(stack: Iterable[Fields]) -> Iterator[Place]:
    """Yield the frames to show, outermost first."""
    for is_own, frames in groupby(stack, key=lambda frame: frame.get("own", False)):
        run = list(frames)
        shown = run if is_own else run[-MAX_OF_LIBRARIES:]
        left_out = len(run) - len(shown)

        for frame in shown:
            lines = enumerate(frame.get("source", ()), frame.get("first_line", 1))
            yield Place(
                frame,
                [(number, text, number == frame["line"]) for number, text in lines],
                left_out,
            )
            left_out = 0


def stack_lines(stack: Iterable[Fields]) -> Iterator[str]:
    """Yield the lines of a stack as text, outermost frame first."""
    for place in places(stack):
        if place.left_out:
            yield f"({place.left_out} more of libraries)"

        yield "{file}:{line} in {function}".format_map(place.frame)
        for number, text, is_here in place.source:
            mark = ">" if is_here else ""
            yield f"  {mark:1} {number:4}  {text}".rstrip()
