"""No stored value ends a command that reads it. Old rows may hold what no door lets in now."""

import base64
from pathlib import Path

import pytest

from tests.cli.conftest import Redrive
from tests.factories import make_dead_letter
from tests.postgres import Database

DEEP = '{"n": ' + "[" * 3900 + "]" * 3900 + "}"
HEADERS = {
    "long": '{"n": 1e8000}',
    "deep": DEEP,
    "both": '{"n": 1e4400, "m": ' + "[" * 1800 + "]" * 1800 + "}",
    "written": '{"n": ' + "[" * 500 + "]" * 500 + "}",
}


@pytest.fixture(params=HEADERS)
def letters(request: pytest.FixtureRequest, database: Database) -> list[int]:
    """Two dead letters; the headers of the first cannot be read."""
    found = [make_dead_letter(database.conn, payload={"n": n}) for n in range(2)]
    database.rows(
        "update redrive.dead_letters set headers = %s where id = %s",
        HEADERS[request.param],
        found[0],
    )
    return found


def test_headers_that_python_cannot_read_end_no_command(
    redrive: Redrive, letters: list[int]
) -> None:
    job = str(letters[0])
    patch = '[{"op": "replace", "path": "/n", "value": 7}]'
    for command in (
        ("dlq", "show", job),
        ("dlq", "show", job, "--json"),
        ("dlq", "export", job),
        ("dlq", "ls", "--json"),
        ("job", "show", job, "--json"),
        (
            *("dlq", "edit", "--kind", "invoice.charge", "--patch", patch),
            *("--yes", "--why", "a test"),
        ),
        ("dlq", "redrive", "--all", "--yes", "--canaries", "0", "--why", "a test"),
        ("job", "show", job),
    ):
        ran = redrive(*command)
        assert (ran.code, "Traceback" in ran.err) == (0, False), (command, ran.err)


def test_headers_that_python_cannot_read_stop_no_rotation_of_keys(
    redrive: Redrive, database: Database, letters: list[int], tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.touch(0o600)
    file.write_text(f"new {base64.b64encode(bytes(32)).decode()}\n")

    ran = redrive("reencrypt", "--json", REDRIVE_ENCRYPTION_KEYS_FILE=str(file))

    assert ran.code == 0, ran.err
    assert ran.json["unreadable"] == 0
    sealed = database.column(
        "select payload -> '$redrive' ->> 'k' from redrive.dead_letters order by id"
    )
    assert sealed == ["new"] * len(letters)
