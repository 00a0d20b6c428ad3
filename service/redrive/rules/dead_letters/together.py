"""One campaign over several cells: who leads, the shares of the rate, and what to do next.

The campaign of one cell leads, and the campaigns of the others follow. The leader's
state is the only state that people change. A driver makes the followers match it, so
another driver can continue if it is killed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from redrive.rules.dead_letters.campaign import GOING, RELEASING, State

FOLLOWER_CANARIES = 1
"""The leader's canaries test the cause. One more in each other cell tests its workers,
which may run another version."""

REASON_LENGTH = 2_000
"""Characters of a reason that the audit log keeps."""


class Act(StrEnum):
    """Change of one cell's campaign."""

    START = "start"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"


class Action(NamedTuple):
    """Change that is due in a cell, and its reason."""

    cell: str
    act: Act
    why: str


@dataclass(frozen=True, slots=True)
class Member:
    """Campaign of one cell.

    Attributes:
        campaign: its id; None = the cell has no matching dead letters.
    """

    campaign: int | None
    state: State
    said: str | None = None
    in_flight: int = 0


_OVER = frozenset({State.DONE, State.CANCELLED})

NOTHING = Member(None, State.DONE)


@dataclass(frozen=True, slots=True)
class Seen:
    """Campaigns of all cells as they were at the latest look.

    Attributes:
        leader: id of the leading campaign, such as eu:12.
        cell: cell of the leading campaign.
        members: cell -> its campaign; None = not started. A cell that does not answer
            is missing.
        cells: cells that take part.
    """

    leader: str
    cell: str
    members: Mapping[str, Member | None]
    cells: frozenset[str] = field(default_factory=frozenset[str])

    @property
    def leading(self) -> Member | None:
        """Return the leading campaign; None if its cell does not answer."""
        return self.members.get(self.cell)

    @property
    def started(self) -> dict[str, Member]:
        """Return the campaigns that are started, the leader first."""
        found: dict[str, Member] = {}
        followers = self.members.keys() - {self.cell}

        for cell in (self.cell, *sorted(followers)):
            member = self.members.get(cell)
            if member is not None:
                found[cell] = member

        return found


def who_leads(counts: Mapping[str, int | None]) -> str | None:
    """Return the cell with the most dead letters; None if no cell has any.

    Args:
        counts: cell -> its matching dead letters; None = the cell does not answer.
    """
    known = {cell: count for cell, count in counts.items() if count}
    # Sorted, so that all drivers choose the same one of equal cells.
    return max(sorted(known), key=known.__getitem__, default=None)


def shares(
    counts: Mapping[str, int | None], rate: float | None
) -> dict[str, float | None]:
    """Return each cell's share of the rate; None = no limit.

    Shares follow the numbers of dead letters, so that all cells end at the same time.
    A cell that does not answer is reserved the mean of the others. Nothing depends on
    the time, so two drivers never give away the same part.
    """
    known = [count for count in counts.values() if count]
    if not known:
        return {}

    mean = sum(known) / len(known)
    weights: dict[str, float] = {}

    for cell, count in counts.items():
        if count is None:
            weights[cell] = mean
        elif count:
            weights[cell] = count

    if rate is None:
        return dict.fromkeys(weights)

    whole = sum(weights.values())
    return {cell: rate * weight / whole for cell, weight in weights.items()}


def due(seen: Seen) -> list[Action]:
    """Return the changes that make all campaigns match the leader; it comes first."""
    leader = seen.leading
    if leader is None:
        return []
    if leader.state is State.CANCELLED:
        return _cancels(seen, leader)

    stopped = _stopped(seen, leader)
    if stopped is not None:
        return _pauses(seen, stopped)

    if _is_proven(leader):
        return _continue(seen)
    return []


