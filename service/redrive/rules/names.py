"""Names that somebody gives: what was probably meant by one that is unknown."""

from collections.abc import Sequence


def meant(name: str, known: Sequence[str]) -> str:
    """Which of those that are known was probably meant, as the end of what is said; or nothing."""
    from difflib import get_close_matches  # noqa: PLC0415 # after a slip alone

    close = get_close_matches(name, known, 1)
    return f"; did you mean {close[0]}?" if close else ""
