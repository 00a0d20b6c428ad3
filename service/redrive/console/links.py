"""Links out of the console: to the trace of an attempt, and to the log lines of a
job.
"""

import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from redrive.errors import SettingsError

_PART = re.compile(r"\{[^{}]*\}")
_TRACE = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Links:
    """Address templates with the placeholders {trace_id} and {job_id}."""

    trace: str | None = None
    logs: str | None = None

    @classmethod
    def read(cls, trace: str | None, logs: str | None) -> Self:
        """Build the links from the settings.

        Raises:
            SettingsError: a template is not an address, or lacks its placeholder.
        """
        return cls(
            _checked("REDRIVE_CONSOLE_TRACE_URL", trace, "{trace_id}"),
            _checked("REDRIVE_CONSOLE_LOGS_URL", logs, "{job_id}"),
        )

    def to_trace(self, trace_id: object) -> str | None:
        """Return the address of a trace; None if the id is not a trace id."""
        is_one = isinstance(trace_id, str) and _TRACE.fullmatch(trace_id)
        return (
            self.trace.replace("{trace_id}", str(trace_id))
            if self.trace and is_one
            else None
        )

    def to_logs(self, job: int) -> str | None:
        """Return the address of a job's log lines."""
        return self.logs and self.logs.replace("{job_id}", str(job))


def _checked(variable: str, text: str | None, part: str) -> str | None:
    if text is None:
        return None
    try:
        split = urlsplit(text)
        is_address = split.scheme in {"http", "https"} and bool(split.hostname)
    except ValueError:
        is_address = False
    if (
        is_address
        and text.isprintable()
        and " " not in text
        and _PART.findall(text) == [part]
    ):
        return text
    example = f"https://traces.example/trace/{part}"
    msg = f"{variable} is no address of http or https with {part} in it, once; write {example}"
    raise SettingsError(msg)
