"""Instants and durations as people write them: 30d, 2h, 2026-03-01T12:00Z."""

import re
from datetime import UTC, datetime, timedelta

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d|w)\Z")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

MINUTE, HOUR, DAY = 60, 3600, 86_400


def duration(length: float) -> str:
    """Format seconds with their two largest units: 42 s, 12 min, 3 h 12 min, 2 d 5 h."""
    whole = max(int(length), 0)
    if whole >= DAY:
        return _two_units(whole, large=DAY, name="d", small=HOUR, small_name="h")

    if whole >= HOUR:
        return _two_units(whole, large=HOUR, name="h", small=MINUTE, small_name="min")

    if whole >= MINUTE:
        minutes = whole // MINUTE
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


def ago(at: datetime, now: datetime) -> str:
    """Format the time between an instant and now: 3 min."""
    return span(abs((now - at).total_seconds()))


def span(seconds: float) -> str:
    """Format a duration in the unit that fits: 0.3 s, 90 s, 3 min, 2 h, 4 days.

    A unit fits from two of it on, or if the duration is exactly one of it.
    """
    if seconds >= 2 * DAY:
        return f"{seconds // DAY:.0f} days"
    if seconds >= 2 * HOUR or seconds == HOUR:
        return f"{seconds // HOUR:.0f} h"
    if seconds >= 2 * MINUTE or seconds == MINUTE:
        return f"{seconds // MINUTE:.0f} min"
    if 0 < seconds < 1:
        return f"{seconds:.1g} s"

    return f"{seconds // 1:.0f} s"


def clock(at: datetime, now: datetime) -> str:
    """Format an instant in UTC; without the date if it is today."""
    at = at.astimezone(now.tzinfo)
    is_today = at.date() == now.date()
    if is_today:
        return f"{at:%H:%M:%S} UTC"

    return f"{at:%Y-%m-%d} {at:%H:%M:%S} UTC"


def typed(seconds: float) -> str:
    """Format a duration as users write it: 30d, 12h, 90s."""
    for unit, length in (("d", DAY), ("h", HOUR), ("m", MINUTE)):
        if seconds and seconds % length == 0:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:g}s"
