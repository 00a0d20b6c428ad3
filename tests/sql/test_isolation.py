"""Idempotency keys at every isolation level: what ended after a snapshot is no secret."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg
import pytest
from psycopg import IsolationLevel, errors

from redrive.enqueue import enqueue_reporting
from tests.factories import (
    claim,
    complete,
    let_die,
    make_campaign,
    make_job,
    make_worker,
    redrive,
)
from tests.postgres import Database

pytestmark = pytest.mark.every_version

Connection = psycopg.Connection[tuple[Any, ...]]

KIND = "invoice.charge"
NEXT = {
    "none": {"enqueue": "live"},
    "live": {"complete": "succeeded", "let_die": "dead"},
    "succeeded": {"forget": "none"},
    "dead": {"redrive": "live", "enqueue": "live"},
}
"""What may happen to a key, by what it stands for."""


def histories(state: str, longest: int) -> Iterator[tuple[tuple[str, ...], str]]:
    """Everything that may happen to a key in this number of steps, and its state after them."""
    yield (), state
    if longest:
        for step, after in NEXT[state].items():
            for more, end in histories(after, longest - 1):
                yield (step, *more), end


class Case(NamedTuple):
    """What happens to a key before the caller's snapshot and after it."""

    before: tuple[str, ...]
    after: tuple[str, ...]


CASES = [
    Case(before, after)
    for before, state in histories("none", 2)
    for after, _ in histories(state, 3)
]


class Key:
    """One key and its users."""

    def __init__(self, conn: Connection, key: str) -> None:
        self.conn, self.key = conn, key
        self.worker = make_worker(conn)
        self.dead: int | None = None

    def step(self, name: str) -> None:
        """Let one thing happen, and commit it."""
        if name == "enqueue":
            make_job(self.conn, KIND, idempotency_key=self.key)
        elif name == "redrive":
            assert self.dead
            assert redrive(self.conn, [self.dead]) == {self.dead: None}
            self.dead = None
        elif name == "forget":
            self.conn.execute(
                "delete from redrive.completions where key = %s", (self.key,)
            )
        else:
            (job,) = claim(self.conn, self.worker)
            if name == "complete":
                assert complete(self.conn, self.worker, job) == {job.id}
            else:
                self.dead = let_die(self.conn, self.worker, job)

    def stands_for(self) -> list[str]:
        """What now stands for the key: at most one thing may."""
        rows = self.conn.execute(
            "select 'live' from redrive.jobs where idempotency_key = %s"
            " union all select 'succeeded' from redrive.completions where key = %s",
            (self.key, self.key),
        )
        return [name for (name,) in rows]

    def clear(self) -> None:
        """Leave nothing to the next case."""
        self.conn.execute(
            "delete from redrive.jobs where idempotency_key = %s", (self.key,)
        )


def told_to_retry(caller: Connection, key: Key, case: Case, act: Any) -> bool:
    """Play a case around the caller's snapshot. Returns whether `act` met a 40001."""
    for step in case.before:
        key.step(step)
    try:
        with caller.transaction():
            caller.execute("select 1")  # takes the snapshot
            for step in case.after:
                key.step(step)
            act(caller)
    except errors.SerializationFailure:
        return True
    return False


@pytest.fixture
def caller(database: Database) -> Connection:
    return database.connect()


@pytest.mark.parametrize(
    "level", list(IsolationLevel)[1:], ids=lambda level: level.name
)
def test_a_key_never_runs_twice_whatever_ended_after_the_callers_snapshot(
    database: Database, caller: Connection, level: IsolationLevel
) -> None:
    """A producer gets the right answer or a 40001, which it may send again."""
    caller.isolation_level = level
    for n, case in enumerate(CASES):
        key = Key(database.conn, f"k{n}")

        def act(conn: Connection, key: Key = key, case: Case = case) -> None:
            known = key.stands_for()
            found = enqueue_reporting(conn, KIND, idempotency_key=key.key)
            assert not (found.created and known), case
            # what was forgotten since may still be known to the caller
            assert found.created or found.outcome in known or "forget" in case.after, (
                case
            )

        if told_to_retry(caller, key, case, act):
            assert level is not IsolationLevel.READ_COMMITTED, case
            act(caller)
        assert len(key.stands_for()) <= 1, case
        key.clear()


@pytest.mark.parametrize(
    "level", list(IsolationLevel)[1:], ids=lambda level: level.name
)
def test_a_redrive_never_runs_a_key_twice_whatever_ended_after_its_snapshot(
    database: Database, caller: Connection, level: IsolationLevel
) -> None:
    """The same for an operator's transaction."""
    caller.isolation_level = level
    campaign = make_campaign(database.conn)
    for n, case in enumerate(CASES):
        key = Key(database.conn, f"k{n}")
        if "let_die" not in case.before + case.after:
            continue

        def act(conn: Connection, key: Key = key) -> None:
            if key.dead is not None:
                redrive(conn, [key.dead], campaign=campaign)

        if told_to_retry(caller, key, case, act):
            assert level is not IsolationLevel.READ_COMMITTED, case
            act(caller)
        assert len(key.stands_for()) <= 1, case
        key.clear()


def test_the_cases_hold_what_was_once_wrong() -> None:
    assert Case((), ("enqueue", "complete")) in CASES
    assert Case(("enqueue",), ("complete",)) in CASES
    assert Case(("enqueue", "let_die"), ("enqueue", "complete")) in CASES
