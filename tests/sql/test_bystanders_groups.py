"""What is counted, muted or healed of one group is so of no other: see bystanders."""

import json
from typing import Any

from redrive.worker import store
from tests.factories import make_campaign, make_dead_letter, make_dead_letters
from tests.postgres import Database
from tests.sql.bystanders import changed, touched
from tests.sql.test_bystanders_limits import hasty, holding

FOLD = "select moved from redrive.fold_groups_v1()"
HEAL = "select redrive.heal_v1(5, 0.1)"
MUTE = "select redrive.mute_v1('one', now() + interval '1 h', 'ada', 'x')"


def deltas(database: Database, *fingerprints: str, each: int = 1) -> None:
    """Deaths that have not been added up."""
    database.rows(
        "insert into redrive.group_deltas (fingerprint, kind, category, error_class, message,"
        " sample, added, opened) select f, 'a', 'bug', 'E', 'm', 1, 1, 1"
        " from unnest(%s::text[]) f, generate_series(1, %s)",
        list(fingerprints),
        each,
    )


def test_what_is_open_of_a_group_is_what_is_open(database: Database) -> None:
    """Whatever happens to other groups; and a death is reported once."""
    ids = make_dead_letters(database.conn, 4)
    opened = "select open from redrive.grouped"
    assert database.value("select count(*) from redrive.group_deltas") == 1
    database.rows("select redrive.dismiss_v1(%s, 'ada', 'x')", ids[:2])
    database.rows("update redrive.dead_letters set owner = 'ada'")
    assert database.value(opened) == 2
    database.rows("select redrive.reopen_v1(%s, 'ada', 'x')", ids[:1])
    assert database.value(opened) == 3
    database.rows("delete from redrive.dead_letters where id = %s", ids[1])

    assert database.value(opened) == 3


def test_groups_are_added_up_by_one_of_all(database: Database) -> None:
    deltas(database, "one")
    database.rows("update redrive.chores set place = 1 where name = 'fold_groups'")
    holding(database, "chores", name="fold_groups")
    quick = hasty(database)

    assert touched(database, lambda: quick.rows(FOLD)) == set()


def test_a_step_adds_up_a_part_of_the_table_from_its_own_place(
    database: Database,
) -> None:
    """Where other chores have their times; and where there is nothing it writes nothing."""
    written = "select xmin::text from redrive.chores where name = 'fold_groups'"
    before = database.value(written)
    assert database.value(FOLD) == 0
    assert database.value(written) == before
    deltas(database, "one", each=9000)
    database.rows("update redrive.chores set place = 1 where name <> 'fold_groups'")
    rows = touched(database, lambda: database.rows(FOLD))

    assert rows == {("group_deltas", None, None), ("chores", "fold_groups", None)}
    first = "select min((ctid::text::point)[0]) from redrive.group_deltas"
    assert database.value(first) == 64
    rows = touched(database, lambda: database.rows(FOLD))
    assert {name for table, name, _ in rows if table == "chores"} == {"fold_groups"}
    assert database.rows("select total, versions from redrive.groups") == [(9000, {})]


def test_a_group_is_muted_alone(database: Database) -> None:
    """Added up already or not, beside one that is older."""
    muted = "select fingerprint from redrive.grouped where muted_until is not null"
    for _ in range(2):
        deltas(database, "older")
        deltas(database, "one")
        database.rows(MUTE)
        assert database.column(
            "select distinct fingerprint from redrive.groups where open = 0"
            " or muted_until is not null"
        ) == ["one"]
        assert database.column(muted) == ["one"]
        database.rows(FOLD)


# Heal


def runs(database: Database, version: str, *kinds: str, lost: bool = False) -> None:
    """A worker of a version, with handlers for these kinds; one that is lost."""
    worker = store.register(
        database.conn, store.Registration("w", version, 30.0, list(kinds), None)
    )
    if lost:
        database.rows(
            "update redrive.workers set lost_at = now() where id = %s", worker
        )


def heals(
    database: Database, kind: str, version: str, days: int = 1, **more: Any
) -> None:
    """What a version said that number of days ago."""
    database.rows(
        "insert into redrive.heals (kind, version, canaries, first_at, ended_at)"
        " values (%s, %s, 1, now() - %s * interval '1 d', %s)",
        kind,
        version,
        days,
        more.get("ended_at"),
    )


def group(database: Database, fingerprint: str, kind: str, **more: Any) -> None:
    """A group of bugs that is known for long."""
    given = {"category": "bug", "open": 1} | more
    database.rows(
        "insert into redrive.groups (fingerprint, kind, category, error_class, message, sample,"
        " total, open, first_seen, last_seen)"
        " values (%s, %s, %s, 'E', 'm', 1, 1, %s, now() - interval '99 d', now())",
        fingerprint,
        kind,
        *given.values(),
    )


