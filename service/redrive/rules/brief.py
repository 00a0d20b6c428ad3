"""Numbers with their nouns, and messages of failures on one line of a list."""

import re

_BOILERPLATE = re.compile(
    r"For more information check: \S+"  # httpx
    r"|For further information visit \S+"  # pydantic
    r"|\(Background on this error at: [^\s)]+\)"  # SQLAlchemy
    r"|<urllib3\.[\w.]+(?: object at 0x[0-9a-f]+|\([^<>]*\))>: "  # requests
)
"""Texts that libraries add to every message, and that say nothing about the failure."""

MOST = 200
"""Characters of a message that a page or a report shows in a list."""


def brief(message: str, most: int | None = None) -> str:
    """Return a message on one line, without what libraries add to every message.

    Args:
        most: number of characters to keep; None = all.
    """
    text = " ".join(_BOILERPLATE.sub("", message).split())
    return text if most is None else clamped(text, most)


def clamped(text: str, most: int) -> str:
    """Return at most this many characters of a text. `…` replaces the rest."""
    if len(text) <= most:
        return text
    return f"{text[: max(most - 1, 0)].rstrip()}…"


def counted(n: int, one: str, many: str | None = None) -> str:
    """Format a number with its noun: 1 attempt, 2,000 attempts, 2 canaries."""
    noun = one if n == 1 else many or f"{one}s"
    return f"{n:,} {noun}"
