"""Search for the name that a typo probably meant."""

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return which of those that are known is most like it; None: none is like it."""
    from difflib import get_close_matches  # noqa: PLC0415 # after a slip alone

    return next(iter(get_close_matches(name, list(known), 1)), None)


def nearest_or_all(name: str, known: Iterable[str]) -> str:
    """Return what to say of a name that is not known, where those that are can all be listed."""
    known = list(known)
    meant = nearest(name, known)
    return f"known are {', '.join(known)}" if meant is None else f"did you mean {meant!r}?"


def meant(name: str, known: Iterable[str]) -> str:
    """Return the end of what is said of a name that is not known; empty: none is like it."""
    close = nearest(name, known)
    return "" if close is None else f"; did you mean {close}?"
