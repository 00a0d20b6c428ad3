"""A key moves from one cell to another: each job is in exactly one, wherever the mover stops."""

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from redrive import enqueue
from redrive.encryption import (
    Undecryptable,
    Whose,
    configured,
    open_noted,
    open_payload,
)
from redrive.live_jobs.cell_moves import moves
from redrive.live_jobs.cell_moves.moves import Done, Move
from tests.factories import (
    bury,
    claim,
    complete,
    depths,
    failure,
    make_dead_letter,
    make_job,
    make_worker,
    outcome,
    redrive,
    settle,
    totals,
)
from tests.postgres import Database, Server

KEY = "customer-17"
THERE = Move(KEY, "eu", "us", "ada", "us has room")
BACK = Move(KEY, "us", "eu", "ada", "it was a mistake")


@pytest.fixture
def cells(server: Server) -> Iterator[tuple[Database, Database]]:
    with contextlib.ExitStack() as stack:
        eu = stack.enter_context(server.database())
        us = stack.enter_context(server.database())
        make_job(
            us.conn, "other", tenant="customer-18"
        )  # the same ids are in use there
        yield eu, us


def move(cells: tuple[Database, Database], what: Move = THERE) -> Done:
    here, there = cells if what == THERE else cells[::-1]
    *_, done = moves.run(here.conn, there.conn, what)
    return done


PLACES: LiteralString = """
    select payload ->> 'n' from redrive.jobs where tenant = %s
    union all
    select payload ->> 'n' from redrive.dead_letters where tenant = %s and state = 'open'"""
ON_THE_WAY: LiteralString = """
    select coalesce(j.data #>> '{job,payload,n}', j.data #>> '{dead_letters,0,payload,n}')
    from redrive.moved_jobs j join redrive.moves m on m.id = j.move
    where j.data is not null and m.tenant = %s"""


def places(cells: tuple[Database, Database], key: str = KEY) -> list[dict[str, int]]:
    """How often each job of the key is in the source, in its documents, and there."""
    eu, us = cells
    return [
        dict(Counter(eu.column(PLACES, key, key))),
        dict(Counter(eu.column(ON_THE_WAY, key))),
        dict(Counter(us.column(PLACES, key, key))),
    ]


def fill(conn: Any, key: str = KEY) -> set[str]:
    """Enqueue jobs of all sorts of the key, each with its own n, and one of another."""
    make_job(conn, "a", tenant="customer-18")
    for n in range(6):
        more: dict[str, Any] = {"idempotency_key": f"{key}-{n}"} if n % 2 else {}
        order = f"{key}-{n % 3}"
        enqueue(conn, "a", {"n": n}, tenant=key, ordering_key=order, **more)
    make_dead_letter(conn, "b", {"n": 6}, tenant=key)
    return {str(n) for n in range(7)}


def test_a_move_takes_jobs_and_dead_letters_and_leaves_other_keys(
    cells: tuple[Database, Database],
) -> None:
    eu, us = cells
    everything = fill(eu.conn)

    plan = moves.look(eu.conn, us.conn, KEY)
    done = move(cells)

    assert plan.moving == {"job": 6, "dead letter": 1}
    assert (done.moved, done.known) == (7, 0)
    assert places(cells) == [{}, {}, dict.fromkeys(everything, 1)]
    assert depths(eu.conn)["default"].ready == 1
    assert depths(us.conn)["default"].dead == 1
    assert totals(us.conn)["imported"] == 1
    # in their order, one of each ordering key at a time
    worker = make_worker(us.conn)
    ran: list[list[int]] = []
    while jobs := claim(us.conn, worker, 100):
        ran.append([job.id for job in jobs if job.kind == "a"])
        assert complete(us.conn, worker, *jobs) == {job.id for job in jobs}
    assert [len(run) for run in ran] == [3, 3]
    assert us.row(
        "select detail ->> 'from', detail -> 'ids', jsonb_array_length(detail -> 'source_ids')"
        " from redrive.audit where action = 'move in' order by id limit 1"
    )[::2] == ("eu", 7)


