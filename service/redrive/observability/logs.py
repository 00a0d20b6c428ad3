"""The log: JSON lines for machines, short lines for people; no payloads, no failure messages."""

import logging
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

from redrive.rules.escape import escaped, escaped_lines

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {k: v for k, v in vars(record).items() if k not in _STANDARD and v is not None}


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, event, and the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        line |= _fields(record)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return escaped(msgspec.json.encode(line, enc_hook=str).decode())


class ConsoleFormatter(logging.Formatter):
    """Time, level, event, fields."""

    default_time_format = "%H:%M:%S"
    default_msec_format = "%s.%03d"

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; an exception's follow it."""
        at = self.formatTime(record)  # by the reader's own clock
        fields = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        event = f"{at} {record.levelname.lower():7} {record.getMessage()} {fields}"
        line = escaped(event.rstrip())
        if not record.exc_info:
            return line
        return f"{line}\n{escaped_lines(self.formatException(record.exc_info))}"


def set_up(log_format: str | None, level: str) -> None:
    """Log to stderr from now on."""
    handler = logging.StreamHandler(sys.stderr)
    chosen = log_format or ("console" if sys.stderr.isatty() else "json")
    handler.setFormatter(ConsoleFormatter() if chosen == "console" else JsonFormatter())
    root = logging.getLogger("redrive")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False
