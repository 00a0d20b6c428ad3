"""The pace of a campaign: how many jobs its next step releases, or why it waits or aborts.

The numbers stand below. `look_at_campaign` reads what `Seen` holds, and `step_campaign`
carries out a `Step`. Python decides how many jobs are released; `step_campaign` gives
each its time, one every 1 / rate seconds. Change these two functions only if a decision
needs another fact, or another spacing.

A rate is a schedule. Each job has its own time, and no job is released before its time.
So no second exceeds the rate, even if a step is late. The numbers of released jobs in
flight and of unclaimed jobs are limited. So releases stop if the jobs do not run.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from redrive.rules.rows import Fields

CANARIES = 3
MANY = 10
"""Run canaries if a redrive by filters has this many dead letters or more."""
ABORT_SHARE = 0.1
MIN_ENDED = 10
"""After the canaries, the share of failures is judged only from this many ended jobs.
"""

WINDOW_SHARES = 2
"""At most this many times the allowed share of a window may die again.

A window is a number of successive releases; a job in it that has not ended counts as a
success.
"""

AHEAD_SECONDS = 1.0
"""With a rate, a step releases the jobs that are due within this time.

It is longer than the time between two steps of a campaign that releases jobs. After a
pause of the workers, this many seconds' jobs can run at once."""

KIND_AHEAD_SECONDS = 2.0
"""If all kinds have a redrive_rate, limit of the released jobs that have not begun, in
seconds of it. With less, the kinds would not reach their rate."""

IN_FLIGHT_SECONDS = 60.0
"""With a rate, limit of the jobs in flight, in seconds of the rate."""

UNCLAIMED = 5_000
"""Without a rate, limit of the released jobs that no worker has claimed."""

IN_FLIGHT = 20_000
"""Without a rate, limit of the released jobs that have not ended."""

LATE_SECONDS = 30.0
"""A campaign does not begin while a regular job of its queues has waited for this long.
"""

RISE_SECONDS = 10.0
"""A campaign releases nothing while regular jobs wait this much longer than at its
start."""

HELD_SECONDS = 600.0
"""A campaign aborts after regular jobs have held it back for this long."""

RECOVERIES = 5
"""A campaign aborts if a breaker opens after it has closed this often in ten minutes.

Then the campaign itself may be too much for the dependency, and regular jobs pay for it.
"""

EXACTLY = "==="
"""Prefix of a version that is compared as text, such as a0b1c2."""


class State(StrEnum):
    """State of a campaign."""

    PLANNED = "planned"
    WAITING = "waiting"
    CANARY = "canary"
    RAMP = "ramp"
    RUNNING = "running"
    PAUSED = "paused"
    ABORTED = "aborted"
    CANCELLED = "cancelled"
    DONE = "done"


GOING = frozenset({State.WAITING, State.CANARY, State.RAMP, State.RUNNING})
RELEASING = frozenset({State.RAMP, State.RUNNING})


