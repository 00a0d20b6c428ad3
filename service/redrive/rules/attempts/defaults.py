"""Retries by default: what happens to a job whose policy says nothing, by category.

docs/failures.md shows the effect for outages of different lengths, and a test checks
its table by simulation.
"""

from collections.abc import Mapping
from typing import NamedTuple

from redrive.rules.model import Category

HOUR = 3600.0
DAY = 24 * HOUR


class Retries(NamedTuple):
    """Default retries of a category. Durations are in seconds.

    `attempts` includes the first one. `window` None: only the attempts are limited.
    """

    attempts: int
    backoff: float = 30.0
    backoff_cap: float = HOUR
    window: float | None = None


PATIENT = Retries(attempts=100, window=2 * DAY)
"""For outages: about an hour after 8 attempts, then one attempt in 30 to 60 minutes.

The window ends after some 70 attempts. Only waits that the handler or the other side
asks for can be so short that the number of attempts ends the retries.
"""

COSTLY = Retries(attempts=10)
"""For attempts that took a slot for their whole timeout: two to three hours."""

UNKNOWN = Retries(attempts=5, backoff=60.0)
"""For failures that may be outages or bugs: 8 to 15 minutes.

The same failure three times in a row ends them after 1.5 to 3 minutes.
"""

ONE_RETRY = Retries(attempts=2)
"""For failures that time seldom repairs, such as a missing permission."""

NO_RETRY = Retries(attempts=1)
"""For failures that only a change repairs."""

DEFAULTS: Mapping[Category, Retries] = {
    Category.TRANSIENT: PATIENT,
    Category.THROTTLED: PATIENT,
    Category.LOST: COSTLY,
    Category.OTHER: UNKNOWN,
    Category.AUTH: ONE_RETRY,
    Category.MISSING: ONE_RETRY,
    Category.INVALID: NO_RETRY,
    Category.BUG: NO_RETRY,
}