def test_a_move_that_stops_anywhere_is_continued(
    cells: tuple[Database, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    eu, us = cells
    monkeypatch.setattr(moves, "CHUNK", 2)

    stop = 0
    for stop in count(1):
        key = f"customer-{stop}"
        what = THERE._replace(key=key)
        everything = fill(eu.conn, key)
        here, there = eu.session(), us.session()
        steps = list(islice(moves.run(here.conn, there.conn, what), stop))
        here.close()
        there.close()

        before, between, after = places(cells, key)
        assert before.keys() | between.keys() | after.keys() == everything
        assert moves.look(eu.conn, us.conn, key).taken == len(between)
        assert not before.keys() & between.keys()
        assert not before.keys() & after.keys()
        *_, _ = moves.run(eu.conn, us.conn, what)
        assert places(cells, key) == [{}, {}, dict.fromkeys(everything, 1)]
        if len(steps) < stop:
            break

    assert stop > 12
    open_moves: LiteralString = (
        "select count(*) from redrive.moves where ended_at is null"
    )
    assert eu.value(open_moves) == 0
    assert us.value(open_moves) == 0


def test_a_stopped_mover_cannot_go_on_after_another_has_ended_the_move(
    cells: tuple[Database, Database],
) -> None:
    eu, us = cells
    fill(eu.conn)
    stalled = moves.run(eu.session().conn, us.session().conn, THERE)
    next(stalled)

    move(cells)
    make_job(eu.conn, "a", {"n": 7}, tenant=KEY)

    with pytest.raises(psycopg.Error, match="move: it has ended"):
        list(stalled)
    assert places(cells)[0] == {"7": 1}


def test_a_mover_does_not_end_a_move_from_which_another_has_taken_out_jobs(
    cells: tuple[Database, Database],
) -> None:
    """The first mover has lost its lock, and has nothing left to carry."""
    eu, us = cells
    worker = make_worker(eu.conn)
    make_job(eu.conn, "a", tenant=KEY, idempotency_key="done")
    assert complete(eu.conn, worker, *claim(eu.conn, worker, 1))
    first = moves.run(eu.session().conn, us.session().conn, THERE)
    assert [done.keys for done in islice(first, 3)][-1] == 1  # its end comes next
    everything = fill(eu.conn)
    second = moves.run(eu.session().conn, us.session().conn, THERE)
    while not moves.look(eu.conn, us.conn, KEY).taken:
        next(second)

    list(first)

    assert places(cells) == [{}, {}, dict.fromkeys(everything, 1)]
    with pytest.raises(psycopg.Error, match="move: it has ended"):
        list(second)


def test_jobs_behind_a_running_job_wait_for_it_and_run_after_it(
    cells: tuple[Database, Database],
) -> None:
    eu, us = cells
    worker = make_worker(eu.conn)
    for n in range(3):
        make_job(eu.conn, "a", {"n": n}, tenant=KEY, ordering_key="o")
    (running,) = claim(eu.conn, worker, 10)
    steps = moves.run(eu.session().conn, us.session().conn, THERE)

    assert any(done.waiting == 2 for done in steps)
    assert places(cells) == [{"0": 1}, {"1": 1, "2": 1}, {}]

    # The job comes back, and goes first.
    settle(eu.conn, worker, running, "retry", failure=failure())
    *_, done = steps
    assert done.moved == 3
    there = us.column(
        "select payload ->> 'n' from redrive.jobs where tenant = %s order by id", KEY
    )
    assert there == ["0", "1", "2"]
    assert (
        us.value(
            "select attempt from redrive.jobs where payload = '{\"n\": 0}' and tenant = %s",
            KEY,
        )
        == 1
    )


def test_a_key_that_succeeded_is_known_and_the_key_of_a_moved_job_is_taken(
    cells: tuple[Database, Database],
) -> None:
    eu, us = cells
    worker = make_worker(eu.conn)
    make_job(eu.conn, "a", tenant=KEY, idempotency_key="done")
    assert complete(eu.conn, worker, *claim(eu.conn, worker, 1))
    make_job(eu.conn, "b", tenant="customer-18", idempotency_key="done")
    assert complete(eu.conn, worker, *claim(eu.conn, worker, 1))
    moved = make_job(eu.conn, "a", {"n": 1}, tenant=KEY, idempotency_key="live")

    assert moves.look(eu.conn, us.conn, KEY).keys == 1
    assert move(cells).keys == 1

    created: LiteralString = (
        "select outcome from redrive.enqueue_v1(%s, '{}', 'default', null, 0, null, %s, null, %s,"
        " null, '{}', null, null, null, null, null)"
    )
    assert us.value(created, "a", "done", KEY) == "succeeded"
    assert us.value(created, "b", "done", "customer-18") == "enqueued"
    assert us.value(created, "a", "live", KEY) == "live"
    assert eu.value(created, "a", "live", KEY) == "succeeded"
    assert outcome(eu.conn, moved) == "unknown"

    # Back again: the job is free to run here, and its key has not succeeded.
    assert move(cells, BACK).moved == 1
    assert eu.value(created, "a", "live", KEY) == "live"
    assert places(cells) == [{"1": 1}, {}, {}]


def test_a_job_whose_key_the_other_cell_has_is_left_out(
    cells: tuple[Database, Database],
) -> None:
    eu, us = cells
    make_job(us.conn, "a", {"n": 1}, tenant=KEY, idempotency_key="live")
    make_job(eu.conn, "a", {"n": 1}, tenant=KEY, idempotency_key="live")
    fields: dict[str, Any] = {"unique_for": 60, "unique_by": ["u"], "tenant": KEY}
    enqueue(us.conn, "u", {"n": 2, "u": 1}, **fields)
    enqueue(eu.conn, "u", {"n": 3, "u": 1}, on_conflict="replace", **fields)

    done = move(cells)

    assert (done.moved, done.known) == (1, 1)
    assert places(cells) == [{}, {}, {"1": 1, "2": 1, "3": 1}]


def test_a_dead_letter_keeps_its_history(cells: tuple[Database, Database]) -> None:
    eu, us = cells
    dead = make_dead_letter(eu.conn, "a", {"n": 0}, tenant=KEY)
    redrive(eu.conn, [dead])
    waiting = eu.row(
        "select redrives, deliveries from redrive.jobs where id = %s", dead
    )

    assert move(cells).moved == 1

    (here,) = us.column("select id from redrive.jobs where tenant = %s", KEY)
    assert here != dead
    assert waiting == us.row(
        "select redrives, deliveries from redrive.jobs where id = %s", here
    )
    assert us.column("select state from redrive.dead_letters where id = %s", here) == [
        "redriven"
    ]
    assert us.value("select count(*) from redrive.failures where job = %s", here) == 1
    for table in ("dead_letters", "failures"):
        rows: LiteralString = f"select count(*) from redrive.{table}"
        assert eu.value(rows) == 0
    # It ends as any redriven job.
    worker = make_worker(us.conn)
    jobs = claim(us.conn, worker, 10)
    complete(us.conn, worker, *jobs)
    assert us.value("select outcome from redrive.dead_letters where id = %s", here) == (
        "succeeded"
    )


def test_jobs_of_batches_stay_with_their_ordering_keys(
    cells: tuple[Database, Database],
) -> None:
    eu, us = cells
    batch = eu.value('select redrive.open_batch_v1(null, \'{"kind": "done"}\')')
    make_job(eu.conn, "a", {"n": 1}, tenant=KEY, ordering_key="o")
    make_job(eu.conn, "a", {"n": 2}, tenant=KEY, ordering_key="o", batch=batch)
    make_job(eu.conn, "a", {"n": 3}, tenant=KEY, ordering_key="p")

    assert moves.look(eu.conn, us.conn, KEY).staying == {("job", "batch"): 2}
    move(cells)

    assert places(cells) == [{"1": 1, "2": 1}, {}, {"3": 1}]


def test_a_move_is_refused_while_one_to_another_cell_or_back_is_open(
    cells: tuple[Database, Database],
) -> None:
    eu, us = cells
    fill(eu.conn)
    next(moves.run(eu.conn, us.conn, THERE))

    with pytest.raises(psycopg.Error, match="a move of this key to us has not ended"):
        next(moves.run(eu.conn, us.conn, THERE._replace(to="ap")))
    with pytest.raises(psycopg.Error, match="out of this cell has not ended"):
        next(moves.run(us.conn, eu.conn, BACK))

    move(cells)
    assert move(cells, BACK).moved == 7


def test_encrypted_jobs_and_records_open_under_their_new_ids(
    cells: tuple[Database, Database], keys: Callable[..., Path]
) -> None:
    eu, us = cells
    keys("old")
    worker = make_worker(eu.conn)
    fields: dict[str, Any] = {"tenant": KEY, "headers": {"mine": 1}}
    enqueue(eu.conn, "a", {"n": "0"}, **fields)
    (job,) = claim(eu.conn, worker, 10)
    keyring = configured()
    assert keyring is not None
    record = keyring.seal_failure(json.loads(failure(message="m")), job.id, 1)
    bury(eu.conn, worker, job, failure=json.dumps(record))
    enqueue(eu.conn, "a", {"n": "1"}, idempotency_key="k", **fields)
    # As for a job that has waited for hours, whose envelope is no longer accepted as it is.
    eu.rows("delete from redrive.envelopes")

    keys("new")
    with pytest.raises(
        Undecryptable, match="encrypted with key old, which is not here"
    ):
        move(cells)
    keys("new", "old")
    assert move(cells).moved == 2

    keyring = configured()
    found = us.rows(
        "select kind, queue, tenant, idempotency_key, ordering_key, headers, payload::text"
        " from redrive.jobs where tenant = %s union all"
        " select kind, queue, tenant, idempotency_key, ordering_key, headers, payload::text"
        " from redrive.dead_letters",
        KEY,
    )
    opened = {
        open_payload(keyring, payload, Whose(*whose), headers)
        for *whose, headers, payload in found
    }
    assert opened == {b'{"n":"0"}', b'{"n":"1"}'}
    assert all(headers["mine"] == 1 for *_, headers, _ in found)
    here, delivery, detail = us.row(
        "select job, deliveries, detail from redrive.failures"
    )
    assert here != job.id
    assert open_noted(keyring, detail, "failure", here, delivery)["message"] == "m"
