"""A move is given up: each job on the way is back under its id, or in the other cell, and once."""

import threading
from collections.abc import Callable
from itertools import count, islice
from pathlib import Path
from typing import Any, LiteralString
from uuid import UUID

import psycopg
import pytest

from redrive import enqueue
from redrive.encryption import Whose, configured, open_payload
from redrive.live_jobs.cell_moves import give_up, moves
from redrive.live_jobs.cell_moves.give_up import Returned
from tests.factories import (
    claim,
    complete,
    make_dead_letter,
    make_job,
    make_worker,
    redrive,
)
from tests.flow.harness import wait_for
from tests.flow.test_moves import KEY, THERE, cells, fill, move, places
from tests.postgres import Database

__all__ = ["cells"]  # the fixture

Cells = tuple[Database, Database]
ROWS: LiteralString = """
    select id, payload ->> 'n' as n from redrive.jobs where tenant = %s
    union all select id, payload ->> 'n' from redrive.dead_letters where tenant = %s"""
OPEN: LiteralString = "select count(*) from redrive.moves where coalesce(ended_at, 'infinity') = 'infinity'"


def returned(cells: Cells, what: moves.Move = THERE) -> Returned:
    """Give the move up."""
    eu, us = cells
    *_, done = give_up.run(eu.conn, us.conn, what, number_of(eu, what))
    return done


def number_of(eu: Database, what: moves.Move = THERE) -> UUID:
    """Return the id of the open move."""
    number = give_up.find(eu.conn, what)
    assert number is not None
    return number


