"""The words of the domain as values: what a claimed job and a failure are."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Category(StrEnum):
    """The sort of a failure; it decides what happens next."""

    TRANSIENT = "transient"
    THROTTLED = "throttled"
    INVALID = "invalid"
    AUTH = "auth"
    MISSING = "missing"
    BUG = "bug"
    LOST = "lost"
    OTHER = "other"


class Reason(StrEnum):
    """Why a job died."""

    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    NOT_RETRYABLE = "not_retryable"
    SAME_FAILURE = "same_failure"
    EXPIRED = "expired"
    INVALID_PAYLOAD = "invalid_payload"
    GAVE_UP = "gave_up"
    KILLED_WORKER = "killed_worker"
    UNDECRYPTABLE = "undecryptable"


@dataclass(frozen=True, slots=True)
class Claimed:
    """Facts about a claimed job that decisions need.

    `losses` counts the processes that died under it, `streak` its failures in a row with
    `fingerprint`, `expires_in` the seconds left of its window (None: no window).
    """

    kind: str
    attempt: int
    max_attempts: int | None = None
    losses: int = 0
    streak: int = 0
    fingerprint: str | None = None
    expires_in: float | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Record of a failed attempt: JSON, bounded, free of control characters.

    `retry_after`: seconds the other side asked us to wait, or None. `verdict`: what a rule of the
    handler's policy asks for whatever the category (retry, give_up, cancel), or None.
    """

    error_class: str
    message: str
    category: Category
    fingerprint: str
    detail: dict[str, Any] = field(default_factory=dict[str, Any])
    retry_after: float | None = None
    verdict: str | None = None

    def record(self) -> dict[str, Any]:
        """The failure as settle_v1 takes it."""
        return {
            "error_class": self.error_class,
            "message": self.message,
            "category": str(self.category),
            "fingerprint": self.fingerprint,
            "detail": self.detail,
        }
