"""Instants and durations as people write them: 30d, 2h, 2026-03-01T12:00Z."""

import re
from datetime import UTC, datetime, timedelta

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d|w)\Z")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def duration(length: float) -> str:
    """Format seconds with their two largest units: 42 s, 12 min, 3 h 12 min, 2 d 5 h."""
    whole = max(int(length), 0)
    if whole >= _DAY:
        return _two_units(
            whole,
            large=_DAY,
            name="d",
            small=_HOUR,
            small_name="h",
        )

    if whole >= _HOUR:
        return _two_units(
            whole,
            large=_HOUR,
            name="h",
            small=_MINUTE,
            small_name="min",
        )

    if whole >= _MINUTE:
        minutes = whole // _MINUTE
        return f"{minutes} min"

    return f"{whole} s"


def _two_units(whole: int, large: int, name: str, small: int, small_name: str) -> str:
    count, rest = divmod(whole, large)
    less = rest // small
    if not less:
        return f"{count} {name}"

    return f"{count} {name} {less} {small_name}"


def seconds(text: str) -> float | None:
    """Return a duration in seconds; None if the text is not a duration."""
    found = _DURATION.match(text.strip())
    if found:
        return float(found[1]) * _UNIT_SECONDS[found[2]]

    return None


def instant(text: str, now: datetime) -> datetime:
    """Return an instant from ISO 8601, or from a duration before now (2h).

    ISO 8601 without a zone is UTC.

    Raises:
        ValueError: the text is neither; the message says what is allowed.
    """
    ago = seconds(text)
    try:
        if ago is not None:
            return now - timedelta(seconds=ago)

        at = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        hint = "write 2026-03-01T12:00Z, or 2h for two hours ago"
        msg = f"{text!r} is not a time; {hint}"
        raise ValueError(msg) from None

    if at.tzinfo:
        return at
    return at.replace(tzinfo=UTC)