BEGIN_SECONDS = 60.0
"""Time after which a canary should have begun."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Snapshot of a campaign. Instants are Unix time of the database's clock.

    Attributes:
        step: the number of its next step.
        is_retry: its jobs are failing ones, and not dead letters.
        said: the reason for its state.
        place: how many of `matched` are processed.
        in_flight: released jobs that have not ended. `unbegun`: jobs that no worker
            has claimed. `unclaimed`: the due ones among these. `unbegun_for`: seconds
            since the first of them was released.
        fed: released jobs since the campaign was started or resumed. `ended` and
            `dead`: how many ended or died since then.
        window: how many successive releases are judged together, as look_at_campaign
            counts them. `window_dead`: the most deaths in one window.
        fed_at: instant until which the rate is used up; the next job is not due before.
            None = nothing was released yet.
        active_at: instant of its latest step.
        canaries: number of jobs that go first. 0 = no canaries and no ramp; breakers
            and latency are ignored.
        wanted_breakers: name -> the state to wait for. `breakers`: states of these and
            of the breakers of its kinds. `recoveries`: how often each of them has
            closed within ten minutes.
        kinds: number of its kinds. `kind_rates`: kind -> redrives per second that
            its handler allows, for kinds with such a limit.
        versions: versions of the live workers that handle its kinds.
        others_late: seconds that the oldest ready regular job of its queues has been
            due. `late_before`: the same when the campaign began.
        held_since: instant since which regular jobs hold the campaign back, or None.
    """

    step: int
    state: State
    matched: int
    place: int = 0
    said: str | None = None
    in_flight: int = 0
    unclaimed: int = 0
    unbegun: int = 0
    unbegun_for: float = 0.0
    fed: int = 0
    ended: int = 0
    dead: int = 0
    window: int = 100
    window_dead: int = 0
    now: float = 0.0
    fed_at: float | None = None
    active_at: float | None = None
    rate: float | None = None
    canaries: int = CANARIES
    abort_share: float = ABORT_SHARE
    not_before: float | None = None
    wanted_breakers: Mapping[str, str] | None = None
    wanted_version: str | None = None
    breakers: Mapping[str, str] | None = None
    recoveries: Mapping[str, int] | None = None
    versions: Sequence[str] = ()
    kinds: int = 0
    kind_rates: Mapping[str, float] | None = None
    others_late: float = 0.0
    late_before: float | None = None
    held_since: float | None = None
    is_retry: bool = False

    @property
    def again(self) -> str:
        """Return what the jobs did that count as dead."""
        return "failed again" if self.is_retry else "died again"

    @property
    def kind_rate(self) -> float | None:
        """Return the rate that its handlers allow; None if a kind has no limit."""
        return total_rate(self.kind_rates or {}, self.kinds)

    @property
    def is_late(self) -> bool:
        """Return True if its workers may have paused since its latest step.

        Then the jobs that were released before may all start now.
        """
        if self.state not in RELEASING or self.active_at is None:
            return False
        return self.now - self.active_at > AHEAD_SECONDS

    @property
    def tries_first(self) -> bool:
        """Return True if some canary has not ended."""
        if not self.canaries:
            return False
        if self.fed < self.canaries:
            return True

        # A cancelled canary does not count as ended, and must not hold the others back.
        return self.ended < self.canaries and self.in_flight > 0


@dataclass(frozen=True, slots=True)
class Step:
    """Decision about a campaign: the number of releases, the new state and its reason.

    Attributes:
        feed: number of releases.
        first_turn: when the first release is due; the others follow at the rate. With
            0 releases: until when the rate is used up.
        late_before: set by the campaign's first step.
    """

    state: State
    feed: int = 0
    first_turn: float | None = None
    said: str | None = None
    late_before: float | None = None
    held_since: float | None = None

    def stands_as(self, seen: Seen) -> bool:
        """Return True if the step need not be recorded, except for its releases.

        With a rate, each step of a campaign that releases jobs is recorded, because the
        next step has to know when it was; see `Seen.is_late`.
        """
        if seen.rate is not None and self.state in RELEASING:
            return False

        before = (seen.state, seen.said, seen.held_since)
        after = (self.state, self.said, self.held_since)

        return after == before


def next_step(seen: Seen) -> Step:
    """Decide the next step of a campaign."""
    stay = Step(seen.state, first_turn=seen.fed_at, said=seen.said)
    if seen.state not in GOING:
        return stay
    if seen.place >= seen.matched and not seen.in_flight:
        return _end(seen, stay)
    if fault := _fault(seen):
        return replace(stay, state=State.ABORTED, said=fault)

    # Nothing is left to release, but the jobs in flight may still abort it.
    if seen.place >= seen.matched:
        return replace(stay, state=_phase(seen), said=None)
    if reason := _waits_for(seen):
        return replace(stay, state=State.WAITING, said=reason)
    if _delays_others(seen):
        return _held(seen, stay)

    feed, first_turn = _feed(seen)

    return Step(
        state=_phase(seen),
        feed=feed,
        first_turn=first_turn,
        said=_idle_canaries(seen),
        late_before=None if seen.fed else seen.others_late,
    )


def _idle_canaries(seen: Seen) -> str | None:
    """Return that no worker begins the canaries, or None.

    They may wait for a limit, a paused queue, or workers of their kinds.
    """
    if seen.tries_first and seen.unbegun_for > BEGIN_SECONDS:
        return "its canaries have not begun; redrive job show says why"

    return None


def _end(seen: Seen, stay: Step) -> Step:
    """End a campaign whose jobs have all ended.

    If all of them were canaries, nothing is left that an abort could spare. But the
    campaign has shown that the cause is not fixed, so it is aborted, too.
    """
    are_all_canaries = seen.fed <= seen.canaries
    is_too_many = seen.dead > seen.abort_share * seen.ended
    if are_all_canaries and is_too_many:
        return replace(stay, state=State.ABORTED, said=_too_many(seen))

    return replace(stay, state=State.DONE, said=None)


