"""A batch of messages: one transaction stores it as dead letters.

A message with an id is imported once. A message without one is known by its content. If
an equal one was imported before, and the broker says that it delivered this one before,
it may be a duplicate. It is imported and counted, because the other choice might lose
it.
"""

import logging
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from redrive.database.rows import Connection
from redrive.dead_letters.imports import store as imports
from redrive.dead_letters.imports.document import Imported
from redrive.errors import InvalidJob
from redrive.extras.gateway.letters import fingerprint_of, letter_of
from redrive.extras.gateway.message import Message
from redrive.extras.gateway.returns import returns

logger = logging.getLogger("redrive.extras.gateway")

WHY = "taken in by redrive gateway"


class _Overtaken(Exception):
    """Another gateway took in an equal message meanwhile, and perhaps not this one."""


class Batch:
    """Messages of one source that are stored together.

    Its counts have the names of the gateway's metrics.

    Args:
        exact: keep the bytes of JSON bodies.
        form: the first form in which to store them; see `letter_of`.
    """

    def __init__(
        self, kind: str, messages: Sequence[Message], *, exact: bool, form: int = 0
    ) -> None:
        self._kind = kind
        self._messages = messages
        self._exact = exact
        self._form = form
        self.counts = Counter[str]()

    def store(self, conn: Connection, actor: str) -> Sequence[Message]:
        """Store the messages; return all that may be acknowledged.

        If another gateway took in equal ones, it is done again.
        """
        while True:
            # A try that was rolled back does not count.
            self.counts = Counter[str]()
            # `suppress` is outside, because the transaction must see the error, too.
            with suppress(_Overtaken), conn.transaction():
                return self._commit(conn, actor)

    def _commit(self, conn: Connection, actor: str) -> Sequence[Message]:
        came_back = self._came_back(conn)
        others = [one for n, one in enumerate(self._messages) if n not in came_back]
        returned = [self._messages[n] for n in came_back]
        return returned + self._import(conn, others, actor)

    def _import(
        self, conn: Connection, messages: Sequence[Message], actor: str
    ) -> list[Message]:
        """Store messages as dead letters; leave out messages that do not fit."""
        digests = [digest_of(message) for message in messages]
        known = imports.known(conn, self._kind, digests)
        # A copy, because `_letters` adds to it, and `_take` needs the original.
        letters = list(self._letters(messages, digests, set(known)))

        if letters:
            self._take(conn, [letter for letter, _ in letters], known, actor)

        return [message for _, message in letters]

    def _take(
        self, conn: Connection, new: Sequence[Imported], known: set[str], actor: str
    ) -> None:
        """Import dead letters. `known`: the source ids that were imported before."""
        taken = imports.take(conn, self._kind, new, why=WHY, actor=actor, is_live=True)
        self.counts["taken"] = taken
        self.counts["known"] = len(new) - taken

        if taken < len({letter.source_id for letter in new} - known):
            raise _Overtaken

    def _came_back(self, conn: Connection) -> set[int]:
        """Return the numbers of the messages that were sent back and died again."""
        fingerprint = partial(fingerprint_of, kind=self._kind, exact=self._exact)
        came_back = returns(conn, self._messages, fingerprint)
        self.counts["returned"] = len(came_back)

        return came_back

    def _letters(
        self, messages: Sequence[Message], digests: Sequence[str], known: set[str]
    ) -> Iterator[tuple[Imported, Message]]:
        """Yield each message with its dead letter; leave out messages that do not fit."""
        for message, digest in zip(messages, digests, strict=True):
            source_id, is_doubtful = identity(message, digest, is_known=digest in known)
            # An equal message later in this batch may be a duplicate, too.
            known.add(digest)
            letter = self._letter(message, source_id, is_doubtful=is_doubtful)
            if letter is None:
                self.counts["refused"] += 1
                continue

            self.counts["possible_duplicates"] += is_doubtful
            self.counts["returned_late"] += message.mark is not None
            yield letter, message

    def _letter(
        self, message: Message, source_id: str, *, is_doubtful: bool
    ) -> Imported | None:
        """Return the dead letter of a message; None if it does not fit."""
        notes: dict[str, Any] = {"possible_duplicate": True} if is_doubtful else {}
        if message.mark:
            notes["came_back_from"] = message.mark.job

        try:
            return letter_of(
                message,
                self._kind,
                source_id,
                exact=self._exact,
                first=self._form,
                **notes,
            )
        except InvalidJob as error:
            extra = {"source": self._kind, "fault": error.path, "rule": error.rule}
            logger.warning("a message is too large; it stays there", extra=extra)
            return None


def digest_of(message: Message) -> str:
    """Return what identifies a message: its id, or a digest of all that is known of it."""
    if message.is_unique:
        return str(message.source_id)
    names = ("body", "origin", "headers", "death", "source_id", "mark")
    return imports.digest({name: getattr(message, name) for name in names})


def identity(message: Message, digest: str, *, is_known: bool) -> tuple[str, bool]:
    """Return the source id of a message, and True if it may be a duplicate.

    Args:
        is_known: a message with this digest was imported before.
    """
    if message.source_id is not None or not is_known:
        return digest, False
    return f"{digest[:40]}-{uuid.uuid4().hex}", message.may_be_known
