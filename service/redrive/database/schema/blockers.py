"""Name the sessions that keep `redrive migrate` waiting, while it waits."""

import contextlib
import logging
import re
import threading
import time
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import LiteralString, Self

import psycopg
from psycopg.conninfo import make_conninfo

from redrive.database.connections.connect import CONNECT_SECONDS
from redrive.database.rows import Connection, first_record
from redrive.errors import SchemaError
from redrive.rules.rows import Fields

logger = logging.getLogger("redrive.migrate")


TELL_SECONDS = 10.0
"""Seconds between two log lines about a wait."""

LOOK_SECONDS = 0.1
"""Seconds between two checks for blocking sessions.

A migration waits longer for a lock.
"""

CALM_SECONDS = 5.0
"""Seconds without a blocker after which a wait is over.

A migration rests between tries.
"""

BLOCKERS: LiteralString = """
    select a.pid, a.application_name as application, a.state, a.query,
        extract(epoch from clock_timestamp() - a.xact_start)::float8 as seconds
    from unnest(pg_blocking_pids(%s)) as b(pid) join pg_stat_activity a using (pid)
    order by a.xact_start limit 1
"""

_NAME = r'[a-z_"][\w$"]*(?:\.[a-z_"][\w$"]*)?'
_ON_A_TABLE = re.compile(
    r"\s*(insert\s+into|delete\s+from|update|copy|lock\s+table|truncate(?:\s+table)?|alter\s+table"
    r"|vacuum|analyze|select\s+\*\s+from)\s+(?:only\s+)?"
    rf"({_NAME})(?=[\s(;,]|$)",
    re.IGNORECASE,
)
_CALL = re.compile(rf"\s*(select)\s+(?:\*\s+from\s+)?({_NAME})\s*\(", re.IGNORECASE)
_VERB = re.compile(
    r"\s*(select|insert|update|delete|merge|with|copy|lock|truncate|alter|create|drop|grant|revoke"
    r"|vacuum|analyze|cluster|reindex|refresh|call|do|execute|fetch|begin|start|commit|end|rollback"
    r"|savepoint|release|prepare|set|show|listen|notify|explain|declare)\b",
    re.IGNORECASE,
)


def statement(query: str | None) -> str:
    """Return the first words of a statement: its verb, table or function.

    The rest is left out, because literals may be secrets or payloads.
    """
    text = query or ""
    found = _CALL.match(text) or _ON_A_TABLE.match(text)
    if found:
        words = found[1].lower().split()
        return f"{' '.join(words)} {found[2]}"

    verb = _VERB.match(text)
    if verb:
        return verb[1].lower()
    return "unknown"


@dataclass(frozen=True, slots=True)
class Blocker:
    """Session that holds a lock. Fields are None if this login may not see them."""

    pid: int
    application: str | None
    state: str | None
    seconds: float | None
    """Age of the session's transaction in seconds."""
    query: str | None

    def fields(self) -> Fields:
        """Return the fields for a log line."""
        shown = asdict(self) | {"statement": statement(self.query)}
        age = None if self.seconds is None else round(self.seconds, 1)
        shown["transaction_seconds"] = age
        del shown["query"], shown["seconds"]

        return shown

    def __str__(self) -> str:
        application = self.application or "unknown"
        state = self.state or "state unknown"
        age = "unknown age"
        if self.seconds is not None:
            age = f"{self.seconds:.0f} s"

        parts = (
            f"application {application!r}",
            state,
            f"transaction of {age}",
            f"last statement: {statement(self.query)}",
        )

        return f"pid {self.pid} ({', '.join(parts)})"


class Waiting(threading.Thread):
    """Thread that logs blockers of a migration, and ends its wait after `patience`.

    Without a second connection nothing is logged, and the migration continues.

    Args:
        conn: connection that migrates. A second one is opened with its parameters.
        patience: seconds.
    """

    def __init__(self, conn: Connection, patience: float) -> None:
        super().__init__(name="blockers", daemon=True)
        self._watched = conn
        self._same = make_conninfo(
            conn.info.dsn,
            password=conn.info.password or None,
            application_name="redrive migrate blockers",
            connect_timeout=CONNECT_SECONDS,
        )

        self._patience = patience
        self._give_up_at = time.monotonic() + patience
        self._over = threading.Event()

        self._blocked_since = self._blocked_at = self._told_at = float("-inf")
        self._blocker: Blocker | None = None
        self.pid: int | None = None
        """Process id of the backend that migrates; behind a pooler it changes."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        self.join()

    @property
    def is_over(self) -> bool:
        """Return True if the patience has run out."""
        return time.monotonic() > self._give_up_at

    def gave_up(self) -> SchemaError:
        """Return the error of a migration that has waited for too long."""
        blocker = self._blocker or "another session"
        return SchemaError(
            f"gave up after {self._patience:.0f} s: {blocker} keeps a table of redrive"
            " locked, so the schema is not up to date yet; what was applied is kept. End"
            " that transaction, then run: redrive migrate"
        )

    def meaning(self, cancelled: psycopg.errors.QueryCanceled) -> Exception:
        """Return the error for a statement that we or another session cancelled."""
        if self.is_over:
            return self.gave_up()
        return cancelled

    # -------------------------------------------------------------- in its thread

    def run(self) -> None:
        """Check for blockers until the migration is over."""
        with (
            contextlib.suppress(psycopg.Error),
            psycopg.connect(
                self._same, autocommit=True, prepare_threshold=None
            ) as conn,
        ):
            while not self._over.wait(LOOK_SECONDS):
                if self.pid is not None:
                    self._look(conn, time.monotonic())

    def _look(self, conn: Connection, now: float) -> None:
        found = first_record(conn, Blocker, BLOCKERS, self.pid)

        if found is not None:
            self._blocked(found, now)
        if found is not None and self.is_over:
            # The build of an index waits within one statement.
            self._watched.cancel_safe(timeout=CONNECT_SECONDS)

    def _blocked(self, blocker: Blocker, now: float) -> None:
        """Note a blocker, and log it every TELL_SECONDS."""
        self._blocker = blocker
        if now - self._blocked_at > CALM_SECONDS:
            self._blocked_since = now

        self._blocked_at = now
        if now - max(self._blocked_since, self._told_at) >= TELL_SECONDS:
            self._told_at = now
            logger.warning("waiting for a lock", extra=blocker.fields())
