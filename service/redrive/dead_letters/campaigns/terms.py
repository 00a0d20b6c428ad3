"""Terms of a campaign: its speed, its caution, and what it waits for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from redrive.dead_letters.campaigns.pace import (
    ABORT_SHARE,
    CANARIES,
    MANY,
    exposure,
    is_version,
)
from redrive.rules.instants import instant, seconds
from redrive.rules.model import BREAKER_STATES
from redrive.rules.payloads.limits import NAME
from redrive.rules.rows import Row

LEAST_RATE, MOST_RATE = 0.001, 1e9
LEAST_SHARE = 1e-9
MOST_CANARIES = 999_999


class BadTerm(ValueError):
    """A term is invalid. `rule` says what is allowed."""

    def __init__(self, name: str, text: str, rule: str) -> None:
        super().__init__(f"{name} is {text!r}; {rule}")
        self.name = name
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms of a campaign. `breakers` maps a name to the state to wait for.

    `to_queue`: queue that the jobs go to; None = the queue in which each died.
    """

    rate: float | None = None
    canaries: int = CANARIES
    abort_share: float = ABORT_SHARE
    not_before: datetime | None = None
    breakers: Mapping[str, str] = field(default_factory=dict[str, str])
    version: str | None = None
    to_queue: str | None = None

    @classmethod
    def read(
        cls, given: Mapping[str, str], now: datetime, canaries: int = CANARIES
    ) -> "Terms":
        """Parse terms by their names in forms and options; ignore other names.

        Args:
            given: name -> text; an empty text stands for the default.
            now: instant from which a delay counts.
            canaries: default number of canaries.

        Raises:
            BadTerm: a text is invalid.
        """
        values: dict[str, Any] = {"canaries": canaries}
        for name, term in _TERMS.items():
            text = given.get(name, "").strip()
            if text:
                values[term.attribute] = read_term(name, text, now)

        return cls(**values)

    def risk(self, matched: int, again: str = "die again") -> str:
        """Describe how many jobs die or fail again at most if the cause persists."""
        if not self.canaries:
            return f"none go first, so all {matched:,} may {again} before it stops"

        first = min(self.canaries, matched)
        most = min(exposure(self.canaries), matched)
        share = f"{self.abort_share:.0%}"

        return (
            f"{first} go first; if more than {share} of any ten {again}, it stops after"
            f" at most {most:,}"
        )

    def conditions(self) -> Row:
        """Return the other terms that the database keeps together, without a time."""
        conditions = {
            "breakers": dict(self.breakers),
            "version": self.version,
            "to_queue": self.to_queue,
        }
        return {name: value for name, value in conditions.items() if value}


def usual_canaries(matched: int, *, are_named: bool) -> int:
    """Return the number of canaries of a redrive without `--canaries`.

    A redrive of fewer than MANY dead letters, or of given ids, has no canaries.
    """
    if are_named or matched < MANY:
        return 0
    return CANARIES


def read_term(name: str, text: str, now: datetime) -> Any:
    """Parse the text of one term.

    Args:
        now: instant from which a delay counts.

    Raises:
        BadTerm: the text is invalid.
    """
    term = _TERMS[name]
    try:
        return term.read(text, now)
    except (ValueError, OverflowError):
        raise BadTerm(name, text, term.rule) from None


def _within(number: float, least: float, most: float) -> float:
    if not least <= number <= most:
        raise ValueError
    return number


def _read_rate(text: str, _: datetime) -> float:
    return _within(float(text), LEAST_RATE, MOST_RATE)


def _read_share(text: str, _: datetime) -> float:
    return _within(float(text), LEAST_SHARE, 1)


def _read_canaries(text: str, _: datetime) -> int:
    return int(_within(int(text), 0, MOST_CANARIES))


def _read_start(text: str, now: datetime) -> datetime:
    delay = seconds(text)
    if delay is None:
        return instant(text, now)

    return now + timedelta(seconds=delay)


def _read_breakers(text: str, _: datetime) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.split(","):
        if not part.strip():
            continue

        name, _colon, state = part.strip().partition(":")
        # Postgres cannot store NUL.
        if not name or state not in BREAKER_STATES or "\0" in name:
            raise ValueError

        found[name] = state

    return found


def _read_version(text: str, _: datetime) -> str:
    # Only to reject a text that is no specifier.
    is_version("1", text)
    return text


def _read_queue(text: str, _: datetime) -> str:
    if not NAME.match(text):
        raise ValueError
    return text


class _Term(NamedTuple):
    """Attribute of Terms, the parser of its text, and the rule for texts."""

    attribute: str
    read: Callable[[str, datetime], Any]
    rule: str


_TERMS: Mapping[str, _Term] = {
    "rate": _Term(
        "rate", _read_rate, f"it must be jobs per second, {LEAST_RATE:g} or more"
    ),
    "canaries": _Term(
        "canaries", _read_canaries, f"it must be a whole number, 0 to {MOST_CANARIES}"
    ),
    "abort-share": _Term(
        "abort_share", _read_share, "it must be above 0, and at most 1"
    ),
    "not-before": _Term(
        "not_before",
        _read_start,
        "write 2026-03-01T22:00Z, or 2h for two hours from now",
    ),
    "when-breaker": _Term(
        "breakers", _read_breakers, f"write smtp:closed ({', '.join(BREAKER_STATES)})"
    ),
    "when-version": _Term("version", _read_version, "write >=1.4 or ==1.4.*"),
    "to-queue": _Term(
        "to_queue", _read_queue, "it must match ^[A-Za-z][A-Za-z0-9_.-]{0,62}$"
    ),
}
"""Name of a term in forms and options -> how to read it."""

TERM_NAMES = tuple(_TERMS)
