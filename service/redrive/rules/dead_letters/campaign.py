"""The next step of a campaign: how many to put back now, or why to wait, abort or end.

A rate is a schedule. Each job has a time of its own, one after the other, and none before its step.
So no second has more than its rate, however late a step comes. What was put back and has not ended
is bounded, and so is what nobody has begun: whatever stops jobs from running stops the feed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

CANARIES = 3
FEW = 100
"""Of as many or fewer none goes first alone."""
ABORT_SHARE = 0.1
MIN_ENDED = 10
"""After the canaries: of fewer that ended no share is taken."""

LATEST = 100
"""Of at least this many that end in a row, at most twice the share may die again."""

LATEST_ALLOWED = 10
"""As many of the latest as allow for this many deaths: a few deaths alone say nothing."""

AHEAD_SECONDS = 3.0
"""With a rate, a step puts back what is due within this time.

Longer than from one step to the next. It is also what can run at once after a pause of the workers.
"""

IN_FLIGHT_SECONDS = 60.0
"""At most so many seconds' worth of its rate has not ended."""

UNCLAIMED = 5_000
"""Without a rate, at most so many wait to be begun."""

IN_FLIGHT = 20_000
"""Without a rate, at most so many have not ended."""

LATE_SECONDS = 30.0
"""While a ready job of its queues has waited for so long it does not begin."""

RISE_SECONDS = 10.0
"""While one has waited for so much longer than one had when it began, it puts nothing back."""

HELD_SECONDS = 600.0
"""Held back for so long, it aborts."""


EXACTLY = "==="
"""Before a version that is compared as text: what says it need not be a version, as a0b1c2."""


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


@dataclass(frozen=True, slots=True)
class Seen:
    """Snapshot of a campaign. Instants are Unix time of the database's clock.

    Attributes:
        step: the number of its next step.
        said: why it is in its state.
        place: how many of `matched` have had their turn.
        in_flight: put back, not ended. Among these `unclaimed`: due, and nobody has begun it.
        fed: put back since it was started or resumed; `ended` and `dead` of what ended since.
        latest_ended: the same, of the latest `latest(abort_share)` or more, as many as ended until
            somebody looked; `latest_dead` as well.
        fed_at: up to when the rate is used up: the next is not due before; None = nothing was put
            back yet.
        canaries: how many go first; 0 = none, no ramp, and no regard for breakers and latency.
        wanted_breakers: name -> the state to wait for. `breakers`: those, and those of its kinds.
        versions: of the live workers that handle its kinds.
        others_late: for how many seconds the oldest ready job of its queues has been due, of those
            that no campaign put back. `late_before`: what that was when it began.
        held_since: since when it puts nothing back for these.
    """

    step: int
    state: State
    matched: int
    place: int = 0
    said: str | None = None
    in_flight: int = 0
    unclaimed: int = 0
    fed: int = 0
    ended: int = 0
    dead: int = 0
    latest_ended: int = 0
    latest_dead: int = 0
    now: float = 0.0
    fed_at: float | None = None
    rate: float | None = None
    canaries: int = CANARIES
    abort_share: float = ABORT_SHARE
    not_before: float | None = None
    wanted_breakers: Mapping[str, str] | None = None
    wanted_version: str | None = None
    breakers: Mapping[str, str] | None = None
    versions: Sequence[str] = ()
    others_late: float = 0.0
    late_before: float | None = None
    held_since: float | None = None

    @property
    def tries_first(self) -> bool:
        """True if some canary has not ended."""
        if not self.canaries:
            return False
        is_fed = self.fed >= self.canaries
        return not is_fed or (self.ended < self.canaries and self.in_flight > 0)


@dataclass(frozen=True, slots=True)
class Step:
    """Decision about a campaign: how many dead letters to process, and its new state
    and reason.

    `late_before` is of the step with which it begins.
    """

    state: State
    feed: int = 0
    fed_at: float | None = None
    said: str | None = None
    late_before: float | None = None
    held_since: float | None = None

    def stands_as(self, seen: Seen) -> bool:
        """Return True if the step changes nothing besides what it releases."""
        after = (self.state, self.said, self.held_since)
        return after == (seen.state, seen.said, seen.held_since)

    def at_most(self, feed: int, rate: float | None) -> "Step":
        """The same with so many at most: what is left out is still to go at the rate."""
        left = max(self.feed - feed, 0)
        fed_at = self.fed_at - left / rate if self.fed_at is not None and rate else self.fed_at
        return replace(self, feed=self.feed - left, fed_at=fed_at)


def next_step(seen: Seen) -> Step:
    """Decide the next step of a campaign."""
    stay = Step(seen.state, 0, seen.fed_at, seen.said)
    if seen.state not in GOING:
        return stay
    if seen.place >= seen.matched and not seen.in_flight:
        return replace(stay, state=State.DONE, said=None)
    if fault := _fault(seen):
        return replace(stay, state=State.ABORTED, said=fault)
    if seen.place >= seen.matched:
        return replace(stay, state=_phase(seen), said=None)
    if reason := _waits_for(seen):
        return replace(stay, state=State.WAITING, said=reason)
    if seen.canaries and seen.fed and seen.others_late > (seen.late_before or 0) + RISE_SECONDS:
        return _held(seen, stay)
    feed, fed_at = _feed(seen)
    return Step(_phase(seen), feed, fed_at, late_before=None if seen.fed else seen.others_late)


