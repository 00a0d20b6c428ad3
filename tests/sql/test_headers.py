"""The SQL files themselves: each says what it is, and every function is closed to all but those it
is granted to.
"""

import re
from pathlib import Path

from psycopg.sql import SQL

from redrive.database.schema.migrate import functions, migrations
from tests.postgres import Database

FOLDER = Path(__file__).parents[2] / "sql" / "functions"
FILES = list(functions().items())
DEFINES = re.compile(r"create or replace (?:function|view) redrive\.(\w+)")
PURE = {"payload_fault", "person_v1"}
"""Reads nothing but its argument, and is asked by functions whose search_path is pinned."""
RUN_AS_CALLER = {"end_left_open_v1", "reads_texts_v1"}
"""Does only what its caller may: Postgres lets a role end its own backends, and tells everybody
what a role may read.
"""
INLINED = {
    "content_digest_v1",
    "delivery_mark_v1",
    "given_jobs_v1",
    "handles_v1",
    "held_until_v1",
    "unfit_headers_v1",
    "holds_v1",
    "is_alive_v1",
    "job_place_v1",
    "job_state_v1",
    "lane_mark_v2",
    "limit_of_v1",
    "limits_of_v1",
    "names_in_v1",
    "next_at_v1",
    "pace_v1",
    "recent_losses_v1",
    "redrive_obstacle_v2",
    "series_hour_v1",
    "tokens_v1",
    "unique_fault_v1",
    "unique_key_v1",
    "wake_slot_v1",
}
"""Becomes a part of the statement that asks; with settings or other rights it could not."""
UNVERSIONED = {
    "enqueue",  # part of the interface
    "payload_fault",  # pure
    "chain_audit",  # a trigger, like these
    *(
        "admit",
        "park_behind_key",
        "count_buried",
        "count_moved",
        "count_purged",
        "track_open",
    ),  # triggers
    "replace_waiting",  # one more
    # views: a pod names the columns that it reads, and these only gain columns at their end
    *("totals", "grouped", "shown_breakers", "shown_campaigns", "shown_queues"),
}

OURS = "p.pronamespace = 'redrive'::regnamespace"


def test_a_function_file_begins_by_saying_what_it_is() -> None:
    """`-- name: what it does`."""
    assert [name for name, text in FILES if not re.match(rf"-- {name}: \S", text)] == []


def test_a_file_defines_the_one_verb_that_it_is_named_after() -> None:
    """In one version or several: versions that older pods call stay beside the newest."""
    defined = {
        name: {re.sub(r"_v\d+$", "", d) for d in DEFINES.findall(t)}
        for name, t in FILES
    }

    assert {name: verbs for name, verbs in defined.items() if verbs != {name}} == {}


def test_no_two_files_have_the_same_name() -> None:
    """They would stand for one another, whatever their folders."""
    found = [file.stem for file in FOLDER.rglob("*.sql")]

    assert sorted(found) == sorted(functions())


def test_what_may_run_beside_an_older_pod_carries_its_version() -> None:
    defined = {d for _, text in FILES for d in DEFINES.findall(text)}

    assert {d for d in defined if not re.search(r"_v\d+$", d)} == UNVERSIONED


def test_no_name_is_defined_twice() -> None:
    defined = [d for _, text in FILES for d in DEFINES.findall(text)]

    assert sorted(defined) == sorted(set(defined))


def test_every_body_is_sound_once_all_are_there(database: Database) -> None:
    """They are applied without this check, by name, in any order of calls."""
    assert database.value("show check_function_bodies") == "on"
    database.rows("set role redrive_owner")
    for _, text in FILES:
        database.rows(text)  # type: ignore[arg-type] # our own files


def test_the_columns_of_a_dead_letter_stand_in_one_place() -> None:
    """The counters of a job that comes back are in another, of other systems in a third."""
    found = {
        name: re.findall(r"insert into redrive\.(jobs|dead_letters)\b", t)
        for name, t in FILES
    }

    assert {name: tables for name, tables in found.items() if tables} == {
        "enqueue": ["jobs"],
        "give_up": ["dead_letters"],  # of jobs that no worker has
        "enqueue_many": ["jobs", "jobs"],  # with keys that may be taken, and without
        "import": ["dead_letters"],  # of jobs that never were here
        "redrive": ["jobs"],
        "settle": ["dead_letters"],
    }


