"""Owners of queues and kinds: the teams that care for their dead letters."""

import re
from typing import NamedTuple

from redrive.database.rows import Connection, records, value
from redrive.rules.payloads.limits import check_name

ANY = "*"
"""Stands for all queues, or for all kinds."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}\Z")
"""Names of owners. They are labels of alerts."""

MAX_CONTACT = 255


class Pattern(NamedTuple):
    """Jobs that have an owner: a queue, a kind, or both."""

    queue: str
    kind: str = ANY

    def __str__(self) -> str:
        if self.kind == ANY:
            return self.queue
        return f"{self.queue}/{self.kind}"


class Owner(NamedTuple):
    """Owner of the jobs of a pattern.

    `contact`: where to reach the owner, such as a channel, or None.
    """

    queue: str
    kind: str
    owner: str | None
    contact: str | None = None

    @property
    def pattern(self) -> Pattern:
        """Return the jobs that it owns."""
        return Pattern(self.queue, self.kind)


def parse_pattern(text: str) -> Pattern:
    """Parse QUEUE, QUEUE/KIND, */KIND or *.

    Raises:
        InvalidJob: the queue or the kind is not a name.
    """
    queue, slash, kind = text.partition("/")
    pattern = Pattern(queue)
    if slash:
        pattern = Pattern(queue, kind)

    for field, name in pattern._asdict().items():
        if name != ANY:
            check_name(field, name)

    return pattern


def find(conn: Connection) -> list[Owner]:
    """Return all owners by pattern."""
    return records(
        conn,
        Owner,
        "select queue, kind, owner, contact from redrive.owners order by queue, kind",
    )


def set_owner(conn: Connection, wanted: Owner, *, actor: str, why: str) -> None:
    """Set the owner of a pattern. An owner of None removes it."""
    conn.execute(
        "select redrive.set_owner_v1(%s, %s, %s, %s, %s, %s)", (*wanted, actor, why)
    )


def owned(conn: Connection, owner: str) -> list[str]:
    """Return the queues and kinds with dead letters that an owner has, as QUEUE/KIND."""
    found = value(conn, "select redrive.owned_v1(%s)", owner)
    return found or []
