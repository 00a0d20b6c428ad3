"""redrive dlq import: what it shows, what it refuses, and what it leaves behind."""

import base64
import json
from typing import Any

import pytest

from redrive.dead_letters.imports.store import CHUNK
from tests.cli.conftest import Redrive
from tests.postgres import Database

IMPORT = ("dlq", "import", "-", "--source", "sqs")
YES = ("--yes", "--why", "we move")
CANARY = "Zx9-canary-77"
KEYS = f"k1 {base64.b64encode(bytes(32)).decode()}"


def lines(*letters: dict[str, Any]) -> str:
    made = (
        {"kind": "mail.send", "payload": {"to": n}, **o} for n, o in enumerate(letters)
    )
    return "\n".join(map(json.dumps, made))


def count(database: Database) -> int:
    return database.value("select count(*) from redrive.dead_letters")


def test_it_shows_first_what_would_come_in(redrive: Redrive, database: Database):
    redrive(*IMPORT, *YES, stdin=lines({"source_id": "1"}))
    letters = lines(
        {"source_id": "1"},
        *({"message": f"no customer {n}"} for n in range(3)),
        {"kind": "mail.read"},
    )
    shown = redrive(*IMPORT, stdin=letters)
    as_json = redrive(*IMPORT, "--dry-run", "--yes", "--json", stdin=letters)

    assert (shown.code, shown.err) == (0, "")
    said = shown.out.splitlines()
    assert said[0] == "5 dead letters of 2 kinds in 3 groups, 1 imported before"
    assert said[-1] == "nothing was changed; add --yes to do it"
    assert "3" in said[4]
    assert "no customer 0" in said[4]
    assert as_json.json == {"matched": 5, "imported": 0, "skipped": 1}
    assert count(database) == 1


def test_a_bad_line_is_named_and_keeps_its_chunk_out(
    redrive: Redrive, database: Database
):
    good = [{} for _ in range(CHUNK + 7)]
    said = redrive(*IMPORT, *YES, stdin=lines(*good, {"died_at": "once"}))

    assert said.code == 64
    assert said.err.splitlines() == [
        f"{CHUNK} imported before this chunk",
        f"redrive: line {CHUNK + 8}.died_at: write 2026-03-01T12:00Z, or seconds since 1970",
    ]
    assert count(database) == CHUNK


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "line 1: must be an object with at least a kind"),
        ('\n{"kind"', "line 2: is not valid JSON: "),
        ('{"kind": "a", "payload": []}', "line 1.payload: must be an object, not list"),
        (
            '{"kind": "a", "messages": ""}',
            "line 1.messages: unknown field; did you mean 'message'?",
        ),
    ],
)
def test_what_is_no_dead_letter_is_refused(redrive: Redrive, text: str, said: str):
    ran = redrive(*IMPORT, stdin=text)

    assert ran.code == 64
    assert f"redrive: {said}" in ran.err


def test_it_says_what_is_missing(redrive: Redrive):
    assert "--why is missing" in redrive(*IMPORT, "--yes", stdin=lines({})).err
    assert "Missing option '--source'" in redrive("dlq", "import", "-").err
    assert (
        "--source: must have 1 to 255"
        in redrive("dlq", "import", "-", "--source", "").err
    )


def test_what_has_no_id_comes_once_all_the_same(redrive: Redrive, database: Database):
    """By its content; of two that are the same, both."""
    letters = lines({"payload": {"a": 1}}, {"payload": {"a": 1}}, {"payload": {"a": 2}})
    first = redrive(*IMPORT, *YES, stdin=letters)
    again = redrive(*IMPORT, *YES, stdin=letters + "\n" + lines({"payload": {"a": 3}}))

    assert first.out == "3 imported\n"
    assert again.out == "1 imported, 3 imported before\n"
    assert count(database) == 4
    assert not redrive("dlq", "show", "1", "--json").json["headers"].keys() - {"source"}


def test_they_are_found_by_where_they_come_from(redrive: Redrive, database: Database):
    redrive(*IMPORT, *YES, stdin=lines({"source_id": "m-1"}, {}))
    others = ("dlq", "import", "-", "--source", "sidekiq", *YES)
    redrive(*others, stdin=lines({"source_id": "m-1"}))
    found = redrive("dlq", "ls", "--json", "--where", "headers.source=sidekiq").json
    shown = redrive("dlq", "show", str(found["id"])).out

    assert "on sidekiq" in shown
    assert "NotRecorded: sidekiq kept no message" in shown
    line = redrive("audit", "ls", "--json").lines[0]
    assert (line["actor"], line["action"], line["why"], line["n"]) == (
        *("tester", "import", "we move", 1),
    )
    assert line["detail"] == {"source": "sidekiq", "ids": [found["id"]]}


def test_with_keys_the_database_can_read_nothing_of_them(
    redrive: Redrive, database: Database
):
    letters = lines(
        {"payload": {"to": CANARY}, "message": f"no customer {CANARY}"}
        | {"stack": f'File "/srv/{CANARY}.py", line 3, in send'}
    )
    redrive(*IMPORT, *YES, stdin=letters, REDRIVE_ENCRYPTION_KEYS=KEYS)
    stored = [
        str(database.rows(f"select to_jsonb(t) from redrive.{table} t"))  # type: ignore[arg-type]
        for table in ("dead_letters", "failures", "imports", "group_deltas", "audit")
    ]
    (letter,) = redrive("dlq", "ls", "--json", REDRIVE_ENCRYPTION_KEYS=KEYS).lines
    job = str(letter["id"])
    shown = redrive("dlq", "show", job, "--json", REDRIVE_ENCRYPTION_KEYS=KEYS).json

    assert CANARY not in "".join(stored)
    assert not database.value(
        "select count(*) from redrive.imports where source_id ~ '^[0-9a-f]+-'"
    )
    assert letter["message"] == f"no customer {CANARY}"
    assert shown["payload"] == {"to": CANARY}
    assert shown["failures"][0]["detail"]["stack"][0]["function"] == "send"
    again = redrive(
        *IMPORT, *YES, "--json", stdin=letters, REDRIVE_ENCRYPTION_KEYS=KEYS
    )
    assert again.json == {"matched": 1, "imported": 0, "skipped": 1}


def test_no_secret_of_theirs_is_shown(redrive: Redrive, database: Database):
    secret = "hunter2-and-more"
    letter = {"payload": {"password": secret}, "message": f"login failed with {secret}"}
    preview = redrive(*IMPORT, stdin=lines(letter))
    redrive(*IMPORT, *YES, stdin=lines(letter))
    shown = redrive("dlq", "show", "1")
    listed = redrive("dlq", "ls", "--json")

    for ran in (preview, shown, listed):
        assert secret not in ran.out + ran.err
        assert "[redacted]" in ran.out
