"""The program `redrive`, also as `python -m redrive`."""

import gc
import signal
import sys
from types import FrameType

# Ctrl-C during the imports ends the process at once, without a traceback.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from redrive.cli import main  # after the signal
from redrive.cli.support.terminal import prepare_streams  # as above


def run() -> int:
    """Run the command of this process, and return its exit code."""
    prepare_streams()
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.unraisablehook = _interrupt_again

    code = main()
    gc.freeze()  # these objects live until exit, so collections can skip them
    return code


def _interrupt_again(unraisable: "sys.UnraisableHookArgs") -> None:
    """Repeat a Ctrl-C that came where Python drops exceptions, such as a callback.

    Not at once, because Python would drop it in this function, too.
    """
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        signal.signal(signal.SIGALRM, _interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.5, 0.5)
    else:
        sys.__unraisablehook__(unraisable)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, or leave it to the next alarm while Python would drop it."""
    caller = frame
    while caller is not None:
        if caller.f_code is _interrupt_again.__code__:
            return
        caller = caller.f_back

    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.default_int_handler(number, frame)


if __name__ == "__main__":
    sys.exit(run())