def campaign(database: Database, **columns: Any) -> int:
    """One of heal's, over the group `one` of the kind `a`, for version 1; or another one."""
    id_ = make_campaign(database.conn)
    given = {
        "state": "waiting",
        "planned_by": "heal",
        "planned_login": "worker",
        "filter": json.dumps({"group": "one", "kind": ["a"]}),
        "conditions": json.dumps({"version": "===1"}),
    } | columns
    for column, value in given.items():
        update: Any = f"update redrive.campaigns set {column} = %s where id = %s"
        database.rows(update, value, id_)
    return id_


def kinds_of(rows: list[tuple[str, dict[str, Any]]]) -> set[tuple[str, str]]:
    return {(row["kind"], row["version"]) for table, row in rows if table == "heals"}


def test_why_a_group_is_not_healed_is_its_own_reason(database: Database) -> None:
    """Not that of another kind, a lost worker, or a campaign of somebody else, or of another group,
    or one that goes on.
    """
    group(database, "one", "a")
    group(database, "two", "b")
    group(database, "three", "c")
    group(database, "passes", "a", category="transient")
    group(database, "none", "a", open=0)
    for kind in "abc":
        heals(database, kind, "2")
    runs(database, "2", "a", "b")
    runs(database, "1", "a", lost=True)
    runs(database, "1", "b")
    runs(database, "2", "c", lost=True)
    runs(database, "3", "c")
    database.rows("select redrive.say_approvals_v1('{b}', '{b}')")
    campaign(database, state="paused", planned_by="ada")
    campaign(database, state="paused", filter=json.dumps({"group": "two"}))
    campaign(database, state="done")

    query = "select fingerprint, cause from redrive.healing_v1(%s) order by 1"
    assert database.rows(query, ["a"]) == [("one", None)]
    assert database.rows(query, None) == [
        ("one", None),
        ("three", "no_policy"),
        ("two", "approval"),
    ]


def test_a_kind_is_healed_where_its_new_version_runs_alone(database: Database) -> None:
    """Not one that had its turn, whose version nobody runs, or others run too, nor with a version
    that is yet to come; and where nothing can be tried nothing is left of it.
    """
    heals(database, "done", "2", 9, ended_at="now")
    heals(database, "gone", "2", 8)
    heals(database, "rolls", "2", 7)
    heals(database, "a", "2", 6)
    heals(database, "a", "3", 5)
    runs(database, "2", "done", "rolls", "a")
    runs(database, "2", "gone", lost=True)
    runs(database, "1", "rolls")
    runs(database, "1", "a", lost=True)
    group(database, "one", "a")
    make_dead_letter(database.conn, "other")
    paused = campaign(database, state="paused", filter=json.dumps({"group": "two"}))
    database.rows("insert into redrive.campaign_jobs values (%s, 1, 1, 0)", paused)
    quick = hasty(database)
    healing = database.transaction("select from redrive.heals for update")
    assert touched(database, lambda: quick.rows(HEAL)) == set()
    healing.rows("commit")

    for _ in range(2):  # the group, and that there is no other
        rows = changed(database, lambda: database.rows(HEAL))
        assert [(table, row["kind"], row["version"]) for table, row in rows] == [
            ("heals", "a", "2")
        ]
    assert touched(database, lambda: database.rows(HEAL)) == set()
    assert database.column("select id from redrive.campaigns") == [paused]


def test_what_an_older_version_had_to_try_is_over_alone(database: Database) -> None:
    """Not of another kind, nor what a newer one has, is over, or was stopped by somebody."""
    heals(database, "a", "1", 9)
    heals(database, "a", "0", 9, ended_at="2026-01-01")
    heals(database, "a", "3", 0)
    heals(database, "b", "1", 9)
    one = campaign(database)
    campaign(database, state="paused")
    campaign(database, planned_login=None)
    campaign(database, planned_by="ada")
    campaign(database, filter=json.dumps({"kind": ["b"]}))
    campaign(database, conditions=json.dumps({"version": "===2"}))
    supersede = "select redrive.supersede_heals_v1('a', '2', now() - interval '1 h')"
    rows = changed(database, lambda: database.rows(supersede))

    assert kinds_of(rows) == {("a", "1")}
    assert [row["id"] for table, row in rows if table == "campaigns"] == [one]


def test_a_version_that_nobody_runs_is_forgotten_alone(database: Database) -> None:
    """Not before its time, nor one that somebody runs, or that says now what it does."""
    for version, days in (
        ("old", 91),
        ("lost", 91),
        ("young", 10),
        ("runs", 91),
        ("now", 91),
    ):
        heals(database, "a", version, days)
    heals(database, "b", "now")
    runs(database, "runs", "a")
    runs(database, "lost", "a", lost=True)
    said = {"b": {"canaries": 1}}
    written = "select xmin::text from redrive.heals where kind = 'b'"
    before = database.value(written)
    rows = changed(
        database,
        lambda: database.rows(
            "select redrive.say_heals_v1('now', %s)", json.dumps(said)
        ),
    )

    assert kinds_of(rows) == {("a", "old"), ("a", "lost")}
    assert database.value(written) == before, "it says the same"