def test_giving_up_that_stops_anywhere_is_continued_and_each_job_is_once(
    cells: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mover stops at each of its steps, and giving up at each of its own."""
    monkeypatch.setattr(moves, "CHUNK", 3)
    monkeypatch.setattr(give_up, "CHUNK", 2)
    plans: list[Returned] = []
    steps = 0
    for stop in count(1):
        for step in count(1):
            what = THERE._replace(key=f"customer-{stop}-{step}")
            plan, steps = give_up_after(cells, what, stop, step)
            plans.append(plan)
            if steps < step:
                break
        if steps == 0:
            break

    assert any(plan.put_back and plan.there for plan in plans)
    assert any(plan.put_back and not plan.there for plan in plans)
    assert any(plan.there and not plan.put_back for plan in plans)
    assert cells[0].value(OPEN) == 0


def give_up_after(
    cells: Cells, what: moves.Move, stop: int, step: int
) -> tuple[Returned, int]:
    """Stop a mover after some steps, stop giving up after some, and do both again.

    Returns the plan, and how many steps giving up took; 0: the move had ended.
    """
    eu, us = cells
    everything = fill(eu.conn, what.key)
    ids = dict(eu.rows(ROWS, what.key, what.key))
    moving = moves.run(eu.conn, us.conn, what)
    list(islice(moving, stop))
    number = give_up.find(eu.conn, what)
    if number is None:
        list(moving)
        return Returned(), 0
    plan = give_up.look(eu.conn, us.conn, number)
    steps = len(list(islice(give_up.run(eu.conn, us.conn, what, number), step)))
    before, between, after = places(cells, what.key)
    assert before.keys() | between.keys() | after.keys() == everything
    assert not before.keys() & (between.keys() | after.keys())
    if give_up.find(eu.conn, what) is not None:
        returned(cells, what)

    before, between, after = places(cells, what.key)
    assert between == {}
    assert not before.keys() & after.keys()
    assert before | after == dict.fromkeys(everything, 1)
    assert dict(eu.rows(ROWS, what.key, what.key)).items() <= ids.items()
    # The mover comes back. It ends only if nothing is left that it could take out.
    if before:
        with pytest.raises(psycopg.Error, match="move: it has ended"):
            list(moving)
    else:
        list(moving)
    assert places(cells, what.key) == [before, between, after]
    return plan, steps


def test_after_giving_up_the_key_can_be_moved_again(cells: Cells) -> None:
    eu, us = cells
    everything = fill(eu.conn)
    taken_out(eu, us)

    assert returned(cells).put_back == 7
    assert [eu.value(OPEN), us.value(OPEN)] == [0, 0]
    assert move(cells).moved == 7
    assert places(cells) == [{}, {}, dict.fromkeys(everything, 1)]


def taken_out(eu: Database, us: Database) -> Any:
    """Stop a mover when it has taken out the jobs and put in none; return it."""
    moving = moves.run(eu.session().conn, us.session().conn, THERE)
    for _ in moving:
        if moves.look(eu.conn, us.conn, KEY).taken:
            break
    return moving


def test_the_jobs_of_a_destination_that_is_lost_run_here(cells: Cells) -> None:
    eu, us = cells
    order = {"tenant": KEY, "ordering_key": "o"}
    first, second = (make_job(eu.conn, "a", {"n": n}, **order) for n in range(2))
    dead = make_dead_letter(eu.conn, "b", {"n": 2}, tenant=KEY)
    redrive(eu.conn, [dead])
    keyed = make_job(eu.conn, "a", {"n": 3}, tenant=KEY, idempotency_key="k")
    taken_out(eu, us)

    number = number_of(eu)
    assert give_up.look(eu.conn, None, number) == Returned(put_back=4)
    *_, done = give_up.run(eu.conn, None, THERE, number)

    assert done == Returned(put_back=4)
    enqueued: LiteralString = (
        "select outcome from redrive.enqueue_v1('a', '{}', 'default', null, 0, null, 'k', null,"
        " null, null, '{}', null, null, null, null, null)"
    )
    assert eu.value(enqueued) == "live"
    worker = make_worker(eu.conn)
    ran: list[int] = []
    while jobs := claim(eu.conn, worker, 10):
        ran += [job.id for job in jobs]
        assert complete(eu.conn, worker, *jobs) == {job.id for job in jobs}
    assert sorted(ran) == sorted([first, second, dead, keyed])
    assert ran.index(first) < ran.index(second)
    assert eu.value("select outcome from redrive.dead_letters") == "succeeded"
    assert eu.value("select count(*) from redrive.failures where job = %s", dead) == 1
    assert eu.rows(
        "select n, detail -> 'ids' from redrive.audit where action = 'move back'"
    ) == [(4, sorted([first, second, dead, keyed]))]


def test_a_stopped_mover_cannot_put_in_what_it_has_read(cells: Cells) -> None:
    eu, us = cells
    everything = fill(eu.conn)
    taken_out(eu, us)
    number = number_of(eu)
    read = dict(eu.rows("select id, data::text from redrive.moved_jobs"))
    assert returned(cells).put_back == 7

    with pytest.raises(psycopg.Error, match="it has ended in this cell"):
        moves._put_in(us.conn, THERE, number, read)
    moves.drop(eu.conn, number, dict.fromkeys(read))

    assert places(cells) == [dict.fromkeys(everything, 1), {}, {}]


def test_giving_up_waits_for_jobs_that_are_being_put_in(cells: Cells) -> None:
    eu, us = cells
    everything = fill(eu.conn)
    taken_out(eu, us)
    number = number_of(eu)
    read = dict(eu.rows("select id, data::text from redrive.moved_jobs limit 3"))
    found: list[Returned] = []
    waits: LiteralString = (
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        " and query like '%%refuse_move%%' and datname = current_database() and %s"
    )
    mover, other = us.session().conn, us.session()
    with mover.transaction():
        moves._put_in(mover, THERE, number, read)
        giving = threading.Thread(target=lambda: found.append(returned(cells)))
        giving.start()
        wait_for(lambda: other.value(waits, True) == 1)
    giving.join()

    assert found == [Returned(put_back=4, there=3)]
    before, between, after = places(cells)
    assert (between, before | after) == ({}, dict.fromkeys(everything, 1))
    assert len(after) == 3


def test_a_job_whose_key_came_again_is_left_out(cells: Cells) -> None:
    """The key of a job that was taken out is forgotten with the other keys."""
    eu, us = cells
    make_job(eu.conn, "a", {"n": 1}, tenant=KEY, idempotency_key="k")
    taken_out(eu, us)
    eu.rows("delete from redrive.completions")
    make_job(eu.conn, "a", {"n": 1}, tenant=KEY, idempotency_key="k")

    assert returned(cells) == Returned(known=1)
    assert places(cells) == [{"1": 1}, {}, {}]


def test_the_destination_remembers_what_came_until_the_move_has_ended(
    cells: Cells,
) -> None:
    """The retention of keys may end while nobody continues to give up."""
    eu, us = cells
    fill(eu.conn)
    moving = moves.run(eu.conn, us.conn, THERE)
    while not us.value("select count(*) from redrive.imports"):
        next(moving)
    next(give_up.run(eu.conn, us.conn, THERE, number_of(eu)))
    worker = make_worker(us.conn)
    while jobs := claim(us.conn, worker, 100):
        complete(us.conn, worker, *jobs)
    us.rows("delete from redrive.dead_letters")
    forget: LiteralString = "select redrive.forget_imports_v1('0', 100)"

    us.rows("update redrive.chores set place = 0 where name = 'forget_imports'")
    assert us.value(forget) == 0
    assert returned(cells) == Returned(there=7)
    us.rows("update redrive.chores set place = 0 where name = 'forget_imports'")
    assert us.value(forget) == 7


def test_encrypted_jobs_return(cells: Cells, keys: Callable[..., Path]) -> None:
    eu, us = cells
    keys("old")
    enqueue(eu.conn, "a", {"n": "1"}, tenant=KEY)
    taken_out(eu, us)

    assert returned(cells).put_back == 1

    *whose, headers, payload = eu.row(
        "select kind, queue, tenant, idempotency_key, ordering_key, headers, payload"
        " from redrive.jobs where tenant = %s",
        KEY,
    )
    assert open_payload(configured(), payload, Whose(*whose), headers) == b'{"n":"1"}'
