"""Links out of the console: to the trace of an attempt and the logs of a job."""

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
        if self.trace is None or not isinstance(trace_id, str):
            return None
        if not _TRACE.fullmatch(trace_id):
            return None
        return self.trace.replace("{trace_id}", trace_id)

    def to_logs(self, job: int) -> str | None:
        """Return the address of a job's log lines."""
        if self.logs is None:
            return None
        return self.logs.replace("{job_id}", str(job))


def _checked(variable: str, text: str | None, part: str) -> str | None:
    if text is None:
        return None
    if _is_address(text) and _PART.findall(text) == [part]:
        return text

    rule = f"must be an http or https address that contains {part} once"
    msg = f"{variable} {rule}, such as https://traces.example/trace/{part}"
    raise SettingsError(msg)


def _is_address(text: str) -> bool:
    if not text.isprintable() or " " in text:
        return False

    try:
        split = urlsplit(text)
        return split.scheme in {"http", "https"} and bool(split.hostname)
    except ValueError:
        return False