def test_a_file_can_be_sent_with_parameters_too() -> None:
    """A per cent sign in a comment is a placeholder to psycopg."""
    for text in [text for _, text in FILES] + [m.text for m in migrations()]:
        for line in text.splitlines():
            assert "%" not in line.partition("--")[2], line
        assert SQL(text)  # type: ignore[arg-type] # our own files


def test_migrations_are_numbered_without_a_gap() -> None:
    assert [m.version for m in migrations()] == list(range(1, len(migrations()) + 1))


def test_a_plan_names_an_index_that_exists(database: Database) -> None:
    named = {
        i
        for _, text in FILES
        for line in re.findall(r"^-- plan:(.*)$", text, re.MULTILINE)
        for i in re.findall(r"\w+_(?:idx|pkey)", line)
    }

    assert named
    assert named <= set(
        database.column(
            "select indexname::text from pg_indexes where schemaname = 'redrive'"
        )
    )


def test_every_function_runs_as_its_owner_with_a_pinned_search_path(
    database: Database,
) -> None:
    rows = database.rows(
        # a constant
        f"select p.proname, p.prosecdef, p.proconfig from pg_proc p where {OURS} order by 1"
    )

    assert rows
    for name, runs_as_owner, settings in rows:
        if name in PURE | INLINED:
            continue
        assert runs_as_owner != (name in RUN_AS_CALLER), name
        assert "search_path=pg_catalog, pg_temp" in (settings or []), name


def test_a_pure_function_reads_no_table(database: Database) -> None:
    for name in PURE:
        volatility, text = database.row(
            "select provolatile, prosrc from pg_proc where proname = %s", name
        )

        assert volatility in {b"i", "i"}
        assert "redrive." not in text


def test_what_is_inlined_takes_no_name_from_a_search_path(database: Database) -> None:
    """A body that Postgres has parsed, and not a text that it reads at each call."""
    for name in INLINED:
        assert database.row(
            "select prosecdef, proconfig, prosqlbody is not null from pg_proc where proname = %s",
            name,
        ) == (False, None, True)


def test_everything_belongs_to_a_role_that_cannot_log_in(database: Database) -> None:
    owners = database.rows(
        "select distinct r.rolname, r.rolcanlogin, r.rolsuper from pg_roles r join ("
        " select proowner from pg_proc where pronamespace = 'redrive'::regnamespace"
        " union select relowner from pg_class where relnamespace = 'redrive'::regnamespace"
        " union select nspowner from pg_namespace where nspname = 'redrive') o(owner)"
        " on o.owner = r.oid"
    )

    assert owners == [("redrive_owner", False, False)]


def test_nobody_gets_execute_by_default(database: Database) -> None:
    rows = database.column(
        "select p.proname::text from pg_proc p, lateral aclexplode(coalesce(p.proacl,"
        " acldefault('f', p.proowner))) a"
        f" where {OURS} and a.grantee = 0"
    )

    assert rows == []


def test_a_function_added_later_is_closed_as_well(database: Database) -> None:
    database.rows("set role redrive_owner")
    database.rows("create function redrive.later() returns int language sql return 1")
    database.rows("reset role")

    assert not database.value(
        "select has_function_privilege('redrive_viewer', 'redrive.later()', 'execute')"
    )


def test_no_sql_is_put_together_from_data() -> None:
    for name, text in FILES:
        if name == "turn_history":
            continue  # names of partitions, of days by the server's clock
        assert not re.search(r"\bexecute\s+(?:format|'|\w+\s*\|\|)", text), name


def test_every_table_and_function_of_ours_is_named_with_its_schema(
    database: Database,
) -> None:
    ours = database.column(
        "select relname::text from pg_class where relnamespace = 'redrive'::regnamespace"
        " and relkind in ('r', 'v', 'p')"
    )
    bare = re.compile(rf"\b(?:from|join|into|update)\s+(?:{'|'.join(ours)})\b")
    code = {
        name: "\n".join(line.partition("--")[0] for line in text.splitlines())
        for name, text in FILES
    }

    assert {
        name: found for name, text in code.items() if (found := bare.findall(text))
    } == {}
