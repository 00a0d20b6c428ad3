"""Values of the domain: a claimed job, a failure, its category and its reason."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

BREAKER_STATES = ("closed", "half_open", "open")


class Category(StrEnum):
    """Category of a failure; it decides what happens next."""

    TRANSIENT = "transient"
    THROTTLED = "throttled"
    INVALID = "invalid"
    AUTH = "auth"
    MISSING = "missing"
    BUG = "bug"
    LOST = "lost"
    OTHER = "other"


class Reason(StrEnum):
    """Reason for a job's death."""

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

    `losses`: number of processes that died while they ran the job. `streak`: number of
    its last failures in a row with `fingerprint`. `expires_in`: seconds left of its
    window; None = it never expires. `retried_for`: sum in seconds of its waits between
    attempts, since it was enqueued or redriven.
    """

    kind: str
    attempt: int
    max_attempts: int | None = None
    losses: int = 0
    streak: int = 0
    fingerprint: str | None = None
    expires_in: float | None = None
    retried_for: float = 0.0


@dataclass(frozen=True, slots=True)
class Failure:
    """Record of a failed attempt: JSON, bounded, free of control characters.

    `retry_after`: seconds that the other side asked us to wait, or None. `verdict`:
    action that a rule of the handler's policy demands for any category (retry, give_up,
    cancel), or None.
    """

    error_class: str
    message: str
    category: Category
    fingerprint: str
    detail: dict[str, Any] = field(default_factory=dict[str, Any])
    retry_after: float | None = None
    verdict: str | None = None

    def record(self) -> dict[str, Any]:
        """Return the failure in the form of settle_v1's argument."""
        return {
            "error_class": self.error_class,
            "message": self.message,
            "category": str(self.category),
            "fingerprint": self.fingerprint,
            "detail": self.detail,
        }
