"""Times of polling: soon after activity, rarely when idle, at once for a reason.

A notification wakes all workers, and one of them gets the job. So a worker that found
too little rests. It rests longer the more workers there are: all together poll as often
as two of them would.
"""

MIN_SECONDS, MAX_SECONDS, MAX_LARGE_SECONDS = 0.005, 5.0, 15.0
"""Limits of the interval between two polls without a reason; the last with many workers.

Notifications are the usual reason. Polls only find what no notification announced.
"""

MANY_WORKERS = 100
"""Other workers from which on each polls and beats less often."""

DEAF_SECONDS, DEAF_TURN_SECONDS = 1.0, 0.05
"""Longest interval of a worker that hears no notification: alone, and for each other one.

Together, 20 or more of them poll 20 times a second.
"""

SOONEST_SECONDS, JOBS_OF_A_POLL = 0.002, 100
"""Shortest interval, if jobs arrive so fast that each poll finds JOBS_OF_A_POLL."""

IDLE_SHARE = 0.2
"""Interval between two polls, as a share of the time since the last activity."""

TURN_SECONDS = 0.0025
"""Rest after a poll that found too little, for each other worker."""

BUSY_LANE_SECONDS, MAX_BUSY_LANE_SECONDS = 0.001, 0.025
"""Delay before retrying a lane that another worker uses, for each other worker."""

BUSY_TURN_SHARE, MAX_BUSY_TURN_SECONDS = 0.25, 0.1
"""The same delay as a share of the worker's last turn, if that is longer."""

LEARNING = 0.3
"""Weight of a poll that took longer than expected."""

LANE_WAIT_MS, MAX_LANE_WAIT_MS = 50, 900
"""How long a claim of an idle worker may wait for its turn, at least and at most.

Its loop stands still meanwhile. The longest wait is shorter than deadlock_timeout.
"""

JUST_AFTER_SECONDS = 0.001
"""Delay after the instant at which a job is due: an earlier claim does not find it."""


def longest_seconds(others: int, *, is_deaf: bool = False) -> float:
    """Return the longest interval between two polls of a worker with this many others."""
    if is_deaf:
        return min(MAX_LARGE_SECONDS, max(DEAF_SECONDS, DEAF_TURN_SECONDS * others))
    if others < MANY_WORKERS:
        return MAX_SECONDS
    return MAX_LARGE_SECONDS


def delay_seconds(place: int) -> float:
    """Return how long a worker leaves a new job to the workers before it.

    The first two claim at once. So one job does not cost as many claims at one instant
    as there are workers.
    """
    return TURN_SECONDS * max(0, place - 1)


def rest_seconds(others: int, look: float = 0.0) -> float:
    """Return how long a worker with this many others rests on average.

    `look`: seconds of a poll that finds nothing. If that is long, there is no processor
    to spare, and one poll at a time is enough for all workers.
    """
    return min(MAX_SECONDS, max(TURN_SECONDS, look) * others)


def least_seconds(found: int, seconds: float) -> float:
    """Return the shortest interval after a poll that found jobs of `seconds` seconds."""
    until_enough = JOBS_OF_A_POLL * seconds / max(1, found)
    return max(SOONEST_SECONDS, min(MIN_SECONDS, until_enough))


