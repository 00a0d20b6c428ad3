"""Traceback of a failure from its record, which has no local variables.

Secrets are removed from source lines, as from the record's texts.
"""

import linecache
from collections.abc import Collection, Iterator

from redrive.rules.payloads.escape import escaped, escaped_lines
from redrive.rules.payloads.redact import scrub
from redrive.rules.rows import Fields

DIM, RED, RESET = "\x1b[2m", "\x1b[31m", "\x1b[0m"
MAX_SOURCE = 200
"""Maximum length of a shown source line."""


def traceback_lines(
    failure: Fields, secrets: Collection[str] = (), *, colours: bool = False
) -> Iterator[str]:
    """Yield the lines of a failure's record: frames, the exception and its causes.

    The outermost frame comes first. With `colours`, frames of libraries are dimmed.
    """
    detail = failure["detail"]
    for frame in detail.get("stack", ()):
        is_dimmed = colours and not frame["own"]

        for line in _frame(frame, secrets):
            yield f"{DIM}{line}{RESET}" if is_dimmed else line

    raised = _summary(failure)
    yield f"{RED}{raised}{RESET}" if colours else raised

    for cause in detail.get("causes", ()):
        yield f"because {_summary(cause)}"


def _frame(frame: Fields, secrets: Collection[str]) -> Iterator[str]:
    file = frame["file"]
    line = frame["line"]
    yield escaped(f'  File "{file}", line {line}, in {frame["function"]}')

    linecache.checkcache(file)  # it may have been edited since
    source = linecache.getline(file, line or 0).strip()
    if source:
        shown = scrub(source[:MAX_SOURCE], secrets)
        yield escaped(f"    {shown}")


def _summary(error: Fields) -> str:
    """Return class and message.

    Later lines of a message are indented, so that none looks like a log line.
    """
    text = f"{error['error_class']}: {error['message']}"
    return escaped_lines(text.replace("\n", "\n    "))
