"""Children that handlers make with `os.fork`: they must not become second runners."""

import contextlib
import os
import signal
import threading
import traceback
from collections.abc import Callable

from redrive.worker.run.own import end_process

SIGNALS = (signal.SIGINT, signal.SIGTERM)

_is_child = False


def ignore_signals() -> None:
    """Leave it to the supervisor to drain; a terminal sends Ctrl-C to both.

    A function that does nothing is not inherited by programs that handlers start, as
    SIG_IGN would be. So `terminate()` ends them.
    """
    for number in SIGNALS:
        signal.signal(number, _ignore)


def _ignore(_number: int, _frame: object) -> None:
    pass


def watch_forks(let_go: Callable[[], None]) -> None:
    """From now on, make ordinary processes of children.

    `let_go` is called in each child: it closes what belongs to the runner alone.
    """
    of_thread = threading.local()

    def hold_back() -> None:
        # Until it is ordinary, a child would ignore a SIGTERM, which its parent may
        # send at once.
        of_thread.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def let_through() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, of_thread.mask)

    def become_ordinary() -> None:
        global _is_child  # noqa: PLW0603 # a fact about the process
        _is_child = True
        for number, usual in zip(
            SIGNALS, (signal.default_int_handler, signal.SIG_DFL), strict=True
        ):
            if signal.getsignal(number) is _ignore:
                signal.signal(number, usual)

        try:
            let_go()
        finally:
            let_through()

    os.register_at_fork(
        before=hold_back, after_in_parent=let_through, after_in_child=become_ordinary
    )


def end_if_child(error: BaseException | None = None) -> None:
    """End this process if it is a child: its handler has returned, or has failed."""
    if not _is_child:
        return

    if error is not None:
        with contextlib.suppress(BaseException):  # a handler may have replaced `print`
            traceback.print_exception(error)
    end_process(0 if error is None else 1)