def _delays_others(seen: Seen) -> bool:
    """Return True if regular jobs wait longer than before the first release."""
    # Without canaries, latency is ignored; before its first release, it delays nobody.
    if not (seen.canaries and seen.fed):
        return False

    before = seen.late_before or 0
    return seen.others_late > before + RISE_SECONDS


def _held(seen: Seen, stay: Step) -> Step:
    """Release nothing because regular jobs wait longer; abort after HELD_SECONDS."""
    before = seen.late_before or 0
    late = f"{_lateness(seen)}, {before:.0f} s when it began"
    since = min(seen.now, seen.held_since or seen.now)  # in case the clock was set back

    if seen.now - since > HELD_SECONDS:
        said = f"{late}; held for {HELD_SECONDS:.0f} s"
        return replace(stay, state=State.ABORTED, said=said)

    return replace(stay, state=_phase(seen), said=late, held_since=since)


def _lateness(seen: Seen) -> str:
    return f"a ready job of its queues has waited for {seen.others_late:.0f} s"


def total_rate(kind_rates: Mapping[str, float], kinds: int) -> float | None:
    """Return the rate of kinds together; None if one of them has no limit."""
    if not kind_rates or len(kind_rates) < kinds:
        return None

    return sum(kind_rates.values())


def pace(
    rate: float | None, kind_rates: Mapping[str, float], kinds: int
) -> float | None:
    """Return the rate that a campaign reaches at most; None if nothing limits it.

    Args:
        rate: jobs per second that the campaign may release.
        kind_rates: kind -> redrives per second that its handler allows.
        kinds: number of the campaign's kinds, also of kinds without such a limit.
    """
    rates = (rate, total_rate(kind_rates, kinds))
    return min((each for each in rates if each is not None), default=None)


def exposure(canaries: int) -> int:
    """Return the limit of releases if too many of every ten jobs die again."""
    if canaries >= MIN_ENDED or not canaries:
        return canaries
    return canaries + 2 * (MIN_ENDED - 1)


def is_version(version: str, wanted: str) -> bool:
    """Return True if a version matches; an invalid version matches only `===`.

    Args:
        wanted: a specifier such as >=1.4, or === and the exact text.

    Raises:
        ValueError: `wanted` is not a specifier.
    """
    if wanted.startswith(EXACTLY):
        return version == wanted.removeprefix(EXACTLY)

    from packaging.specifiers import SpecifierSet  # noqa: PLC0415 # few campaigns need it
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415 # as above

    try:
        return SpecifierSet(wanted, prereleases=True).contains(Version(version))
    except InvalidVersion:
        return False


def _phase(seen: Seen) -> State:
    if seen.tries_first:
        return State.CANARY
    if seen.canaries and _ramp(seen) < _most_in_flight(seen.rate):
        return State.RAMP

    return State.RUNNING


def _fault(seen: Seen) -> str | None:
    """Return the reason to abort, or None."""
    share = seen.abort_share
    if seen.dead > share * _base(seen):
        return _too_many(seen)

    if seen.window_dead > WINDOW_SHARES * share * seen.window:
        return f"{seen.window_dead} of {seen.window} in a row {seen.again}"

    return _flapping(seen)


def _flapping(seen: Seen) -> str | None:
    """Return which breaker opens again and again while the campaign redrives, or None.

    A breaker that just opens is no reason to abort: its jobs lose no attempts.
    """
    if not (seen.canaries and seen.fed):
        return None

    recoveries = seen.recoveries or {}
    for name in _open(seen):
        count = recoveries.get(name, 0)
        if count >= RECOVERIES:
            return f"breaker {name} is open again; it closed {count} times within ten minutes"

    return None


def _base(seen: Seen) -> int:
    """Return the number of jobs whose deaths are judged: the canaries, or all ended."""
    if seen.ended <= seen.canaries:
        # The first canaries that end are too few to judge by.
        return max(seen.canaries, 1)
    return max(seen.ended, MIN_ENDED, 1)


def _too_many(seen: Seen) -> str:
    share = seen.abort_share
    return f"{seen.dead} of {seen.ended} {seen.again}, more than {share:.0%}"


