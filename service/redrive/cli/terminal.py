"""What a command does only while somebody watches: ask, and show how far it is."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click


def is_watched() -> bool:
    """Whether somebody is there to be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def confirm(question: str, word: str) -> bool:
    """Whether the word was typed at a terminal. Without a terminal, no."""
    if not is_watched():
        return False
    typed = click.prompt(f"{question} Type {word!r} to go on", default="", show_default=False)
    return typed == word


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr; yields what advances it."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich import progress as bars  # noqa: PLC0415 # only where people look
    from rich.console import Console  # noqa: PLC0415 # as above

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda n: bar.advance(task, n)
