"""Sessions that were signed out.

A signed cookie stays valid by itself. So each database records the ended sessions, and
no replica accepts a copy of the cookie.
"""

import logging
from collections.abc import Iterable
from functools import partial

import psycopg

from redrive.database.ask import ask_all
from redrive.database.rows import Connection
from redrive.errors import SchemaError, SettingsError
from redrive.extras.console.security.logins import Logins
from redrive.verbs.refusal import Refused

PATIENCE_SECONDS = 3.0

logger = logging.getLogger("redrive.extras.console")


def is_ended(conn: Connection, session: str) -> bool:
    """Return True if the session was signed out; False for "", which is a program."""
    if not session:
        return False
    query = "select from redrive.ended_sessions where session = %s"
    return conn.execute(query, (session,)).rowcount > 0


def end(session: str, databases: Iterable[Logins]) -> bool:
    """End a session in each database; return True if all of them recorded it."""
    asked = {
        str(number): partial(_end, session, logins)
        for number, logins in enumerate(databases)
    }
    answers = ask_all(asked, PATIENCE_SECONDS)
    return all(answers.get(number) for number in asked)


def _end(session: str, logins: Logins) -> bool:
    try:
        with logins.changing(max(logins.roles)) as conn:
            conn.execute("select redrive.end_session_v1(%s)", (session,))
            if is_ended(conn, session):
                return True

            why = "too many sessions ended within a day"
    except (psycopg.Error, SchemaError, SettingsError, Refused) as error:
        why = type(error).__name__

    logger.warning("a session could not be ended", extra={"why": why})
    return False