def _open(seen: Seen) -> list[str]:
    """Return the open breakers of its kinds that it does not wait for."""
    states = seen.breakers or {}
    is_open = {name for name, state in states.items() if state == "open"}
    wanted = seen.wanted_breakers or {}

    return sorted(is_open - wanted.keys())


def _waits_for(seen: Seen) -> str | None:
    """Return the condition that a campaign waits for; None = it may begin."""
    if seen.not_before is not None and seen.now < seen.not_before:
        return "its time has not come"
    if reason := _wrong_breaker(seen) or _wrong_version(seen):
        return reason
    if seen.canaries and not seen.fed and seen.others_late > LATE_SECONDS:
        return _lateness(seen)

    return None


def _wrong_breaker(seen: Seen) -> str | None:
    """Return which breaker is not in the state that the campaign needs."""
    states = seen.breakers or {}
    for name, wanted in (seen.wanted_breakers or {}).items():
        state = states.get(name, "unknown")
        if state != wanted:
            return f"breaker {name} is {state}, not {wanted}"

    if seen.canaries:
        for name in _open(seen):
            return f"breaker {name} is open"

    return None


def _wrong_version(seen: Seen) -> str | None:
    """Return which versions run if one of them is not the wanted one."""
    wanted = seen.wanted_version
    if not wanted:
        return None

    are_wanted = [is_version(version, wanted) for version in seen.versions]
    if are_wanted and all(are_wanted):
        return None

    running = ", ".join(seen.versions) or "none"
    return f"version {wanted} is not what all workers of its kinds run: {running}"


def _feed(seen: Seen) -> tuple[int, float]:
    """Return how many jobs to release, and when the first of them is due."""
    left = seen.matched - seen.place
    room = max(min(_room(seen), left), 0)
    rate = seen.rate
    if rate is None:
        return room, seen.now

    fed_at = _fed_until(seen, rate)
    feed = max(min(room, _due(seen, rate, fed_at)), 0)

    return feed, _first_turn(seen, fed_at, rate)


def _due(seen: Seen, rate: float, fed_at: float) -> int:
    """Return how many jobs the rate allows to release now; it may be negative."""
    seconds = seen.now + AHEAD_SECONDS - fed_at
    allowed = seconds * rate - seen.unclaimed

    # A rounding error must not release one more job than is allowed.
    return math.ceil(allowed - 1e-6)


def _fed_until(seen: Seen, rate: float) -> float:
    """Return until when the releases of earlier steps use up the rate."""
    latest = seen.now + 2 * AHEAD_SECONDS + 1 / rate
    fed_at = max(seen.fed_at or 0.0, seen.now)
    if fed_at > latest:  # the clock was set back
        return seen.now

    return fed_at


def _first_turn(seen: Seen, fed_at: float, rate: float) -> float:
    """Return when the first of the next releases is due.

    Unclaimed jobs use up the rate from now on, and so do jobs that may just start.
    """
    first = max(fed_at, seen.now + seen.unclaimed / rate)
    if seen.is_late:
        return max(first, seen.now + AHEAD_SECONDS)

    return first


def _room(seen: Seen) -> int:
    """Return how many more jobs may be in flight."""
    if seen.tries_first:
        return seen.canaries - seen.fed

    in_flight = _most_in_flight(seen.rate)
    if seen.canaries:
        in_flight = min(in_flight, _ramp(seen))

    room = in_flight - seen.in_flight
    if seen.rate is None:
        room = min(room, UNCLAIMED - seen.unclaimed)

    if seen.kind_rate is not None:
        # The limits of kinds hold when jobs begin. More jobs would only wait, and a
        # pause of the campaign would not stop them.
        most = math.ceil(seen.kind_rate * KIND_AHEAD_SECONDS)
        room = min(room, most - seen.unbegun)

    return room


def _ramp(seen: Seen) -> int:
    """Return the ramp's limit, which doubles each time the released jobs have ended."""
    return seen.canaries + seen.ended


def _most_in_flight(rate: float | None) -> int:
    if rate is None:
        return IN_FLIGHT
    return max(MIN_ENDED, math.ceil(rate * IN_FLIGHT_SECONDS))


def again(found: Fields) -> str:
    """Return how many jobs of a campaign died again, or failed again if it is a retry."""
    word = "failed" if found["is_retry"] else "dead"
    return f"{found['dead_again']:,} {word}" if found["dead_again"] else "0"
