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

    threads = [
        threading.Thread(target=ask, args=one, name="cell", daemon=True)
        for one in cells.items()
    ]
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return answers.copy()
