"""Marks of messages that were sent back: the gateway knows them again by a header."""

import hashlib
import re
from typing import NamedTuple

MARK = "redrive-job"
"""Header of a message that was sent back: the job, a digest of the body, and a token."""


class Mark(NamedTuple):
    """Job that sent a message back, as the message's header names it.

    Anybody who can publish may write such a header. Only the job knows the token.
    """

    job: int
    redrives: int
    body: str
    token: str

    def __str__(self) -> str:
        """Return the header's value."""
        return ".".join(map(str, self))

    @property
    def key(self) -> str:
        """Return the key that decides between a return and a success."""
        return f"gateway/{self.job}/{self.redrives}"

    def cause_key(self, fingerprint: str) -> str:
        """Return the key that names the cause of the next death of the message."""
        return f"{self.key}/{fingerprint}"


_MARK = re.compile(r"(\d{1,18})\.(\d{1,9})\.([0-9a-f]{32})\.([0-9a-f]{32})\Z", re.ASCII)


def mark_of(header: object, body: bytes) -> Mark | None:
    """Return the mark of a message; None if it has none.

    An application may copy the headers of a message to another one. A mark with another
    body is therefore none.
    """
    found = _MARK.match(str(header))
    if found is None or found[3] != digest(body):
        return None

    return Mark(
        job=int(found[1]), redrives=int(found[2]), body=found[3], token=found[4]
    )


def digest(body: bytes) -> str:
    """Return a short digest of a body."""
    return hashlib.sha256(body).hexdigest()[:32]
