"""When to ask the database for jobs.

Soon after activity, rarely when idle, at once when there is a reason to expect some. What wakes one
worker wakes all of them, and one of them gets the job: so whoever has found too little rests, for
longer the more workers there are, and all together look as often as two of them would.
"""

MIN_SECONDS, MAX_SECONDS = 0.005, 1.0
"""Between two polls without a reason."""

IDLE_SHARE = 0.2
"""The interval between two polls, as a share of the time since something happened."""

TURN_SECONDS = 0.0025
"""Of the rest after a look that found too little, for each other worker."""

BUSY_LANE_SECONDS, MAX_BUSY_LANE_SECONDS = 0.001, 0.025
"""Until a lane is tried again that somebody else was claiming from, for each other worker."""

JUST_AFTER_SECONDS = 0.001
"""Past the instant at which a job is due: one that is asked for too early is not found."""


def rest_seconds(others: int) -> float:
    """How long a worker rests that has so many others beside it, on average."""
    return min(MAX_SECONDS, TURN_SECONDS * others)


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
        self._expects_more = True
        self._was_notified = False

    @property
    def expects_more(self) -> bool:
        """Whether more jobs were likely to wait than the last claim took."""
        return self._expects_more

    @property
    def was_notified(self) -> bool:
        """Whether the database has said that jobs were enqueued, since somebody looked."""
        return self._was_notified

    def due_at(self) -> float:
        """When to poll; 0.0 at once."""
        if self._expects_more:
            return 0.0
        return min(self._due_at, self._rests_until) if self._was_notified else self._due_at

    def is_due(self, now: float) -> bool:
        """Whether to poll now."""
        return now >= self.due_at()

    def notified(self, now: float) -> None:
        """The database says that jobs were enqueued. Any thread may call."""
        self._was_notified = True
        self._active_at = now

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
        """A claim of `want` jobs took `count`. `chance`: 0 to 1, spreads the polls of workers."""
        if count:
            self._active_at = now
        self._expects_more = count == want
        if not self._expects_more:
            self.found_nothing(now, chance)

    def found_nothing(self, now: float, chance: float) -> None:
        """There is nothing more to be had for now."""
        self._expects_more = False
        idle_seconds = now - self._active_at
        interval = min(MAX_SECONDS, max(MIN_SECONDS, idle_seconds * IDLE_SHARE))
        self._rests_until = now + rest_seconds(self.others) * (0.5 + chance)
        self._due_at = max(self._rests_until, now + interval * (0.8 + 0.4 * chance))
        if self._lanes_due_at > now:
            self.no_later_than(max(self._rests_until, self._lanes_due_at + JUST_AFTER_SECONDS))

    def was_busy(self, now: float, chance: float) -> None:
        """Somebody else was claiming there, and may have left something."""
        seconds = BUSY_LANE_SECONDS * max(1, self.others)
        self.no_later_than(now + min(MAX_BUSY_LANE_SECONDS, seconds) * (0.5 + chance))
