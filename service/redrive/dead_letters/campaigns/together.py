"""One campaign over several cells: each has a campaign, and one of them leads.

All state is in the databases of the cells. A change of a cell is one transaction there,
and nobody holds a transaction in two cells. So a driver may be killed at any moment,
and the next one continues.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, LiteralString

import psycopg
from psycopg.types.json import Jsonb

from redrive.database.ask import outcomes
from redrive.database.rows import Connection, value
from redrive.dead_letters.campaigns import campaign as campaigns
from redrive.dead_letters.filter import Filter
from redrive.errors import RedriveError
from redrive.rules.dead_letters import together as rules
from redrive.rules.dead_letters.campaign import State
from redrive.rules.dead_letters.obstacles import Allow
from redrive.rules.dead_letters.terms import Terms
from redrive.rules.dead_letters.together import Act, Action, Member, Seen
from redrive.rules.rows import Fields, Row
from redrive.rules.scheduling.cells import id_in_cell

Cells = Mapping[str, Callable[[], AbstractContextManager[Connection]]]
"""Cell -> how to open a connection to its database."""

PATIENCE_SECONDS = 60.0
"""How long a cell may take to answer. A plan of a million takes some seconds."""

LOOK_SECONDS = 10.0
"""How long a driver waits for one look at all cells."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers of the cells, and why others have none."""

    found: Fields
    away: Mapping[str, Exception]


def ask(
    cells: Cells, read: Callable[[str, Connection], Any], seconds: float
) -> Answers:
    """Ask all cells at once; an error of one hides no other.

    Args:
        read: takes the name of a cell and a connection to it, returns its answer.
        seconds: how long to wait; a cell that has not answered by then is away.
    """

    def answer(cell: str) -> Any:
        with cells[cell]() as conn:
            return read(cell, conn)

    asked = {cell: partial(answer, cell) for cell in cells}
    return Answers(*outcomes(asked, seconds))


# ---------------------------------------------------------------------- start


_SAME: LiteralString = """
    select coalesce(c.conditions ->> 'leader', c.id::text) from redrive.campaigns c
    where (c.conditions ? 'together' or c.conditions ? 'leader')
      and c.filter - 'until' = %s::jsonb - 'until' and c.state not in ('done', 'cancelled')
    order by c.id desc limit 1"""


def preview(cells: Cells, chosen: Filter, allow: Allow) -> Answers:
    """Return the plan of each cell; nothing is frozen."""

    def read(_: str, conn: Connection) -> campaigns.Plan:
        return campaigns.plan(conn, chosen, actor=None, allow=allow)

    return ask(cells, read, PATIENCE_SECONDS)


def find(cells: Cells, chosen: Filter, allow: Allow) -> str | None:
    """Return the id of the leading campaign of this filter if one is not over.

    A campaign that has aborted counts: a driver that was killed must not try again. A
    follower names its leader, whose cell may not answer.
    """
    selects = Jsonb(campaigns.selection(chosen, allow))
    read = partial(_leader, selects=selects)
    leaders: Mapping[str, str | None] = ask(cells, read, LOOK_SECONDS).found

    going = filter(None, leaders.values())
    return next(going, None)


def _leader(cell: str, conn: Connection, *, selects: Jsonb) -> str | None:
    """Return the leader of the campaign in this cell that selects the same."""
    found: str | None = value(conn, _SAME, selects)
    # The leader itself has only its number there; a follower has the whole id.
    if found and found.isdigit():
        return id_in_cell(int(found), cell)

    return found


def start(  # noqa: PLR0913 # the columns of a campaign
    cells: Cells,
    chosen: Filter,
    counts: Mapping[str, int | None],
    terms: Terms,
    *,
    allow: Allow = campaigns.NOTHING_MORE,
    actor: str,
    why: str,
) -> str | None:
    """Plan and start the leading campaign; return its id, or None if nothing matched.

    Args:
        counts: cell -> its matching dead letters; None = the cell does not answer.

    Raises:
        Busy: another campaign of that cell has the same dead letters.
    """
    cell = rules.who_leads(counts)
    if cell is None:
        return None

    taking_part = {name: count for name, count in counts.items() if count != 0}
    more = {"together": {"cells": taking_part, "rate": terms.rate}}
    own = replace(terms, rate=rules.shares(counts, terms.rate)[cell])

    with cells[cell]() as conn, conn.transaction():
        made = campaigns.plan(conn, chosen, actor=actor, allow=allow)
        if made.plan is None:
            return None

        campaigns.start_alone(
            conn,
            made.plan,
            own,
            actor=actor,
            why=why,
            more=more,
        )

    return id_in_cell(made.plan, cell)


# ---------------------------------------------------------------------- drive


_CHANGES: Mapping[Act, Callable[..., object]] = {
    Act.PAUSE: campaigns.pause,
    Act.RESUME: campaigns.resume,
    Act.CANCEL: campaigns.cancel,
}


