"""Messages of other queues, and the connection that reads and sends them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from redrive.extras.gateway.marks import Mark


@dataclass(frozen=True, slots=True)
class Death:
    """Death of a message, as the other system tells it."""

    error_class: str
    message: str
    reason: str = "attempts_exhausted"
    stack: str | None = None
    attempts: int = 1
    died_at: datetime | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """Message of a dead letter queue.

    Attributes:
        handle: what acknowledges it there.
        origin: what is needed to send it again, except body and headers: JSON.
        headers: its headers, as JSON.
        source_id: its id there, or None.
        is_unique: the id alone makes the message unique.
        may_be_known: it was delivered before, so it may have been imported.
        mark: the job that sent it, if it was sent back before.
    """

    handle: Any
    body: bytes
    origin: Mapping[str, Any]
    headers: Mapping[str, Any]
    death: Death
    source_id: str | None = None
    is_unique: bool = False
    may_be_known: bool = False
    mark: Mark | None = None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Message to send back: a body, and what `Message` kept of the original."""

    body: bytes
    origin: Mapping[str, Any]
    headers: Mapping[str, Any]
    mark: Mark


class Source(Protocol):
    """Connection to a dead letter queue. One thread uses it."""

    def receive(self) -> Sequence[Message]:
        """Return the next messages; none after about a second without any."""
        ...

    def acknowledge(self, messages: Sequence[Message]) -> None:
        """Delete messages there: they are committed here."""
        ...

    def send(self, message: Outgoing) -> None:
        """Send a message to where it died; return when the other system has it.

        Raises:
            NotSent: it is certain that the other system does not have the message.
        """
        ...

    def ping(self) -> None:
        """Raise an error if the connection is known to be closed."""
        ...

    def waiting(self) -> int:
        """Return how many messages wait in the dead letter queue."""
        ...

    def close(self) -> None:
        """Close the connection. Unacknowledged messages return to their queue."""
        ...


class NotSent(Exception):
    """The other system refused a message; it does not have it.

    Attributes:
        is_final: True if another attempt would not help.
    """

    def __init__(self, why: str, *, is_final: bool = True) -> None:
        super().__init__(why)
        self.is_final = is_final


def instant(value: Any) -> datetime | None:
    """Return an instant that other systems give as a datetime or Unix seconds."""
    try:
        at = value
        if not isinstance(value, datetime):
            at = datetime.fromtimestamp(value, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None

    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    if datetime(2000, 1, 1, tzinfo=UTC) <= at <= datetime.now(UTC):
        return at

    return None
