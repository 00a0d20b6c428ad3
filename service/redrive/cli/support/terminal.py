"""Interaction with a person at a terminal: streams, questions and progress bars."""

import codecs
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import click

from redrive.rules.payloads.escape import spelled_out

if TYPE_CHECKING:
    from rich.progress import Progress


SPELLED = "redrive.spelled"
"""Name of the error handler for characters that an encoding lacks."""

ASCII = "redrive_ascii"
"""Name of an encoding that is the same as ASCII."""

STAND_INS = dict(zip("▁▂▃▄▅▆▇█─━•…", "_.-:=+*#--*~", strict=True))
"""Characters of our tables and charts -> what an ASCII terminal shows, as wide as they."""


def prepare_streams() -> None:
    """Let the streams of this process exist, and print any text in any encoding."""
    # In this order, the descriptors 0, 1 and 2 stay what they are for.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # as with `redrive ... >&-`
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 # until the end

    codecs.register_error(SPELLED, _spelled)
    ascii_ = codecs.lookup("ascii")
    # click takes a stream of the name "ascii" for a mistake, and writes UTF-8 to it.
    renamed = codecs.CodecInfo(
        ascii_.encode,
        ascii_.decode,
        incrementalencoder=ascii_.incrementalencoder,
        incrementaldecoder=ascii_.incrementaldecoder,
        name=ASCII,
    )
    codecs.register({ASCII: renamed}.get)

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            is_ascii = codecs.lookup(stream.encoding).name == ascii_.name
            encoding = ASCII if is_ascii else stream.encoding
            stream.reconfigure(encoding=encoding, errors=SPELLED)


def _spelled(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error

    lacking = error.object[error.start : error.end]
    texts = [STAND_INS.get(each) or spelled_out(each) for each in lacking]

    return "".join(texts), error.end


def printed(text: str) -> str:
    """Return a text as stdout shows it."""
    encoding, errors = sys.stdout.encoding, sys.stdout.errors
    return (
        text.encode(encoding, errors or "strict").decode(encoding) if encoding else text
    )


def is_watched() -> bool:
    """Return True if a person can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def confirm(question: str, word: str) -> bool:
    """Ask for a word; return True if it was typed, False without a terminal."""
    if not is_watched():
        return False

    text = f"{question} Type {word!r} to continue"
    return click.prompt(text, default="", show_default=False) == word


class Advance(Protocol):
    """Callback that advances a progress bar and may change its title."""

    def __call__(self, n: int, /, title: str | None = None) -> None:
        """Advance by this number."""
        ...


def _unseen(_: int, /, title: str | None = None) -> None:
    """Advance nothing, because there is no terminal."""


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Advance]:
    """Show a progress bar on stderr; yield the callback that advances it.

    The bar has the speed and the remaining time.
    """
    if not sys.stderr.isatty():
        yield _unseen
        return

    with _bar() as bar:
        task = bar.add_task(title, total=total)

        def advance(n: int, /, title: str | None = None) -> None:
            bar.update(task, advance=n, description=title)

        yield advance


def _bar() -> "Progress":
    from rich import progress as bars  # noqa: PLC0415 # only for people
    from rich.console import Console  # noqa: PLC0415 # as above
    from rich.text import Text  # noqa: PLC0415 # as above

    class Speed(bars.ProgressColumn):
        def render(self, task: bars.Task) -> Text:
            return Text(f"{task.speed:.3g}/s" if task.speed else "")

    return bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(bar_width=None),
        bars.MofNCompleteColumn(),
        Speed(),
        bars.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