@dataclass(frozen=True, slots=True)
class View:
    """Look at all cells.

    `campaigns` maps a cell to its campaign as `redrive campaign show` prints it. `away`
    maps a cell to the reason why it was not looked at or changed.
    """

    seen: Seen
    campaigns: Mapping[str, Row]
    away: Mapping[str, Exception]


@dataclass(slots=True)
class Together:
    """Campaigns of all cells that belong to one leading campaign.

    Attributes:
        without: cells that this driver leaves alone.
        empty: cells in which a start found no matching dead letters.
    """

    cells: Cells
    cell: str
    campaign: int
    actor: str
    without: frozenset[str] = frozenset()
    empty: set[str] = field(default_factory=set[str])

    @property
    def leader(self) -> str:
        """Return the id of the leading campaign, such as eu:12."""
        return id_in_cell(self.campaign, self.cell)

    def watch(self, *, every: float = 1.0) -> Iterator[View]:
        """Drive all campaigns until they are over; yield each look at them.

        Args:
            every: seconds between two steps.
        """
        while True:
            view = self.drive()
            yield view
            if rules.is_over(view.seen):
                return

            time.sleep(every)

    def drive(self) -> View:
        """Take a step of each campaign, and the changes that are due."""
        return self._match(self.look(drive=True))

    def settle(self) -> View:
        """Make the followers match the leader; return the look at them before it."""
        return self._match(self.look())

    def _match(self, view: View) -> View:
        due = {action.cell: action for action in rules.due(view.seen)}
        away = dict(view.away)

        # The leader's change comes first, so that other drivers find it.
        leading = due.pop(self.cell, None)
        if leading is not None:
            away |= self._act({self.cell: leading}, view.campaigns)

        away |= self._act(due, view.campaigns)
        return replace(view, away=away)

    def look(self, *, drive: bool = False) -> View:
        """Look at the campaigns of all cells, after a step of each if `drive`."""
        answers = ask(
            self.cells,
            partial(self._find, drive=drive),
            LOOK_SECONDS,
        )
        found = {cell: row for cell, row in answers.found.items() if row}
        names = self._taking_part(found.get(self.cell))
        members = self._members(answers.found)
        seen = Seen(
            leader=self.leader,
            cell=self.cell,
            members=members,
            cells=names,
        )

        # A cell of the campaign that this process does not know cannot be asked.
        unknown = RedriveError("it is not in REDRIVE_DATABASES")
        missing = dict.fromkeys(names - self.cells.keys(), unknown)

        return View(
            seen=seen,
            campaigns=found,
            away=missing | dict(answers.away),
        )

    def _taking_part(self, leader: Fields | None) -> frozenset[str]:
        """Return the cells that the leader knows, or all if it does not answer."""
        known = self.cells
        if leader is not None:
            known = leader["conditions"]["together"]["cells"]

        return frozenset(known) - self.without

    def _members(self, found: Mapping[str, Row | None]) -> dict[str, Member | None]:
        """Return each cell that answers; None if it has no campaign yet."""
        members: dict[str, Member | None] = {}
        for cell, row in found.items():
            members[cell] = _member(row) if row else None
            # Otherwise the next look would start this cell again.
            if cell in self.empty:
                members[cell] = rules.NOTHING

        return members

    def _find(self, cell: str, conn: Connection, *, drive: bool) -> Row | None:
        number = self._number(cell, conn)
        if number is None:
            return None

        if drive:
            # A login that may only read drives nothing.
            with suppress(psycopg.errors.InsufficientPrivilege):
                campaigns.drive(conn, number)

        return campaigns.show(conn, number)

    def _number(self, cell: str, conn: Connection) -> int | None:
        if cell == self.cell:
            return self.campaign
        return _follower(conn, self.leader)

    def _act(
        self, actions: Mapping[str, Action], found: Mapping[str, Row]
    ) -> Mapping[str, Exception]:
        """Make the changes that are due, and return the cells that could not."""
        cells = {cell: self.cells[cell] for cell in actions}

        def act(cell: str, conn: Connection) -> None:
            action = actions[cell]
            if action.act is Act.START:
                self._follow(cell, conn, found[self.cell])
            else:
                self._change(cell, conn, action)

        return ask(cells, act, PATIENCE_SECONDS).away

    def _change(self, cell: str, conn: Connection, action: Action) -> None:
        number = self._number(cell, conn)
        assert number is not None  # noqa: S101 # it was seen

        try:
            _CHANGES[action.act](
                conn,
                number,
                actor=self.actor,
                why=action.why,
            )
        except psycopg.Error as error:
            # It has ended, or another driver was first: the next look shows it.
            if error.sqlstate != campaigns.REFUSED:
                raise

    def _follow(self, cell: str, conn: Connection, leader: Fields) -> None:
        """Plan and start the campaign of a cell, unless another driver did."""
        together = leader["conditions"]["together"]
        share = rules.shares(together["cells"], together["rate"])[cell]
        why = rules.reason(self.leader, leader["why"])

        with conn.transaction() as transaction:
            # The same selection as the leader's, without later deaths.
            made = campaigns.freeze(
                conn,
                selects=_until(leader),
                max_redrives=campaigns.MAX_REDRIVES,
                actor=self.actor,
            )
            if made["plan"] is None:
                self.empty.add(cell)
                return

            # Locked before the look, so that no other driver starts one after it.
            campaigns.lock_starts(conn)
            if _follower(conn, self.leader) is not None:
                # The plan above is taken back.
                raise psycopg.Rollback(transaction)

            campaigns.start_alone(
                conn,
                made["plan"],
                _terms(leader, share),
                actor=self.actor,
                why=why,
                more=_kept(leader) | {"leader": self.leader},
            )

    # ------------------------------------------------------------------ change

    def pause(self, why: str) -> View:
        """Pause the leader, then its followers."""
        return self._stop(Act.PAUSE, State.PAUSED, why)

    def cancel(self, why: str) -> View:
        """Cancel the leader, then its followers."""
        return self._stop(Act.CANCEL, State.CANCELLED, why)

    def _stop(self, act: Act, end: State, why: str) -> View:
        view = self.look()
        actions = rules.left(view.seen, act, why)
        left = {action.cell: action for action in actions}
        away = self._act(left, view.campaigns)

        # A leader that is done has nothing to stop, only its followers, as above.
        if not left and not self._is_in(end):
            self._lead(_CHANGES[act], why)

        return self._settled(away)

    def resume(self, why: str) -> View:
        """Let all stopped followers wait, then resume the leader.

        Its canaries go first again, and a driver resumes the followers after them. If
        the command is killed in between, everything is still paused.
        """
        self.settle()
        followers = dict(self.cells)
        del followers[self.cell]
        hold = partial(self._hold, why=rules.reason(self.leader, why))
        held = ask(followers, hold, LOOK_SECONDS).found

        # A leader that is done cannot be resumed; drivers resume its followers anyway.
        is_done = self._is_in(State.DONE)
        if not (is_done and any(held.values())):
            self._lead(campaigns.resume, why)

        return self._settled()

    def _hold(self, cell: str, conn: Connection, *, why: str) -> bool:
        """Let a cell's campaign wait for its leader; return whether it does."""
        number = self._number(cell, conn)
        if number is None:
            return False

        return _hold(
            conn,
            number,
            self.leader,
            actor=self.actor,
            why=why,
        )

    def _lead(self, change: Callable[..., object], why: str) -> None:
        with self.cells[self.cell]() as conn:
            change(conn, self.campaign, actor=self.actor, why=why)

    def _is_in(self, state: State) -> bool:
        with self.cells[self.cell]() as conn:
            found = campaigns.show(conn, self.campaign)
        if found is None:
            return False
        return found["state"] == state

    def _settled(self, away: Mapping[str, Exception] | None = None) -> View:
        """Change the followers, and return the look at them after it."""
        failed = {**(away or {}), **self.settle().away}
        view = self.look()
        return replace(view, away={**failed, **view.away})


