"""State of the process that the runner keeps for itself, whatever handlers do to it.

Import this before the application is loaded. A handler may replace functions of `time`,
seed `random`, or break the configuration of `logging`.
"""

import contextlib
import logging
import os
import random as standard_random
import time

logger = logging.getLogger("redrive.runner")

random = standard_random.Random()
end_process = os._exit


class clock:  # noqa: N801 # it stands for the module `time`
    """Clocks of the system. Tools that freeze time replace names in modules only."""

    monotonic = staticmethod(time.monotonic)
    monotonic_ns = staticmethod(time.monotonic_ns)
    sleep = staticmethod(time.sleep)
    time = staticmethod(time.time)  # the last one: it hides the module


def warn(text: str, *arguments: object, **extra: object) -> None:
    """Log a warning. A handler or filter of the application that raises is ignored."""
    logger.disabled = False  # a new configuration disables the loggers it does not name
    with contextlib.suppress(Exception):
        logger.warning(text, *arguments, extra=extra)
