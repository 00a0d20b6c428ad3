"""Groups: counts that no statement can forget, folded or not; versions, samples and mutes."""

import json
from typing import Any, LiteralString

import pytest

from redrive.dead_letters.campaigns.store import plan
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.find import ids
from redrive.dead_letters.groups import store as groups
from redrive.dead_letters.triage import dismiss
from redrive.worker import store
from tests.factories import (
    claim,
    claim_one,
    failure,
    let_die,
    make_dead_letters,
    make_job,
    make_jobs,
    make_worker,
    redrive,
    silence,
)
from tests.postgres import Database


def _die(
    database: Database,
    count: int,
    fingerprint: str,
    version: str | None = None,
    **overrides: Any,
) -> list[int]:
    make_jobs(database.conn, count)
    worker = make_worker(database.conn)
    detail = {"version": version} if version else {}
    record = failure(fingerprint=fingerprint, detail=detail, **overrides)
    return [
        let_die(database.conn, worker, job, failure=record)
        for job in claim(database.conn, worker, count)
    ]


def _counts(database: Database) -> dict[str, tuple[int, int]]:
    rows = database.rows(
        "select fingerprint, open, total from redrive.grouped where total > 0"
    )
    return {fingerprint: (opened, total) for fingerprint, opened, total in rows}


def _truth(database: Database) -> dict[str, tuple[int, int]]:
    rows = database.rows(
        "select fingerprint, count(*) filter (where state = 'open'), count(*)"
        " from redrive.dead_letters group by 1"
    )
    return {fingerprint: (opened, total) for fingerprint, opened, total in rows}


def test_groups_count_what_dies_is_redriven_dismissed_and_purged(database: Database):
    first, second = _die(database, 4, "f1"), _die(database, 3, "f2")
    assert _counts(database) == _truth(database) == {"f1": (4, 4), "f2": (3, 3)}

    redrive(database.conn, first[:2])
    dismiss(database.conn, second[:1], why="no", actor="ada")
    assert _counts(database) == _truth(database) == {"f1": (2, 4), "f2": (2, 3)}

    folded = database.value("select moved from redrive.fold_groups_v1()")
    assert folded >= 2
    assert _counts(database) == _truth(database)
    assert database.value("select moved from redrive.fold_groups_v1()") == 0

    database.conn.execute(
        "select redrive.purge_v1(null, %s, %s, '{open}')", (second[1:], [0, 0])
    )
    assert _counts(database) == {
        "f1": (2, 4),
        "f2": (0, 3),
    }  # what has died stays counted
    database.conn.execute("select redrive.fold_groups_v1()")
    assert _counts(database) == {"f1": (2, 4), "f2": (0, 3)}


def test_a_group_knows_its_versions_and_its_latest_sample(database: Database):
    _die(database, 1, "f1", "1.0")
    database.conn.execute("select redrive.fold_groups_v1()")
    (latest,) = _die(database, 1, "f1", "1.1")
    _die(database, 1, "f2", "1.1")
    database.conn.execute("select redrive.fold_groups_v1()")

    versions, sample = database.row(
        "select versions, sample from redrive.grouped where fingerprint = 'f1'"
    )

    assert sorted(versions) == ["1.0", "1.1"]
    assert sample == latest
    assert [g["group"] for g in groups.find(database.conn, new_since="1.1")] == ["f2"]
    assert groups.find(database.conn, new_since="9.9") == []


def test_a_version_that_is_not_folded_yet_counts_as_well(database: Database):
    _die(database, 1, "f1", "1.0")
    _die(database, 1, "f2", "1.1")

    assert [g["group"] for g in groups.find(database.conn, new_since="1.1")] == ["f2"]


def test_groups_are_folded_by_steps_in_any_order_of_time(database: Database):
    """What was seen first stays so, in any order of steps."""
    database.rows(
        "insert into redrive.group_deltas (fingerprint, kind, category, error_class, message,"
        " sample, version, added, opened, at)"
        " select 'f' || n % 3, 'a', 'bug', 'E', 'm', n, 'v' || n % 2, 1, 1,"
        " timestamptz '2026-01-01Z' + (9000 - n) * interval '1 second'"
        " from generate_series(1, 9000) n"
    )
    look = (
        "select fingerprint, open, total, first_seen, last_seen, sample, versions"
        " from redrive.grouped order by 1"
    )
    before = database.rows(look)
    steps = 0
    while database.row("select moved, more from redrive.fold_groups_v1()")[1]:
        steps += 1
        assert database.rows(look) == before

    assert steps >= 1
    assert database.rows(look) == before
    assert database.value("select count(*) from redrive.group_deltas") == 0


def test_a_group_that_is_not_folded_yet_can_be_muted(database: Database):
    from datetime import UTC, datetime, timedelta

    _die(database, 2, "f1")
    until = datetime.now(UTC) + timedelta(hours=1)

    assert groups.mute(database.conn, "f1", until, actor="ada", why="known")
    assert _counts(database) == _truth(database) == {"f1": (2, 2)}
    database.conn.execute("select redrive.fold_groups_v1()")
    assert _counts(database) == {"f1": (2, 2)}
    assert plan(database.conn, Filter(), actor=None).blocked == {"muted": 2}


def test_a_muted_group_says_so_until_it_is_taken_back(database: Database):
    from datetime import UTC, datetime, timedelta

    ids = _die(database, 2, "f1")
    until = datetime.now(UTC) + timedelta(hours=1)

    assert not groups.mute(database.conn, "nothing", until, actor="ada", why="known")
    assert groups.mute(database.conn, "f1", until, actor="ada", why="known")
    blocked = plan(database.conn, Filter(), actor=None).blocked
    assert blocked == {"muted": 2}
    assert groups.mute(database.conn, "f1", None, actor="ada", why="fixed")
    assert plan(database.conn, Filter(), actor=None).blocked == {}
    assert ids
    assert database.rows("select action, why from redrive.audit order by at") == [
        ("mute", "known"),
        ("unmute", "fixed"),
    ]


def test_a_group_is_kept_until_its_last_dead_letter_goes(database: Database):
    """By the names of groups their dead letters are found, closed ones, too."""
    (job,) = _die(database, 1, "f1")
    _die(database, 1, "g1")
    dismiss(database.conn, [job], why="no", actor="ada")
    database.conn.execute("select redrive.fold_groups_v1()")
    forget: LiteralString = "select redrive.forget_groups_v1('0', 9)"
    assert database.value(forget) == 0
    assert ids(database.conn, Filter(state=("dismissed",), group="f")) == [job]
    database.rows("delete from redrive.dead_letters where id = %s", job)
    database.conn.execute("select redrive.fold_groups_v1()")

    assert database.value(forget) == 1


@pytest.mark.every_version
def test_groups_are_cheap_among_many_dead_letters(database: Database):
    make_dead_letters(database.conn, 2_000)
    _die(database, 1, "f9")
    database.conn.execute("select redrive.fold_groups_v1()")
    plan = json.dumps(
        database.value(
            "explain (analyze, buffers, format json) select * from redrive.grouped"
        )
    )

    assert "dead_letters" not in plan


def test_one_died_of_a_killed_worker_is_in_a_group(database: Database):
    make_job(database.conn)
    worker = make_worker(database.conn)
    store.run_alone(database.conn, worker, claim_one(database.conn, worker).id)
    silence(database.conn, worker)
    store.rescue(database.conn, 60)

    assert _counts(database) == _truth(database) == {"worker-lost": (1, 1)}
