"""A success is remembered as long as a dead letter could repeat it."""

import json
from typing import Any, LiteralString

import pytest

from redrive.dead_letters.purge import forget
from redrive.enqueue import enqueue, enqueue_many
from tests.factories import (
    claim_one,
    complete_next,
    let_die,
    let_next_die,
    make_dead_letter,
    make_job,
    make_worker,
    redrive,
)
from tests.postgres import Database

KIND = "crm.sync"
LETTER: dict[str, Any] = {
    "source_id": "m-1",
    "kind": "a",
    "queue": "q",
    "payload": {},
    "headers": {},
    "idempotency_key": "1",
    "reason": "gave_up",
    "category": "bug",
    "error_class": "E",
    "message": "",
    "fingerprint": "f",
    "attempts": 1,
}
OLD: LiteralString = (
    "insert into redrive.completions (kind, key, job, at)"
    " select 'a', n::text, n, now() - interval '31 days' + n * interval '1 ms'"
    " from generate_series(1, %s) n"
)

DEAD: LiteralString = (
    "insert into redrive.dead_letters (id, redrives, queue, kind, reason, category,"
    " error_class, message, fingerprint, attempts, deliveries, losses, priority, lane,"
    " created_at, headers, payload, idempotency_key)"
    " select n, 0, 'q', 'a', 'gave_up', 'bug', 'E', '', 'f', 1, 1, 0, 0, 0, now(), '{}',"
    " '{}', n::text from generate_series(%s::int, %s::int) n"
)


def dead_with_success(database: Database, key: str) -> int:
    """Return a dead letter whose work another job of its key did 31 days ago."""
    dead = make_dead_letter(database.conn, idempotency_key=key)
    make_job(database.conn, idempotency_key=key)
    worker = make_worker(database.conn)
    complete_next(database.conn, worker)
    database.rows("update redrive.completions set at = now() - interval '31 days'")
    return dead


@pytest.mark.parametrize("is_dismissed", [False, True])
def test_a_redrive_after_31_days_is_blocked_by_the_success(
    database: Database, is_dismissed: bool
) -> None:
    """Also if the dead letter was dismissed meanwhile, and is opened again."""
    dead = dead_with_success(database, "k")
    if is_dismissed:
        database.rows("select redrive.dismiss_v1(%s, 'ada', 'x')", [dead])
    forget(database.conn)
    if is_dismissed:
        database.rows("select redrive.reopen_v1(%s, 'ada', 'x')", [dead])

    assert redrive(database.conn, [dead]) == {dead: "succeeded"}


@pytest.mark.parametrize("end", ["dismiss", "redrive"])
def test_a_key_without_a_dead_letter_is_forgotten(database: Database, end: str) -> None:
    """The memory ends one retention after the last dead letter that needed it."""
    dead = dead_with_success(database, "k")
    database.rows("update redrive.dead_letters set died_at = now() - interval '1 year'")
    forget(database.conn)
    assert database.value("select count(*) from redrive.completions") == 1
    if end == "dismiss":
        database.rows(
            "select redrive.purge_v1(null, %s::bigint[], '{0}', '{open}')", [dead]
        )
    else:
        database.rows("update redrive.dead_letters set state = 'resolved'")
    database.rows("update redrive.completions set at = now() - interval '31 days'")
    forget(database.conn)

    assert database.value("select count(*) from redrive.completions") == 0


def test_kept_keys_do_not_hide_older_ones(database: Database) -> None:
    """A batch that keeps everything leaves the way free for the next one."""
    for key in ("1", "2", "3"):
        make_dead_letter(database.conn, "a", idempotency_key=key)
    database.rows(OLD, 5)
    forget_three = "select redrive.forget_completions_v1('30 days', 3)"

    assert [database.value(forget_three) for _ in range(3)] == [3, 2, 0]
    assert sorted(database.column("select key from redrive.completions")) == [
        *("1", "2", "3")
    ]


