"""Work in a child process, so that its imports do not stay in this one."""

import multiprocessing
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TypeVar

T = TypeVar("T")


def in_child(work: Callable[[], T]) -> T:
    """Run `work` in a copy of this process; return or raise its result.

    The result and the error must be picklable. If this process has other threads,
    `work` runs here, because a copy could find their locks taken forever. It also runs
    here if the copy was killed.
    """
    if threading.active_count() > 1:
        return work()

    try:
        answer, error = _in_copy(work)
    except EOFError:  # the copy was killed
        return work()

    if error is not None:
        raise error

    return answer


def _in_copy(work: Callable[[], T]) -> tuple[T, BaseException | None]:
    """Return the result and the error; raise EOFError if the copy was killed."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    child = context.Process(target=_answer, args=(work, theirs))
    child.start()
    theirs.close()  # so that we notice any end of the child

    try:
        with ours:
            return ours.recv()
    finally:
        child.join()


def _answer(work: Callable[[], object], to: Connection) -> None:
    try:
        answer = work(), None
    except BaseException as error:  # noqa: BLE001 # the parent raises it
        answer = None, error

    to.send(answer)
