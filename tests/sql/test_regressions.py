"""Resolved groups, beside other sessions: see trials/rollouts for many random ones."""

from typing import LiteralString

from redrive.dead_letters.groups import store as groups
from redrive.observability.stats import DatabaseStats
from redrive.worker import store
from tests.factories import claim_one, failure, let_next_die, make_job, silence
from tests.postgres import Connection, Database
from trials.rollouts.rollouts import settle

FOLD: LiteralString = "select moved from redrive.fold_groups_v1()"


def _worker(conn: Connection, version: str) -> int:
    said = store.Registration("w", version, 3600.0, ["*"], None)
    return store.register(conn, said)


def _dies(conn: Connection, version: str, fingerprint: str = "f1") -> None:
    make_job(conn)
    worker = _worker(conn, version)
    record = failure(fingerprint=fingerprint)
    let_next_die(conn, worker, failure=record)


def _resolve(conn: Connection, *versions: str, group: str = "f1") -> None:
    done = groups.resolve(conn, group, versions, actor="ada", why="fixed")
    assert done == list(versions)


def _state(database: Database, group: str = "f1") -> tuple[str, dict[str, int]]:
    found = groups.show(database.conn, group)
    assert found is not None
    return found["state"], found["since"]


def _count(database: Database, event: str) -> int:
    return database.value(
        "select coalesce(sum(n), 0)::int from redrive.totals where event = %s", event
    )


def test_a_group_is_resolved_before_its_deaths_are_folded(database: Database) -> None:
    _dies(database.conn, "1.4.1")
    _resolve(database.conn, "1.4.2")
    assert _state(database) == ("resolved", {})
    _dies(database.conn, "1.4.1")
    assert _state(database) == ("resolved", {"1.4.1": 1})
    settle(database.conn)

    assert _state(database) == ("resolved", {"1.4.1": 1})


def test_a_death_that_commits_after_the_resolve_counts(database: Database) -> None:
    """The resolve could not see it, so it has to show afterwards."""
    _dies(database.conn, "1.4.1")
    late = database.connect()
    late.execute("begin")
    _dies(late, "1.4.2")
    _resolve(database.conn, "1.4.2")
    late.execute("commit")
    settle(database.conn)

    assert _state(database) == ("regressed", {"1.4.2": 1})
    assert _count(database, "regressed") == 1


def test_a_death_between_the_look_and_the_resolve_is_found(database: Database) -> None:
    _dies(database.conn, "1.4.1")
    seen = ["1.4.1"]
    _dies(database.conn, "1.4.2")
    resolve: LiteralString = (
        "select redrive.resolve_v1('f1', '{1.4.2}', %s, 'ada', 'x')"
    )

    assert database.value(resolve, seen) == "changed"
    database.rows(FOLD)
    assert database.value(resolve, seen) == "changed"
    assert _state(database) == ("open", {})
    assert database.value("select count(*) from redrive.audit") == 0


def test_a_judgement_of_what_has_changed_since_is_not_kept(database: Database) -> None:
    """The fix or the deaths may change between the look and the judgement."""
    _dies(database.conn, "1.4.1")
    _resolve(database.conn, "1.4.2")
    _dies(database.conn, "1.4.2")
    database.rows(FOLD)
    judge: LiteralString = "select redrive.judge_v1('f1', %s, %s, '1.4.2')"
    (row,) = database.rows(
        "select resolved_at, since::text from redrive.unjudged_v1(9)"
    )
    _dies(database.conn, "1.4.1")
    database.rows(FOLD)
    assert database.value(judge, *row) is False
    _resolve(database.conn, "1.4.3")
    _dies(database.conn, "1.4.2")
    database.rows(FOLD)

    assert database.value(judge, *row) is False
    settle(database.conn)
    assert _state(database) == ("resolved", {"1.4.2": 1})


def test_a_regression_shows_though_its_dead_letter_is_closed_at_once(
    database: Database,
) -> None:
    """The delta of a move must not hide the death that was folded before it."""
    _dies(database.conn, "1.4.1")
    _resolve(database.conn, "1.4.2")
    _dies(database.conn, "1.4.2")
    database.rows(FOLD)
    database.rows(
        "select redrive.dismiss_v1(array(select id from redrive.dead_letters), 'ada', 'x')"
    )
    settle(database.conn)

    assert _state(database) == ("regressed", {"1.4.2": 1})
    found = groups.find(database.conn, state=["regressed"])
    assert [(group["group"], group["open"]) for group in found] == [("f1", 0)]


def test_a_group_that_an_operator_changes_is_judged_later(database: Database) -> None:
    for group in ("f1", "g1"):
        _dies(database.conn, "1.4.1", group)
        _resolve(database.conn, "1.4.2", group=group)
    operator = database.transaction(
        "select redrive.mute_v1('f1', now() + interval '1 h', 'ada', 'x')"
    )
    for group in ("f1", "g1"):
        _dies(database.conn, "1.4.2", group)
    database.rows(FOLD)
    groups.judge(database.conn)
    assert _state(database, "g1")[0] == "regressed"
    assert _state(database)[0] == "resolved"
    operator.rows("commit")
    settle(database.conn)

    assert _state(database)[0] == "regressed"
    assert _count(database, "regressed") == 2


def test_the_version_of_a_lost_worker_counts(database: Database) -> None:
    """It said nothing about the death of its job."""
    for version in ("1.4.1", "1.4.2"):
        make_job(database.conn)
        worker = _worker(database.conn, version)
        store.run_alone(database.conn, worker, claim_one(database.conn, worker).id)
        silence(database.conn, worker, 4000)
        store.rescue(database.conn, 60)
        if version == "1.4.1":
            _resolve(database.conn, "1.4.2", group="worker-lost")
    settle(database.conn)

    assert _state(database, "worker-lost") == ("regressed", {"1.4.2": 1})


def test_a_resolved_group_is_kept_and_a_new_one_is_counted_once(
    database: Database,
) -> None:
    """A resolved group that is forgotten would come back as a new one."""
    for group in ("f1", "g1"):
        _dies(database.conn, "1.4.1", group)
    _resolve(database.conn, "1.4.2", group="g1")
    settle(database.conn)
    assert _count(database, "new_group") == 1  # somebody knew the other one
    database.rows("delete from redrive.dead_letters")
    database.rows(FOLD)
    forget: LiteralString = "select redrive.forget_groups_v1('0', 9)"

    assert database.value(forget) == 1
    assert _state(database, "g1") == ("resolved", {})
    _dies(database.conn, "1.4.2", "g1")
    settle(database.conn)
    assert _count(database, "new_group") == 1
    stats = DatabaseStats(database.url)
    shown = {
        sample.name: sample.value
        for family in stats.collect()
        for sample in family.samples
        if sample.name.startswith("redrive_dlq_group")
    }
    stats.link.close()
    assert shown == {
        "redrive_dlq_groups_new_total": 1,
        "redrive_dlq_group_regressions_total": 1,
    }