def test_an_import_keeps_its_keys_from_a_session_that_forgets(
    database: Database,
) -> None:
    """The dead letter is not committed when the other session looks for it."""
    database.rows(OLD, 1)
    forgetting = database.session()
    importing = database.transaction(
        "select redrive.import_v1('sqs', %s::jsonb, 'ada', 'x')", json.dumps([LETTER])
    )

    def forgotten() -> int:
        return forgetting.value("select redrive.forget_completions_v1('30 days', 9)")

    assert forgotten() == 0
    importing.rows("commit")

    assert forgotten() == 0
    (dead,) = database.column("select id from redrive.dead_letters")
    assert redrive(database.conn, [dead]) == {dead: "succeeded"}


def test_a_dead_letter_keeps_only_the_keys_of_its_work(database: Database) -> None:
    """The same key of another kind is another work; so is another dead letter."""
    dead = make_dead_letter(database.conn, "a", idempotency_key="1")
    gone = dead + 1_000_000
    for kind, key, days in (
        ("a", "1", 31),
        ("a", f"$unique:done:{dead}", 31),
        ("a", f"$unique:done:{gone}", 31),
        ("b", "1", 31),
        ("c", "1", 10),
    ):
        database.rows(
            "insert into redrive.completions (kind, key, job, at)"
            " values (%s, %s, 1, now() - %s * interval '1 day')",
            *(kind, key, days),
        )
    forget(database.conn)

    assert database.rows(
        "select kind, key, at < now() - interval '9 days' from redrive.completions"
        ' order by kind, key collate "C"'
    ) == [("a", f"$unique:done:{dead}", False), ("a", "1", False), ("c", "1", True)]


@pytest.mark.every_version
def test_forgetting_costs_the_same_beside_many_dead_letters(database: Database) -> None:
    """Each key is one look into an index, whatever else there is."""
    database.rows(OLD, 4000)
    look: LiteralString = (
        "explain (analyze, buffers, format json)"
        " select redrive.forget_completions_v1('30 days', 10)"
    )
    costs: list[int] = []
    for first in (1, 2001):
        database.rows(DEAD, first, first + 1999)
        database.rows("analyze redrive.dead_letters, redrive.completions")
        database.value(look)
        costs.append(database.value(look)[0]["Plan"]["Shared Hit Blocks"])

    assert max(costs) < 400, costs


def end_unique_jobs(database: Database, *ends: str) -> list[int]:
    """Enqueue a unique job for each end, one window after the other; return the ids."""
    worker, ids = make_worker(database.conn), list[int]()
    for end in ends:
        database.rows(
            "update redrive.completions set enqueued_at = enqueued_at - interval '2 h'"
        )
        ids.append(make_job(database.conn, KIND, {"n": 7}, unique_for=3600))
        if end == "completes":
            complete_next(database.conn, worker)
        elif end == "dies":
            let_next_die(database.conn, worker)
    return ids


@pytest.mark.parametrize("is_bulk", [False, True])
def test_a_later_window_does_not_make_a_dead_letter_repeat_done_work(
    database: Database, is_bulk: bool
) -> None:
    """A new unique job deletes the success of the window before."""
    first, _done = end_unique_jobs(database, "dies", "completes")
    database.rows("update redrive.completions set enqueued_at = now() - interval '2 h'")
    job = {"kind": KIND, "payload": {"n": 7}, "unique_for": 3600}
    if is_bulk:
        enqueue_many(database.conn, [job])
    else:
        enqueue(database.conn, **job)
    worker = make_worker(database.conn)
    let_die(database.conn, worker, second := claim_one(database.conn, worker))
    database.rows("update redrive.completions set at = now() - interval '31 days'")
    forget(database.conn)

    assert redrive(database.conn, [first, second.id]) == {
        first: "succeeded",
        second.id: None,
    }


def test_the_memory_of_a_dead_letter_ends_with_it(database: Database) -> None:
    """Nothing is remembered for dead letters that are gone or back at work."""
    first, *_ = end_unique_jobs(database, "dies", "completes", "dies")
    assert database.column("select key from redrive.completions") == [
        f"$unique:done:{first}"
    ]
    database.rows("update redrive.dead_letters set state = 'resolved'")
    database.rows("update redrive.completions set at = now() - interval '31 days'")
    forget(database.conn)

    assert database.value("select count(*) from redrive.completions") == 0
