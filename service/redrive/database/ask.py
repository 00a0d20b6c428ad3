"""Ask several databases at once."""

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import psycopg

from redrive.errors import RedriveError

T = TypeVar("T")


def outcomes(
    cells: Mapping[str, Callable[[], T]], seconds: float
) -> tuple[dict[str, T], dict[str, Exception]]:
    """Ask all cells at once; return the answers, and the errors of the other cells.

    Args:
        cells: name of a cell -> function that asks it, in a thread of its own.
        seconds: time after which a cell without an answer counts as out of reach.

    Raises:
        Exception: an error of a cell that is neither the database's nor ours.
    """
    asked = {cell: partial(_outcome, answer) for cell, answer in cells.items()}
    found = ask_all(asked, seconds)
    late = psycopg.OperationalError(f"it has not answered within {seconds:g} s")

    answers: dict[str, T] = {}
    errors: dict[str, Exception] = {}

    for cell in cells:
        match found.get(cell, late):
            case psycopg.Error() | RedriveError() as error:
                errors[cell] = error
            case Exception() as error:
                raise error
            case answer:
                answers[cell] = answer

    return answers, errors


def _outcome(answer: Callable[[], T]) -> T | Exception:
    try:
        return answer()
    except Exception as error:  # noqa: BLE001 # judged in the thread of the caller
        return error


def ask_all(cells: Mapping[str, Callable[[], T]], seconds: float) -> dict[str, T]:
    """Ask all cells at once and return the answers that came in time.

    Args:
        cells: name of a cell -> function that asks it. It must not raise.
        seconds: time for all answers together.
    """
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

    # A late thread may still add its answer to the original.
    return answers.copy()
