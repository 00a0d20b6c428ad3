"""Search for the known name that is most similar to a mistyped one."""

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar; None if none is similar."""
    from difflib import get_close_matches  # noqa: PLC0415 # needed only after a typo

    return next(iter(get_close_matches(name, list(known), 1)), None)


def nearest_or_all(name: str, known: Iterable[str]) -> str:
    """Return the hint for an unknown name: a similar name, or else all known names."""
    known = list(known)
    similar = nearest(name, known)
    if similar is None:
        names = ", ".join(known)
        return f"known are {names}"

    return f"did you mean {similar!r}?"


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the hint for an unknown name; empty if no known name is similar."""
    close = nearest(name, known)
    if close is None:
        return ""
    return f"; did you mean {close}?"