class Polling:
    """Next poll of one worker. Instants are monotonic seconds.

    `others`: how many workers poll for the same jobs. `longest`: seconds between two
    polls without a reason. `delay`: seconds that it waits after a notification, for
    other workers. Any thread may set them. `turn_seconds`: how long the last claim with
    jobs had to wait for other workers.
    """

    def __init__(self, now: float) -> None:
        self.others = 0
        self.longest = MAX_SECONDS
        self.delay = 0.0
        self.turn_seconds = 0.0
        self._waits_since: float | None = None
        self._heeds_at = 0.0
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
        """True if the last claim probably left jobs behind."""
        return self._expects_more

    @property
    def was_notified(self) -> bool:
        """True if the database has announced jobs since the last poll."""
        return self._was_notified

    def due_at(self) -> float:
        """Return when to poll; 0.0 = at once."""
        if self._expects_more:
            return 0.0
        if self._was_notified:
            return min(self._due_at, max(self._rests_until, self._heeds_at))
        return self._due_at

    def is_due(self, now: float) -> bool:
        """Return True if it is time to poll."""
        return now >= self.due_at()

    def notified(self, now: float) -> bool:
        """Note that jobs were enqueued. Any thread may call it.

        Returns True if the next poll comes sooner for it.
        """
        due_at = self.due_at()
        # The delay counts from the first notification since the last poll.
        if not self._was_notified:
            self._heeds_at = now + self.delay

        self._was_notified = True
        self._active_at = now

        return self.due_at() < due_at

    def looked(self) -> None:
        """Note that all announced jobs are about to be looked for."""
        self._was_notified = False

    def expect_more(self) -> None:
        """Poll at once: jobs are likely to wait."""
        self._expects_more = True

    def retry_soon(self) -> None:
        """Poll again at once: the last poll failed."""
        self._due_at = 0.0

    def job_due(self, at: float) -> None:
        """Poll for a job of this worker that is due at this instant."""
        self.no_later_than(at + JUST_AFTER_SECONDS)

    def no_later_than(self, at: float) -> None:
        """Poll at this instant at the latest."""
        self._due_at = min(self._due_at, at)

    def lanes_due(self, at: float | None) -> None:
        """Note when the next job of any lane is due; None = no job is scheduled."""
        if at is None:
            self._lanes_due_at = float("inf")
            return

        self._lanes_due_at = at
        self.no_later_than(max(self._rests_until, at + JUST_AFTER_SECONDS))

    def claimed(self, count: int, want: int, now: float, chance: float) -> None:
        """Choose the next poll after a claim of `want` jobs that got `count`.

        `chance`: 0 to 1, spreads the polls of workers.
        """
        if count:
            self._active_at = now

        self._least_seconds = least_seconds(count, now - self._polled_at)
        self._polled_at = now
        self._expects_more = count == want

        if not self._expects_more:
            self.found_nothing(now, chance)

    def had_turn(
        self, count: int, asked_at: float, now: float, *, has_waited: bool
    ) -> None:
        """Learn how long claims wait for others. `has_waited`: this one had to."""
        if not has_waited and not count:
            # Nothing was due, and no other worker was in the way.
            self._waits_since = None
        elif self._waits_since is None and has_waited:
            self._waits_since = asked_at

        if count:
            since = now if self._waits_since is None else self._waits_since
            self.turn_seconds = now - since
            self._waits_since = None

    def waited_seconds(self, now: float) -> float:
        """Return for how long claims have waited for others. Any thread may call it."""
        since = self._waits_since
        return 0.0 if since is None else now - since

    def lane_wait_ms(self, now: float) -> int:
        """Return how long a claim of this idle worker may wait for its turn.

        A wait that ends too soon has the cost of a claim. So it lasts for twice as long
        as the last turn took, or as this one has taken so far.
        """
        turn_seconds = max(self.turn_seconds, self.waited_seconds(now))
        wait_ms = int(2000 * turn_seconds)
        wait_ms = min(MAX_LANE_WAIT_MS, wait_ms)

        return max(LANE_WAIT_MS, wait_ms)

    def took(self, seconds: float) -> None:
        """Learn the cost of a poll that found nothing: less at once, more by and by."""
        more = self._look_seconds + LEARNING * (seconds - self._look_seconds)
        self._look_seconds = min(seconds, more)

    def found_nothing(self, now: float, chance: float) -> None:
        """Choose the next poll: there are no more jobs for now."""
        self._expects_more = False
        rest = rest_seconds(self.others, self._look_seconds)
        self._rests_until = now + rest * (0.5 + chance)

        interval = self._idle_interval(now)
        self._due_at = max(self._rests_until, now + interval * (0.8 + 0.4 * chance))

        # A job that becomes due in the meantime ends the rest of the interval.
        if self._lanes_due_at > now:
            self.lanes_due(self._lanes_due_at)

    def _idle_interval(self, now: float) -> float:
        """Return the seconds between two polls: a share of the time without jobs."""
        idle_seconds = now - self._active_at
        return min(self.longest, max(self._least_seconds, idle_seconds * IDLE_SHARE))

    def was_busy(self, now: float, chance: float) -> None:
        """Poll again soon: another worker claimed there, and may have left jobs."""
        seconds = BUSY_LANE_SECONDS * max(1, self.others)
        seconds = min(MAX_BUSY_LANE_SECONDS, seconds)

        share = min(MAX_BUSY_TURN_SECONDS, BUSY_TURN_SHARE * self.turn_seconds)
        seconds = max(seconds, share)

        self.no_later_than(now + seconds * (0.5 + chance))
