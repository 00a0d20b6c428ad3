"""One campaign over several cells, against cells that are simulated: every order of steps and kills."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.rules.dead_letters.campaign import GOING, State
from redrive.rules.dead_letters.together import (
    NOTHING,
    Act,
    Action,
    Member,
    Seen,
    due,
    is_held,
    is_over,
    outcome,
    reason,
    shares,
    who_leads,
)

LEADER = "eu:12"
CELLS = frozenset({"eu", "us", "ap"})
STATES = [state for state in State if state is not State.PLANNED]
counts = st.dictionaries(
    st.sampled_from(["eu", "us", "ap", "sa"]),
    st.none() | st.integers(0, 10**6),
    min_size=1,
)
members = st.none() | st.builds(
    Member,
    st.just(7),
    st.sampled_from(STATES),
    st.sampled_from(["the bank asks us", reason(LEADER, "x")]),
)


def seen(**cells: Member | None) -> Seen:
    return Seen(LEADER, "eu", cells, CELLS)


def at(state: State, said: str | None = None, **more: bool) -> Member:
    return Member(7, state, said, **more)


def done(found: Seen, actions: list[Action]) -> Seen:
    """The cells after these actions."""
    after = dict(found.members)
    for action in actions:
        was = after[action.cell]
        if action.act is Act.START:
            assert was is None
            after[action.cell] = at(State.WAITING)
        else:
            assert was is not None
            state = {
                Act.PAUSE: State.PAUSED,
                Act.RESUME: State.WAITING,
                Act.CANCEL: State.CANCELLED,
            }[action.act]
            after[action.cell] = replace(was, state=state, said=action.why)
    return replace(found, members=after)


@given(counts)
def test_the_largest_cell_leads_whatever_the_order(
    found: Mapping[str, int | None],
) -> None:
    leader = who_leads(found)

    assert leader == who_leads(dict(sorted(found.items(), reverse=True)))
    if leader is None:
        assert not any(found.values())
    else:
        assert found[leader] == max(count or 0 for count in found.values())


@given(counts, st.floats(0.001, 1e6))
def test_the_shares_are_the_whole_rate(
    found: Mapping[str, int | None], rate: float
) -> None:
    each = shares(found, rate)

    taking_part = {cell for cell, count in found.items() if count != 0}
    assert each.keys() == (taking_part if who_leads(found) else set())
    if each:
        assert sum(share or 0 for share in each.values()) == pytest.approx(rate)
        assert all(share is not None and share > 0 for share in each.values())


def test_a_share_follows_the_number_and_a_cell_that_is_away_is_kept_the_mean() -> None:
    assert shares({"eu": 300, "us": 100}, 40.0) == {"eu": 30.0, "us": 10.0}
    assert shares({"eu": 300, "us": 100, "ap": None, "sa": 0}, 60.0) == {
        "eu": 30.0,
        "us": 10.0,
        "ap": 20.0,
    }
    assert shares({"eu": 3, "us": 1}, None) == {"eu": None, "us": None}


@given(members, members, members)
def test_one_round_is_enough_and_each_of_its_kills_ends_in_the_same(
    eu: Member | None, us: Member | None, ap: Member | None
) -> None:
    """A driver that is killed after any of its actions leaves the rest of them to the next one."""
    found = seen(eu=eu, us=us, ap=ap)
    actions = due(found)
    end = done(found, actions)

    assert due(end) == []
    for kill in range(len(actions)):
        later = done(found, actions[:kill])
        for _ in range(2):  # what an abort of a follower leads to may change its reason
            later = done(later, due(later))
        assert {c: m and m.state for c, m in later.members.items()} == {
            c: m and m.state for c, m in end.members.items()
        }


@given(members, members, members)
def test_nobody_follows_before_the_canaries_of_the_leader_or_while_any_aborted(
    eu: Member | None, us: Member | None, ap: Member | None
) -> None:
    found = seen(eu=eu, us=us, ap=ap)
    goes_on = {a.cell for a in due(found) if a.act in {Act.START, Act.RESUME}}

    proven = eu is not None and eu.state in {State.RAMP, State.RUNNING, State.DONE}
    aborted = any(m and m.state is State.ABORTED for m in (us, ap))
    if not proven or aborted:
        assert goes_on == set()
    else:
        assert {c for c in ("us", "ap") if found.members[c] is None} <= goes_on
    for cell in goes_on:
        member = found.members[cell]
        assert member is None or is_held(LEADER, member)


@given(members, members, members)
def test_when_the_leader_stops_nobody_goes_on(
    eu: Member | None, us: Member | None, ap: Member | None
) -> None:
    found = seen(eu=eu, us=us, ap=ap)
    end = done(found, due(found)).started

    stopped = eu and eu.state in {State.PAUSED, State.ABORTED, State.CANCELLED}
    aborted = any(m and m.state is State.ABORTED for m in (us, ap))
    if eu and (stopped or aborted):
        assert not [cell for cell, member in end.items() if member.state in GOING]
    if eu and eu.state is State.CANCELLED:
        assert {m.state for m in end.values()} <= {State.CANCELLED, State.DONE}


def test_the_leader_is_changed_first() -> None:
    found = seen(
        eu=at(State.RUNNING),
        us=at(State.ABORTED, "1 of 1 died again"),
        ap=at(State.RAMP),
    )

    assert due(found) == [
        Action("eu", Act.PAUSE, "us:7 aborted: 1 of 1 died again"),
        Action("ap", Act.PAUSE, "with eu:12: us:7 aborted: 1 of 1 died again"),
    ]


def test_nothing_changes_while_the_leader_does_not_answer() -> None:
    found = seen(us=at(State.RUNNING), ap=None)

    assert due(found) == []
    assert not is_over(found)


def test_a_cell_that_is_away_starts_when_it_answers() -> None:
    before = seen(eu=at(State.DONE), ap=NOTHING)
    after = seen(eu=at(State.DONE), ap=NOTHING, us=None)

    assert (due(before), is_over(before)) == ([], False)
    assert due(after) == [Action("us", Act.START, "with eu:12:")]
    assert is_over(seen(eu=at(State.DONE), ap=NOTHING, us=at(State.DONE)))


def test_a_follower_that_a_person_paused_stays_paused() -> None:
    found = seen(
        eu=at(State.RUNNING),
        us=at(State.PAUSED, "the bank asks us"),
        ap=at(State.RUNNING),
    )

    assert due(found) == []


def test_the_outcome_is_that_of_all() -> None:
    def of(*states: State) -> State:
        return outcome(
            seen(**dict(zip(("eu", "us", "ap"), map(at, states), strict=True)))
        )

    assert of(State.DONE, State.DONE, State.DONE) is State.DONE
    assert of(State.PAUSED, State.ABORTED, State.PAUSED) is State.ABORTED
    assert of(State.CANCELLED, State.DONE, State.CANCELLED) is State.CANCELLED
    assert of(State.DONE, State.PAUSED, State.DONE) is State.PAUSED
