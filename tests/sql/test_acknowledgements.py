"""Groups that somebody works on, and groups that nobody has looked at."""

from typing import Any

from redrive.dead_letters.groups import store as groups
from redrive.dead_letters.groups.acknowledgements import acknowledge, unacknowledge
from redrive.dead_letters.triage import assign, dismiss, reopen
from tests.factories import claim_one, failure, let_die, make_job, make_worker
from tests.postgres import Database


def die(database: Database, group: str, queue: str = "q", kind: str = "a") -> int:
    job = make_job(database.conn, kind, queue=queue)
    worker = make_worker(database.conn)
    claimed = claim_one(database.conn, worker)
    let_die(database.conn, worker, claimed, failure=failure(fingerprint=group))
    return job


def unacknowledged(database: Database) -> dict[str, int]:
    """Return the figures of a scrape: open dead letters by queue."""
    database.rows("select redrive.fold_groups_v1()")
    database.rows("update redrive.snapshots set taken_at = '-infinity'")
    body = database.value("select redrive.stats_v1('0 s')")
    return {queue: n for queue, n, _age in body["unacknowledged"]}


def shown(database: Database, group: str) -> dict[str, Any]:
    found = groups.show(database.conn, group)
    assert found is not None
    return found


def test_a_group_is_acknowledged_until_it_has_no_open_dead_letters(
    database: Database,
) -> None:
    """`open` meant both that nobody looked and that somebody works on it."""
    first, second = die(database, "f1"), die(database, "f1")
    die(database, "f2", "pay")
    assert unacknowledged(database) == {"q": 2, "pay": 1}

    assert acknowledge(
        database.conn, ["f1", "none"], actor="ada", why="on the phone"
    ) == ["f1"]
    assert unacknowledged(database) == {"pay": 1}
    found = shown(database, "f1")
    assert (found["acknowledged_by"], found["acknowledged_why"]) == (
        "ada",
        "on the phone",
    )
    third = die(database, "f1")
    assert unacknowledged(database) == {"pay": 1}

    dismiss(database.conn, [first, second, third], why="no", actor="ada")
    assert unacknowledged(database) == {"pay": 1}
    assert acknowledge(database.conn, ["f1"], actor="ada", why="closed") == []
    reopen(database.conn, [first], why="yes", actor="ada")
    assert unacknowledged(database) == {"q": 1, "pay": 1}
    assert shown(database, "f1")["acknowledged_by"] is None


def test_an_acknowledgement_is_taken_back_and_given_again(database: Database) -> None:
    """It works before the counts are folded, too."""
    die(database, "f1")
    acknowledge(database.conn, ["f1"], actor="ada", why="mine")
    unacknowledge(database.conn, ["f1"], actor="ada", why="ill")
    assert unacknowledged(database) == {"q": 1}
    acknowledge(database.conn, ["f1"], actor="bo", why="for ada")
    assert shown(database, "f1")["acknowledged_by"] == "bo"
    assert unacknowledged(database) == {}


def test_figures_name_the_newest_group_of_each_queue_that_nobody_acknowledged(
    database: Database,
) -> None:
    for group in ("f1", "f2"):
        die(database, group)
        unacknowledged(database)
    die(database, "f3", "pay")
    acknowledge(database.conn, ["f3"], actor="ada", why="mine")

    unacknowledged(database)
    body = database.value("select redrive.stats_v1('1 h')")

    assert [row[:3] for row in body["newest_groups"]] == [["q", "a", "f2"]]


def test_to_assign_dead_letters_acknowledges_their_groups(database: Database) -> None:
    """One word for both: an assigned dead letter has somebody who works on it."""
    one, another = die(database, "f1"), die(database, "f2")
    acknowledge(database.conn, ["f2"], actor="ada", why="mine")
    assign(database.conn, [one, another], "bo", why="knows it", actor="olaf")
    assert shown(database, "f1")["acknowledged_by"] == "bo"
    assert shown(database, "f2")["acknowledged_by"] == "ada", "she was there first"
    assign(database.conn, [one], "", why="nobody", actor="olaf")
    assert shown(database, "f1")["acknowledged_by"] == "bo"


def test_groups_are_chosen_by_owner_and_by_acknowledgement(database: Database) -> None:
    die(database, "f1", "pay")
    die(database, "f2", "mail")
    acknowledge(database.conn, ["f2"], actor="ada", why="mine")
    database.rows("select redrive.set_owner_v1('pay', '*', 'money', null, 'a', 'b')")

    def found(**wanted: Any) -> list[str]:
        return [row["group"] for row in groups.find(database.conn, **wanted)]

    assert found(owner="money") == ["f1"]
    assert found(owner="nobody") == []
    assert found(unacknowledged=True) == ["f1"]
    assert sorted(found()) == ["f1", "f2"]
    assert shown(database, "f2")["owner"] is None


def test_an_acknowledgement_locks_no_other_group(database: Database) -> None:
    """Without this, fold_groups would leave the deltas of all groups."""
    for group in ("f1", "f2"):
        die(database, group)
    database.rows("select redrive.fold_groups_v1()")
    other = database.connect()

    with database.conn.transaction():
        acknowledge(database.conn, ["f1"], actor="ada", why="w")
        free = other.execute(
            "select fingerprint from redrive.groups for no key update skip locked"
        ).fetchall()

    assert [row[0] for row in free] == ["f2"]
