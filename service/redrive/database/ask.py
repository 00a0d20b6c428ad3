"""Ask several databases at once."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")


def ask_all(cells: Mapping[str, Callable[[], T]], seconds: float) -> dict[str, T]:
    """Ask all cells at once and return the answers that came in time."""
    answers: dict[str, T] = {}

    def ask(cell: str, answer: Callable[[], T]) -> None:
        answers[cell] = answer()

    def thread(asked: tuple[str, Callable[[], T]]) -> threading.Thread:
        return threading.Thread(target=ask, args=asked, name="cell", daemon=True)

    threads = list(map(thread, cells.items()))
    deadline = time.monotonic() + seconds
    for one in threads:
        one.start()

    for one in threads:
        one.join(max(0.0, deadline - time.monotonic()))

    return answers.copy()