def left(seen: Seen, act: Act, why: str) -> list[Action]:
    """Return how to pause or cancel the followers of a leader that is done.

    It can no longer lead. The reason does not say that the leader waits, so drivers
    leave these campaigns alone.
    """
    leader = seen.leading
    if leader is None or leader.state is not State.DONE:
        return []

    reason = f"{seen.leader}: {why}"[:REASON_LENGTH]
    if act is Act.CANCEL:
        cells = _unfinished(seen)
    else:
        cells = _going(seen)

    return [Action(cell, act, reason) for cell in cells]


def _unfinished(seen: Seen) -> list[str]:
    """Return the cells whose campaign is not over."""
    started = seen.started.items()
    return [cell for cell, member in started if member.state not in _OVER]


def _going(seen: Seen) -> list[str]:
    """Return the cells whose campaign is under way."""
    started = seen.started.items()
    return [cell for cell, member in started if member.state in GOING]


def _cancels(seen: Seen, leader: Member) -> list[Action]:
    why = _with(seen, leader.said)
    return [Action(cell, Act.CANCEL, why) for cell in _unfinished(seen)]


def _stopped(seen: Seen, leader: Member) -> str | None:
    """Return why no campaign may redrive anything now; None if they may."""
    # An aborted follower shows that the cause is not fixed, in whichever cell it is.
    for cell, member in seen.started.items():
        is_follower = cell != seen.cell
        if is_follower and member.state is State.ABORTED:
            return f"{cell}:{member.campaign} aborted: {member.said}"

    if leader.state in {State.PAUSED, State.ABORTED}:
        return leader.said or ""

    return None


def _pauses(seen: Seen, why: str) -> list[Action]:
    actions: list[Action] = []
    for cell in _going(seen):
        if cell == seen.cell:
            reason = why
        else:
            reason = _with(seen, why)
        actions.append(Action(cell, Act.PAUSE, reason))

    return actions


def _is_proven(leader: Member) -> bool:
    """Return True if the leader's canaries have succeeded."""
    return leader.state in RELEASING or leader.state is State.DONE


def _continue(seen: Seen) -> list[Action]:
    """Start the missing followers, and resume each that a driver paused."""
    # A cell that does not answer is not among the members, and is started later.
    followers = seen.cells & seen.members.keys() - {seen.cell}
    why = _with(seen, None)
    actions: list[Action] = []

    for cell in sorted(followers):
        member = seen.members[cell]
        if member is None:
            actions.append(Action(cell, Act.START, why))
        elif is_held(seen.leader, member):
            actions.append(Action(cell, Act.RESUME, why))

    return actions


def is_held(leader: str, member: Member) -> bool:
    """Return True if a follower was paused because of its leader, and by nobody else."""
    if member.state is not State.PAUSED:
        return False

    said = member.said or ""
    return said.startswith(_mark(leader))


def _with(seen: Seen, why: str | None) -> str:
    return reason(seen.leader, why)


def reason(leader: str, why: str | None) -> str:
    """Return the reason of a follower's change: it names the leader."""
    mark = _mark(leader)
    if why:
        return f"{mark} {why}"[:REASON_LENGTH]
    return mark


def _mark(leader: str) -> str:
    return f"with {leader}:"


def is_over(seen: Seen) -> bool:
    """Return True if there is nothing left to drive."""
    leader = seen.leading
    # Something may still change: a change is due, or a campaign is under way.
    if leader is None:
        return False
    if due(seen):
        return False
    if any(map(_moves, seen.started.values())):
        return False
    if leader.state is State.CANCELLED:
        return True
    if _stopped(seen, leader) is not None:
        return True

    return all(seen.members.get(cell) for cell in seen.cells)


def _moves(member: Member) -> bool:
    if member.state in GOING:
        return True
    return member.state is not State.PAUSED and member.in_flight > 0


def outcome(seen: Seen) -> State:
    """Return the state of all campaigns together, after the end of each."""
    states = {member.state for member in seen.started.values()}
    if State.ABORTED in states:
        return State.ABORTED
    if states == {State.DONE}:
        return State.DONE

    leader = seen.leading
    if leader and leader.state is not State.DONE:
        return leader.state

    return State.PAUSED
