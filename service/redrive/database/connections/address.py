"""Address of the database, and logins that the server refuses."""

import contextlib
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from redrive.database.connections.connect import OwnConnection, connect
from redrive.database.connections.refusals import Refusals, is_refusal
from redrive.errors import SettingsError

_BLANKS = " \t\r\n\ufeff"
"""Characters that editors and shells add around a URL: also a byte order mark."""

_UNKNOWN = re.compile(r'(?:query parameter|connection option).*"(\w+)"')
_DRIVER = re.compile(r"postgres(?:ql)?(\+\w+)://")
"""First part of a URL of SQLAlchemy."""

URL_RULE = "it must be a Postgres URL, e.g. postgresql://user@host/database"

_refusals = Refusals()
"""Refused logins of this process."""


@dataclass(frozen=True, slots=True)
class Address:
    """Address of the database: a URL, or a file that holds one.

    The file is read again for each connection. If its password changes, as with a
    Secret in a pod, no restart is needed.
    """

    url: str = field(default="", repr=False)
    file: Path | None = None
    variable: str = "REDRIVE_DATABASE_URL"
    """Source of the URL as errors name it: a variable, a field or an option."""
    role: str | None = None
    """Role for SET ROLE. It limits the session to the rights of that role."""

    def connect(self, name: str, **settings: str) -> OwnConnection:
        """Open a connection.

        Args:
            name: its application_name.
            settings: settings of each transaction, besides the usual ones.

        Raises:
            SettingsError: the URL cannot be read or parsed.
            psycopg.OperationalError: the server is out of reach or refuses the login.
                It is also raised without asking the server, if the server has just
                refused this login to any connection of this process.
        """
        url = self.read()
        origin = (self.file, self.url)
        _refusals.check(origin, url)

        try:
            conn = connect(url, name=name, **settings, **self.role_setting())
        except psycopg.OperationalError as error:
            if is_refusal(error):
                _refusals.refused(origin, url, error)

            raise

        _refusals.accepted(origin)
        return conn

    def role_setting(self) -> dict[str, str]:
        """Return the settings that begin each transaction because of the role."""
        if self.role:
            return {"role": self.role}
        return {}

    def read(self) -> str:
        """Return the URL or conninfo.

        Raises:
            SettingsError: the URL cannot be read or parsed. The text does not repeat
                it, because it may hold a password.
        """
        if self.file is None:
            return _checked(self.url.strip(), self.variable)

        # The name is a variable, or a field in the file of cells.
        suffix = "_FILE" if self.variable.isupper() else "_file"
        name = f"{self.variable}{suffix} is {self.file}; it"

        return _checked(_text_of(self.file, name), name)

    def origin(self) -> str:
        """Return where the URL comes from, and when it last changed."""
        if self.file is None:
            return f"the URL is {self.variable}, which only a restart changes"

        with contextlib.suppress(OSError):
            changed_at = datetime.fromtimestamp(self.file.stat().st_mtime, UTC)
            return (
                f"the URL is in {self.file}, written {changed_at:%Y-%m-%dT%H:%M:%SZ}"
                " and read again at each try"
            )

        return f"the URL is in {self.file}, which is gone"


def _text_of(file: Path, name: str) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        why = error.strerror
    except UnicodeDecodeError:
        why = "it is not text"

    msg = f"{name} cannot be read: {why}"
    raise SettingsError(msg)


def _checked(url: str, name: str) -> str:
    url = url.strip(_BLANKS)
    if not url:
        msg = f"{name} is empty; {URL_RULE}"
        raise SettingsError(msg)

    try:
        conninfo_to_dict(url)
    except psycopg.Error as error:
        # The library's error is not chained, because it may quote the URL.
        msg = f"{name} {_fault(url, str(error))}; {URL_RULE}"
        raise SettingsError(msg) from None

    return url


def _fault(url: str, error: str) -> str:
    unknown = _UNKNOWN.search(error)
    # An unescaped character may have made a parameter of a password's end.
    if unknown and "password" not in url:
        return f"has the parameter {unknown[1]!r}, which libpq does not know; remove it"

    driver = _DRIVER.match(url)
    if driver:
        return f"begins with {driver[0]!r}; remove {driver[1]!r}"

    return "does not parse"


class CannotLogIn(psycopg.OperationalError):
    """The server refused the login, or the file with the URL cannot be read.

    This error's text may be shown: it holds no address, user or password.
    """

    def __init__(self, why: str, sqlstate: str | None = None) -> None:
        super().__init__(why)
        self.sqlstate = sqlstate
