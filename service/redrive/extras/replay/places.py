"""The place of a failure in the code, and whether two failures are the same."""

from typing import Literal, NamedTuple

from redrive.rules.rows import Fields, Row

Verdict = Literal["same", "same_failure", "moved", "other"]
"""How a failure compares with that of the attempt:

same          of the same class, at the same line
same_failure  of the same class and fingerprint; no line of one of them is on record
moved         of the same class, in the same function, at another line
other         anything else
"""


class Place(NamedTuple):
    """A line of code."""

    file: str
    module: str
    function: str
    line: int

    def __str__(self) -> str:
        """Return the place as an editor opens it."""
        return f"{self.file}:{self.line} in {self.function}"


def place_of(failure: Fields) -> Place | None:
    """Return where a failure was raised: the innermost line of the application's code.

    A failure without such a line was raised at the innermost line of all.
    """
    stack = _stack(failure)
    return _innermost([frame for frame in stack if frame.get("own")] or stack)


def own_place_of(failure: Fields) -> Place | None:
    """Return the innermost line of the application's code, or None."""
    return _innermost([frame for frame in _stack(failure) if frame.get("own")])


def _stack(failure: Fields) -> list[Row]:
    return failure["detail"].get("stack") or []


def _innermost(stack: list[Row]) -> Place | None:
    if not stack:
        return None

    frame = stack[-1]
    return Place(
        file=frame["file"],
        module=frame.get("module", ""),
        function=frame["function"],
        line=frame["line"] or 0,
    )


def compared(before: Fields, now: Fields) -> Verdict:
    """Compare a failure with the one on record."""
    if before["error_class"] != now["error_class"]:
        return "other"

    old = own_place_of(before)
    new = own_place_of(now)
    if old is None or new is None:
        # Older records of deep stacks have no frame of the application.
        old = _innermost(_stack(before))
        new = _innermost(_stack(now))

    if old != new and None in (old, new):
        return "other"
    if old is None or new is None:
        is_same = before["fingerprint"] == now["fingerprint"]
        return "same_failure" if is_same else "other"
    if old[1:] == new[1:]:
        return "same"

    if old[1:3] == new[1:3]:
        return "moved"

    return "other"
