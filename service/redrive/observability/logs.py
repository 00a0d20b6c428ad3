"""Log lines without payloads and secrets: JSON for machines, short lines for people.

The text of an error is the stored one: bounded, and without secrets and values of rows
and fields. People also get the traceback. A JSON line has the class, message and
fingerprint of a failure. `redrive dlq show` and `redrive job show` find the rest.
"""

import logging
import os
import sys
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from redrive.observability.tracebacks import DIM, RESET, traceback_lines
from redrive.rules.attempts.failure import describe
from redrive.rules.payloads.escape import escaped
from redrive.rules.payloads.redact import secrets_of_environment

FAILURE = "failure"
"""Name of the extra that holds a failure's record.

JSON lines have some of its fields, lines for people its traceback.
"""

MAX_MESSAGE = 500
"""Maximum length of a failure's message in a JSON line."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
}
_COLOURS = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m"}


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(record).items()
        if name not in _STANDARD and name != FAILURE and value is not None
    }


def _event(record: logging.LogRecord) -> str:
    """Return level, event and fields, without the line's end."""
    level = record.levelname.lower()
    event = record.getMessage()
    fields = [f"{name}={value}" for name, value in _fields(record).items()]

    return " ".join((f"{level:7}", event, *fields)).rstrip()


class _Formatter(logging.Formatter):
    """Formatter that removes `secrets`; `colours`: True if the terminal has colours."""

    def __init__(self, secrets: Collection[str] = (), *, colours: bool = False) -> None:
        super().__init__()
        self._secrets = secrets
        self._colours = colours

    def _traceback(self, record: logging.LogRecord) -> Iterator[str]:
        """Yield the lines of a record's exception or failure."""
        failure = getattr(record, FAILURE, None)
        # Outside of an exception handler, the tuple holds None.
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            failure = describe(error, record.name, secrets=self._secrets).record()

        if failure is not None:
            yield from traceback_lines(failure, self._secrets, colours=self._colours)


class JsonFormatter(_Formatter):
    """One JSON object per line: time, level, logger, event, and the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        line |= _fields(record)

        failure = getattr(record, FAILURE, None)
        if failure is not None:
            line |= {
                "error_class": failure["error_class"],
                "message": failure["message"][:MAX_MESSAGE],
                "fingerprint": failure["fingerprint"],
            }
        if record.exc_info:
            line["exception"] = "\n".join(self._traceback(record))

        return escaped(msgspec.json.encode(line, enc_hook=str).decode())


class ConsoleFormatter(_Formatter):
    """Line with time, level, event and fields, and then the traceback."""

    default_time_format = "%H:%M:%S"
    default_msec_format = "%s.%03d"

    def format(self, record: logging.LogRecord) -> str:
        """Return the line and the lines of its traceback."""
        at = self.formatTime(record)  # by the reader's own clock
        event = escaped(_event(record))
        if self._colours:
            colour = _COLOURS.get(record.levelno, "")
            at = f"{DIM}{at}{RESET}"
            event = f"{colour}{event}{RESET}"

        return "\n".join((f"{at} {event}", *self._traceback(record)))


def set_up(log_format: str | None, level: str) -> None:
    """Log to stderr from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter(log_format))

    root = logging.getLogger("redrive")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False


def _formatter(log_format: str | None) -> logging.Formatter:
    """Return the formatter of this name; by default it depends on stderr."""
    chosen = log_format or ("console" if sys.stderr.isatty() else "json")
    secrets = secrets_of_environment(os.environ)
    if chosen == "console":
        # no-color.org
        is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        return ConsoleFormatter(secrets, colours=(sys.stderr.isatty() and not is_plain))

    return JsonFormatter(secrets)
