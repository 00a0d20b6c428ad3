"""Links that act: signed, for one change of one cell, once and for fifteen minutes.

A link names a change. Whoever opens it must sign in, and confirms the change on a page.
"""

from secrets import token_urlsafe
from typing import Any, NamedTuple

from itsdangerous import BadData, URLSafeTimedSerializer

LINK_SECONDS = 15 * 60
TARGETS = {"mute": "group", "pause": "queue", "campaign-start": "campaign"}
"""Change that a link may name -> the parameter that names its target."""


class Act(NamedTuple):
    """The content of a link.

    Attributes:
        cell: name of the cell that the link is for; empty if there is only one database.
        word: a change of TARGETS.
        target: what it changes: a group, a queue or a plan.
        id: the database records it when the link is used.
    """

    cell: str
    word: str
    target: str
    id: str

    @property
    def query(self) -> list[tuple[str, str]]:
        """Return the query of the change."""
        return [(TARGETS[self.word], self.target)]


class ActLinks:
    """Signs links and reads them."""

    def __init__(self, key: str) -> None:
        self._signed = URLSafeTimedSerializer(key, salt="redrive act")

    def sign(self, cell: str, word: str, target: str) -> str:
        """Return a new link's last part of the path."""
        act = Act(cell=cell, word=word, target=target, id=token_urlsafe(16))
        return str(self._signed.dumps(act))

    def read(self, text: str) -> Act | None:
        """Return the content of a link; None if it is forged or too old."""
        try:
            found: Any = self._signed.loads(text, max_age=LINK_SECONDS)
        except BadData:
            return None
        return Act(*found)
