"""Lines of source around the frames of a failure that are the application's own code.

The worker keeps them with the failure, because a console has no copy of the code that
failed. Secrets are removed from them, as from the record's other texts.
"""

import linecache
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from textwrap import dedent
from typing import Any

from redrive.rules.attempts.failure import clean
from redrive.rules.model import Failure
from redrive.rules.payloads.redact import HIDDEN, scrub

MAX_SOURCE_LINE = 200
MAX_SOURCE_BYTES = 8_192
"""Bounds of the source of a failure: characters of a line, and bytes of all frames
together. The innermost frames come first.
"""
AROUND = 20
"""More lines that are read with them: a secret may begin or be named there."""


def with_source(failure: Failure, lines: int, secrets: Collection[str]) -> Failure:
    """Return a failure whose own frames have `source` and its `first_line`.

    Args:
        lines: of each frame; 0 = none.
    """
    if not lines:
        return failure

    left = MAX_SOURCE_BYTES
    detail = dict(failure.detail)
    causes = [dict(cause) for cause in detail.get("causes", ())]
    if causes:
        detail["causes"] = causes

    for holder in (detail, *causes):
        found: list[dict[str, Any]] = []
        for frame in reversed(holder.get("stack", ())):
            if frame["own"] and left > 0:
                first, known = _around(frame["file"], frame["line"] or 0, lines)
                source = _scrubbed(known, secrets)
                left -= len("".join(source).encode())
                if source and left >= 0:
                    frame = {**frame, "first_line": first, "source": source}  # noqa: PLW2901 # the same frame, with its source
            found.append(frame)
        if found:
            holder["stack"] = found[::-1]

    return replace(failure, detail=detail)


@lru_cache(1_024)
def _around(file: str, line: int, most: int) -> tuple[int, Sequence[str]]:
    """Return the number of the first line around a line, and the lines.

    Secrets by their form are hidden in them. The lines are read at the first failure
    there, because the file may change while this process runs the old code.
    """
    whole = linecache.getlines(file) if file.endswith(".py") else []
    if not 1 <= line <= len(whole):
        return 0, ()

    first = max(line - 1 - most // 2, 0)
    last = first + most
    start = max(first - AROUND, 0)
    read = [
        clean(text.rstrip().expandtabs(4), MAX_SOURCE_LINE)
        for text in whole[start : last + AROUND]
    ]
    shown = _scrubbed(read, ())[first - start : last - start]

    return first + 1, dedent("\n".join(shown)).rstrip().split("\n")


def _scrubbed(lines: Sequence[str], secrets: Collection[str]) -> Sequence[str]:
    """Return lines without secrets, also without secrets of several lines."""
    shown = scrub("\n".join(lines), secrets).split("\n")
    if len(shown) == len(lines):
        return shown

    # Lines became one. Hide all from the first to the last that differs.
    pairs = list(zip(lines, shown, strict=False))
    same = next((n for n, (one, other) in enumerate(pairs) if one != other), len(pairs))
    pairs = list(zip(lines[same:][::-1], shown[same:][::-1], strict=False))
    rest = next((n for n, (one, other) in enumerate(pairs) if one != other), len(pairs))
    hidden = [HIDDEN] * (len(lines) - same - rest)

    return [*lines[:same], *hidden, *lines[len(lines) - rest :]]
