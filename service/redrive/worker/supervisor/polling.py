"""Times of polling.

Soon after activity, rarely when idle, at once when there is a reason to expect some.
What wakes one worker wakes all of them, and one of them gets the job: so whoever has
    found too little rests, for
longer the more workers there are, and all together look as often as two of them would.
"""

MIN_SECONDS, MAX_SECONDS = 0.005, 1.0
"""Between two polls without a reason."""

SOONEST_SECONDS, JOBS_OF_A_POLL = 0.002, 100
"""As soon as this where jobs come so fast that a poll would find so many: they pay for
it.
"""

IDLE_SHARE = 0.2
"""The interval between two polls, as a share of the time since something happened."""

TURN_SECONDS = 0.0025
"""Of the rest after a look that found too little, for each other worker."""

BUSY_LANE_SECONDS, MAX_BUSY_LANE_SECONDS = 0.001, 0.025
"""Until a lane is tried again that somebody else was claiming from, for each other
worker.
"""

LEARNING = 0.3
"""Weight of a look that took longer than was believed."""

PATIENCE_MS = 50
"""How long a worker that has no job waits for its turn in a lane: its loop stands
still.
"""

JUST_AFTER_SECONDS = 0.001
"""Past the instant at which a job is due: one that is asked for too early is not
found.
"""


def rest_seconds(others: int, look: float = 0.0) -> float:
    """Return how long a worker with this many others rests on average.

    `look`: seconds that one takes which finds nothing. Where that is long there is no
        processor to
    spare, and one of all of them at a time is enough.
    """
    return min(MAX_SECONDS, max(TURN_SECONDS, look) * others)


def least_seconds(found: int, seconds: float) -> float:
    """Between two polls, where the last one found so many jobs, of so many seconds."""
    until_enough = JOBS_OF_A_POLL * seconds / max(1, found)
    return max(SOONEST_SECONDS, min(MIN_SECONDS, until_enough))


class Polling:
    """The next poll of one worker. Instants are monotonic seconds.

    `others`: how many workers look for the same jobs; any thread may set it.
    """

    def __init__(self, now: float) -> None:
        self.others = 0
        self._due_at = 0.0
        self._rests_until = 0.0
        self._lanes_due_at = float("inf")
        self._active_at = now
        self._polled_at = now
        self._least_seconds = MIN_SECONDS
        self._look_seconds = 0.0
        self._expects_more = True
        self._was_notified = False

    @property
    def expects_more(self) -> bool:
        """True if more jobs were likely to wait than the last claim took."""
        return self._expects_more

    @property
    def was_notified(self) -> bool:
        """True if the database has announced jobs since the last look."""
        return self._was_notified

    def due_at(self) -> float:
        """Return when to poll; 0.0 = at once."""
        if self._expects_more:
            return 0.0
        return (
            min(self._due_at, self._rests_until) if self._was_notified else self._due_at
        )

    def is_due(self, now: float) -> bool:
        """Return True if it is time to poll."""
        return now >= self.due_at()

    def notified(self, now: float) -> bool:
        """The database says that jobs were enqueued. Any thread may call.

        Returns whether the next poll comes sooner for it.
        """
        due_at = self.due_at()
        self._was_notified = True
        self._active_at = now
        return self.due_at() < due_at

    def looked(self) -> None:
        """Everything that was notified until now is about to be looked for."""
        self._was_notified = False

    def expect_more(self) -> None:
        """Jobs are likely to wait."""
        self._expects_more = True

    def retry_soon(self) -> None:
        """The last poll came to nothing: what it was for still stands."""
        self._due_at = 0.0

    def job_due(self, at: float) -> None:
        """One of our jobs will be due at this instant."""
        self.no_later_than(at + JUST_AFTER_SECONDS)

    def no_later_than(self, at: float) -> None:
        """Poll by then."""
        self._due_at = min(self._due_at, at)

    def lanes_due(self, at: float | None) -> None:
        """The next job of any lane is due at this instant; None when there is none."""
        self._lanes_due_at = float("inf") if at is None else at

    def claimed(self, count: int, want: int, now: float, chance: float) -> None:
        """A claim of `want` jobs took `count`. `chance`: 0 to 1, spreads the polls of
        workers.
        """
        if count:
            self._active_at = now
        self._least_seconds = least_seconds(count, now - self._polled_at)
        self._polled_at = now
        self._expects_more = count == want
        if not self._expects_more:
            self.found_nothing(now, chance)

    def took(self, seconds: float) -> None:
        """A look that found nothing took so long: less is believed at once, more by and
        by.
        """
        more = self._look_seconds + LEARNING * (seconds - self._look_seconds)
        self._look_seconds = min(seconds, more)

    def found_nothing(self, now: float, chance: float) -> None:
        """There is nothing more to be had for now."""
        self._expects_more = False
        idle_seconds = now - self._active_at
        interval = min(MAX_SECONDS, max(self._least_seconds, idle_seconds * IDLE_SHARE))
        rest = rest_seconds(self.others, self._look_seconds)
        self._rests_until = now + rest * (0.5 + chance)
        self._due_at = max(self._rests_until, now + interval * (0.8 + 0.4 * chance))
        if self._lanes_due_at > now:
            self.no_later_than(
                max(self._rests_until, self._lanes_due_at + JUST_AFTER_SECONDS)
            )

    def was_busy(self, now: float, chance: float) -> None:
        """Somebody else was claiming there, and may have left something."""
        seconds = BUSY_LANE_SECONDS * max(1, self.others)
        self.no_later_than(now + min(MAX_BUSY_LANE_SECONDS, seconds) * (0.5 + chance))
