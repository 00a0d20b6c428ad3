"""Circumstances of an earlier attempt, restored in this process."""

import contextlib
import importlib.util
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from redrive.errors import SettingsError

NO_CLOCK = "a time in the past needs time-machine: pip install 'redrive[replay]'"


@dataclass(frozen=True, slots=True)
class Past:
    """Circumstances of an earlier attempt, for `run(..., past=Past(...))`.

    Attributes:
        time: when the attempt began. The clock starts there and runs on. This needs the
            extra `replay`.
        seed: of `job.random` and of the module `random`.
        attempt: the number of the attempt, from 1.
        headers: as enqueued.
        checkpoint: the data that an earlier attempt gave to `job.checkpoint`.
    """

    time: datetime | None = None
    seed: str | None = None
    attempt: int = 1
    headers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    checkpoint: Mapping[str, Any] | None = None

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Set the clock back and seed `random`, until the block ends.

        Raises:
            SettingsError: there is a time, and the extra is not installed.
        """
        state = random.getstate()
        with clock_at(self.time):
            if self.seed is not None:
                random.seed(self.seed)

            try:
                yield
            finally:
                random.setstate(state)


def can_set_clock() -> bool:
    """Return True if the package that sets the clock back is installed."""
    return importlib.util.find_spec("time_machine") is not None


def clock_at(time: datetime | None) -> contextlib.AbstractContextManager[Any]:
    """Set this process's clock to a time; it runs on. None changes nothing.

    Raises:
        SettingsError: the extra is not installed.
    """
    if time is None:
        return contextlib.nullcontext()
    if not can_set_clock():
        raise SettingsError(NO_CLOCK)

    import time_machine  # noqa: PLC0415 # an extra

    return time_machine.travel(time, tick=True)