def leads(found: Fields | None) -> bool:
    """Return True if a campaign leads others."""
    return found is not None and "together" in (found["conditions"] or {})


def _hold(conn: Connection, number: int, leader: str, *, actor: str, why: str) -> bool:
    """Let a follower that has stopped wait for its leader; return whether it does."""
    with conn.transaction():
        found = campaigns.show(conn, number)
        assert found is not None  # noqa: S101 # it was just found
        if rules.is_held(leader, _member(found)):
            return True
        if found["state"] not in {State.PAUSED, State.ABORTED}:
            return False

        # Paused with the leader's reason, it counts as held, and drivers resume it
        # later. In one transaction, because in between it must not release anything.
        campaigns.resume(conn, number, actor=actor, why=why)
        campaigns.pause(conn, number, actor=actor, why=why)

        return True


def _member(row: Fields) -> Member:
    return Member(
        campaign=row["campaign"],
        state=State(row["state"]),
        said=row["said"],
        in_flight=row["in_flight"],
    )


def _until(leader: Fields) -> Row:
    """Return the leader's selection, without the dead letters that came after it."""
    selects = dict(leader["filter"])
    end = leader["created_at"]
    if "until" in selects:
        end = min(end, datetime.fromisoformat(selects["until"]))

    return selects | {"until": end.isoformat()}


def _terms(leader: Fields, share: float | None) -> Terms:
    """Return the terms of a follower; its other conditions are kept as they are."""
    canaries = min(leader["canaries"], rules.FOLLOWER_CANARIES)
    return Terms(share, canaries, leader["abort_share"])


def _kept(leader: Fields) -> Row:
    """Return the leader's conditions that its followers have, too."""
    conditions = dict(leader["conditions"])
    conditions.pop("together", None)
    return conditions


def _follower(conn: Connection, leader: str) -> int | None:
    query: LiteralString = (
        "select id from redrive.campaigns where conditions ->> 'leader' = %s"
    )
    return value(conn, query, leader)
