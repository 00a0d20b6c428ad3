"""redrive audit: who changed what, and whether the log is as it was written."""

import json

import pytest

from tests.cli.conftest import Redrive
from tests.postgres import Database


@pytest.fixture
def acted(redrive: Redrive, database: Database) -> Database:
    """A database in which two people did something."""
    redrive(
        "queue",
        "pause",
        "mail",
        "--create",
        "--why",
        "the relay is down",
        "--yes",
        REDRIVE_ACTOR="ada",
    )
    redrive(
        "queue", "resume", "mail", "--why", "it is back", "--yes", REDRIVE_ACTOR="bo"
    )
    return database


def test_the_audit_shows_who_they_said_they_are_and_who_was_logged_in(
    redrive: Redrive, acted: Database
) -> None:
    """Who acted in the database is shown, too: `db_user`."""
    lines = [
        json.loads(line) for line in redrive("audit", "ls", "--json").out.splitlines()
    ]

    assert [
        (one["id"], one["actor"], one["login"], one["action"]) for one in lines
    ] == [(2, "bo", "postgres", "resume"), (1, "ada", "postgres", "pause")]
    assert (lines[1]["why"], lines[1]["n"]) == ("the relay is down", 1)
    assert lines[1]["detail"] == {"queue": "mail"}
    shown = redrive("audit", "ls").out
    assert "the relay is down" in shown
    assert "postgres" in shown


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        (("--actor", "ada"), [1]),
        (("--login", "nobody"), []),
        (("--action", "resume"), [2]),
        (("--since", "1h"), [2, 1]),
        (("--until", "1h"), []),
        (("--limit", "1"), [2]),
    ],
)
def test_lines_are_chosen(
    redrive: Redrive, acted: Database, options: tuple[str, ...], ids: list[int]
) -> None:
    done = redrive("audit", "ls", "--json", *options)

    assert [json.loads(line)["id"] for line in done.out.splitlines()] == ids


def test_an_export_has_the_seals_the_oldest_first(
    redrive: Redrive, acted: Database
) -> None:
    lines = [json.loads(line) for line in redrive("audit", "export").out.splitlines()]

    assert [one["id"] for one in lines] == [1, 2]
    assert [one["hash"] for one in lines] == acted.column(
        "select encode(hash, 'hex') from redrive.audit order by id"
    )


def test_a_tampered_log_shows_in_verify_and_in_check(
    redrive: Redrive, acted: Database
) -> None:
    """A chain of hashes over the lines, for tampering by a superuser."""
    good = redrive("audit", "verify", "--json").json
    check_before = redrive("check", "--json").out
    acted.rows("update redrive.audit set actor = 'bo' where id = 1")
    bad, check_after = redrive("audit", "verify"), redrive("check", "--json")

    assert (good["ok"], good["lines"], good["line"], good["fault"]) == (
        True,
        2,
        2,
        None,
    )
    assert '"check":"audit","ok":true' in check_before
    assert (bad.code, bad.out) == (1, "line 1 or the line before it was changed\n")
    assert check_after.code == 1
    assert '"check":"audit","ok":false' in check_after.out


def test_a_log_that_was_written_anew_shows_by_a_seal_that_was_kept(
    redrive: Redrive, acted: Database
) -> None:
    """What a chain alone cannot show."""
    seal = acted.value(
        "select id || ':' || encode(hash, 'hex') from redrive.audit where id = 2"
    )
    assert redrive("audit", "verify", "--known", seal).code == 0
    acted.rows(
        "update redrive.audit set actor = 'eve' where id = 1;"
        "do $$ declare line redrive.audit; seal bytea := sha256(''); begin"
        " for line in select * from redrive.audit order by id loop"
        "  seal := redrive.audit_hash_v1(seal, line);"
        "  update redrive.audit set hash = seal where id = line.id;"
        " end loop; update redrive.audit_chain set hash = seal; end $$"
    )

    assert redrive("audit", "verify").code == 0
    done = redrive("audit", "verify", "--known", seal)
    assert (done.code, done.out) == (
        1,
        "line 2 has another seal: the log was rewritten\n",
    )
    assert redrive("audit", "verify", "--known", "nonsense").code == 64


def test_what_is_foreign_shows_in_check(redrive: Redrive, database: Database) -> None:
    """An object that somebody else put beside ours."""
    database.rows(
        "do $$ begin create role redrive_nobody nologin;"
        " exception when duplicate_object or unique_violation then null; end $$"
    )
    database.rows("create table redrive.extra ()")
    database.rows("alter table redrive.extra owner to redrive_nobody")
    done = redrive("check")

    assert done.code == 1
    assert "table redrive.extra belongs to redrive_nobody" in done.out
