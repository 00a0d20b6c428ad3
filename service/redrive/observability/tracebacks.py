"""A failure as a developer reads it: its traceback, from the record, which has no
locals.

What is shown of the source is scrubbed, as the record's texts are already.
"""

import linecache
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from redrive.rules.payloads.escape import escaped, escaped_lines
from redrive.rules.payloads.redact import scrub

DIM, RED, RESET = "\x1b[2m", "\x1b[31m", "\x1b[0m"
MAX_SOURCE = 200
"""Characters of a source line; a longer one was not written to be read."""


def traceback_lines(
    failure: Mapping[str, Any], secrets: Collection[str] = (), *, colours: bool = False
) -> Iterator[str]:
    """The lines of a failure's record: frames, outermost first, then what was raised,
    and why.

    Frames that are not the application's own are dimmed where there are colours.
    """
    detail = failure["detail"]
    for frame in detail.get("stack", ()):
        for line in _frame(frame, secrets):
            yield f"{DIM}{line}{RESET}" if colours and not frame["own"] else line
    raised = _said(failure)
    yield f"{RED}{raised}{RESET}" if colours else raised
    for cause in detail.get("causes", ()):
        yield f"because {_said(cause)}"


def _frame(frame: Mapping[str, Any], secrets: Collection[str]) -> Iterator[str]:
    yield escaped(
        f'  File "{frame["file"]}", line {frame["line"]}, in {frame["function"]}'
    )
    linecache.checkcache(frame["file"])  # it may have been edited since
    source = linecache.getline(frame["file"], frame["line"] or 0).strip()
    if source:
        yield escaped(f"    {scrub(source[:MAX_SOURCE], secrets)}")


def _said(error: Mapping[str, Any]) -> str:
    """Class and message; later lines of a message are indented: none passes for one of
    the log.
    """
    text = f"{error['error_class']}: {error['message']}"
    return escaped_lines(text.replace("\n", "\n    "))