def _held(seen: Seen, stay: Step) -> Step:
    """Others wait longer than before: it puts nothing back, and aborts when that goes on."""
    late = f"{_lateness(seen)}, {seen.late_before or 0:.0f} s when it began"
    since = min(seen.now, seen.held_since or seen.now)  # the clock may have been set back
    if seen.now - since > HELD_SECONDS:
        return replace(stay, state=State.ABORTED, said=f"{late}; held for {HELD_SECONDS:.0f} s")
    return replace(stay, state=_phase(seen), said=late, held_since=since)


def _lateness(seen: Seen) -> str:
    return f"a ready job of its queues has waited for {seen.others_late:.0f} s"


def latest(abort_share: float) -> int:
    """Return how many that end in a row are judged by themselves; look_at_campaign agrees."""
    return max(LATEST, math.ceil(LATEST_ALLOWED / abort_share))


def exposure(canaries: int) -> int:
    """At most so many are put back where more than the allowed share of any ten die again."""
    if canaries >= MIN_ENDED or not canaries:
        return canaries
    return canaries + 2 * (MIN_ENDED - 1)


def is_version(said: str, wanted: str) -> bool:
    """Return True if a version matches; an invalid version matches only `===`."""
    if wanted.startswith(EXACTLY):
        return said == wanted.removeprefix(EXACTLY)
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415 # few campaigns wait for one
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415 # as above

    try:
        return SpecifierSet(wanted, prereleases=True).contains(Version(said))
    except InvalidVersion:
        return False


def _phase(seen: Seen) -> State:
    if seen.tries_first:
        return State.CANARY
    is_full = not seen.canaries or _window(seen) >= _most_in_flight(seen.rate)
    return State.RUNNING if is_full else State.RAMP


def _fault(seen: Seen) -> str | None:
    """Why it aborts; None = it does not."""
    share = seen.abort_share
    base = seen.canaries if seen.ended <= seen.canaries else max(seen.ended, MIN_ENDED)
    if seen.dead > share * max(base, 1):
        return f"{seen.dead} of {seen.ended} died again, more than {share:.0%}"
    if seen.latest_dead > 2 * share * max(seen.latest_ended, latest(share)):
        return f"{seen.latest_dead} of the latest {seen.latest_ended} died again"
    if seen.canaries and seen.fed:
        for name in _open(seen):
            return f"breaker {name} is open"
    return None


def _open(seen: Seen) -> list[str]:
    """The open breakers of its kinds, but for those that it waits for anyway."""
    wanted = seen.wanted_breakers or {}
    states = (seen.breakers or {}).items()
    return sorted(name for name, state in states if state == "open" and name not in wanted)


def _waits_for(seen: Seen) -> str | None:
    """Return the condition that a campaign still waits for; None if there is none."""
    if seen.not_before is not None and seen.now < seen.not_before:
        return "its time has not come"
    states = seen.breakers or {}
    for name, wanted in (seen.wanted_breakers or {}).items():
        state = states.get(name, "unknown")
        if state != wanted:
            return f"breaker {name} is {state}, not {wanted}"
    if seen.canaries:
        for name in _open(seen):
            return f"breaker {name} is open"
    wanted_version = seen.wanted_version
    if wanted_version and not (
        seen.versions and all(is_version(version, wanted_version) for version in seen.versions)
    ):
        running = ", ".join(seen.versions) or "none"
        return f"version {wanted_version} is not what all workers of its kinds run: {running}"
    if seen.canaries and not seen.fed and seen.others_late > LATE_SECONDS:
        return _lateness(seen)
    return None


def _feed(seen: Seen) -> tuple[int, float]:
    """Return how many to release, and until when the rate is used up then."""
    room = max(min(_room(seen), seen.matched - seen.place), 0)
    rate = seen.rate
    if rate is None:
        return room, seen.now
    fed_at = max(seen.fed_at or 0.0, seen.now)
    if fed_at > seen.now + AHEAD_SECONDS + 1 / rate:  # the clock was set back
        fed_at = seen.now
    left = (seen.now + AHEAD_SECONDS - fed_at) * rate - seen.unclaimed
    feed = max(min(room, math.ceil(left - 1e-6)), 0)
    # what waits to be begun will use up the rate from now on
    first = max(fed_at, seen.now + seen.unclaimed / rate)
    return feed, first + feed / rate if feed else fed_at


def _room(seen: Seen) -> int:
    """Return how many more jobs may be in flight."""
    if seen.tries_first:
        return seen.canaries - seen.fed
    in_flight = _most_in_flight(seen.rate)
    if seen.canaries:
        in_flight = min(in_flight, _window(seen))
    room = in_flight - seen.in_flight
    return min(room, UNCLAIMED - seen.unclaimed) if seen.rate is None else room


def _window(seen: Seen) -> int:
    """The ramp: as many more as have ended, which doubles them each time."""
    return seen.canaries + seen.ended


def _most_in_flight(rate: float | None) -> int:
    return IN_FLIGHT if rate is None else max(MIN_ENDED, math.ceil(rate * IN_FLIGHT_SECONDS))
