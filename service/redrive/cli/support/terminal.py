"""Interaction with a person at a terminal: questions and progress bars."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import click

if TYPE_CHECKING:
    from rich.progress import Progress


def is_watched() -> bool:
    """Return True if a person can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def confirm(question: str, word: str) -> bool:
    """Ask for a word; return True if it was typed, False without a terminal."""
    if not is_watched():
        return False

    text = f"{question} Type {word!r} to continue"
    answer = click.prompt(text, default="", show_default=False)
    return answer == word


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
